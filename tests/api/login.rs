use std::time::Duration;

use serde_json::json;

use crate::support::{Answer, Server};

fn redeem(server: &Server, code: &str) -> Answer {
    let body = json!({"code": code}).to_string();
    let json = [("Content-Type", "application/json")];
    server.ask_with("POST", "/v1/login", None, &json, body.as_bytes())
}

fn code(server: &Server, life: Duration) -> String {
    let access = &server.parts.access;
    access
        .issue_login_code(server.alice.who.id, life)
        .unwrap()
        .reveal()
}

#[test]
fn a_code_is_redeemed_for_a_token_once() {
    let server = Server::start();
    let code = code(&server, Duration::from_mins(1));
    let answer = redeem(&server, &code);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!(body["principal"]["name"], "alice");
    assert_eq!(body["principal"]["kind"], "user");
    let token = body["token"].as_str().unwrap();
    assert_eq!(server.ask("GET", "/v1/sessions", Some(token)).status, 200);

    let again = redeem(&server, &code);
    assert_eq!(
        (again.status, again.code()),
        (401, "unauthenticated".to_owned())
    );
    let never = redeem(&server, &format!("hl_{}", "0".repeat(64)));
    assert_eq!(again.masked(), never.masked(), "used and never are one");
}

#[test]
fn a_code_and_its_token_end() {
    let server = Server::start();
    let late = code(&server, Duration::from_mins(1));
    let answer = redeem(&server, &code(&server, Duration::from_mins(1)));
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    server.clock.advance(Duration::from_mins(1));
    assert_eq!(redeem(&server, &late).status, 401);
    server
        .clock
        .advance(Duration::from_hours(12) - Duration::from_secs(61));
    assert_eq!(server.ask("GET", "/v1/sessions", Some(&token)).status, 200);
    server.clock.advance(Duration::from_secs(1));
    assert_eq!(server.ask("GET", "/v1/sessions", Some(&token)).status, 401);
}

#[test]
fn of_many_redeemers_at_once_one_wins() {
    let server = Server::start();
    for _ in 0..10 {
        let code = code(&server, Duration::from_mins(1));
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let redeemers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| redeem(&server, &code).status))
                .collect();
            redeemers.into_iter().map(|r| r.join().unwrap()).collect()
        });
        assert_eq!(
            statuses.iter().filter(|s| **s == 200).count(),
            1,
            "{statuses:?}"
        );
    }
}

#[test]
fn no_get_redeems_a_code() {
    let server = Server::start();
    let code = code(&server, Duration::from_mins(1));
    for target in ["/v1/login".to_owned(), format!("/v1/login?code={code}")] {
        let answer = server.ask("GET", &target, None);
        assert_eq!(answer.status, 405);
        assert_eq!(answer.field("allow"), Some("POST, OPTIONS"));
    }
    assert_eq!(redeem(&server, &code).status, 200);
}
