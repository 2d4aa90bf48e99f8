//! The six founding assertions, and that the probe notices when either reader changes.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at their own directories"
)]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use fsprobe::{
    Arena, Claims, Reader, Refusal, Seam, Subject, Verdict,
    baseline::{self, BaselineReport, Outcome},
    control::{OpenatWalk, StatThenOpen},
};

fn run_with(control: impl Subject + 'static, reference: impl Subject + 'static) -> BaselineReport {
    let dir = tempfile::tempdir().unwrap();
    let arena = Arena::new_in(dir.path()).unwrap();
    baseline::run_with(
        &arena,
        1,
        &(Arc::new(control) as Arc<dyn Subject>),
        &(Arc::new(reference) as Arc<dyn Subject>),
    )
    .unwrap()
}

#[test]
fn the_control_loses_both_swaps_at_equal_length_and_the_reference_none() {
    let report = run_with(StatThenOpen, OpenatWalk);
    assert_eq!(report.outcome, Outcome::Reproduced, "{report:#?}");
    let of = |name: &str| {
        report
            .assertions
            .iter()
            .find(|one| one.name == name)
            .unwrap()
    };
    for swap in [
        "final-path-swapped-after-check",
        "ancestor-swapped-after-check",
    ] {
        assert_eq!(of(swap).control.observed, [Verdict::Escaped], "{swap}");
        assert!(
            of(swap).control.same_length,
            "{swap}: length must not tell the two apart"
        );
        assert!(
            !of(swap).reference.observed.contains(&Verdict::Escaped),
            "{swap}"
        );
        assert!(
            of(swap).reference.observed.len() > 4,
            "{swap}: struck at every step"
        );
    }
}

/// Says it checked and opens through one held handle: the swaps no longer succeed.
struct Repaired;

impl Subject for Repaired {
    fn name(&self) -> &'static str {
        "repaired"
    }
    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        struct Inner(Box<dyn Reader>);
        impl Reader for Inner {
            fn read(
                &mut self,
                path: &Path,
                ceiling: u64,
                seam: &mut Seam<'_>,
            ) -> Result<Vec<u8>, Refusal> {
                self.0.read(path, ceiling, &mut |step| {
                    seam(if step == "examined" { "checked" } else { step });
                })
            }
        }
        Ok(Box::new(Inner(OpenatWalk.open(root)?)))
    }
}

#[test]
fn a_control_that_no_longer_loses_asks_for_a_review() {
    let report = run_with(Repaired, OpenatWalk);
    assert_eq!(report.outcome, Outcome::Review);
    assert!(
        !report.safe_for_path_deliverable_download,
        "a review opens nothing"
    );
    assert_eq!(report.path_deliverable_download, "blocked");
}

/// Opens what `walk` would refuse: the last component by name, links and all.
struct BrokenReference;

impl Subject for BrokenReference {
    fn name(&self) -> &'static str {
        "broken-reference"
    }
    fn claims(&self) -> Claims {
        OpenatWalk.claims()
    }
    fn open(&self, root: &Path) -> Result<Box<dyn Reader>, Refusal> {
        struct Inner(PathBuf);
        impl Reader for Inner {
            fn read(
                &mut self,
                path: &Path,
                _: u64,
                seam: &mut Seam<'_>,
            ) -> Result<Vec<u8>, Refusal> {
                seam("component");
                seam("examined");
                std::fs::read(self.0.join(path)).map_err(|_error| Refusal::new("io"))
            }
        }
        Ok(Box::new(Inner(root.to_owned())))
    }
}

#[test]
fn a_reference_that_loses_asks_for_a_review() {
    let report = run_with(StatThenOpen, BrokenReference);
    assert_eq!(report.outcome, Outcome::Review);
    for row in &report.assertions[1..] {
        assert!(!row.reference.holds, "{}", row.name);
    }
}

fn fsprobe(dir: &Path, arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_fsprobe"))
        .args(arguments)
        .env("TMPDIR", dir)
        .output()
        .unwrap()
}

#[test]
fn the_program_reports_blocked_exits_zero_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let output = fsprobe(dir.path(), &["baseline", "--json", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["format"], "fsprobe-baseline/1");
    assert_eq!(report["safeForPathDeliverableDownload"], false);
    assert_eq!(report["pathDeliverableDownload"], "blocked");
    assert_eq!(report["outcome"], "reproduced");
    assert_eq!(report["seed"], 7);
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "the arena is gone"
    );
}

#[test]
fn usage_errors_exit_three() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        fsprobe(dir.path(), &["baseline", "--nonsense"])
            .status
            .code(),
        Some(3)
    );
    assert_eq!(fsprobe(dir.path(), &[]).status.code(), Some(3));
    assert_eq!(fsprobe(dir.path(), &["--help"]).status.code(), Some(0));
}

#[test]
fn a_directory_that_cannot_be_used_is_inconclusive() {
    let dir = tempfile::tempdir().unwrap();
    let output = fsprobe(&dir.path().join("absent"), &["baseline"]);
    assert_eq!(output.status.code(), Some(2));
}
