//! Request targets as attackers write them, sent as raw octets.

use crate::support::Server;

const SECRET: &[u8] = b"the secret of another place";

/// T01, T02, T07, T08: no spelling of a path names a file of this machine, and to a caller without
/// a token all spellings are one. Keeps I1 and I9.
#[test]
fn t01_t02_t07_t08_no_target_names_a_file() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    server.attach(&session, "a.txt", b"abc");
    let secret = server.data().join("secret.txt");
    std::fs::write(&secret, SECRET).unwrap();
    let absolute = secret.to_string_lossy().into_owned();
    let encoded = absolute.replace('/', "%2f");
    let twice = absolute.replace('/', "%252f");
    let attachments = format!("{session}/attachments");
    let id = crate::support::server::id(b"abc");
    for target in [
        // T01: an encoded slash climbs.
        format!("{attachments}/..%2f..%2f..%2fout%2fsecret.txt"),
        format!("{attachments}/%2e%2e%2f%2e%2e%2fsecret.txt"),
        format!("{attachments}/{id}?name=..%2f..%2fsecret.txt"),
        format!("{attachments}/{id}%2f..%2f..%2fsecret.txt"),
        format!("{attachments}/{id}%00.txt"),
        // T02: an absolute path.
        format!("{attachments}/{absolute}"),
        format!("{attachments}/{encoded}"),
        format!("{attachments}/{twice}"),
        format!("{attachments}/{id}?name={encoded}"),
        format!("{attachments}/{id}?path={encoded}"),
        encoded.clone(),
        absolute.clone(),
        // T07 and T08: an allowed prefix, then up again.
        format!("{attachments}/../../../secret.txt"),
        format!("{attachments}/{id}/../../../../secret.txt"),
        "/v1/sessions/../../secret.txt".to_owned(),
        "/files/../out/secret.txt".to_owned(),
        "/openapi.json/../secret.txt".to_owned(),
        "/openapi.json/%2e%2e/secret.txt".to_owned(),
        "//etc/passwd".to_owned(),
        "/..%5c..%5csecret.txt".to_owned(),
        "/%c0%ae%c0%ae/secret.txt".to_owned(),
        format!("{attachments}/%ff%fe"),
    ] {
        for who in [Some(server.alice.token.as_str()), None] {
            for method in ["GET", "HEAD"] {
                if !target.starts_with('/') {
                    continue;
                }
                let answer = server.ask(method, &target, who);
                let refused = [400, 401, 404].contains(&answer.status);
                assert!(refused, "{method} {target}: {}", answer.status);
                let leaked = answer
                    .body
                    .windows(SECRET.len())
                    .any(|window| window == SECRET);
                assert!(!leaked, "{method} {target}");
                assert!(!answer.text().contains("secret.txt"), "{method} {target}");
            }
        }
    }
}

/// T02: without a token present and absent are one, on every spelling.
#[test]
fn t02_without_a_token_present_and_absent_are_one() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let present = server.attach(&session, "a.txt", b"abc");
    let absent = present.replace(&present[present.len() - 8..], "00000000");
    for query in ["", "?name=a.txt", "?name=..%2fx", "?nonsense"] {
        let [present, absent] =
            [&present, &absent].map(|target| server.ask("GET", &format!("{target}{query}"), None));
        assert_eq!(present.status, 401);
        assert_eq!(present.masked(), absent.masked());
    }
}
