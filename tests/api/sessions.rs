use serde_json::json;

use crate::support::Server;

#[test]
fn a_host_creates_a_session_and_its_owners_see_it() {
    let server = Server::start();
    let form = json!({"id": "runs/子会话 #3", "cwd": "/work", "owners": [server.alice.who.id.to_string()]});
    let answer = server.post("/v1/sessions", &server.host, &form);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let body = answer.json();
    let handle = body["session"].as_str().unwrap().to_owned();
    assert_eq!(body["id"], "runs/子会话 #3");
    assert_eq!(body["lastSeq"], -1);
    assert_eq!(body["logGeneration"], 3);
    let location = format!("/v1/sessions/{handle}/snapshot");
    assert_eq!(answer.field("location"), Some(location.as_str()));
    for (who, sees) in [
        (&server.host, true),
        (&server.alice, true),
        (&server.bob, false),
    ] {
        let list = server.get("/v1/sessions", who).json();
        assert_eq!(list["sessions"] == json!([body]), sees, "{}", who.who.name);
        assert_eq!(
            server.get(&location, who).status == 200,
            sees,
            "{}",
            who.who.name
        );
    }
}

#[test]
fn an_id_is_taken_once_per_host() {
    let server = Server::start();
    let form = json!({"id": "one"});
    assert_eq!(server.post("/v1/sessions", &server.host, &form).status, 201);
    let again = server.post("/v1/sessions", &server.host, &form);
    assert_eq!(
        (again.status, again.code()),
        (409, "session-exists".to_owned())
    );
}

#[test]
fn a_form_that_says_more_or_less_than_it_should_is_refused() {
    let server = Server::start();
    let stranger = "p_00000000000000000000000000000000";
    let host = server.host.who.id.to_string();
    for (form, status, code) in [
        (json!({"owner": []}), 400, "malformed"),
        (json!({"owners": "alice"}), 400, "malformed"),
        (json!({"owners": ["alice"]}), 400, "malformed"),
        (json!({"id": ""}), 400, "malformed"),
        (json!({"id": "a\nb"}), 400, "malformed"),
        (json!({"cwd": "relative"}), 400, "malformed"),
        (json!([]), 400, "malformed"),
        (json!({"owners": [stranger]}), 422, "unknown-owner"),
        (json!({"owners": [host]}), 422, "unknown-owner"),
    ] {
        let answer = server.post("/v1/sessions", &server.host, &form);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{form}"
        );
    }
    assert_eq!(
        server.get("/v1/sessions", &server.host).json()["sessions"],
        json!([])
    );
}

#[test]
fn a_body_that_is_not_json_or_too_large_is_refused() {
    let server = Server::start();
    let token = Some(server.host.token.as_str());
    let post = |kind: &str, body: &[u8]| {
        server.ask_with(
            "POST",
            "/v1/sessions",
            token,
            &[("Content-Type", kind)],
            body,
        )
    };
    assert_eq!(post("text/plain", b"{}").code(), "unsupported-media-type");
    assert_eq!(post("application/json", b"{").code(), "malformed");
    assert_eq!(post("application/json", b"").code(), "malformed");
    assert_eq!(post("application/json; charset=utf-8", b"{}").status, 201);
    let large = vec![b' '; (4 << 20) + 1];
    let refused = post("application/json", &large);
    assert_eq!(
        (refused.status, refused.code()),
        (413, "too-large".to_owned())
    );
    assert_eq!(refused.json()["setting"], "limits.json_body");
}

#[test]
fn the_list_is_paged_newest_first() {
    let server = Server::start();
    let mut made: Vec<String> = (0..5)
        .map(|_| {
            server
                .session(&[&server.alice])
                .replace("/v1/sessions/", "")
        })
        .collect();
    made.reverse();
    let mut seen = Vec::new();
    let mut target = "/v1/sessions?limit=2".to_owned();
    loop {
        let page = server.get(&target, &server.alice).json();
        let own = page["sessions"].as_array().unwrap().clone();
        seen.extend(
            own.iter()
                .map(|s| s["session"].as_str().unwrap().to_owned()),
        );
        if page["hasMore"] == json!(false) {
            break;
        }
        target = format!("/v1/sessions?limit=2&after={}", seen.last().unwrap());
    }
    assert_eq!(seen, made);
    for query in [
        "limit=0",
        "limit=101",
        "limit=x",
        "after=x",
        "page=2",
        "limit=1&limit=2",
    ] {
        let answer = server.get(&format!("/v1/sessions?{query}"), &server.alice);
        assert_eq!(
            (answer.status, answer.code()),
            (400, "malformed".to_owned()),
            "{query}"
        );
    }
}

/// Keeps I9: a page cannot be started from what is not one's own.
#[test]
fn a_foreign_session_is_no_place_to_start_a_page() {
    let server = Server::start();
    let foreign = server
        .session(&[&server.alice])
        .replace("/v1/sessions/", "");
    let [foreign, absent] = [foreign.as_str(), "s_00000000000000000000000000000000"]
        .map(|after| server.get(&format!("/v1/sessions?after={after}"), &server.bob));
    assert_eq!(foreign.status, 404);
    assert_eq!(foreign.masked(), absent.masked());
}

/// The host says what it is: a real version, and a run that grows.
#[test]
fn the_host_describes_itself_to_anybody() {
    let server = Server::start();
    let body = server.ask("GET", "/v1/host", None).json();
    assert_eq!(body["name"], "holdfast");
    assert_eq!(body["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(body["protocolVersion"], 1);
    assert_eq!(body["bridgeGeneration"], 1);
    assert_eq!(body["hostInstanceId"], format!("h_{}", "07".repeat(16)));
    assert_eq!(body["capabilities"]["composer"], false);
    assert_eq!(body["capabilities"]["localHandoff"], false);
    let details = json!({"reason": "executor-unavailable", "executesLocally": false});
    assert_eq!(body["capabilities"]["localHandoffDetails"], details);
    assert_eq!(body["capabilities"]["approval"]["interactive"], false);
    let next = holdfast::transfer::HostIdentity::start(&server.parts.control, [9; 16]).unwrap();
    assert_eq!(
        next.instance, server.parts.identity.instance,
        "the installation stays"
    );
    assert_eq!(next.bridge_generation, 2, "the run does not");
}
