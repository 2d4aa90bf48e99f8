//! What judges that other people wrote find in our answers and in our description of them.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::{
    program::{Home, Server},
    skip, wire,
};

/// A judge that `cargo xtask setup` installed, or a line that says that it is not here.
fn judge(program: &str) -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../judges/bin");
    let path = installed.join(program);
    if path.exists() {
        return Some(path);
    }
    skip::skipped(1, program, "it is not installed (`cargo xtask setup`)");
    None
}

/// What is meant so: a ticket's answers are `private, no-store`, for those who read one word alone.
const NO_STORE: &str = "The no-store cache directive overrides other directives.";
/// What is meant so: the old field is sent to who asks for it, because a download manager checks it.
const OLD_DIGEST: &str = "The Digest header is deprecated.";

/// The judge's word for any 400.
const MALFORMED: &str = "The server didn't understand the request.";
/// A mistake of the judge: an answer in parts has the field in each part, and must not have it in its
/// own head (RFC 9110 section 15.3.7.2).
const IN_PARTS: &str = "This response is partial, but doesn't have a Content-Range header.";

fn ticket(server: &Server) -> Value {
    let form = json!({
        "session": server.text("session"),
        "attachmentId": server.text("attachmentId"),
        "uses": 100,
    });
    let made = wire::request(
        server.address(),
        "POST",
        "/v1/tickets",
        Some(server.text("token")),
        &["Content-Type: application/json"],
        form.to_string().as_bytes(),
    );
    made.json()
}

/// What `httplint` holds against an answer.
fn lint(httplint: &Path, answer: &[u8]) -> Vec<String> {
    let mut child = Command::new(httplint)
        .arg("-n")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(answer).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8(output.stdout).unwrap();
    assert!(notes.contains("* [GOOD]"), "it has looked at it: {notes}");
    let against = |line: &&str| line.starts_with("* [BAD]") || line.starts_with("* [WARN]");
    notes.lines().filter(against).map(str::to_owned).collect()
}

#[test]
fn httplint_holds_nothing_against_any_kind_of_answer() {
    let Some(httplint) = judge("httplint") else {
        return;
    };
    let home = Home::new();
    let server = home.up();
    // Large enough for an answer in parts.
    let file = home.file("large.bin", &vec![b'x'; 100_000]);
    let session = server.text("session");
    let put = ["put", "--session", session, "--reference"];
    let stored = home.json(&[&put[..], &[file.to_str().unwrap()]].concat());
    let id = stored["attachmentId"].as_str().unwrap();
    let own = format!("/v1/sessions/{session}/attachments/{id}");
    let token = server.text("token");
    let held = ticket(&server)["href"].as_str().unwrap().to_owned();
    let tag = own.rsplit(':').next().unwrap();
    let me = format!("Authorization: Bearer {token}");
    let answer = |target: &str, fields: &[&str]| {
        let mut request =
            format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        for field in fields {
            request.extend([field, "\r\n"]);
        }
        wire::send(server.address(), format!("{request}\r\n").as_bytes())
    };
    let if_none_match = format!("If-None-Match: \"{tag}\"");
    let held_tag = server.text("attachmentId").rsplit(':').next().unwrap();
    let held_known = format!("If-None-Match: \"{held_tag}\"");
    let rows: Vec<(&str, Vec<&str>, u16)> = vec![
        (&own, vec![&me], 200),
        (&own, vec![&me, "Want-Digest: sha-256"], 200),
        (&own, vec![&me, "Want-Content-Digest: sha-256=1"], 200),
        (&own, vec![&me, "Range: bytes=1-9"], 206),
        (&own, vec![&me, "Range: bytes=1-9, 100-109"], 206),
        (&own, vec![&me, "Range: bytes=100000-"], 416),
        (
            &own,
            vec![&me, "Range: bytes=100000-", "Sec-Fetch-Mode: navigate"],
            416,
        ),
        (&own, vec![&me, &if_none_match], 304),
        (&own, vec![&me, "If-Match: \"x\""], 412),
        (&own, vec![], 401),
        (&own, vec!["Sec-Fetch-Mode: navigate"], 401),
        (&held, vec![], 200),
        (&held, vec!["Range: bytes=1-9"], 206),
        (&held, vec![&held_known], 304),
        ("/d/nothing", vec![], 404),
        ("/v1/sessions", vec![&me], 200),
        ("/v1/host", vec![], 200),
        ("/openapi.json", vec![], 200),
        ("/", vec![], 200),
        ("/page.js", vec![], 200),
        ("/page.css", vec![], 200),
        ("/nowhere", vec![], 404),
        ("/nowhere", vec![" folded: x"], 400),
    ];
    for (target, fields, status) in rows {
        let octets = answer(target, &fields);
        assert_eq!(wire::parse(&octets).status, status, "{target} {fields:?}");
        let mut against = lint(&httplint, &octets);
        let asked = fields.iter().any(|field| field.starts_with("Want-Digest"));
        let parts = fields.iter().any(|field| field.contains(", "));
        against.retain(|note| {
            let meant = [
                (target == held, NO_STORE),
                (asked, OLD_DIGEST),
                (parts, IN_PARTS),
                (status == 400, MALFORMED),
            ];
            !meant.iter().any(|(so, text)| *so && note.ends_with(text))
        });
        assert_eq!(against, [""; 0], "{target} {fields:?}");
    }
    // A judge who finds nothing in this would be none.
    let text = String::from_utf8(answer("/v1/host", &[])).unwrap();
    let wrong = text.replace("date: ", "date: x");
    assert_ne!(lint(&httplint, wrong.as_bytes()), [""; 0]);
}

/// `redbot` asks again by itself: with conditions, ranges and other codings.
#[test]
fn redbot_holds_nothing_against_a_download_or_the_page() {
    let Some(redbot) = judge("redbot") else {
        return;
    };
    let home = Home::new();
    let server = home.up();
    let held = ticket(&server)["href"].as_str().unwrap().to_owned();
    for target in [held.as_str(), "/", "/openapi.json"] {
        let output = Command::new(&redbot)
            .args(["-o", "har"])
            .arg(format!("http://{}{target}", server.address()))
            .env_remove("http_proxy")
            .output()
            .unwrap();
        let har: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let entries = har["log"]["entries"].as_array().unwrap();
        let notes: Vec<&Value> = entries
            .iter()
            .flat_map(|entry| entry["_red_messages"].as_array().into_iter().flatten())
            .collect();
        let said =
            |note: &&&Value| ["BAD", "WARN"].contains(&note["level"].as_str().unwrap_or_default());
        let against: Vec<&str> = notes
            .iter()
            .filter(said)
            .map(|note| note["summary"].as_str().unwrap_or_default())
            .filter(|summary| target != held || *summary != NO_STORE)
            .collect();
        assert_eq!(against, [""; 0], "{target}");
        if target == held {
            let ids: Vec<&str> = notes
                .iter()
                .filter_map(|note| note["note_id"].as_str())
                .collect();
            assert!(
                ids.contains(&"RANGE_CORRECT") && ids.contains(&"INM_304"),
                "{ids:?}"
            );
        }
    }
}

/// Runs `schemathesis` on a description of what `server` does.
fn examine(tool: &Path, home: &Home, server: &Server, description: &str, more: &[&str]) -> Output {
    let examples = std::env::var("HOLDFAST_TEST_EXAMPLES").unwrap_or("12".to_owned());
    let ticket = ticket(server);
    // Real things to ask about, so that more is seen than refusals.
    let known = format!(
        "[parameters]\n\"path.session\" = {}\n\"path.attachment\" = {}\n\"path.ticket\" = {}\n",
        server.ready["session"],
        server.ready["attachmentId"],
        json!(ticket["href"].as_str().unwrap().trim_start_matches("/d/")),
    );
    let config = home.file("schemathesis.toml", known.as_bytes());
    Command::new(tool)
        .arg("--config-file")
        .arg(config)
        .args(["run", description, "--url"])
        .arg(server.text("url"))
        .args([
            "--phases",
            "examples,coverage,fuzzing",
            "--seed",
            "1",
            "--max-examples",
            &examples,
        ])
        .args(["--checks", CHECKS, "--header"])
        .arg(format!("Authorization: Bearer {}", server.text("token")))
        .args(more)
        .current_dir(home.path())
        .env("HOME", home.path())
        .env_remove("http_proxy")
        .output()
        .unwrap()
}

/// No failure of ours, and no answer that the description does not have. That a request of the right
/// shape is always taken is not among them: an id that names nothing is of the right shape.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";

#[test]
fn schemathesis_finds_no_server_error_and_no_undocumented_answer() {
    let Some(tool) = judge("st") else {
        return;
    };
    let home = Home::new();
    let server = home.up();
    let url = format!("{}/openapi.json", server.text("url"));
    // A stream has no end to wait for, and its text is judged as if each event were all of it.
    let found = examine(
        &tool,
        &home,
        &server,
        &url,
        &["--exclude-path", "/v1/events"],
    );
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.status.success(), "{said}");
    assert!(said.contains("Fuzzing"), "{said}");
    let summary = said.lines().find(|line| line.contains(" generated, "));
    eprintln!("schemathesis: {}", summary.unwrap_or_default().trim());
}

/// A judge who accepts a description that leaves an answer out would be none.
#[test]
fn schemathesis_notices_an_answer_that_is_left_out() {
    let Some(tool) = judge("st") else {
        return;
    };
    let home = Home::new();
    let server = home.up();
    let mut description = wire::get(server.address(), "/openapi.json", None, &[]).json();
    let path = "/v1/sessions/{session}/snapshot";
    let answers = description["paths"][path]["get"]["responses"]
        .as_object_mut()
        .unwrap();
    answers.retain(|status, _| status == "418");
    answers.insert("418".to_owned(), json!({"description": "never"}));
    let file = home.file("wrong.json", description.to_string().as_bytes());
    let found = examine(
        &tool,
        &home,
        &server,
        file.to_str().unwrap(),
        &["--include-path", path],
    );
    assert!(!found.status.success(), "{found:?}");
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(said.contains("Undocumented status code"), "{said}");
}
