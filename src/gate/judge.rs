#![forbid(unsafe_code)]

use std::time::Duration;

use fsprobe::{
    Attack, Claims, Conclusion, Report,
    report::{self, Coverage, Kind, Mode, Role},
};

use super::{GateClosed, Probed, RootFacts, claims_of, subject_name};
use crate::{model::Timestamp, pinned::Resolver};

/// Reads of each outcome that make a storm two-sided.
const ENOUGH: u64 = 100;
/// How far a report may lie in the future: clocks are set.
const SKEW: Duration = Duration::from_mins(5);

/// What a report that holds lets a root be read with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    /// The stronger first.
    pub(super) resolvers: Vec<Resolver>,
    /// When the oldest of the reports behind it was made.
    pub(super) made_at: Timestamp,
}

/// What is true here and now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now<'a> {
    /// The program that runs.
    pub(super) build: &'a str,
    /// The resolvers that passed the self-test of this start, the stronger first.
    pub(super) sound: &'a [Resolver],
    /// The time of day.
    pub(super) time: Timestamp,
    /// How old a report may be.
    pub(super) max_age: Duration,
}

/// Compares what was probed with the root as it is, and says what that opens.
///
/// Nothing is taken from the report's own conclusion: counts, modes and controls are judged again.
pub(super) fn judge(
    probed: &Probed,
    root: &RootFacts,
    now: &Now<'_>,
) -> Result<Opening, GateClosed> {
    let found = probed.root(&root.name).ok_or(GateClosed::NoReport)?;
    let made_at = found
        .reports
        .iter()
        .map(|one| made_at(&one.report))
        .min()
        .ok_or(GateClosed::NoArena)?;
    current(made_at, now.time, now.max_age)?;
    let is_this_root = !now.build.is_empty()
        && probed.build == now.build
        && (found.device, found.inode) == (root.device, root.inode)
        && found.policy == root.policy.to_string();
    if !is_this_root {
        return Err(GateClosed::HostMismatch);
    }
    for one in &found.reports {
        let resolver = Resolver::ALL
            .into_iter()
            .find(|resolver| resolver.name() == one.resolver)
            .ok_or(GateClosed::HostMismatch)?;
        is_about(&one.report, resolver, root, now)?;
    }
    let claims = claims_of(&root.policy);
    let reports = || found.reports.iter().map(|one| &one.report);
    if reports().any(|report| is_lost(report, claims)) {
        return Err(GateClosed::EscapeSeen);
    }
    if !reports().all(|report| is_complete(report, claims)) {
        return Err(GateClosed::Incomplete);
    }
    if !reports().all(has_beaten_controls) {
        return Err(GateClosed::ControlNotBeaten);
    }
    // The prober's own rules, whatever they demand beyond these.
    if reports().any(|report| report.conclude().0 != Conclusion::Proven) {
        return Err(GateClosed::Incomplete);
    }
    let names = |resolver: &&Resolver| {
        let name = resolver.name();
        found.reports.iter().any(|one| one.resolver == name)
    };
    let resolvers: Vec<Resolver> = now.sound.iter().filter(names).copied().collect();
    if resolvers.is_empty() {
        return Err(GateClosed::HostMismatch);
    }
    Ok(Opening { resolvers, made_at })
}

/// Whether a report made at `made_at` still counts. One from the future does not: either clock is
/// wrong, and then its age is not known.
pub(super) fn current(
    made_at: Timestamp,
    now: Timestamp,
    max_age: Duration,
) -> Result<(), GateClosed> {
    if now >= made_at.after(max_age) || made_at > now.after(SKEW) {
        return Err(GateClosed::Stale);
    }
    Ok(())
}

fn made_at(report: &Report) -> Timestamp {
    let seconds = i64::try_from(report.made_at).unwrap_or(i64::MAX);
    Timestamp::from_millis(seconds.saturating_mul(1000))
}

/// Whether the report is about this reader in this program on this host.
fn is_about(
    report: &Report,
    resolver: Resolver,
    root: &RootFacts,
    now: &Now<'_>,
) -> Result<(), GateClosed> {
    let is_this = report.format == report::FORMAT
        && report.build == now.build
        && report.host == root.host
        // An unknown boot is no boot: nothing says that this is still the same one.
        && !root.host.boot_id.is_empty()
        && report.subject.kind == Kind::InProcess
        && report.subject.name == subject_name(resolver);
    if is_this {
        Ok(())
    } else {
        Err(GateClosed::HostMismatch)
    }
}

fn is_lost(report: &Report, claims: Claims) -> bool {
    report.counts.is_lost(claims)
        || report
            .matrix
            .iter()
            .any(|row| row.counts.is_lost(claims) || !row.places.is_empty())
}

/// Whether every attack was made in every way, to the end.
fn is_complete(report: &Report, claims: Claims) -> bool {
    let ran = |mode: Mode| {
        let mut runs = report.modes.iter().filter(|run| run.mode == mode);
        let (run, other) = (runs.next(), runs.next());
        let whole = match mode {
            Mode::Seams | Mode::Syscalls => Coverage::Exhaustive,
            Mode::Storm => Coverage::Random,
        };
        other.is_none() && run.is_some_and(|run| run.coverage == whole && run.depth >= 1)
    };
    let made = |mode: Mode, attack: Attack| {
        report
            .matrix
            .iter()
            .any(|row| (row.mode, row.attack) == (mode, attack) && row.counts.total() > 0)
    };
    report.subject.claims == claims
        && Mode::ALL.into_iter().all(ran)
        && Mode::ALL
            .into_iter()
            .all(|mode| Attack::ALL.into_iter().all(|attack| made(mode, attack)))
        && is_two_sided(report)
}

/// Whether reads in the storm both succeeded and were refused, often enough to say that it blew.
fn is_two_sided(report: &Report) -> bool {
    let names = report.matrix.iter().filter(|row| {
        row.mode == Mode::Storm && !row.attack.is_content() && !row.attack.is_standing()
    });
    let (inside, refused) = names.fold((0_u64, 0_u64), |(inside, refused), row| {
        (
            inside.saturating_add(row.counts.inside),
            refused.saturating_add(row.counts.refused),
        )
    });
    inside.min(refused) >= ENOUGH
}

/// Whether in every way of probing a weak reader lost beside ours.
fn has_beaten_controls(report: &Report) -> bool {
    Mode::ALL.into_iter().all(|mode| {
        report.controls.iter().any(|control| {
            control.mode == mode
                && control.role == Role::Control
                && control.beaten
                && control.matrix.iter().any(|row| row.counts.escaped > 0)
        })
    })
}
