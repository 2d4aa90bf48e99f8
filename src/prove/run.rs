#![forbid(unsafe_code)]

use std::{
    os::fd::{AsRawFd as _, OwnedFd},
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use fsprobe::{Options, ProbeError, Progress, Target};

use super::{Flushes, PinnedSubject, relaunch};
use crate::{
    gate::{Probed, ProbedResolver, ProbedRoot, RootFacts},
    pinned::Resolver,
    spool::SpoolDir,
};

/// A root that is to be proven, and where.
#[derive(Debug)]
pub struct Ground {
    /// The root.
    pub facts: RootFacts,
    /// A directory of ours on the root's mount, outside every root; none where there can be none.
    pub arena: Option<OwnedFd>,
}

/// How a root is proven.
#[derive(Clone)]
pub struct Work {
    /// The resolvers to prove, the stronger first: those that passed a self-test.
    pub resolvers: Vec<Resolver>,
    /// How long the storm on each of them lasts; up to ten times as long where it stays one-sided.
    pub storm: Duration,
    /// Repeats a run's order and contents.
    pub seed: u64,
    /// The program that is proven.
    pub build: String,
    /// Where copies are made: on the filesystem of the store, so that they are made as the service
    /// makes them.
    pub spools: Arc<SpoolDir>,
    /// The same directory by its name, for the processes that are stopped at their system calls.
    pub spools_path: PathBuf,
    /// Set from elsewhere to stop early.
    pub stop: Arc<AtomicBool>,
    /// Told how far it is.
    pub progress: Arc<dyn Progress + Send + Sync>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("resolvers", &self.resolvers)
            .field("storm", &self.storm)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Attacks every root's reader in that root's arena, in every way, with each resolver, and says what
/// was found. Blocks: half a minute a root, and more on a
/// busy disk.
///
/// What the reader does is in the result, never an error. The arena is emptied again, after a failure
/// too, and what a killed run left in it is removed first.
///
/// # Errors
/// [`ProbeError`] where the probing itself could not be carried out, or was stopped.
pub fn run(grounds: &[Ground], work: &Work) -> Result<Probed, ProbeError> {
    let mut roots = Vec::with_capacity(grounds.len());
    for ground in grounds {
        let facts = &ground.facts;
        let mut reports = Vec::new();
        if let Some(arena) = &ground.arena {
            for resolver in &work.resolvers {
                reports.push(ProbedResolver {
                    resolver: resolver.name().to_owned(),
                    report: one(facts, arena, *resolver, work)?,
                });
            }
        }
        roots.push(ProbedRoot {
            name: facts.name.clone(),
            device: facts.device,
            inode: facts.inode,
            policy: facts.policy.to_string(),
            reports,
        });
    }
    let build = work.build.clone();
    Ok(Probed { build, roots })
}

fn one(
    facts: &RootFacts,
    arena: &OwnedFd,
    resolver: Resolver,
    work: &Work,
) -> Result<fsprobe::Report, ProbeError> {
    let policy = facts.policy.clone();
    // The directory that was found fit, whatever its name leads to by now.
    let mut options = Options::new_in(format!("/proc/self/fd/{}", arena.as_raw_fd()));
    options.build.clone_from(&work.build);
    options.seed = work.seed;
    options.storm = work.storm;
    options.relaunch = Some(relaunch(&policy, &work.spools_path));
    options.stop = Arc::clone(&work.stop);
    options.progress = Arc::new(Named {
        root: facts.name.clone(),
        inner: Arc::clone(&work.progress),
    });
    let spools = Arc::clone(&work.spools);
    let subject = PinnedSubject::new(resolver, policy, spools, Flushes::Apart);
    fsprobe::prove(&Target::InProcess(Arc::new(subject)), &options)
}

/// Says which root it is about.
struct Named {
    root: String,
    inner: Arc<dyn Progress + Send + Sync>,
}

impl Progress for Named {
    fn at(&self, who: &str, what: &str, done: u64, of: u64) {
        let who = format!("{who} for root {}", self.root);
        self.inner.at(&who, what, done, of);
    }
}
