//! `prove`, and what the gate makes of it: finds each root an arena, has its reader attacked, and
//! loads the report into the gate of a running service.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use fsprobe::{ProbeError, Progress};

use super::{
    AppError,
    arena::{self, Arena},
    failed, overlap,
    places::Places,
};
use crate::{
    config::Config,
    gate::{Evidence, Gate, Probed, RootFacts, Standing, build_id},
    model::SystemClock,
    pinned::{Outcome, Resolver, SelfTest},
    prove::{self, Ground, Keeper, Kept, Work},
    spool::SpoolDir,
    store::layout::DataDir,
    transfer::Roots,
};

/// How roots are to be proven.
#[derive(Clone)]
pub struct Settings {
    /// How long the storm on each resolver lasts.
    pub storm: Duration,
    /// Repeats a run's order and contents; drawn when there is none.
    pub seed: Option<u64>,
    /// Whether every sound resolver is proven, or the strongest alone.
    pub resolvers: Which,
    /// Set from elsewhere to stop early.
    pub stop: Arc<AtomicBool>,
    /// Told how far it is.
    pub progress: Arc<dyn Progress + Send + Sync>,
}

/// Which resolvers are proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All that passed the self-test.
    All,
    /// The strongest that did: half the time.
    Strongest,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("storm", &self.storm)
            .field("seed", &self.seed)
            .field("resolvers", &self.resolvers)
            .finish_non_exhaustive()
    }
}

/// The roots of a configuration, each with the place where its reads are proven. Uses the data
/// directory beside whoever holds it.
#[derive(Debug)]
pub struct Proving {
    grounds: Vec<Ground>,
    keeper: Keeper,
    spools: Arc<SpoolDir>,
    spools_path: PathBuf,
    /// Last: an arena made beside a root is removed when nothing is in it any more.
    _arenas: Vec<Option<Arena>>,
}

impl Proving {
    /// Opens what the configuration names, as a server would, without the data directory's lock.
    ///
    /// # Errors
    /// As [`Opened::open`](super::Opened::open); [`AppError::ProbeUnderWay`].
    pub fn open(config: &Config) -> Result<Self, AppError> {
        let places = Places::open(config)?;
        let data = DataDir::beside(&config.data)?;
        places.apart_from(&data.dir)?;
        let homes = places.homes(config, &data.dir)?;
        let keeper = Keeper::hold(&data.dir).map_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                AppError::ProbeUnderWay
            } else {
                failed("opening the probe's key")(error)
            }
        })?;
        let theirs: Vec<&dyn AsFd> = places
            .roots
            .iter()
            .map(|held| held as &dyn AsFd)
            .chain([&data.dir as &dyn AsFd])
            .collect();
        let is_fit = |parent: &OwnedFd| -> io::Result<bool> {
            for other in &theirs {
                if overlap::is_within(parent, other.as_fd())? {
                    return Ok(false);
                }
            }
            for directory in homes.iter().flat_map(|(_, home)| home.directories()) {
                if overlap::is_within(parent, directory)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let mut grounds = Vec::with_capacity(places.roots.len());
        let mut arenas = Vec::with_capacity(places.roots.len());
        for (held, named) in places.roots.iter().zip(places.arenas) {
            let found = match named {
                Some(arena) => arena::is_same_mount(&arena.directory, held)
                    .map(|is_same| is_same.then_some(arena)),
                None => arena::beside(held.name(), held, is_fit),
            };
            let found = found.map_err(failed("finding an arena"))?;
            let arena = found.as_ref().map(|found| found.directory.try_clone());
            grounds.push(Ground {
                facts: held.facts().map_err(failed("asking a root"))?,
                arena: arena.transpose().map_err(failed("holding an arena"))?,
            });
            arenas.push(found);
        }
        Ok(Self {
            grounds,
            keeper,
            spools: data.staging,
            spools_path: data.staging_path,
            _arenas: arenas,
        })
    }

    /// Whether there is anything to prove.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.grounds.is_empty()
    }

    /// Attacks the reader of every root and keeps what was found. Blocks: half a minute a
    /// root, and more on a busy disk.
    ///
    /// # Errors
    /// [`ProbeError`] where the probing could not be carried out or its result not be kept; the report
    /// before is then still there.
    pub fn run(&self, settings: &Settings) -> Result<Probed, ProbeError> {
        let host = |what| move |source: io::Error| ProbeError::Host { what, source };
        let mut resolvers = Vec::new();
        if let Some(arena) = self.grounds.iter().find_map(|one| one.arena.as_ref()) {
            let tested = SelfTest::run(arena).map_err(io::Error::other);
            let tested = tested.map_err(host("test the resolvers"))?;
            resolvers.extend(tested.sound());
        }
        match settings.resolvers {
            Which::All => {}
            Which::Strongest => resolvers.truncate(1),
        }
        let work = Work {
            resolvers,
            storm: settings.storm,
            seed: settings.seed.unwrap_or_else(fsprobe::fresh_seed),
            build: build_id().map_err(host("read this program's own file"))?,
            spools: Arc::clone(&self.spools),
            spools_path: self.spools_path.clone(),
            stop: Arc::clone(&settings.stop),
            progress: Arc::clone(&settings.progress),
        };
        let probed = prove::run(&self.grounds, &work)?;
        self.keeper.save(&probed).map_err(host("keep the report"))?;
        Ok(probed)
    }

    /// The gate as a server of this configuration would find it now.
    #[must_use]
    pub fn gate(&self, config: &Config) -> Gate {
        let gate = Gate::new(config.deliverables, config.proof_age, Arc::new(SystemClock));
        let kept = prove::read(self.keeper.data()).unwrap_or_default();
        let build = build_id().unwrap_or_default();
        let roots: Vec<RootFacts> = self.grounds.iter().map(|one| one.facts.clone()).collect();
        gate.load(&Evidence {
            file: kept.file.as_deref(),
            key: kept.key.as_ref(),
            build: &build,
            sound: &Resolver::ALL,
            roots: &roots,
        });
        gate
    }
}

/// The resolvers that do on a fixture in `directory` what they must, the stronger first.
///
/// # Errors
/// [`AppError::NoResolver`] when none does.
pub(super) fn sound_resolvers(directory: impl AsFd) -> Result<Vec<Resolver>, AppError> {
    let tested = SelfTest::run(directory).map_err(AppError::SelfTest)?;
    for (resolver, outcome) in tested.outcomes() {
        match outcome {
            Outcome::Sound => {}
            Outcome::Absent(why) => tracing::warn!(%resolver, why, "a resolver is not to be had"),
            Outcome::Broken(question) => {
                tracing::error!(%resolver, question, "a resolver answers wrongly and is not used");
            }
        }
    }
    let sound: Vec<Resolver> = tested.sound().collect();
    if sound.is_empty() {
        return Err(AppError::NoResolver);
    }
    Ok(sound)
}

/// Loads the data directory's report into the gate, at start and whenever it is told to.
#[derive(Debug)]
pub struct Gatekeeper {
    pub(super) gate: Arc<Gate>,
    pub(super) roots: Arc<Roots>,
    pub(super) data: OwnedFd,
    pub(super) sound: Vec<Resolver>,
    /// Asked once: reading a whole program takes a moment.
    pub(super) build: OnceLock<String>,
}

impl Gatekeeper {
    /// Reads the report and judges every root anew. What cannot be read closes the gate. Blocks.
    pub fn reload(&self) {
        let kept = prove::read(&self.data).unwrap_or_else(|error| {
            tracing::error!(%error, "the probe report cannot be read");
            // Something is there and nobody knows what: not the same as nothing.
            Kept {
                file: Some(Vec::new()),
                key: None,
            }
        });
        let mut roots = Vec::new();
        for held in self.roots.held() {
            match held.facts() {
                Ok(facts) => roots.push(facts),
                Err(error) => {
                    tracing::error!(root = held.name(), %error, "a root cannot be asked");
                }
            }
        }
        self.gate.load(&Evidence {
            file: kept.file.as_deref(),
            key: kept.key.as_ref(),
            build: if kept.file.is_some() {
                self.build()
            } else {
                ""
            },
            sound: &self.sound,
            roots: &roots,
        });
        for held in self.roots.held() {
            match self.gate.standing(held.name()) {
                Standing::Open { .. } => tracing::info!(root = held.name(), "the gate is open"),
                Standing::Closed(reason) => {
                    let (reason, remedy) = (reason.code(), reason.remedy());
                    tracing::info!(root = held.name(), reason, remedy, "the gate is closed");
                }
            }
        }
    }

    /// This program; a name no report has where it cannot be read.
    fn build(&self) -> &str {
        self.build.get_or_init(|| {
            build_id().unwrap_or_else(|error| {
                tracing::error!(%error, "this program's own file cannot be read");
                String::new()
            })
        })
    }
}
