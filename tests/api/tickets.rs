//! Tickets: what they open, how often, for how long, and what is left to see of one that ended.

use std::{os::unix::fs::FileExt as _, sync::Barrier, time::Duration};

use holdfast::access::TokenNumber;
use serde_json::{Value, json};

use crate::support::{
    Answer, Client, Server,
    server::{Person, content, eventually, id, request},
};

/// A ticket as its maker got it.
struct Made {
    id: String,
    href: String,
}

fn form(session: &str, content: &[u8]) -> Value {
    let session = session.strip_prefix("/v1/sessions/").unwrap();
    json!({"session": session, "attachmentId": id(content)})
}

fn made(answer: &Answer) -> Made {
    assert_eq!(answer.status, 201, "{}", answer.text());
    let body = answer.json();
    let text = |key: &str| body[key].as_str().unwrap().to_owned();
    Made {
        id: text("ticket"),
        href: text("href"),
    }
}

fn make(server: &Server, who: &Person, session: &str, content: &[u8], uses: u32) -> Made {
    let mut form = form(session, content);
    form["uses"] = uses.into();
    form["lifeSeconds"] = 60.into();
    made(&server.post("/v1/tickets", who, &form))
}

/// A session of alice's with this content in it, and a ticket for it.
fn scene(content: &[u8], uses: u32) -> (Server, String, Made) {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    server.attach(&session, "a.txt", content);
    let made = make(&server, &server.alice, &session, content, uses);
    (server, session, made)
}

fn ask(server: &Server, method: &str, href: &str, fields: &[(&str, &str)]) -> Answer {
    server
        .connect()
        .ask(&request(method, href, None, fields, None))
}

fn range(value: &str) -> [(&'static str, &str); 1] {
    [("Range", value)]
}

/// One door (I10): the fields of the attachment's own address, but nothing is kept by anybody.
/// c01, n06.
#[test]
fn c01_n06_a_ticket_is_answered_like_the_attachment_and_kept_by_nobody() {
    let bytes = content(300_000, 1);
    let (server, session, ticket) = scene(&bytes, 100);
    let own = format!("{session}/attachments/{}", id(&bytes));
    let tag = format!("\"{}\"", id(&bytes).trim_start_matches("sha256:"));
    for (method, fields, status) in [
        ("GET", &[][..], 200),
        ("HEAD", &[], 200),
        ("HEAD", &range("bytes=0-9"), 200),
        ("GET", &range("bytes=0-9"), 206),
        ("GET", &range("bytes=0-9,100-109"), 206),
        ("GET", &[("If-None-Match", tag.as_str())], 304),
        ("GET", &[("If-Match", "\"x\"")], 412),
        ("GET", &range("bytes=300000-"), 416),
    ] {
        let by_ticket = ask(&server, method, &ticket.href, fields);
        let token = Some(server.alice.token.as_str());
        let by_right = server
            .connect()
            .ask(&request(method, &own, token, fields, None));
        let compared = |answer: &Answer| {
            let mut fields = answer.fields.clone();
            let other = ["date", "x-request-id", "cache-control", "vary"];
            fields.retain(|(name, _)| !other.contains(&name.as_str()));
            (answer.status, fields)
        };
        assert_eq!(by_ticket.status, status, "{method} {fields:?}");
        assert_eq!(
            compared(&by_ticket),
            compared(&by_right),
            "{method} {fields:?}"
        );
        if status < 400 {
            assert_eq!(by_ticket.body, by_right.body, "{method} {fields:?}");
        }
        let cache = if status < 400 {
            "private, no-store"
        } else {
            "no-store"
        };
        assert_eq!(by_ticket.field("cache-control"), Some(cache));
        let vary = (status >= 400).then_some("Authorization, Accept, Sec-Fetch-Mode");
        assert_eq!(by_ticket.field("vary"), vary);
        assert_eq!(by_ticket.field("referrer-policy"), Some("no-referrer"));
    }
}

/// A request by ticket, and the status of its answer.
type Step<'a> = (&'static str, &'a [(&'static str, &'a str)], u16);

/// What counts as a use and what does not, request by request.
#[test]
#[expect(clippy::too_many_lines, reason = "one row per rule")]
fn each_request_counts_as_the_rules_say() {
    const SIZE: usize = 1000;
    let bytes = content(SIZE, 2);
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    server.attach(&session, "a.txt", &bytes);
    let tag = format!("\"{}\"", id(&bytes).trim_start_matches("sha256:"));
    let tag = tag.as_str();
    let (known, resumed) = (
        [("If-None-Match", tag)],
        [("Range", "bytes=500-"), ("If-Range", tag)],
    );
    let whole: Step<'_> = ("GET", &[], 200);
    let refused: Step<'_> = ("GET", &[], 404);
    let head: Step<'_> = ("HEAD", &[], 200);
    let rows: Vec<(&str, u32, Vec<Step<'_>>)> = vec![
        (
            "HEAD never counts",
            1,
            vec![head, head, whole, ("HEAD", &[], 404), refused],
        ),
        (
            "`bytes=1-` is a use",
            1,
            vec![
                ("GET", &[("Range", "bytes=1-")], 206),
                refused,
                ("GET", &[("Range", "bytes=1-")], 404),
            ],
        ),
        (
            "after the whole, nearly the whole is another use",
            1,
            vec![whole, ("GET", &[("Range", "bytes=1-")], 404), refused],
        ),
        (
            "and opens the next where there is one",
            2,
            vec![whole, ("GET", &[("Range", "bytes=1-")], 206), refused],
        ),
        (
            "ranges belong to the use until they sent a tenth more than the content",
            1,
            vec![
                ("GET", &[("Range", "bytes=0-499")], 206),
                ("GET", &[("Range", "bytes=500-")], 206),
                ("GET", &[("Range", "bytes=0-99")], 206),
                ("GET", &[("Range", "bytes=0-0")], 404),
                refused,
            ],
        ),
        (
            "several ranges count what they send",
            1,
            vec![
                whole,
                ("GET", &[("Range", "bytes=0-29,800-870")], 404),
                ("GET", &[("Range", "bytes=0-29,800-869")], 206),
                ("GET", &[("Range", "bytes=0-0")], 404),
            ],
        ),
        (
            "each GET without a range is a use",
            2,
            vec![whole, whole, refused],
        ),
        (
            "an answer without content is none",
            1,
            vec![
                ("GET", &known, 304),
                ("GET", &[("If-Match", "\"x\"")], 412),
                ("GET", &[("Range", "bytes=1000-")], 416),
                whole,
                refused,
            ],
        ),
        (
            "a range that is ignored is a GET without one",
            2,
            vec![
                ("GET", &[("Range", "lines=1-2")], 200),
                ("GET", &[("Range", "bytes=1-"), ("If-Range", "\"x\"")], 200),
                refused,
            ],
        ),
        (
            "a complete copy is told so while the use can be gone on with",
            1,
            vec![
                ("GET", &[("Range", "bytes=0-499")], 206),
                ("GET", &[("Range", "bytes=1000-")], 416),
                ("GET", &resumed, 206),
            ],
        ),
    ];
    for (rule, uses, steps) in rows {
        let ticket = make(&server, &server.alice, &session, &bytes, uses);
        for (at, (method, fields, status)) in steps.into_iter().enumerate() {
            let answer = ask(&server, method, &ticket.href, fields);
            assert_eq!(
                answer.status, status,
                "{rule}: step {at}, {method} {fields:?}"
            );
        }
    }
}

/// r08: a ticket covers the whole download, however many requests that takes.
#[test]
fn r08_ten_ranges_in_a_row_are_one_use() {
    let bytes = content(1 << 20, 3);
    let (server, _, ticket) = scene(&bytes, 1);
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        let part = format!("bytes={}-{}", got.len(), got.len() + (bytes.len() / 10));
        let answer = ask(&server, "GET", &ticket.href, &range(&part));
        assert_eq!(answer.status, 206, "{part}");
        got.extend(answer.body);
    }
    assert!(got == bytes);
    assert_eq!(ask(&server, "GET", &ticket.href, &[]).status, 404);
}

/// Nothing is sent of an empty file, so nothing is used up.
#[test]
fn an_empty_file_is_given_as_often_as_asked() {
    let (server, _, ticket) = scene(b"", 1);
    for _ in 0..3 {
        let answer = ask(&server, "GET", &ticket.href, &[]);
        assert_eq!((answer.status, answer.body.len()), (200, 0));
    }
}

/// Exactly one of 64 clients at once gets a one-use ticket's content.
#[test]
fn a_one_use_ticket_fetched_by_64_clients_at_once_gives_exactly_one_use() {
    let bytes = content(700_000, 4);
    for fields in [&[][..], &range("bytes=0-"), &range("bytes=1-")] {
        let (server, _, ticket) = scene(&bytes, 1);
        let octets = request("GET", &ticket.href, None, fields, None);
        let together = Barrier::new(64);
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..64)
                .map(|_| {
                    let mut client = server.connect();
                    let (octets, together) = (&octets, &together);
                    scope.spawn(move || {
                        together.wait();
                        client.ask(octets)
                    })
                })
                .collect();
            clients.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let count = |status| answers.iter().filter(|one| one.status == status).count();
        let good = if fields.is_empty() { 200 } else { 206 };
        assert_eq!((count(good), count(404)), (1, 63), "{fields:?}");
        let one = answers.iter().find(|one| one.status == good).unwrap();
        let from = usize::from(fields == range("bytes=1-"));
        assert!(one.whole && one.body == bytes[from..], "{fields:?}");
        let listed = server.get("/v1/tickets", &server.alice).json();
        assert_eq!(listed["tickets"][0]["opened"], 1, "{fields:?}");
    }
}

/// Larger than what sockets hold, so that a cut transfer was not sent to its end.
const LARGE: usize = 48 << 20;

/// Reads the head and some of the body, and goes away.
fn read_some(server: &Server, href: &str, count: usize) -> Vec<u8> {
    let mut client: Client = server.connect();
    client.send(&request("GET", href, None, &[], None)).unwrap();
    assert_eq!(client.read_head().status, 200);
    client.read_body(count)
}

/// A cut download is gone on with: that is no use of its own, and nobody else's way in.
#[test]
fn a_resume_after_a_cut_belongs_to_the_use_it_goes_on_with() {
    let bytes = content(LARGE, 5);
    let (server, _, ticket) = scene(&bytes, 1);
    let mut got = read_some(&server, &ticket.href, 3 << 20);
    // The server may not have noticed yet; it does not matter.
    let rest = format!("bytes={}-", got.len());
    let resumed = ask(&server, "GET", &ticket.href, &range(&rest));
    assert_eq!(resumed.status, 206);
    got.extend(resumed.body);
    assert!(got == bytes);
    for fields in [&[][..], &range("bytes=0-"), &range(&rest)] {
        assert_eq!(ask(&server, "GET", &ticket.href, fields).status, 404);
    }
}

/// Past its end a ticket serves those who go on, for a while, and nobody else; revoking ends that.
#[test]
fn a_grace_past_the_end_serves_resumes_of_an_opened_use_alone() {
    let bytes = content(1000, 6);
    let (server, session, ticket) = scene(&bytes, 9);
    let unopened = make(&server, &server.alice, &session, &bytes, 9);
    let ask = |href: &str, method: &str, fields: &[(&str, &str)]| {
        let answer = ask(&server, method, href, fields);
        answer.status
    };
    let first = range("bytes=0-499");
    assert_eq!(ask(&ticket.href, "GET", &first), 206);
    server.clock.advance(Duration::from_mins(1));
    for (fields, status) in [
        (&[][..], 404),
        (&range("bytes=0-"), 404),
        (&range("bytes=0-9,500-509"), 404),
        (&range("bytes=500-"), 206),
        (&range("bytes=1000-"), 416),
        (&[("Range", "bytes=1000-"), ("If-Match", "\"x\"")], 404),
        (&[("Range", "bytes=990-"), ("If-Range", "\"x\"")], 404),
        (&range("bytes=900-"), 206),
        (&range("bytes=900-"), 404),
    ] {
        assert_eq!(ask(&ticket.href, "GET", fields), status, "{fields:?}");
    }
    assert_eq!(ask(&ticket.href, "HEAD", &[]), 404);
    assert_eq!(ask(&unopened.href, "GET", &range("bytes=500-")), 404);

    let other = make(&server, &server.alice, &session, &bytes, 9);
    let third = make(&server, &server.alice, &session, &bytes, 9);
    for one in [&other, &third] {
        assert_eq!(ask(&one.href, "GET", &first), 206);
    }
    server.clock.advance(Duration::from_mins(1));
    let path = format!("/v1/tickets/{}", other.id);
    let revoked = server.ask("DELETE", &path, Some(&server.alice.token));
    assert_eq!(revoked.status, 204);
    assert_eq!(ask(&other.href, "GET", &range("bytes=500-")), 404);
    let grace = server.parts.limits.ticket_grace;
    server
        .clock
        .advance(grace.saturating_sub(Duration::from_millis(1)));
    assert_eq!(ask(&third.href, "GET", &range("bytes=500-599")), 206);
    server.clock.advance(Duration::from_millis(1));
    assert_eq!(ask(&third.href, "GET", &range("bytes=600-")), 404);
}

/// A ticket that ended, for whatever reason, and one that never was: the same octets, and no question
/// to journal or store behind them.
///
/// Keeps I9.
#[test]
#[expect(clippy::too_many_lines, reason = "one line per way to end")]
fn a_ticket_that_ended_looks_like_one_that_never_was() {
    let bytes = content(1000, 7);
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    server.attach(&session, "a.txt", &bytes);
    let new = |who: &Person| make(&server, who, &session, &bytes, 1);
    let access = &server.parts.access;
    let sql = |text: &'static str, who: &Person| {
        let id = who.who.id.to_string();
        let changed = server.parts.control.write(move |tx| {
            tx.execute(text, [id])
                .map_err(holdfast::control::ControlError::from)
        });
        assert!(changed.unwrap() > 0, "{text}");
    };
    let another = |person: &Person| {
        let issued = access.issue_token(person.who.id, "another", None).unwrap();
        let token = issued.token.reveal();
        (
            issued.number,
            Person {
                who: person.who.clone(),
                token,
            },
        )
    };

    let used_up = new(&server.alice);
    assert_eq!(ask(&server, "GET", &used_up.href, &[]).status, 200);
    let tenth = range("bytes=0-99");
    assert_eq!(ask(&server, "GET", &used_up.href, &tenth).status, 206);
    let expired = new(&server.alice);
    server.clock.advance(Duration::from_mins(2));
    let revoked = new(&server.alice);
    let path = format!("/v1/tickets/{}", revoked.id);
    assert_eq!(
        server
            .ask("DELETE", &path, Some(&server.alice.token))
            .status,
        204
    );
    let (number, another): (TokenNumber, Person) = another(&server.alice);
    let of_revoked_token = new(&another);
    let living = new(&server.alice);
    let of_host = new(&server.host);
    sql(
        "UPDATE principals SET disabled_at = 1 WHERE id = ?1",
        &server.host,
    );
    let from_lost = new(&server.alice);
    // The last thing: making a ticket sweeps away those of such a token.
    access.revoke_token(number).unwrap();

    let unknown = format!("/d/ht_{}", "0".repeat(64));
    let nonsense = "/d/ht_0".to_owned();
    let upper = living.href.to_uppercase().replace("/D/HT_", "/d/ht_");
    let token = format!("/d/{}", server.alice.token);
    let public = format!("/d/{}", living.id);
    let tag = format!("\"{}\"", id(&bytes).trim_start_matches("sha256:"));
    let requests: [(&str, &[(&str, &str)]); 10] = [
        ("GET", &[]),
        ("HEAD", &[]),
        ("GET", &[("Range", "bytes=0-0")]),
        ("GET", &[("Range", "bytes=500-")]),
        ("GET", &[("Range", "bytes=99999-")]),
        ("GET", &[("If-None-Match", &tag)]),
        ("GET", &[("If-Match", "\"x\"")]),
        ("GET", &[("Authorization", "Bearer hf_0")]),
        ("GET", &[("Accept", "text/html")]),
        ("HEAD", &[("Sec-Fetch-Mode", "navigate")]),
    ];
    let compare = |dead: &[(&str, &str)]| {
        for (method, fields) in requests {
            let look = |href: &str| {
                server.calls.take();
                let answer = ask(&server, method, href, fields);
                (answer.status, answer.masked(), server.calls.take())
            };
            let never = look(&unknown);
            assert_eq!(
                (never.0, &never.2[..]),
                (404, &[][..]),
                "{method} {fields:?}"
            );
            for (what, href) in dead {
                assert_eq!(look(href), never, "{what}: {method} {fields:?}");
            }
        }
    };
    compare(&[
        ("nonsense", &nonsense),
        ("another spelling", &upper),
        ("a token", &token),
        ("a public id", &public),
        ("used up", &used_up.href),
        ("expired", &expired.href),
        ("revoked", &revoked.href),
        ("made by a token that was revoked", &of_revoked_token.href),
        ("made by a principal that was disabled", &of_host.href),
    ]);
    // Still good, until alice owns the session no more.
    assert_eq!(ask(&server, "HEAD", &from_lost.href, &[]).status, 200);
    sql(
        "DELETE FROM session_owners WHERE principal = ?1",
        &server.alice,
    );
    compare(&[("of a session its maker lost", &from_lost.href)]);
    let listed = server.get("/v1/tickets", &server.alice).json();
    assert_eq!(
        listed,
        json!({"tickets": []}),
        "nothing of it is shown either"
    );
}

/// With a token of some life a ticket cannot outlive it.
#[test]
fn a_ticket_ends_with_the_token_it_was_made_with() {
    let (server, session, _) = scene(b"abc", 1);
    let life = Some(Duration::from_secs(30));
    let who = &server.alice.who;
    let token = server
        .parts
        .access
        .issue_token(who.id, "short", life)
        .unwrap();
    let short = Person {
        who: who.clone(),
        token: token.token.reveal(),
    };
    let answer = server.post("/v1/tickets", &short, &form(&session, b"abc"));
    let end = token.expires_at.unwrap().as_millis();
    assert_eq!(answer.json()["expiresAt"], end);
    let ticket = made(&answer);
    server.clock.advance(Duration::from_secs(30));
    assert_eq!(ask(&server, "GET", &ticket.href, &[]).status, 404);
}

/// Who may not have the content gets no ticket for it, and learns nothing (I1, I9).
#[test]
fn a_ticket_is_made_for_what_the_caller_may_have_and_nothing_else() {
    let (server, session, ticket) = scene(b"alice's", 1);
    let bobs = server.session(&[&server.bob]);
    server.attach(&bobs, "b.txt", b"bob's");
    let never = "/v1/sessions/s_00000000000000000000000000000000";
    let look = |form: &Value| {
        server.calls.take();
        let answer = server.post("/v1/tickets", &server.bob, form);
        (answer.status, answer.masked(), server.calls.take())
    };
    let absent = look(&form(never, b"alice's"));
    assert_eq!(absent.0, 404);
    assert_eq!(look(&form(&session, b"alice's")), absent);
    assert_eq!(look(&form(&session, b"never")), absent);
    let unreferenced = look(&form(&bobs, b"never"));
    assert_eq!(unreferenced.0, 404);
    assert_eq!(look(&form(&bobs, b"alice's")), unreferenced);

    // Another's ticket: it is not in the list, and cannot be revoked.
    let listed = server.get("/v1/tickets", &server.bob).json();
    assert_eq!(listed, json!({"tickets": []}));
    let delete = |id: &str| {
        server.calls.take();
        let path = format!("/v1/tickets/{id}");
        let answer = server.ask("DELETE", &path, Some(&server.bob.token));
        (answer.status, answer.masked(), server.calls.take())
    };
    let absent = delete("t_00000000000000000000000000000000");
    assert_eq!(absent.0, 404);
    assert_eq!(delete(&ticket.id), absent);
    assert_eq!(delete("nonsense"), absent);
    assert_eq!(ask(&server, "GET", &ticket.href, &[]).status, 200);
}

/// t12, a03: a ticket opens one thing, and is no way to anything else.
#[test]
fn t12_a03_a_ticket_opens_one_thing() {
    let (server, session, ticket) = scene(b"abc", 9);
    server.attach(&session, "b.txt", b"its neighbour");
    let secret = ticket.href.strip_prefix("/d/").unwrap();
    for query in ["?name=b.txt", "?x", "?attachment=sha256:0"] {
        let answer = ask(&server, "GET", &format!("{}{query}", ticket.href), &[]);
        assert_eq!(answer.status, 400, "{query}");
        assert!(!answer.text().contains(secret), "{query}");
    }
    for more in ["/", "/b.txt", "/../b.txt", "%2fb.txt"] {
        let answer = ask(&server, "GET", &format!("{}{more}", ticket.href), &[]);
        assert_eq!(answer.status, 404, "{more}");
        assert!(!answer.text().contains(secret), "{more}");
    }
    for (method, path) in [
        ("GET", "/v1/sessions".to_owned()),
        ("GET", "/v1/tickets".to_owned()),
        ("GET", format!("{session}/snapshot")),
        (
            "GET",
            format!("{session}/attachments/{}", id(b"its neighbour")),
        ),
        ("DELETE", format!("/v1/tickets/{}", ticket.id)),
        ("POST", format!("{session}/attachments?name=x")),
    ] {
        assert_eq!(
            server.ask(method, &path, Some(secret)).status,
            401,
            "{path}"
        );
    }
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let answer = ask(&server, method, &ticket.href, &[("Content-Length", "0")]);
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.field("allow"), Some("GET, HEAD, OPTIONS"));
        assert!(!answer.text().contains(secret), "{method}");
    }
}

/// Keeps I14: the list says everything about a ticket but how to use it.
#[test]
fn the_list_has_everything_but_the_secret() {
    let (server, session, ticket) = scene(b"abc", 3);
    assert_eq!(ask(&server, "GET", &ticket.href, &[]).status, 200);
    let answer = server.get("/v1/tickets", &server.alice);
    let now = 1_700_000_000_000_i64;
    assert_eq!(
        answer.json(),
        json!({"tickets": [{
            "ticket": ticket.id, "session": session.strip_prefix("/v1/sessions/"),
            "attachmentId": id(b"abc"), "name": "a.txt", "bytes": 3, "uses": 3, "opened": 1,
            "createdAt": now, "expiresAt": now + 60_000,
        }]})
    );
    assert!(!answer.text().contains(&ticket.href[6..]));
    let path = format!("/v1/tickets/{}", ticket.id);
    let gone = server.ask("DELETE", &path, Some(&server.alice.token));
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    assert_eq!(
        server
            .ask("DELETE", &path, Some(&server.alice.token))
            .status,
        404
    );
    assert_eq!(
        server.get("/v1/tickets", &server.alice).json(),
        json!({"tickets": []})
    );
}

/// Keeps I15: a wish beyond the bounds is refused with the bound.
#[test]
fn terms_out_of_bounds_are_refused() {
    let (server, session, _) = scene(b"abc", 1);
    for (key, value) in [
        ("lifeSeconds", json!(0)),
        ("lifeSeconds", json!(24 * 3600 + 1)),
        ("lifeSeconds", json!(u64::MAX)),
        ("lifeSeconds", json!(-1)),
        ("uses", json!(0)),
        ("uses", json!(101)),
        ("uses", json!(1.5)),
        ("name", json!("a/b")),
        ("attachmentId", json!("../../etc/passwd")),
        ("path", json!("/etc/passwd")),
    ] {
        let mut form = form(&session, b"abc");
        form[key] = value.clone();
        let answer = server.post("/v1/tickets", &server.alice, &form);
        assert_eq!(answer.code(), "malformed", "{key}: {value}");
    }
    let mut long = form(&session, b"abc");
    long["lifeSeconds"] = json!(1 << 30);
    let answer = server.post("/v1/tickets", &server.alice, &long).json();
    assert_eq!(answer["setting"], "limits.ticket_life");
}

/// Keeps I11 and I15: so many tickets and no more, until some have gone.
#[test]
fn a_principal_has_so_many_tickets_and_no_more() {
    let mut options = crate::support::server::Options::default();
    options.limits.tickets_per_principal = 3;
    let server = Server::with(&options);
    let session = server.session(&[&server.alice]);
    server.attach(&session, "a", b"abc");
    let new = |who: &Person| server.post("/v1/tickets", who, &form(&session, b"abc"));
    let first = made(&new(&server.alice));
    let (one, two) = (new(&server.alice), new(&server.alice));
    assert_eq!((one.status, two.status), (201, 201));
    let refused = new(&server.alice);
    assert_eq!(
        (refused.status, refused.code()),
        (409, "too-many-tickets".to_owned())
    );
    assert_eq!(refused.json()["setting"], "limits.tickets_per_principal");
    assert_eq!(new(&server.host).status, 201, "others have their own");
    let path = format!("/v1/tickets/{}", first.id);
    assert_eq!(
        server
            .ask("DELETE", &path, Some(&server.alice.token))
            .status,
        204
    );
    assert_eq!(
        (new(&server.alice).status, new(&server.alice).status),
        (201, 409)
    );
    // What is past its grace is swept away with the next.
    server
        .clock
        .advance(Duration::from_mins(10) + server.parts.limits.ticket_grace);
    assert_eq!(new(&server.alice).status, 201);
    let rows = server.parts.control.read(|conn| {
        conn.query_row("SELECT count(*) FROM tickets", [], |row| {
            row.get::<_, i64>(0)
        })
        .map_err(holdfast::control::ControlError::from)
    });
    assert_eq!(rows.unwrap(), 1);
}

/// Content that cannot be given is no use: the ticket serves once it is healed (I4).
#[test]
fn damage_opens_no_use() {
    let bytes = content(300_000, 8);
    let (server, session, ticket) = scene(&bytes, 1);
    super::damage::in_place(&server.object(&bytes), |file| {
        file.write_all_at(&[bytes[299_999] ^ 1], 299_999).unwrap();
    });
    for fields in [&[][..], &range("bytes=0-0")] {
        let answer = ask(&server, "GET", &ticket.href, fields);
        assert_eq!(
            (answer.status, answer.code()),
            (500, "integrity".to_owned())
        );
    }
    assert_eq!(ask(&server, "HEAD", &ticket.href, &[]).status, 500);
    assert_eq!(
        server
            .upload(&session, "a.txt", &server.host, &bytes)
            .status,
        201
    );
    assert!(ask(&server, "GET", &ticket.href, &[]).body == bytes);
}

/// A ticket that is revoked under a transfer does not let it finish.
#[test]
fn a_download_by_a_ticket_that_is_revoked_meanwhile_falls_short() {
    let bytes = content(LARGE, 9);
    let (server, session, ticket) = scene(&bytes, 1);
    let mut client = server.connect();
    client
        .send(&request("GET", &ticket.href, None, &[], None))
        .unwrap();
    assert_eq!(client.read_head().status, 200);
    let path = format!("/v1/tickets/{}", ticket.id);
    let revoked = server.ask("DELETE", &path, Some(&server.alice.token));
    assert_eq!(revoked.status, 204);
    // Another takes its place, even in the database; the one that is gone has no part in it.
    let other = make(&server, &server.alice, &session, &bytes, 1);
    assert_eq!(
        ask(&server, "GET", &other.href, &range("bytes=0-9")).status,
        206
    );
    let got = client.read_to_end();
    assert!(
        got.len() < bytes.len() && got == bytes[..got.len()],
        "{}",
        got.len()
    );
}

/// A revoked ticket stops what is under way within a few MiB, not at its last byte.
#[test]
fn a_long_download_by_a_ticket_that_is_revoked_stops_soon() {
    let bytes = content(4 * LARGE, 19);
    let (server, _, ticket) = scene(&bytes, 1);
    let mut client = server.connect();
    client
        .send(&request("GET", &ticket.href, None, &[], None))
        .unwrap();
    assert_eq!(client.read_head().status, 200);
    let path = format!("/v1/tickets/{}", ticket.id);
    let revoked = server.ask("DELETE", &path, Some(&server.alice.token));
    assert_eq!(revoked.status, 204);
    let got = client.read_to_end();
    // What the sockets held, and what leaves between two looks.
    assert!(got.len() < LARGE, "{}", got.len());
}

/// What a cut transfer did not send is given back.
#[test]
fn what_was_not_sent_does_not_count() {
    let bytes = content(LARGE, 10);
    let (server, _, ticket) = scene(&bytes, 1);
    read_some(&server, &ticket.href, 1 << 20);
    let sent = || {
        let row = server.parts.control.read(|conn| {
            conn.query_row("SELECT sent FROM ticket_uses", [], |row| {
                row.get::<_, i64>(0)
            })
            .map_err(holdfast::control::ControlError::from)
        });
        usize::try_from(row.unwrap()).unwrap()
    };
    eventually("the rest is given back", || sent() < LARGE / 2);
    assert!(sent() >= 1 << 20);
}

/// r11: a download may take longer than its ticket lasts, grace and all.
#[test]
fn r11_a_slow_download_outlives_its_ticket() {
    let bytes = content(LARGE, 11);
    let (server, session, ticket) = scene(&bytes, 1);
    let mut client = server.connect();
    client
        .send(&request("GET", &ticket.href, None, &[], None))
        .unwrap();
    assert_eq!(client.read_head().status, 200);
    let life = server.parts.limits.ticket_life;
    server
        .clock
        .advance(life + server.parts.limits.ticket_grace);
    assert_eq!(ask(&server, "GET", &ticket.href, &[]).status, 404);
    // Making a ticket sweeps away what has ended.
    make(&server, &server.alice, &session, &bytes, 1);
    assert!(client.read_body(LARGE) == bytes);
    make(&server, &server.alice, &session, &bytes, 1);
    let rows = server.parts.control.read(|conn| {
        conn.query_row("SELECT count(*) FROM tickets", [], |row| {
            row.get::<_, i64>(0)
        })
        .map_err(holdfast::control::ControlError::from)
    });
    assert_eq!(rows.unwrap(), 2, "and the one that is done with is gone");
}

/// a10: every link has an end, and needs no account until then.
#[test]
fn a10_every_link_has_an_end_and_needs_no_account() {
    let (server, session, _) = scene(b"abc", 1);
    let ticket = made(&server.post("/v1/tickets", &server.alice, &form(&session, b"abc")));
    let answer = ask(&server, "HEAD", &ticket.href, &[]);
    assert_eq!(answer.status, 200, "without any token");
    server.clock.advance(Duration::from_mins(10));
    assert_eq!(ask(&server, "HEAD", &ticket.href, &[]).status, 404);
    let mut longest = form(&session, b"abc");
    longest["lifeSeconds"] = server.parts.limits.ticket_life.as_secs().into();
    let ticket = made(&server.post("/v1/tickets", &server.alice, &longest));
    server.clock.advance(server.parts.limits.ticket_life);
    assert_eq!(ask(&server, "HEAD", &ticket.href, &[]).status, 404);
}
