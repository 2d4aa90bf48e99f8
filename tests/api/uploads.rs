use serde_json::json;

use crate::support::{
    Options, Server,
    server::{content, eventually, id, request},
};

/// A client that hangs up leaves nothing, wherever it does (U01). Keeps I12.
#[test]
fn u01_an_upload_cut_at_any_64_kib_leaves_nothing() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let bytes = content(1 << 20, 1);
    let target = format!("{session}/attachments?name=cut");
    let token = Some(server.alice.token.as_str());
    let (unnamed, objects) = (server.unnamed(), server.objects());
    for chunked in [false, true] {
        for sent in (0..bytes.len()).step_by(64 << 10) {
            let mut client = server.connect();
            if chunked {
                let head = request(
                    "POST",
                    &target,
                    token,
                    &[("Transfer-Encoding", "chunked")],
                    None,
                );
                client.send(&head).unwrap();
                if sent > 0 {
                    client.send(format!("{sent:x}\r\n").as_bytes()).unwrap();
                    client.send(&bytes[..sent]).unwrap();
                    client.send(b"\r\n").unwrap();
                }
            } else {
                let whole = request("POST", &target, token, &[], Some(&bytes));
                let head = whole.len() - bytes.len();
                client.send(&whole[..head + sent]).unwrap();
            }
            drop(client);
        }
    }
    eventually("no spool is left", || server.unnamed() == unnamed);
    eventually("no task is left", || server.traffic.live() == 0);
    assert_eq!(server.objects(), objects, "nothing was committed");
    let refer = server.refer(&session, "cut", &bytes);
    assert_eq!(refer.code(), "unknown-reference", "nothing was recorded");
    assert_eq!(
        server.upload(&session, "cut", &server.alice, &bytes).status,
        201
    );
}

/// The answer names what was stored; ids, not names, tell files apart (U04).
#[test]
fn u04_two_files_of_one_name_are_two() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    for bytes in [&b"one"[..], b"two"] {
        let answer = server.upload(&session, "same.txt", &server.host, bytes);
        assert_eq!(answer.status, 201);
        let body = json!({"attachmentId": id(bytes), "name": "same.txt", "bytes": 3});
        assert_eq!(answer.json(), body);
        let place = format!("{session}/attachments/{}", id(bytes));
        assert_eq!(answer.field("location"), Some(place.as_str()));
        assert_eq!(server.refer(&session, "same.txt", bytes).status, 201);
        assert_eq!(server.get(&place, &server.alice).body, bytes);
    }
}

/// A repeat after a lost answer gets the same answer (U05).
#[test]
fn u05_the_same_upload_again_gets_the_same_answer() {
    let mut options = Options::default();
    options.limits.session_bytes = holdfast::model::ByteCount::new(1_500_000);
    let server = Server::with(&options);
    let session = server.session(&[&server.alice]);
    let bytes = content(1_000_000, 2);
    let first = server.upload(&session, "a", &server.host, &bytes);
    assert_eq!(first.status, 201);
    assert_eq!(server.refer(&session, "a", &bytes).status, 201);
    let again = server.upload(&session, "a", &server.host, &bytes);
    assert_eq!(again.masked(), first.masked(), "nor is it charged twice");
    assert_eq!(server.objects(), 1);
}

/// Keeps I14: an upload does not tell whether somebody else has stored the same bytes.
#[test]
fn an_upload_of_what_others_have_looks_like_one_of_what_nobody_has() {
    let server = Server::start();
    let alices = server.session(&[&server.alice]);
    let bobs = server.session(&[&server.bob]);
    server.attach(&alices, "a", b"known bytes");
    let known = server.upload(&bobs, "a", &server.bob, b"known bytes");
    let fresh = server.upload(&bobs, "a", &server.bob, b"fresh bytes");
    let neutral =
        |answer: &crate::support::Answer, bytes: &[u8]| answer.masked().replace(&id(bytes), "<id>");
    assert_eq!(
        neutral(&known, b"known bytes"),
        neutral(&fresh, b"fresh bytes")
    );
}

#[test]
fn the_same_bytes_uploaded_at_once_are_stored_once() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let bytes = content(3 << 20, 3);
    let answers: Vec<String> = std::thread::scope(|scope| {
        let uploads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| server.upload(&session, "a", &server.alice, &bytes)))
            .collect();
        let answers = uploads.into_iter().map(|upload| upload.join().unwrap());
        answers
            .map(|answer| {
                assert_eq!(answer.status, 201, "{}", answer.text());
                answer.masked()
            })
            .collect()
    });
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    assert_eq!(server.objects(), 1);
    assert_eq!(server.refer(&session, "a", &bytes).status, 201);
    let target = format!("{session}/attachments/{}", id(&bytes));
    assert!(server.get(&target, &server.alice).body == bytes);
    assert_eq!(server.unnamed(), 0);
}

#[test]
fn content_that_is_not_what_was_announced_is_not_kept() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let token = Some(server.alice.token.as_str());
    let (right, wrong) = (b"right".as_slice(), id(b"wrong"));
    let base64 = "rsBwZF/lPuoiy4eSwHwMqJfOqfWHKBVBYfNYrLkcYr0=";
    let wrong_field = format!("sha-256=:{base64}:");
    let target = format!("{session}/attachments?name=a");
    let ask = |query: &str, fields: &[(&str, &str)]| {
        server.ask_with("POST", &format!("{target}{query}"), token, fields, right)
    };
    for answer in [
        ask(&format!("&digest={wrong}"), &[]),
        ask("", &[("Repr-Digest", &wrong_field)]),
        ask("", &[("Content-Digest", &wrong_field)]),
    ] {
        assert_eq!(
            (answer.status, answer.code()),
            (422, "digest-mismatch".to_owned())
        );
    }
    for answer in [
        ask("&digest=sha256:xyz", &[]),
        ask("", &[("Repr-Digest", "sha-256=:AAAA:")]),
        ask("", &[("Repr-Digest", "sha-256")]),
        ask(
            &format!("&digest={}", id(right)),
            &[("Repr-Digest", &wrong_field)],
        ),
    ] {
        assert_eq!(
            (answer.status, answer.code()),
            (400, "malformed".to_owned())
        );
    }
    assert_eq!((server.objects(), server.unnamed()), (0, 0));
    let good = ask(
        &format!("&digest={}", id(right)),
        &[("Repr-Digest", "md5=:AAAA:")],
    );
    assert_eq!(good.status, 201, "{}", good.text());
}

#[test]
fn a_name_that_is_a_path_or_hides_something_is_refused() {
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let token = Some(server.alice.token.as_str());
    for query in [
        "",
        "?name=",
        "?name=..",
        "?name=a%2fb",
        "?name=a%5Cb",
        "?name=a%00b",
        "?name=a%0d%0ab",
        "?name=%ff",
        "?name=+a",
        "?name=a&name=b",
        "?name=a&path=/etc",
    ] {
        let target = format!("{session}/attachments{query}");
        let answer = server.ask_with("POST", &target, token, &[], b"x");
        assert_eq!(
            (answer.status, answer.code()),
            (400, "malformed".to_owned()),
            "{query}"
        );
    }
    assert_eq!(server.objects(), 0);
}

/// Keeps I11 and I15: a refusal before the body, with the limit and the setting that governs it.
#[test]
fn what_is_too_large_is_refused_before_it_is_read() {
    let mut options = Options::default();
    options.limits.file = holdfast::model::ByteCount::new(1000);
    options.limits.session_bytes = holdfast::model::ByteCount::new(1500);
    let server = Server::with(&options);
    let session = server.session(&[&server.alice]);
    let target = format!("{session}/attachments?name=a");
    let token = Some(server.alice.token.as_str());
    let announce = |bytes: &str| {
        let mut client = server.connect();
        // The body never comes; the answer does.
        client.ask(&request(
            "POST",
            &target,
            token,
            &[("Content-Length", bytes)],
            None,
        ))
    };
    let answer = announce("1001");
    assert_eq!(
        (answer.status, answer.code()),
        (413, "over-limit".to_owned())
    );
    assert_eq!(answer.json()["limitBytes"], 1000);
    assert_eq!(answer.json()["setting"], "limits.file");

    let unannounced = |bytes: usize| {
        let mut octets = request(
            "POST",
            &target,
            token,
            &[("Transfer-Encoding", "chunked")],
            None,
        );
        octets.extend(format!("{bytes:x}\r\n").bytes());
        octets.extend(vec![7; bytes]);
        octets.extend(b"\r\n0\r\n\r\n");
        server.connect().ask(&octets)
    };
    assert_eq!(unannounced(1001).code(), "over-limit");
    assert_eq!(server.objects(), 0);
    assert_eq!(unannounced(1000).status, 201);

    let answer = announce("501");
    assert_eq!(
        (answer.status, answer.code()),
        (413, "over-quota".to_owned())
    );
    assert_eq!(answer.json()["usedBytes"], 1000);
    assert_eq!(answer.json()["setting"], "limits.session_bytes");
    let answer = unannounced(501);
    assert_eq!(answer.code(), "over-quota");
    assert_eq!(server.unnamed(), 0);
}

/// Keeps I15: a full disk is told as one, with the setting that keeps the reserve.
#[test]
fn an_upload_that_would_use_the_reserve_is_refused() {
    let mut options = Options::default();
    options.limits.free_reserve = holdfast::model::ByteCount::new(u64::MAX / 2);
    let server = Server::with(&options);
    let session = server.session(&[&server.alice]);
    let answer = server.upload(&session, "a", &server.alice, b"x");
    assert_eq!(
        (answer.status, answer.code()),
        (507, "disk-full".to_owned())
    );
    assert_eq!(answer.json()["setting"], "limits.free_reserve");
    assert_eq!(
        server
            .get(&format!("{session}/snapshot"), &server.alice)
            .status,
        200
    );
}

/// The journey itself, without HTTP to catch the difference first.
#[test]
fn a_length_other_than_the_announced_one_is_refused() {
    use bytes::Bytes;
    use futures_util::stream;
    use holdfast::{
        model::{ByteCount, FileName, SessionHandle},
        transfer::{TransferError, upload},
    };
    let server = Server::start();
    let session = server.session(&[&server.alice]);
    let handle = SessionHandle::parse(session.trim_start_matches("/v1/sessions/")).unwrap();
    let receive = |announced: u64, chunks: Vec<Result<Bytes, std::io::Error>>| {
        let grant = server
            .parts
            .access
            .upload_to_session(&server.alice.who, handle)
            .unwrap();
        let announced = upload::Announced {
            name: FileName::parse("a").unwrap(),
            bytes: Some(ByteCount::new(announced)),
            digest: None,
        };
        server.block_on(upload::receive(
            &server.parts,
            grant,
            announced,
            stream::iter(chunks),
        ))
    };
    let four = || Ok(Bytes::from_static(b"four"));
    assert!(matches!(
        receive(5, vec![four()]),
        Err(TransferError::WrongLength { .. })
    ));
    assert!(matches!(
        receive(3, vec![four()]),
        Err(TransferError::WrongLength { .. })
    ));
    let cut = vec![four(), Err(std::io::Error::other("gone"))];
    assert!(matches!(receive(8, cut), Err(TransferError::Cut { .. })));
    assert_eq!((server.objects(), server.unnamed()), (0, 0));
    assert_eq!(receive(4, vec![four()]).unwrap().bytes, ByteCount::new(4));
}
