use std::time::Duration;

use holdfast::{
    access::{AccessError, PrincipalKind, PrincipalName, TokenNumber},
    model::Digest,
};
use serde_json::json;

use crate::support::Server;

fn status(server: &Server, authorization: &str) -> u16 {
    let fields = [("Authorization", authorization)];
    server
        .ask_with("GET", "/v1/sessions", None, &fields, b"")
        .status
}

#[test]
fn a_token_that_ended_or_was_revoked_is_no_token() {
    let server = Server::start();
    let access = &server.parts.access;
    let who = server.alice.who.id;
    let short = access
        .issue_token(who, "short", Some(Duration::from_mins(1)))
        .unwrap();
    let long = access.issue_token(who, "long", None).unwrap();
    let bearer = |token: &str| status(&server, &format!("Bearer {token}"));
    assert_eq!(bearer(&short.token.reveal()), 200);
    server.clock.advance(Duration::from_mins(1));
    assert_eq!(bearer(&short.token.reveal()), 401);
    assert_eq!(bearer(&long.token.reveal()), 200);
    access.revoke_token(long.number).unwrap();
    access.revoke_token(long.number).unwrap();
    assert_eq!(bearer(&long.token.reveal()), 401);
    let never = access.revoke_token(TokenNumber::new(999_999));
    assert!(matches!(never, Err(AccessError::Hidden)), "{never:?}");
}

#[test]
fn what_ended_long_ago_leaves_the_list_and_its_number_is_not_given_again() {
    const DAY: Duration = Duration::from_hours(24);
    let server = Server::start();
    let access = &server.parts.access;
    let who = server.alice.who.id;
    let issue = |life| access.issue_token(who, "", life).unwrap().number;
    let (ended, revoked, living) = (issue(Some(DAY)), issue(None), issue(None));
    access.revoke_token(revoked).unwrap();
    let listed = |number| {
        access
            .tokens()
            .unwrap()
            .iter()
            .any(|one| one.number == number)
    };
    server.clock.advance(DAY * 30);
    issue(None);
    assert!(listed(ended), "it ended 29 days ago");
    assert!(!listed(revoked) && listed(living));
    let last = issue(Some(DAY));
    server.clock.advance(DAY * 31);
    let next = issue(None);
    assert!(!listed(ended) && !listed(last) && listed(living));
    assert!(next > last, "{next} follows {last}");
}

#[test]
fn only_one_whole_bearer_token_is_read() {
    let server = Server::start();
    let token = server.alice.token.clone();
    assert_eq!(status(&server, &format!("Bearer {token}")), 200);
    assert_eq!(status(&server, &format!("bearer {token}")), 200);
    for line in [
        token.clone(),
        format!("Basic {token}"),
        format!("Bearer {}", &token[..token.len() - 1]),
        format!("Bearer {token}0"),
        format!("Bearer {}", token.to_uppercase()),
        format!("Bearer {}", token.replacen("hf_", "hl_", 1)),
        "Bearer ".to_owned(),
        String::new(),
    ] {
        assert_eq!(status(&server, &line), 401, "{line:?}");
    }
    let target = format!("/v1/sessions?token={token}");
    let by_query = server.ask("GET", &target, None);
    assert_eq!(by_query.status, 401, "a token in an address is no token");
}

#[test]
fn a_name_is_taken_once() {
    let server = Server::start();
    let name = PrincipalName::parse("alice").unwrap();
    let taken = server
        .parts
        .access
        .create_principal(PrincipalKind::User, name);
    assert!(matches!(taken, Err(AccessError::Refused(_))), "{taken:?}");
}

/// Keeps I14: what is stored of a secret does not give it away.
#[test]
fn no_secret_stands_in_the_data_directory() {
    let server = Server::start();
    let access = &server.parts.access;
    let who = server.alice.who.id;
    let code = access
        .issue_login_code(who, Duration::from_mins(1))
        .unwrap()
        .reveal();
    let session = server.session(&[&server.alice]);
    let attachment = server.attach(&session, "a", b"abc");
    let (handle, id) = attachment.rsplit_once("/attachments/").unwrap();
    let form = json!({"session": handle.rsplit('/').next(), "attachmentId": id});
    let ticket = server.post("/v1/tickets", &server.alice, &form).json();
    let ticket = ticket["href"].as_str().unwrap()["/d/".len()..].to_owned();
    let secrets =
        [&server.host.token, &server.alice.token, &code, &ticket].map(|text| text[3..].to_owned());
    let mut seen = 0;
    for entry in std::fs::read_dir(server.data().join("data/journal")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(octets) = std::fs::read(&path) else {
            continue;
        };
        let text = String::from_utf8_lossy(&octets);
        seen += octets.len();
        for secret in &secrets {
            assert!(!text.contains(secret.as_str()), "in {}", path.display());
            let half = &secret[..32];
            assert!(!text.contains(half), "half of it in {}", path.display());
            let bits = Digest::parse(secret).unwrap();
            let mut all = octets.windows(32);
            let found = all.any(|some| some == bits.as_bytes());
            assert!(!found, "its bits in {}", path.display());
        }
    }
    assert!(seen > 4096, "the database was read: {seen}");
}

/// Keeps I9: a session belongs to exact ids, not to what starts alike.
#[test]
fn a_host_sees_the_sessions_it_created_alone() {
    let server = Server::start();
    let access = &server.parts.access;
    let name = PrincipalName::parse("host 2").unwrap();
    let other = access.create_principal(PrincipalKind::Host, name).unwrap();
    let token = access
        .issue_token(other.id, "", None)
        .unwrap()
        .token
        .reveal();
    let session = server.session(&[&server.alice]);
    let answer = server.ask("GET", &format!("{session}/snapshot"), Some(&token));
    assert_eq!(answer.status, 404);
    let list = server.ask("GET", "/v1/sessions", Some(&token)).json();
    assert_eq!(list["sessions"], json!([]));
}

#[test]
fn an_operator_sees_no_session_on_that_account() {
    let server = Server::start();
    let access = &server.parts.access;
    let name = PrincipalName::parse("operator").unwrap();
    let who = access
        .create_principal(PrincipalKind::Operator, name)
        .unwrap();
    let token = access.issue_token(who.id, "", None).unwrap().token.reveal();
    let session = server.session(&[&server.alice]);
    for target in [format!("{session}/snapshot"), format!("{session}/events")] {
        assert_eq!(server.ask("GET", &target, Some(&token)).status, 404);
    }
    let body = json!({}).to_string();
    let fields = [("Content-Type", "application/json")];
    let create = server.ask_with(
        "POST",
        "/v1/sessions",
        Some(&token),
        &fields,
        body.as_bytes(),
    );
    assert_eq!(create.status, 403);
}

/// Keeps I11.
#[test]
fn a_principal_with_too_many_requests_in_hand_waits_its_turn() {
    use crate::support::{Options, server::request};
    let mut options = Options::default();
    options.limits.requests_per_principal = 2;
    let server = Server::with(&options);
    let session = server.session(&[&server.alice, &server.bob]);
    let target = server.attach(
        &session,
        "big",
        &crate::support::server::content(16 << 20, 1),
    );
    let token = Some(server.alice.token.as_str());
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect();
        client
            .send(&request("GET", &target, token, &[], None))
            .unwrap();
        assert_eq!(client.read_head().status, 200);
        held.push(client);
    }
    let refused = server.ask("GET", "/v1/sessions", token);
    assert_eq!((refused.status, refused.code()), (503, "busy".to_owned()));
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(
        server.get("/v1/sessions", &server.bob).status,
        200,
        "others are served"
    );
    drop(held);
    crate::support::server::eventually("the places are given back", || {
        server.ask("GET", "/v1/sessions", token).status == 200
    });
}
