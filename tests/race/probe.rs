//! `pinned` under the prober: the attacks of `fsprobe`, beside readers that must lose.

use std::{sync::Arc, time::Duration};

use fsprobe::{
    Attack, Conclusion, Options, Relaunch, Report, Subject, Target,
    report::{Coverage, Mode},
};
use holdfast::{
    pinned::{Policy, Resolver},
    prove::{Flushes, PinnedSubject, relaunch},
    spool::SpoolDir,
};

pub(crate) fn scratch() -> tempfile::TempDir {
    // Where every process of a test run finds it; removed with the value.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn subject(resolver: Resolver) -> Arc<dyn Subject> {
    let spools = std::fs::File::open(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let spools = Arc::new(SpoolDir::new(spools.into()));
    let policy = Policy::default();
    Arc::new(PinnedSubject::new(resolver, policy, spools, Flushes::Apart))
}

fn probe(resolver: Resolver, mode: Mode, change: impl FnOnce(&mut Options)) -> Report {
    let dir = scratch();
    let mut options = Options::new_in(dir.path());
    options.modes = vec![mode];
    change(&mut options);
    let target = Target::InProcess(subject(resolver));
    let report = fsprobe::prove(&target, &options).unwrap();
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "something was left in the arena"
    );
    report
}

fn holds(report: &Report) {
    let claims = report.subject.claims;
    assert!(
        !report.counts.is_lost(claims),
        "{}",
        fsprobe::page::table(report)
    );
    assert_eq!(report.counts.torn, 0, "{}", fsprobe::page::table(report));
    assert_eq!(
        report.conclusion,
        Conclusion::Proven,
        "{:?} {:?}",
        report.reasons,
        report.modes
    );
}

/// Keeps I2 and I4: every attack at every step, and a weak reader lost at its own.
#[test]
fn no_step_of_a_read_is_a_moment_to_win() {
    for resolver in Resolver::ALL {
        let report = probe(resolver, Mode::Seams, |_| {});
        holds(&report);
        assert_eq!(report.modes[0].coverage, Coverage::Exhaustive, "{resolver}");
        assert!(report.modes[0].boundaries >= 12, "{resolver}");
        assert_eq!(report.matrix.len(), Attack::ALL.len(), "{resolver}");
    }
}

/// Keeps I2 and I4: every attack at every system call boundary, exhaustively.
#[test]
fn no_boundary_of_a_read_is_a_moment_to_win() {
    // The program itself: a test binary has threads of its own, whose calls fall in between.
    let spools = scratch();
    let relaunch = Relaunch {
        program: env!("CARGO_BIN_EXE_holdfast").into(),
        ..relaunch(&Policy::default(), spools.path())
    };
    for resolver in Resolver::ALL {
        let report = probe(resolver, Mode::Syscalls, |options| {
            options.relaunch = Some(relaunch.clone());
            // One chunk; the seams read several.
            options.len = 4 << 10;
            options.budget = Duration::from_mins(5);
        });
        holds(&report);
        assert_eq!(report.modes[0].coverage, Coverage::Exhaustive, "{resolver}");
        assert!(report.modes[0].boundaries > 40, "{:?}", report.modes);
    }
}

/// Keeps I2 and I4: one short storm of everything. On a host too busy for the weather to count, that
/// is said, and nothing is concluded.
#[test]
fn a_short_storm_takes_nothing() {
    for resolver in Resolver::ALL {
        let report = probe(resolver, Mode::Storm, |options| {
            options.storm = Duration::from_secs(1);
        });
        let claims = report.subject.claims;
        assert!(
            !report.counts.is_lost(claims) && report.counts.torn == 0,
            "{}",
            fsprobe::page::table(&report)
        );
        if report.conclusion != Conclusion::Proven {
            println!("inconclusive: {resolver}: {:?}", report.reasons);
        }
    }
}
