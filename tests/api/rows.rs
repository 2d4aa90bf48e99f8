//! The acceptance rows of approvals, questions, permissions, streams and handoff: each has a test that
//! carries its id in its name.

use std::{collections::BTreeSet, fs, path::Path};

/// The rows: a letter pair and how many there are.
const ROWS: &[(&str, u32)] = &[
    ("ap", 12),
    ("br", 28),
    ("pr", 7),
    ("mx", 10),
    ("qu", 7),
    ("pm", 9),
    ("st", 7),
    ("ho", 15),
    ("ht", 6),
    ("fr", 11),
];

#[test]
fn every_row_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tested = BTreeSet::new();
    for dir in ["src", "tests"] {
        names(&root.join(dir), &mut tested);
    }
    let rows = ROWS
        .iter()
        .flat_map(|(pair, count)| (1..=*count).map(move |n| format!("{pair}_{n:02}")));
    for row in rows {
        assert!(tested.contains(&row), "no test has {row} in its name");
    }
}

/// The rows in the names of test functions.
fn names(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                let name = line
                    .trim_start_matches("async ")
                    .strip_prefix("fn ")
                    .and_then(|rest| rest.split('(').next());
                if let Some(name) = name {
                    let words: Vec<&str> = name.split('_').collect();
                    if is_test {
                        found.extend(words.windows(2).map(|two| two.join("_")));
                    }
                    is_test = false;
                } else if line.starts_with("#[") && line.contains("test]") {
                    is_test = true;
                } else if !line.starts_with("#[") {
                    is_test = false;
                }
            }
        }
    }
}
