//! Every reason for which a gate stays closed, one change to a good report each.

use std::{sync::Arc, time::Duration};

use crate::proven::{counts, proven};
use fsprobe::{
    Attack, Host, Report, Verdict,
    report::{ControlRun, Counts, Coverage, Kind, LostAt, Mode as Way, Role},
};
use holdfast::{
    gate::{
        Evidence, Gate, GateClosed, Mode, Probed, ProbedResolver, ProbedRoot, RootFacts, Standing,
    },
    model::{Clock as _, ManualClock, Timestamp},
    pinned::{HardLinks, Policy, Resolver},
    seal::SealKey,
};

const KEY: SealKey = SealKey::new([7; 32]);
const BUILD: &str = "holdfast 0.0.0 sha256:of this test";
const MADE_AT: u64 = 1_700_000_000;
const WEEK: Duration = Duration::from_hours(7 * 24);

fn host() -> Host {
    Host {
        kernel: "Linux 6.18.0".into(),
        machine: "x86_64".into(),
        boot_id: "one boot".into(),
        filesystem: fsprobe::host::Filesystem {
            kind: "ext4".into(),
            mount_flags: vec!["nodev".into(), "relatime".into()],
            fsid: "00ab".into(),
        },
    }
}

fn facts(name: &str) -> RootFacts {
    RootFacts {
        name: name.into(),
        device: 3,
        inode: 4,
        policy: Policy::default(),
        host: host(),
    }
}

fn probed() -> Probed {
    let resolver = |resolver: Resolver| ProbedResolver {
        resolver: resolver.name().into(),
        report: proven(resolver, host(), BUILD, MADE_AT),
    };
    Probed {
        build: BUILD.into(),
        roots: vec![ProbedRoot {
            name: "a".into(),
            device: 3,
            inode: 4,
            policy: Policy::default().to_string(),
            reports: Resolver::ALL.map(resolver).into(),
        }],
    }
}

/// The clock of a gate that was loaded a minute after the report was made.
fn clock() -> ManualClock {
    let clock = ManualClock::new(Timestamp::from_millis(
        i64::try_from(MADE_AT).unwrap() * 1000,
    ));
    clock.advance(Duration::from_mins(1));
    clock
}

fn gate(clock: &ManualClock) -> Gate {
    Gate::new(Mode::WhenProven, WEEK, Arc::new(clock.clone()))
}

fn evidence<'a>(file: &'a [u8], roots: &'a [RootFacts]) -> Evidence<'a> {
    Evidence {
        file: Some(file),
        key: Some(&KEY),
        build: BUILD,
        sound: &Resolver::ALL,
        roots,
    }
}

/// What the gate says of root `a` once it has read `file`.
fn said(file: &[u8]) -> Result<Vec<Resolver>, GateClosed> {
    let gate = gate(&clock());
    gate.load(&evidence(file, &[facts("a")]));
    gate.proof("a").map(|proof| proof.resolvers().to_vec())
}

fn said_of(change: impl FnOnce(&mut Probed)) -> Result<Vec<Resolver>, GateClosed> {
    let mut probed = probed();
    change(&mut probed);
    said(probed.seal(&KEY).unwrap().as_bytes())
}

/// As [`said_of`], after a change to the report of the second resolver.
fn said_of_report(change: impl FnOnce(&mut Report)) -> Result<Vec<Resolver>, GateClosed> {
    said_of(|probed| change(&mut probed.roots[0].reports[1].report))
}

/// Keeps I3.
#[test]
fn a_report_that_holds_opens_the_gate_for_its_root_and_its_resolvers_alone() {
    assert_eq!(said_of(|_| {}), Ok(Resolver::ALL.to_vec()));
    let only_walk = said_of(|probed| drop(probed.roots[0].reports.remove(0)));
    assert_eq!(only_walk, Ok(vec![Resolver::Walk]));
    let gate = gate(&clock());
    let file = probed().seal(&KEY).unwrap();
    let with = |sound| Evidence {
        sound,
        ..evidence(file.as_bytes(), &[])
    };
    let roots = [facts("a"), facts("b")];
    gate.load(&Evidence {
        roots: &roots,
        ..with(&[Resolver::Openat2])
    });
    let proof = gate.proof("a").unwrap();
    assert_eq!(
        (proof.root(), proof.resolvers()),
        ("a", &[Resolver::Openat2][..])
    );
    for root in ["b", "c", ""] {
        assert_eq!(gate.proof(root).err(), Some(GateClosed::NoReport), "{root}");
    }
    // No resolver that was proven passed the self-test of this start.
    gate.load(&Evidence {
        roots: &roots,
        ..with(&[])
    });
    assert_eq!(gate.proof("a").err(), Some(GateClosed::HostMismatch));
}

/// Keeps I3: the configuration's word comes first, and without it a report opens nothing.
#[test]
fn a_good_report_opens_nothing_where_contents_are_not_enabled() {
    let gate = Gate::new(Mode::MetadataOnly, WEEK, Arc::new(clock()));
    let file = probed().seal(&KEY).unwrap();
    gate.load(&evidence(file.as_bytes(), &[facts("a")]));
    assert_eq!(gate.proof("a").err(), Some(GateClosed::NotEnabled));
    assert!(gate.probed().is_some(), "it is shown all the same");
}

/// Keeps I3: no byte of the file can be another, the seal least of all.
#[test]
fn a_report_that_was_edited_anywhere_is_forged() {
    let sealed = probed().seal(&KEY).unwrap();
    let other_key = SealKey::new([8; 32]);
    let unsealed = {
        let mut value: serde_json::Value = serde_json::from_str(&sealed).unwrap();
        value["seal"] = "".into();
        value.to_string()
    };
    let without = {
        let mut value: serde_json::Value = serde_json::from_str(&sealed).unwrap();
        value.as_object_mut().unwrap().remove("seal");
        value.to_string()
    };
    let bare = serde_json::to_string(&probed()).unwrap();
    for (what, file) in [
        ("sealed elsewhere", probed().seal(&other_key).unwrap()),
        ("empty", String::new()),
        ("damaged", sealed.replacen('{', "", 1)),
        ("without its seal", without),
        ("with an empty seal", unsealed),
        ("never sealed", bare),
        ("of another format", sealed.replace("probe/1", "probe/2")),
    ] {
        assert_eq!(said(file.as_bytes()), Err(GateClosed::Forged), "{what}");
    }
    // Spread over the whole file: names, numbers, the seal, punctuation.
    let step = sealed.len() / 997;
    for at in (0..sealed.len()).step_by(step) {
        let mut file = sealed.clone().into_bytes();
        file[at] ^= 1;
        let said = said(&file);
        // The newline at the end is not part of the value.
        let is_end = at + 1 == file.len();
        assert!(said == Err(GateClosed::Forged) || is_end, "byte {at}");
    }
    let gate = gate(&clock());
    gate.load(&Evidence {
        key: None,
        ..evidence(sealed.as_bytes(), &[facts("a")])
    });
    assert_eq!(gate.proof("a").err(), Some(GateClosed::Forged), "no key");
}

/// Keeps I3: time runs out on a gate that stands open, and a clock set back helps nobody.
#[test]
fn a_report_grows_stale_while_the_gate_stands_open() {
    let clock = clock();
    let gate = gate(&clock);
    let file = probed().seal(&KEY).unwrap();
    gate.load(&evidence(file.as_bytes(), &[facts("a")]));
    clock.advance(Duration::from_mins(7 * 24 * 60 - 2));
    assert!(gate.proof("a").is_ok(), "a minute is left");
    let Standing::Open { until, .. } = gate.standing("a") else {
        panic!("{:?}", gate.standing("a"));
    };
    clock.advance(Duration::from_mins(1));
    assert_eq!(clock.now(), until);
    assert_eq!(gate.proof("a").err(), Some(GateClosed::Stale));
    assert_eq!(gate.standing("a"), Standing::Closed(GateClosed::Stale));
    gate.load(&evidence(file.as_bytes(), &[facts("a")]));
    assert_eq!(
        gate.proof("a").err(),
        Some(GateClosed::Stale),
        "loaded late"
    );
    let from_the_future = said_of_report(|report| report.made_at += 3600);
    assert_eq!(
        from_the_future,
        Ok(Resolver::ALL.to_vec()),
        "the oldest counts"
    );
    let all_from_the_future = said_of(|probed| {
        for one in &mut probed.roots[0].reports {
            one.report.made_at += 3600;
        }
    });
    assert_eq!(all_from_the_future, Err(GateClosed::Stale));
}

/// Keeps I3: one row per fact a report is bound to.
#[test]
fn a_report_about_anything_else_is_of_another_host() {
    type Change = fn(&mut Report);
    type ChangeRoot = fn(&mut Probed);
    type ChangeFacts = fn(&mut RootFacts);
    let reports: [(&str, Change); 10] = [
        ("build", |r| r.build = "holdfast 0.0.0 sha256:other".into()),
        ("kernel", |r| r.host.kernel = "Linux 6.18.1".into()),
        ("machine", |r| r.host.machine = "aarch64".into()),
        ("boot", |r| r.host.boot_id = "another boot".into()),
        ("filesystem", |r| r.host.filesystem.kind = "xfs".into()),
        ("mount flags", |r| r.host.filesystem.mount_flags.truncate(1)),
        ("f_fsid", |r| r.host.filesystem.fsid = "00ac".into()),
        ("reader", |r| r.subject.name = "openat-walk".into()),
        ("kind", |r| r.subject.kind = Kind::Command),
        ("format", |r| r.format = "fsprobe-report/0".into()),
    ];
    for (what, change) in reports {
        let said = said_of_report(change);
        assert_eq!(said, Err(GateClosed::HostMismatch), "another {what}");
    }
    let roots: [(&str, ChangeRoot); 5] = [
        ("program", |p| {
            p.build = "holdfast 0.0.0 sha256:other".into();
        }),
        ("directory", |p| p.roots[0].inode = 5),
        ("device", |p| p.roots[0].device = 5),
        ("policy", |p| {
            let policy = Policy {
                hard_links: HardLinks::Allow,
                ..Policy::default()
            };
            p.roots[0].policy = policy.to_string();
        }),
        ("resolver", |p| {
            p.roots[0].reports[0].resolver = "realpath".into();
        }),
    ];
    for (what, change) in roots {
        assert_eq!(
            said_of(change),
            Err(GateClosed::HostMismatch),
            "another {what}"
        );
    }
    // The same file after the host changed under it.
    let file = probed().seal(&KEY).unwrap();
    let hosts: [(&str, ChangeFacts); 4] = [
        ("boot", |f| f.host.boot_id = "another boot".into()),
        ("no boot id", |f| f.host.boot_id.clear()),
        ("mount flags", |f| {
            f.host.filesystem.mount_flags.push("ro".into());
        }),
        ("directory", |f| f.inode = 9),
    ];
    for (what, change) in hosts {
        let mut facts = facts("a");
        change(&mut facts);
        let gate = gate(&clock());
        gate.load(&evidence(file.as_bytes(), &[facts]));
        assert_eq!(
            gate.proof("a").err(),
            Some(GateClosed::HostMismatch),
            "{what}"
        );
    }
    let gate = gate(&clock());
    gate.load(&Evidence {
        build: "holdfast 0.0.1 sha256:newer",
        ..evidence(file.as_bytes(), &[facts("a")])
    });
    assert_eq!(gate.proof("a").err(), Some(GateClosed::HostMismatch));
}

/// A boot nobody can name is not the same boot, even where both sides cannot name it.
#[test]
fn a_host_without_a_boot_id_proves_nothing() {
    let mut probed = probed();
    for one in &mut probed.roots[0].reports {
        one.report.host.boot_id.clear();
    }
    let mut facts = facts("a");
    facts.host.boot_id.clear();
    let gate = gate(&clock());
    let file = probed.seal(&KEY).unwrap();
    gate.load(&evidence(file.as_bytes(), &[facts]));
    assert_eq!(gate.proof("a").err(), Some(GateClosed::HostMismatch));
}

/// Keeps I3: a loss anywhere closes the gate, whatever the report concludes.
#[test]
fn one_lost_read_closes_the_gate_whatever_the_report_concludes() {
    for verdict in [
        Verdict::Escaped,
        Verdict::Torn,
        Verdict::Hung,
        Verdict::OverLimit,
    ] {
        for mode in Way::ALL {
            let said = said_of_report(|report| {
                let row = report
                    .matrix
                    .iter_mut()
                    .find(|row| row.mode == mode && row.attack == Attack::Grow);
                row.unwrap().counts.add(verdict);
            });
            assert_eq!(said, Err(GateClosed::EscapeSeen), "{verdict:?} in {mode}");
        }
    }
    let sighted = said_of_report(|report| report.matrix[0].counts.sightings = 1);
    assert_eq!(sighted, Err(GateClosed::EscapeSeen));
    let counted_alone = said_of_report(|report| report.counts.add(Verdict::Escaped));
    assert_eq!(counted_alone, Err(GateClosed::EscapeSeen));
    let placed_alone = said_of_report(|report| {
        report.matrix[5].places.push(LostAt {
            index: 1,
            moment: "somewhere".into(),
            verdict: Verdict::Escaped,
        });
    });
    assert_eq!(placed_alone, Err(GateClosed::EscapeSeen));
    // A loss is a loss whatever else is missing.
    let both = said_of_report(|report| {
        report.modes.clear();
        report.matrix[5].counts.add(Verdict::Escaped);
    });
    assert_eq!(both, Err(GateClosed::EscapeSeen));
}

/// Keeps I3: what was not looked at is not known.
#[test]
fn a_probe_that_was_not_run_in_full_is_incomplete() {
    for mode in Way::ALL {
        let left_out = said_of_report(|report| report.modes.retain(|run| run.mode != mode));
        assert_eq!(left_out, Err(GateClosed::Incomplete), "without {mode}");
        for coverage in [
            Coverage::Sampled,
            Coverage::CutShort,
            Coverage::Inconclusive,
        ] {
            let lowered = said_of_report(|report| {
                let run = report.modes.iter_mut().find(|run| run.mode == mode);
                run.unwrap().coverage = coverage;
            });
            assert_eq!(lowered, Err(GateClosed::Incomplete), "{mode} {coverage:?}");
        }
        for attack in Attack::ALL {
            let skipped = said_of_report(|report| {
                report
                    .matrix
                    .retain(|row| (row.mode, row.attack) != (mode, attack));
            });
            assert_eq!(skipped, Err(GateClosed::Incomplete), "{mode} {attack}");
        }
    }
    let undertakes_less = said_of_report(|report| report.subject.claims.whole = false);
    assert_eq!(undertakes_less, Err(GateClosed::Incomplete));
    let one_sided = said_of_report(|report| {
        for row in &mut report.matrix {
            if row.mode == Way::Storm && row.attack != Attack::Plain {
                row.counts = counts(Verdict::Refused, 200);
            }
        }
    });
    assert_eq!(one_sided, Err(GateClosed::Incomplete));
    let reference_lost = said_of_report(|report| {
        let mut reference = report.controls[0].clone();
        reference.role = Role::Reference;
        report.controls.push(reference);
    });
    assert_eq!(reference_lost, Err(GateClosed::Incomplete));
    let plain_refused = said_of_report(|report| {
        let plain = report
            .matrix
            .iter_mut()
            .find(|row| row.attack == Attack::Plain);
        plain.unwrap().counts = counts(Verdict::Refused, 60);
    });
    assert_eq!(plain_refused, Err(GateClosed::Incomplete));
}

/// Keeps I3: attacks that beat nobody show nothing.
#[test]
fn a_probe_whose_weak_readers_survived_opens_nothing() {
    for mode in Way::ALL {
        for unbeaten in [
            |control: &mut ControlRun| control.beaten = false,
            |control: &mut ControlRun| control.role = Role::Reference,
            |control: &mut ControlRun| control.matrix[0].counts = Counts::default(),
        ] {
            let said = said_of_report(|report| {
                let control = report.controls.iter_mut().find(|run| run.mode == mode);
                let control = control.unwrap();
                unbeaten(control);
            });
            assert_eq!(said, Err(GateClosed::ControlNotBeaten), "{mode}");
        }
    }
}

/// Keeps I3.
#[test]
fn a_root_without_an_arena_or_without_a_report_says_which() {
    let no_arena = said_of(|probed| probed.roots[0].reports.clear());
    assert_eq!(no_arena, Err(GateClosed::NoArena));
    let no_report = said_of(|probed| probed.roots.clear());
    assert_eq!(no_report, Err(GateClosed::NoReport));
    let gate = gate(&clock());
    gate.load(&Evidence {
        file: None,
        ..evidence(&[], &[facts("a")])
    });
    assert_eq!(gate.proof("a").err(), Some(GateClosed::NoReport));
}

/// A later load forgets an earlier one, a good one included.
#[test]
fn a_gate_that_stood_open_closes_when_its_report_goes_bad() {
    let gate = gate(&clock());
    let file = probed().seal(&KEY).unwrap();
    let roots = [facts("a")];
    gate.load(&evidence(file.as_bytes(), &roots));
    assert!(gate.proof("a").is_ok());
    gate.load(&evidence(b"{}", &roots));
    assert_eq!(gate.proof("a").err(), Some(GateClosed::Forged));
    gate.load(&evidence(file.as_bytes(), &roots));
    assert!(gate.proof("a").is_ok());
    gate.load(&evidence(file.as_bytes(), &[]));
    assert_eq!(gate.proof("a").err(), Some(GateClosed::NoReport));
}
