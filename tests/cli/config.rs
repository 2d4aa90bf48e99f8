//! Configuration: what is refused, and how it is said.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::program::{Home, holdfast, run};

/// A home whose configuration is `text`.
fn with(text: &str) -> Home {
    let home = Home::new();
    let done = home.run(&["init"]);
    assert_eq!(done.code, 0, "{done:?}");
    std::fs::write(home.data().join("holdfast.toml"), text).unwrap();
    home
}

#[test]
fn what_init_writes_is_good() {
    let home = Home::new();
    std::fs::create_dir(home.path().join("ws")).unwrap();
    let done = home.json(&["init", "--root", "ws"]);
    assert_eq!(done["isNew"], true);
    let checked = home.json(&["check-config"]);
    assert_eq!(checked["roots"][0]["name"], "workspace");
    assert_eq!(checked["deliverablesMode"], "metadata-only");
    let again = home.json(&["init"]);
    assert_eq!(again["isNew"], false, "a second run changes nothing");
    let text = home.run(&["check-config"]);
    assert!(text.out.contains("is good"), "{text:?}");
}

#[test]
fn a_bad_setting_is_named_with_line_and_key() {
    for (text, says) in [
        (
            "listen = \"127.0.0.1:1\"\n[limits]\nfiel = 3\n",
            "holdfast.toml:3: limits.fiel: unknown",
        ),
        (
            "[limits]\nfile = \"huge\"\n",
            "holdfast.toml:2: limits.file: a size is",
        ),
        ("listen = 5\n", "holdfast.toml:1: listen: invalid type"),
        (
            "[[root]]\nname = \"a\"\npath = \"\"\n",
            "holdfast.toml:3: root[0].path: a path",
        ),
        ("this is not toml\n", "holdfast.toml:1: "),
    ] {
        let home = with(text);
        let done = home.run(&["check-config"]);
        assert_eq!(done.code, 3, "{done:?}");
        assert!(done.err.contains(says), "{text:?}: {done:?}");
    }
    let home = with("");
    let done = run(home.command(&["check-config"]).env("HOLDFAST_LISEN", "x"));
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.err.contains("HOLDFAST_LISEN"), "{done:?}");
}

#[test]
fn directories_that_overlap_are_refused_by_whatever_name() {
    let home = with("");
    symlink(home.data(), home.path().join("alias")).unwrap();
    std::fs::create_dir(home.data().join("data/objects/inner")).unwrap();
    for (path, says) in [
        (".", "the data directory lies in root"),
        ("data", "the data directory lies in root"),
        ("..", "the data directory lies in root"),
        ("../alias", "the data directory lies in root"),
        ("data/objects/inner", "root `a` lies in the data directory"),
    ] {
        let text = format!("[[root]]\nname = \"a\"\npath = \"{path}\"\n");
        std::fs::write(home.data().join("holdfast.toml"), text).unwrap();
        for command in [
            &["check-config"][..],
            &["serve", "--allow-root", "--listen", "127.0.0.1:0"],
        ] {
            let done = home.run(command);
            assert_eq!(done.code, 3, "{path}: {done:?}");
            assert!(done.err.contains(says), "{path}: {done:?}");
        }
    }
    // The data elsewhere, but the configuration within reach of the root's writer.
    let other = home.path().join("elsewhere");
    std::fs::rename(home.data().join("data"), &other).unwrap();
    let text = format!(
        "data = \"{}\"\n[[root]]\nname = \"a\"\npath = \".\"\n",
        other.display()
    );
    std::fs::write(home.data().join("holdfast.toml"), text).unwrap();
    let done = home.run(&["check-config"]);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(
        done.err.contains("the configuration lies in root `a`"),
        "{done:?}"
    );
}

#[test]
fn what_others_may_write_is_refused() {
    let home = with("");
    let file = home.data().join("holdfast.toml");
    let chmod = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    chmod(&file, 0o622);
    let done = home.run(&["check-config"]);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.err.contains("may be written by others"), "{done:?}");
    chmod(&file, 0o600);
    chmod(&home.data().join("data"), 0o777);
    let done = home.run(&["check-config"]);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.err.contains("0777"), "{done:?}");
}

#[test]
fn a_root_that_is_not_there_is_named() {
    let home = with("[[root]]\nname = \"gone\"\npath = \"nowhere\"\n");
    let done = home.run(&["check-config"]);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.err.contains("root `gone`"), "{done:?}");
}

#[test]
fn serving_as_root_needs_to_be_said() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be refused for being root");
        return;
    }
    let home = with("");
    let done = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.err.contains("--allow-root"), "{done:?}");
}

#[test]
fn the_documented_exit_codes_are_the_ones_in_the_help() {
    let help = run(holdfast().arg("--help"));
    let codes = help.out.split_once("Exit codes:").unwrap().1.trim_end();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md")).unwrap();
    assert!(page.contains(codes), "docs/cli.md does not have:{codes}");
    assert_eq!(run(holdfast().arg("--no-such-word")).code, 2);
    assert_eq!(run(holdfast().arg("--version")).code, 0);
}

#[test]
fn every_setting_is_documented() {
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/configuration.md"
    ))
    .unwrap();
    for key in [
        "data",
        "listen",
        "admin",
        "public_url",
        "deliverables.mode",
        "file",
        "session_bytes",
        "free_reserve",
        "json_body",
        "request_head",
        "request_fields",
        "head_deadline",
        "stall",
        "connections",
        "requests_per_principal",
        "ticket_life",
        "ticket_grace",
        "tickets_per_principal",
        "drain",
        "verified_for",
        "journal.event",
        "journal.events_per_append",
        "journal.events_per_page",
        "journal.depth",
        "journal.references_per_event",
    ] {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn every_problem_code_is_documented() {
    let document: serde_json::Value = run(holdfast().arg("openapi")).json();
    let codes = document["components"]["schemas"]["Code"]["enum"]
        .as_array()
        .unwrap();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/problems.md")).unwrap();
    for code in codes {
        let code = code.as_str().unwrap();
        assert!(
            page.contains(&format!("| `{code}` |")),
            "docs/problems.md lacks `{code}`"
        );
    }
    for reason in holdfast::gate::GateClosed::ALL {
        let row = format!("| `{}` |", reason.code());
        assert!(page.contains(&row), "docs/problems.md lacks {row}");
    }
}

/// A promise is held by a test that is there: SECURITY.md names them, and they exist.
#[test]
fn every_test_that_security_md_names_is_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let mut named = 0;
    for cited in page.split('`').filter(|text| text.contains(".rs")) {
        let (file, test) = cited.split_once("::").unwrap_or((cited, ""));
        let code = std::fs::read_to_string(root.join(file));
        let code = code.unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(
            test.is_empty() || code.contains(&format!("fn {test}(")),
            "{cited}"
        );
        named += 1;
    }
    assert!(named > 20, "{named}");
    for promise in 1..=15 {
        assert!(page.contains(&format!("| **I{promise}** |")), "I{promise}");
    }
}
