//! The composition root: opens what the configuration names, builds the parts, serves, shuts down.
//!
//! Promises: nothing is served from a data directory or a configuration that a root's writer could
//! reach; the owner-only socket lets in our own uid alone; a shutdown stops accepting first and
//! cuts nothing that ends within the drain time. Leaves to others: everything else.

#![forbid(unsafe_code)]

mod arena;
mod overlap;
mod places;
mod proving;
mod reload;
mod settled;
mod tls;
mod trail;

use places::{Places, no_home, open_home};
use proving::sound_resolvers;
pub use proving::{Gatekeeper, Proving, Settings, Which};
pub use reload::Reloads;
use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    os::fd::AsFd as _,
    sync::{Arc, OnceLock},
    time::Duration,
};

use rustix::fs::AtFlags;
use thiserror::Error;
use tls::Certificate;
pub use tls::CertificateError;
use tokio_util::sync::CancellationToken;

use crate::{
    access::{Access, AccessError, PrincipalKind, PrincipalName, random_bits},
    audit::{AuditError, Trail},
    config::{Config, HomeConfig, PublicUrl},
    control::{Control, ControlError},
    gate::Gate,
    home::DshHome,
    http::{
        self, AllowedHosts,
        local::Local,
        router::{Admin, Public},
        semantics::AuthorityError,
        server::{self, Listener, Traffic},
    },
    journal::{
        Journal, Sources,
        dsh::{DshLimits, DshOwners, DshSource},
        native::NativeJournal,
    },
    model::{Clock, Limits, SystemClock},
    pinned::{PinnedError, Resolver},
    prove,
    receipt::Ledger,
    seal::SealKey,
    store::{
        Store, StoreError,
        dsh::DshObjects,
        layout::{DataDir, LayoutError},
        local::{LocalOptions, LocalStore},
        verified::Verifier,
    },
    transfer::{
        Attachments, HeldRoot, HostIdentity, Parts, Pools, Roots,
        live::{Live, LiveOptions},
        release,
    },
};

/// The name of the owner-only socket in the data directory.
pub const SOCKET: &str = "control.sock";
/// How often releases whose time is over are looked for.
const TIDY: Duration = Duration::from_mins(1);

/// Why the parts could not be built or served.
#[derive(Debug, Error)]
pub enum AppError {
    /// The data directory cannot be used.
    #[error("data directory")]
    Layout(#[from] LayoutError),
    /// A root cannot be opened.
    #[error("root `{name}`")]
    Root {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: PinnedError,
    },
    /// A DSH home cannot be served.
    #[error("DSH home `{name}`")]
    Home {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Two directories overlap that must not.
    #[error("{inner} lies in {outer}: whoever writes there could reach it")]
    Overlap {
        /// What lies in the other.
        inner: String,
        /// The other.
        outer: String,
    },
    /// A directory may not be an arena.
    #[error("the arena of root `{root}` {why}")]
    Arena {
        /// The root's name.
        root: String,
        /// What is wrong with it.
        why: String,
    },
    /// The resolvers could not be tested.
    #[error("testing the resolvers")]
    SelfTest(#[source] PinnedError),
    /// No resolver of this kernel does what it must.
    #[error("no resolver of this kernel refuses what it must; serve without roots")]
    NoResolver,
    /// Another process probes for this data directory.
    #[error("another `holdfast prove` is under way for this data directory")]
    ProbeUnderWay,
    /// The audit trail cannot be opened.
    #[error("audit trail")]
    Audit(#[from] AuditError),
    /// The store cannot be opened.
    #[error("store")]
    Store(#[from] StoreError),
    /// The database cannot be opened, or disagrees with its log of heads.
    #[error("database")]
    Control(#[from] ControlError),
    /// Principals or secrets.
    #[error("access")]
    Access(#[from] AccessError),
    /// The certificate cannot be shown.
    #[error("[tls]")]
    Certificate(#[from] CertificateError),
    /// The public URL's host is none that a request could name.
    #[error("public_url")]
    PublicUrl(#[from] AuthorityError),
    /// Anything else the system said.
    #[error("{action} failed")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl AppError {
    /// Whether another process holds the directory now, so that trying again may help.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Layout(LayoutError::Locked { .. }) | Self::ProbeUnderWay
        )
    }
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> AppError {
    move |source| AppError::Io { action, source }
}

/// What the configuration names, open and found fit to be used together. No thread runs yet.
#[derive(Debug)]
pub struct Opened {
    data: DataDir,
    sound: Vec<Resolver>,
    roots: Vec<HeldRoot>,
    homes: Vec<(HomeConfig, DshHome)>,
    certificate: Option<Arc<Certificate>>,
}

impl Opened {
    /// Opens the data directory, taking its lock, and every root.
    ///
    /// # Errors
    /// [`AppError::Layout`], [`AppError::Root`], [`AppError::Overlap`], [`AppError::Certificate`].
    pub fn open(config: &Config) -> Result<Self, AppError> {
        let places = Places::open(config)?;
        let data = DataDir::open(&config.data)?;
        places.apart_from(data.dir())?;
        let homes = places.homes(config, data.dir())?;
        let sound = if places.roots.is_empty() {
            Vec::new()
        } else {
            sound_resolvers(data.staging_dir())?
        };
        let certificate = config.tls.as_ref().map(Certificate::open).transpose()?;
        Ok(Self {
            data,
            sound,
            roots: places.roots,
            homes,
            certificate: certificate.map(Arc::new),
        })
    }

    /// The roots.
    pub fn roots(&self) -> impl Iterator<Item = &HeldRoot> {
        self.roots.iter()
    }
}

/// The parts, built: everything but listeners and a runtime.
#[derive(Debug)]
pub struct Service {
    app: http::App,
    parts: Arc<Parts>,
    gatekeeper: Arc<Gatekeeper>,
    sources: Arc<Sources>,
    limits: Limits,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    /// Last, so that the directory's lock is let go after the database has closed.
    opened: Opened,
}

impl Service {
    /// [`Opened::open`], then [`Service::start`].
    ///
    /// # Errors
    /// As those two.
    pub fn open(config: &Config) -> Result<Self, AppError> {
        Self::start(config, Opened::open(config)?)
    }

    /// Builds the parts over what is open: recovers the store, opens the database, starts the threads
    /// for blocking work. Blocks.
    ///
    /// # Errors
    /// [`AppError::Store`], [`AppError::Control`], [`AppError::Access`], [`AppError::Io`].
    pub fn start(config: &Config, opened: Opened) -> Result<Self, AppError> {
        let limits = config.limits.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let control = Arc::new(Control::open(opened.data.journal(), Arc::clone(&clock))?);
        if let Some(trouble) = control.trouble() {
            // Reading goes on; what is acknowledged from here on would not be safe.
            tracing::error!(%trouble, "the journal is closed for writing");
        }
        let store: Arc<dyn Store> =
            Arc::new(LocalStore::open(&opened.data, LocalOptions::default())?);
        let sources = Arc::new(Sources::new(Arc::new(NativeJournal::new(
            Arc::clone(&control),
            limits.journal.clone(),
            limits.session_bytes,
        ))));
        let journal: Arc<dyn Journal> = Arc::clone(&sources) as Arc<dyn Journal>;
        let mut opened = opened;
        let roots = Roots::serve(std::mem::take(&mut opened.roots));
        let data = opened.data.dir().as_fd().try_clone_to_owned();
        let gatekeeper = Arc::new(Gatekeeper {
            gate: Arc::new(Gate::new(
                config.deliverables,
                config.proof_age,
                Arc::clone(&clock),
            )),
            roots: Arc::new(roots.map_err(failed("starting threads"))?),
            data: data.map_err(failed("holding the data directory"))?,
            sound: std::mem::take(&mut opened.sound),
            build: OnceLock::new(),
        });
        gatekeeper.reload();
        let identity = HostIdentity::start(&control, random_bits()?)?;
        let key =
            prove::key(opened.data.dir()).map_err(failed("reading the data directory's key"))?;
        let key = Arc::new(key);
        let data = opened.data.dir();
        let audit = trail::open(data, Arc::clone(&key), Arc::clone(&clock), &control)?;
        let (own, host) = (Arc::clone(&control), identity.instance.clone());
        let ledger = Ledger::new(own, key, host);
        let parts = Arc::new(Parts {
            access: Arc::new(Access::new(
                Arc::clone(&control),
                journal.clone(),
                Arc::clone(&clock),
            )),
            identity,
            gate: Arc::clone(&gatekeeper.gate),
            roots: Arc::clone(&gatekeeper.roots),
            audit: Arc::new(audit),
            ledger: Arc::new(ledger),
            verifier: Arc::new(Verifier::new(&limits)?),
            pools: Pools::new(processors()).map_err(failed("starting threads"))?,
            limits: Arc::new(limits.clone()),
            control,
            attachments: Arc::new(Attachments::new(Arc::clone(&store))),
            store,
            journal,
            clock,
        });
        release::recover(&parts);
        settled::look(&parts.control, &*parts.store)?;
        let hosts = AllowedHosts::with(names(config).iter().map(String::as_str))?;
        let homes = std::mem::take(&mut opened.homes);
        let service = Self {
            app: http::App::new(Arc::clone(&parts), hosts, live_options(config)),
            parts,
            gatekeeper,
            sources,
            limits,
            listen: config.listen,
            admin: config.admin,
            opened,
        };
        for (home, held) in homes {
            service.serve_held(&home, held)?;
        }
        Ok(service)
    }

    /// Opens a DSH home and serves its sessions beside the native ones. Blocks.
    ///
    /// # Errors
    /// [`AppError::Home`], [`AppError::Overlap`].
    pub fn serve_home(&self, home: &HomeConfig) -> Result<(), AppError> {
        let held = open_home(home, self.opened.data.dir())?;
        self.serve_held(home, held)
    }

    fn serve_held(&self, home: &HomeConfig, held: DshHome) -> Result<(), AppError> {
        let principal = |name: &PrincipalName, kind: PrincipalKind| {
            let found = self.parts.access.principal_named(name);
            match found {
                Ok(found) if found.kind == kind => Ok(found.id),
                Ok(_) | Err(AccessError::Hidden) => {
                    let what = format!("there is no {} `{name}`", kind.as_str());
                    Err(no_home(home, what))
                }
                Err(error) => Err(AppError::Access(error)),
            }
        };
        let owners = home.owners.iter();
        let owners = DshOwners {
            owners: owners
                .map(|name| principal(name, PrincipalKind::User))
                .collect::<Result<_, _>>()?,
            host: match &home.host {
                Some(name) => Some(principal(name, PrincipalKind::Host)?),
                None => None,
            },
        };
        let held = Arc::new(held);
        let source = DshSource::open(
            Arc::clone(&self.parts.control),
            Arc::clone(&held),
            home.name.as_str(),
            owners,
            DshLimits::default(),
        );
        let source = Arc::new(source.map_err(|error| no_home(home, error))?);
        let watch = source.watch().map_err(failed("starting threads"))?;
        let objects = DshObjects::new(held);
        self.parts
            .attachments
            .add(Arc::clone(&source), objects, watch);
        self.sources.add(source);
        Ok(())
    }

    /// What answers on the owner-only ways in.
    #[must_use]
    pub fn local(&self) -> Local {
        Local::new(self.app.clone())
    }

    /// The roots held.
    pub fn roots(&self) -> impl Iterator<Item = &HeldRoot> {
        self.parts.roots.held()
    }

    /// What loads a new report into the gate while the service runs.
    #[must_use]
    pub fn gatekeeper(&self) -> Arc<Gatekeeper> {
        Arc::clone(&self.gatekeeper)
    }

    /// Whether the gate is open for every root.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.roots()
            .all(|held| self.parts.gate.proof(held.name()).is_ok())
    }

    /// Who may do what: for setting up principals and their secrets.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.parts.access
    }

    /// What is to be read again when the operator asks for it.
    #[must_use]
    pub fn reloads(&self) -> Reloads {
        let mut reloads = Reloads::default();
        let gatekeeper = self.gatekeeper();
        // A report that is refused closes the gate, and the log says why.
        reloads.add("probe report", move || {
            gatekeeper.reload();
            Ok::<_, Infallible>(())
        });
        if let Some(certificate) = &self.opened.certificate {
            let certificate = Arc::clone(certificate);
            reloads.add("certificate", move || certificate.reload());
        }
        reloads
    }

    /// Listens on the configured addresses and on the control socket, calls `ready` with the public
    /// one, and serves until `stop`; then accepts nothing more and lets what runs finish within the
    /// drain time.
    ///
    /// # Errors
    /// [`AppError::Io`] when an address cannot be listened on.
    pub async fn serve(
        self,
        stop: CancellationToken,
        ready: impl FnOnce(SocketAddr),
    ) -> Result<(), AppError> {
        let mut public = Listener::tcp(self.listen).map_err(failed("listening"))?;
        if let Some(certificate) = &self.opened.certificate {
            public = public.with_tls(certificate.tls());
        }
        let address = public.address().unwrap_or(self.listen);
        let admin = self.admin.map(Listener::tcp).transpose();
        let admin = admin.map_err(failed("listening for the operator"))?;
        let data = self.opened.data.dir();
        let control = Listener::unix(data, SOCKET).map_err(failed("listening"))?;
        ready(address);
        let traffic = Arc::<Traffic>::default();
        let admin = async {
            if let Some(admin) = admin {
                let pages = Admin::new(self.app.clone());
                server::serve(admin, pages, &self.limits, Arc::default(), stop.cancelled()).await;
            }
        };
        let certificate = async {
            if let Some(certificate) = &self.opened.certificate {
                let watch = Arc::clone(certificate).watch();
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = watch => {}
                }
            }
        };
        let tidying = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tidy(self.app.live(), &self.parts) => {}
                () = trail::hourly(&self.parts) => {}
            }
        };
        let live = Arc::clone(self.app.live());
        let streams = async {
            stop.cancelled().await;
            // What waits ends now, and no stream holds the drain up.
            live.dispose();
        };
        let (drained, _commands, (), (), (), ()) = tokio::join!(
            server::serve(
                public,
                Public::new(self.app.clone()),
                &self.limits,
                Arc::clone(&traffic),
                stop.cancelled(),
            ),
            server::serve(
                control,
                self.local(),
                &self.limits,
                Arc::default(),
                stop.cancelled(),
            ),
            admin,
            streams,
            certificate,
            tidying,
        );
        if drained.cut > 0 {
            tracing::warn!(
                cut = drained.cut,
                "transfers were cut at the end of the drain time"
            );
        }
        // Commands should not knock at a closed door; the next server would remove it just as well.
        rustix::fs::unlinkat(data, SOCKET, AtFlags::empty()).ok();
        tracing::info!("stopped");
        Ok(())
    }
}

/// The key by which the data directory of this configuration seals what it states, if it has one. Read
/// beside whoever holds the directory.
///
/// # Errors
/// [`AppError::Layout`], [`AppError::Io`].
pub fn seal_key(config: &Config) -> Result<Option<SealKey>, AppError> {
    let data = DataDir::beside(&config.data)?;
    prove::read_key(&data.dir).map_err(failed("reading the data directory's key"))
}

/// The audit trail of this configuration's data directory and the key of its seals, if it has them. Read
/// beside whoever holds the directory.
///
/// # Errors
/// [`AppError::Layout`], [`AppError::Audit`], [`AppError::Io`].
pub fn audit_trail(config: &Config) -> Result<Option<(Trail, SealKey)>, AppError> {
    let data = DataDir::beside(&config.data)?;
    let key = prove::read_key(&data.dir).map_err(failed("reading the data directory's key"))?;
    Ok(Trail::read(&data.dir)?.zip(key))
}

/// An orderly end. One that was cut short writes nothing, and the next start looks.
impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        trail::finish(&self.parts.control, &self.parts.audit);
        if let Err(error) = settled::settle(&self.parts.control) {
            tracing::warn!(%error, "the next start looks for what was taken once more");
        }
    }
}

fn live_options(config: &Config) -> LiveOptions {
    LiveOptions {
        interactive: config.interactions.enabled,
        locale: config.interactions.locale.clone(),
        life: config.interactions.life,
        executors: config.handoff.executor,
        ..LiveOptions::default()
    }
}

/// The hosts a request may name besides the loopback ones.
fn names(config: &Config) -> Vec<String> {
    let public = config.public_url.as_ref().map(PublicUrl::authority);
    // Listening everywhere says nothing about the name; a proxy's is in `public_url`.
    let own = Some(config.listen).filter(|address| !address.ip().is_unspecified());
    let own = own.map(|address| address.to_string());
    public.map(str::to_owned).into_iter().chain(own).collect()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}
/// Ends the releases whose time is over, now and then, and clears away what they kept, and what removed
/// sessions left.
async fn tidy(live: &Arc<Live>, parts: &Arc<Parts>) {
    loop {
        release::sweep(parts).await;
        tokio::time::sleep(TIDY).await;
        let (live, own) = (Arc::clone(live), Arc::clone(parts));
        if let Err(error) = parts
            .pools
            .store
            .run_in_turn(move || release::tidy(&live, &own))
            .await
        {
            tracing::warn!(%error, "what ended is cleared away later");
        }
    }
}
