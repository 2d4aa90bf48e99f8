//! The client in TypeScript, built from the description that is kept and run against the real server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{has, program::Home, skip};

/// Where the client's compilers are, installed from its own lock file.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("../typescript")
}

fn node(dir: &Path, arguments: &[&str]) -> Command {
    let mut node = Command::new("node");
    node.current_dir(dir).args(arguments);
    node
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}\n{said}");
    said
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Submit, approve, question, permission, stream, download and ticket, by one small client whose types are
/// the description's.
#[test]
fn the_typescript_client_drives_the_real_server() {
    if !has("node", &["--version"]) {
        return;
    }
    let modules = tools().join("node_modules");
    if !modules.join("typescript/bin/tsc").exists() {
        return skip::skipped(
            1,
            "the client in TypeScript",
            "its compilers are not installed",
        );
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/typescript");
    let home = Home::new();
    let dir = home.path().join("client");
    for part in ["src", "test"] {
        copy(&source.join(part), &dir.join(part));
    }
    for file in ["package.json", "tsconfig.json"] {
        fs::copy(source.join(file), dir.join(file)).unwrap();
    }
    std::os::unix::fs::symlink(modules.canonicalize().unwrap(), dir.join("node_modules")).unwrap();
    let description = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let description = description.to_str().unwrap();
    let generator = "node_modules/openapi-typescript/bin/cli.js";
    succeed(&mut node(
        &dir,
        &[generator, description, "-o", "src/api.d.ts"],
    ));
    succeed(&mut node(
        &dir,
        &["node_modules/typescript/bin/tsc", "-p", "."],
    ));

    let server = home.up_with(|command| {
        command.env("HOLDFAST_INTERACTIONS_ENABLED", "true");
    });
    let token = |name: &str| {
        let made = home.json(&["token", "create", name]);
        made["token"].as_str().unwrap().to_owned()
    };
    let session = server.text("session").to_owned();
    let mut journey = node(&dir, &["dist/test/journey.js"]);
    journey
        .env("HOLDFAST_URL", format!("http://{}", server.address()))
        .env("HOLDFAST_SESSION", session)
        .env("HOST_TOKEN", token("demo-host"))
        .env("PERSON_TOKEN", token("you"));
    let said = succeed(&mut journey);
    assert!(said.contains("all of it held"), "{said}");
}
