//! A report of a reader of ours that was never beaten, as the prober would have made it.

use fsprobe::{
    Attack, Conclusion, Host, Report, Verdict,
    report::{
        ControlRun, Counts, Coverage, FORMAT, Kind, Mode as Way, ModeRun, Role, Row, SubjectFacts,
    },
};
use holdfast::{
    gate::{claims_of, subject_name},
    pinned::{Policy, Resolver},
};

pub(crate) fn counts(verdict: Verdict, times: u64) -> Counts {
    let mut counts = Counts::default();
    for _ in 0..times {
        counts.add(verdict);
    }
    counts
}

pub(crate) fn row(mode: Way, attack: Attack, counts: Counts) -> Row {
    Row {
        mode,
        attack,
        counts,
        flips: 1,
        prevented: 0,
        refusals: vec![],
        places: vec![],
    }
}

/// A report of a reader that was never beaten, made in full.
pub(crate) fn proven(resolver: Resolver, host: Host, build: &str, made_at: u64) -> Report {
    let cell = |mode, attack| {
        let mut both = counts(Verdict::Inside, 60);
        if attack != Attack::Plain {
            both.merge(&counts(Verdict::Refused, 60));
        }
        row(mode, attack, both)
    };
    let coverage = |mode| match mode {
        Way::Seams | Way::Syscalls => Coverage::Exhaustive,
        Way::Storm => Coverage::Random,
    };
    let run = |mode| ModeRun {
        mode,
        coverage: coverage(mode),
        depth: 1,
        boundaries: 80,
        runs: 1000,
        flips: 1000,
        elapsed_ms: 1000,
        notes: vec![],
    };
    let control = |mode| ControlRun {
        name: "stat-then-open".into(),
        role: Role::Control,
        mode,
        beaten: true,
        coverage: coverage(mode),
        matrix: vec![row(mode, Attack::FinalLink, counts(Verdict::Escaped, 1))],
    };
    let report = Report {
        format: FORMAT.into(),
        probe: "0".into(),
        build: build.to_owned(),
        made_at,
        elapsed_ms: 1,
        seed: 1,
        host,
        subject: SubjectFacts {
            name: subject_name(resolver).into(),
            kind: Kind::InProcess,
            invocation: vec![],
            claims: claims_of(&Policy::default()),
        },
        modes: Way::ALL.map(run).into(),
        matrix: Way::ALL
            .into_iter()
            .flat_map(|mode| Attack::ALL.map(|attack| cell(mode, attack)))
            .collect(),
        counts: Counts::default(),
        controls: Way::ALL.map(control).into(),
        conclusion: Conclusion::Proven,
        reasons: vec![],
    };
    assert_eq!(report.conclude(), (Conclusion::Proven, vec![]));
    report
}
