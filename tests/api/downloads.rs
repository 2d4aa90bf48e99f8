//! What holds for a download by whichever door.

use data_encoding::BASE64;
use holdfast::model::Digest;

use crate::{
    doors::{Behind, DOORS, House},
    fields::wears_them,
    support::{Answer, Client, server::content},
};

/// The first thing that works end to end.
#[test]
fn what_was_brought_behind_a_door_comes_out_of_it() {
    let house = House::new();
    for door in &DOORS {
        for size in [
            0,
            1,
            4096,
            (256 << 10) - 1,
            256 << 10,
            (256 << 10) + 1,
            3 << 20,
        ] {
            let behind = house.open(door, &format!("f{size}"), &content(size, 5));
            let answer = behind.get(house.server());
            assert_eq!(answer.status, 200, "{}: {}", door.name, answer.text());
            let length = behind.bytes.len().to_string();
            assert_eq!(answer.field("content-length"), Some(length.as_str()));
            assert!(
                answer.whole && answer.body == behind.bytes,
                "{} {size}",
                door.name
            );
        }
    }
}

#[test]
fn two_downloads_come_over_one_connection() {
    let house = House::new();
    for door in &DOORS {
        let two =
            [content(700_000, 1), content(500_000, 2)].map(|bytes| house.open(door, "f", &bytes));
        let mut client = house.server().connect();
        for behind in two.iter().cycle().take(6) {
            let answer = client.ask(&behind.request("GET", &[]));
            assert!(answer.body == behind.bytes, "{}", door.name);
        }
    }
}

/// Every download answers HEAD with the fields of GET (N06). Keeps I10.
#[test]
fn n06_head_has_the_fields_of_get_and_no_body() {
    let house = House::new();
    for door in &DOORS {
        let behind = house.open(door, "résumé.pdf", &content(300_000, 3));
        let fields = |method: &str, asked: &[(&str, &str)]| {
            let mut client = house.server().connect();
            let answer = client.ask(&behind.request(method, asked));
            let mut fields = answer.fields.clone();
            fields.retain(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()));
            if method == "HEAD" {
                client.end_output();
                assert_eq!(client.read_to_end(), b"", "HEAD has no body");
            }
            (answer.status, fields)
        };
        let get = fields("GET", &[]);
        assert_eq!(fields("HEAD", &[]), get, "{}", door.name);
        assert_eq!(
            fields("HEAD", &[("Range", "bytes=0-9")]),
            get,
            "HEAD ignores Range"
        );
        let tag = behind.tag();
        for (asked, status) in [
            ([("If-None-Match", tag.as_str())], 304),
            ([("If-Match", "\"x\"")], 412),
        ] {
            let get = fields("GET", &asked);
            assert_eq!(get.0, status, "{}", door.name);
            assert_eq!(fields("HEAD", &asked), get, "{}", door.name);
        }
        let disposition = get.1.iter().find(|(name, _)| name == "content-disposition");
        let (_, disposition) = disposition.unwrap();
        assert!(disposition.starts_with("attachment; "), "{disposition}");
        if behind.name == "résumé.pdf" {
            assert!(
                disposition.contains("filename*=UTF-8''r%C3%A9sum%C3%A9.pdf"),
                "{disposition}"
            );
        }
    }
}

/// Protected content is never public in a cache (C01); on every status the fields that keep an answer
/// from running anything. Keeps I13.
#[test]
fn c01_content_is_private_inert_and_labelled_on_every_status() {
    let house = House::new();
    for door in &DOORS {
        let page = b"<!doctype html><script>alert(1)</script>";
        let behind = house.open(door, "x.html", page);
        let tag = behind.tag();
        for (method, asked, status) in [
            ("GET", &[][..], 200),
            ("GET", &[("Accept", "text/html")], 200),
            ("HEAD", &[], 200),
            ("OPTIONS", &[], 204),
            ("GET", &[("Range", "bytes=1-1")], 206),
            ("GET", &[("If-None-Match", tag.as_str())], 304),
            ("DELETE", &[], 405),
            ("GET", &[("If-Match", "\"other\"")], 412),
            ("GET", &[("Range", "bytes=999999-")], 416),
        ] {
            let answer = behind.ask(house.server(), method, asked);
            let row = format!("{} {method} {asked:?}", door.name);
            assert_eq!(answer.status, status, "{row}");
            wears_them(&answer);
            let kept = matches!(status, 200 | 206 | 304);
            let cache = if kept { door.cache } else { "no-store" };
            assert_eq!(answer.field("cache-control"), Some(cache), "{row}");
            if kept {
                assert_eq!(answer.field("vary"), door.vary, "{row}");
                assert_eq!(answer.field("etag"), Some(tag.as_str()), "{row}");
            } else {
                for of_the_file in ["etag", "repr-digest", "content-disposition"] {
                    assert_eq!(answer.field(of_the_file), None, "{row}");
                }
            }
            if matches!(status, 200 | 206) {
                let kind = answer.field("content-type");
                assert_eq!(kind, Some("application/octet-stream"), "{row}");
                let disposition = answer.field("content-disposition").unwrap();
                assert!(disposition.starts_with("attachment;"), "{row}");
            }
        }
    }
}

/// What a range or a condition asks for, and the status and octets that answer it.
type Row<'a> = (
    &'a [(&'a str, &'a str)],
    u16,
    Option<std::ops::Range<usize>>,
);

/// RFC 9110, line by line: single ranges, their order among the conditions, and If-Range.
#[test]
#[expect(clippy::too_many_lines, reason = "one row per rule")]
fn ranges_and_conditions_reach_the_wire() {
    let house = House::new();
    for door in &DOORS {
        let behind = house.open(door, "a.bin", &content(600_000, 9));
        let n = behind.bytes.len();
        let tag = behind.tag();
        let (tag, weak) = (tag.as_str(), format!("W/{tag}"));
        let (last, beyond) = (format!("bytes={}-", n - 1), format!("bytes={n}-"));
        let long = format!("bytes=5-{}", u128::MAX);
        let date = "Tue, 01 Jan 2030 00:00:00 GMT";
        let whole = Some(0..n);
        let rows: &[Row<'_>] = &[
            (&[("Range", "bytes=0-0")], 206, Some(0..1)),
            (
                &[("Range", "BYTES=262000-300000")],
                206,
                Some(262_000..300_001),
            ),
            (&[("Range", "bytes= 5-9 , ")], 206, Some(5..10)),
            (&[("Range", "bytes=-5")], 206, Some(n - 5..n)),
            (&[("Range", "bytes=-99999999999")], 206, whole.clone()),
            (&[("Range", &last)], 206, Some(n - 1..n)),
            (&[("Range", &long)], 206, Some(5..n)),
            (&[("Range", "bytes=0-9,5-19")], 206, Some(0..20)),
            (&[("Range", &beyond)], 416, None),
            (&[("Range", "bytes=-0")], 416, None),
            (&[("Range", "bytes=+1-5")], 200, whole.clone()),
            (&[("Range", "bytes=9-5")], 200, whole.clone()),
            (&[("Range", "bytes=a-b")], 200, whole.clone()),
            (&[("Range", "lines=1-5")], 200, whole.clone()),
            (
                &[("Range", "bytes=5-9"), ("If-Range", tag)],
                206,
                Some(5..10),
            ),
            (
                &[("Range", "bytes=5-9"), ("If-Range", &weak)],
                200,
                whole.clone(),
            ),
            (
                &[("Range", "bytes=5-9"), ("If-Range", "\"x\"")],
                200,
                whole.clone(),
            ),
            (
                &[("Range", "bytes=5-9"), ("If-Range", date)],
                200,
                whole.clone(),
            ),
            (
                &[("Range", &beyond), ("If-Range", "\"x\"")],
                200,
                whole.clone(),
            ),
            (&[("If-None-Match", tag)], 304, None),
            (&[("If-None-Match", &weak)], 304, None),
            (&[("If-None-Match", "*")], 304, None),
            (&[("If-None-Match", "\"x\"")], 200, whole.clone()),
            (
                &[("If-None-Match", "\"x\""), ("If-None-Match", tag)],
                304,
                None,
            ),
            (&[("If-None-Match", tag), ("Range", &beyond)], 304, None),
            (&[("If-Match", tag)], 200, whole.clone()),
            (&[("If-Match", "*")], 200, whole.clone()),
            (&[("If-Match", &weak)], 412, None),
            (&[("If-Match", "\"x\"")], 412, None),
            (&[("If-Match", "\"x\""), ("If-None-Match", tag)], 412, None),
            (&[("If-Match", "\"x\""), ("Range", &beyond)], 412, None),
            (&[("If-Modified-Since", date)], 200, whole.clone()),
            (
                &[("If-Unmodified-Since", "Tue, 01 Jan 2002 00:00:00 GMT")],
                200,
                whole,
            ),
        ];
        for (asked, status, expected) in rows {
            let answer = behind.ask(house.server(), "GET", asked);
            let row = format!("{} {asked:?}", door.name);
            assert_eq!(answer.status, *status, "{row}");
            if let Some(span) = expected {
                assert!(
                    answer.whole && answer.body == behind.bytes[span.clone()],
                    "{row}"
                );
            }
            let place = answer.field("content-range").map(str::to_owned);
            match (status, expected) {
                (206, Some(span)) => {
                    let part = format!("bytes {}-{}/{n}", span.start, span.end - 1);
                    assert_eq!(place, Some(part), "{row}");
                }
                (416, _) => {
                    assert_eq!(place, Some(format!("bytes */{n}")), "{row}");
                    assert_eq!(answer.code(), "range", "{row}");
                    // Small, because old clients append it to the file.
                    assert!(answer.body.len() < 1024, "{row}");
                }
                _ => assert_eq!(place, None, "{row}"),
            }
            if matches!(status, 200 | 206) {
                assert_eq!(answer.field("accept-ranges"), Some("bytes"), "{row}");
            }
        }
    }
}

/// Several ranges come in their framing, each the slice it says it is.
#[test]
fn several_ranges_come_in_several_parts() {
    let house = House::new();
    for door in &DOORS {
        let behind = house.open(door, "a.bin", &content(600_000, 10));
        let n = behind.bytes.len();
        let asked = [("Range", "bytes=0-9,590000-590009,-3")];
        let answer = behind.ask(house.server(), "GET", &asked);
        assert!(answer.status == 206 && answer.whole, "{}", door.name);
        let kind = answer.field("content-type").unwrap();
        let boundary = kind
            .strip_prefix("multipart/byteranges; boundary=")
            .unwrap();
        assert_eq!(answer.field("content-range"), None, "{}", door.name);
        let mut rest = answer.body.as_slice();
        for span in [0..10, 590_000..590_010, n - 3..n] {
            let part = format!(
                "Content-Range: bytes {}-{}/{n}\r\n",
                span.start,
                span.end - 1
            );
            let head = rest
                .windows(4)
                .position(|four| four == b"\r\n\r\n")
                .unwrap()
                + 4;
            let text = String::from_utf8(rest[..head].to_vec()).unwrap();
            assert!(text.contains(&format!("--{boundary}\r\n")), "{text}");
            assert!(text.to_lowercase().contains(&part.to_lowercase()), "{text}");
            assert_eq!(&rest[head..head + span.len()], &behind.bytes[span.clone()]);
            rest = &rest[head + span.len()..];
        }
        assert_eq!(rest, format!("\r\n--{boundary}--\r\n").as_bytes());
    }
}

/// What is asked for, the status, and whether each of the three digests answers.
type Wish<'a> = (&'a [(&'a str, &'a str)], u16, [bool; 3]);

/// RFC 9530 and RFC 3230: the whole file's digest on everything that has some of it, the content's
/// where it is known before the head, the old form for those who ask, and nothing of it elsewhere.
#[test]
#[expect(clippy::too_many_lines, reason = "one row per wish")]
fn digests_answer_what_is_wished_for() {
    const RANGE: (&str, &str) = ("Range", "bytes=0-9");
    let house = House::new();
    for door in &DOORS {
        let behind = house.open(door, "a.bin", &content(1000, 11));
        let tag = behind.tag();
        let known = ("If-None-Match", tag.as_str());
        let (beyond, other) = (("Range", "bytes=9999999-"), ("If-Match", "\"x\""));
        let (repr, part, old) = (
            ("Want-Repr-Digest", "sha-256=1"),
            ("Want-Content-Digest", "sha-256=1"),
            ("Want-Digest", "SHA-256;q=1"),
        );
        let rows: &[Wish<'_>] = &[
            (&[], 200, [true, false, false]),
            (&[repr, part, old], 200, [true, true, true]),
            (&[repr, part, old, RANGE], 206, [true, false, true]),
            (&[part, ("Range", "bytes=0-")], 206, [true, true, false]),
            (&[repr, part, old, known], 304, [false, false, false]),
            (&[repr, part, old, beyond], 416, [false, false, false]),
            (&[repr, part, old, other], 412, [false, false, false]),
            (
                &[("Want-Repr-Digest", "sha-256=0")],
                200,
                [false, false, false],
            ),
            (
                &[("Want-Repr-Digest", "sha-256=0"), RANGE],
                206,
                [false, false, false],
            ),
            (
                &[("Want-Repr-Digest", "sha-512=10, sha-256=0")],
                200,
                [false, false, false],
            ),
            (&[("Want-Repr-Digest", "md5=9")], 200, [true, false, false]),
            (
                &[("Want-Repr-Digest", "sha-256=x;;")],
                200,
                [true, false, false],
            ),
            (
                &[("Want-Content-Digest", "sha-256=0")],
                200,
                [true, false, false],
            ),
            (
                &[("Want-Content-Digest", "sha-512=10")],
                200,
                [true, false, false],
            ),
            (
                &[
                    ("Want-Content-Digest", "sha-512=10"),
                    ("Want-Content-Digest", "sha-256=2"),
                ],
                200,
                [true, true, false],
            ),
            (&[("Want-Digest", "sha-256")], 200, [true, false, true]),
            (
                &[("Want-Digest", "MD5;q=1, SHA-256;q=0.001")],
                200,
                [true, false, true],
            ),
            (&[("Want-Digest", "sha-256;q=0")], 200, [true, false, false]),
            (
                &[("Want-Digest", "sha-256;q=0.000")],
                200,
                [true, false, false],
            ),
            (
                &[("Want-Digest", "sha-256;q=1.5")],
                200,
                [true, false, false],
            ),
            (
                &[("Want-Digest", "sha-512;q=1, md5")],
                200,
                [true, false, false],
            ),
        ];
        let digest = BASE64.encode(Digest::of(&behind.bytes).as_bytes());
        let (new, legacy) = (format!("sha-256=:{digest}:"), format!("SHA-256={digest}"));
        for (asked, status, [repr, part, old]) in rows {
            let told = |answer: &Answer| {
                ["repr-digest", "content-digest", "digest"]
                    .map(|name| answer.field(name).map(str::to_owned))
            };
            let row = format!("{} {asked:?}", door.name);
            let answer = behind.ask(house.server(), "GET", asked);
            assert_eq!(answer.status, *status, "{row}");
            let expected = [(repr, &new), (part, &new), (old, &legacy)]
                .map(|(is_told, value)| is_told.then(|| value.clone()));
            assert_eq!(told(&answer), expected, "{row}");
            if *status != 416 {
                // HEAD tells the same of the file, and nothing of content it does not have.
                let head = behind.ask(house.server(), "HEAD", asked);
                let [repr, _, old] = expected;
                assert_eq!(told(&head), [repr, None, old], "{row}");
            }
        }
    }
}

#[test]
fn only_get_head_and_options_are_answered() {
    let house = House::new();
    for door in &DOORS {
        let behind = house.open(door, "a", b"abc");
        for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"] {
            let answer = behind.ask(house.server(), method, &[]);
            assert_eq!(
                (answer.status, answer.code()),
                (405, "method-not-allowed".to_owned()),
                "{} {method}",
                door.name
            );
            assert_eq!(answer.field("allow"), Some("GET, HEAD, OPTIONS"));
        }
        let unsaid = Behind {
            token: None,
            ..behind
        };
        let mut client: Client = house.server().connect();
        let answer = client.ask(&unsaid.request("OPTIONS", &[]));
        assert_eq!(answer.status, 204);
        assert_eq!(answer.field("allow"), Some("GET, HEAD, OPTIONS"));
    }
}

#[test]
fn many_at_once_get_the_same_bytes() {
    let house = House::new();
    for door in &DOORS {
        let behind = house.open(door, "a", &content(2 << 20, 4));
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    let answer = behind.get(house.server());
                    assert!(answer.whole && answer.body == behind.bytes, "{}", door.name);
                });
            }
        });
    }
}
