use crate::support::Server;

const ASSETS: [(&str, &str); 3] = [
    ("/", "text/html; charset=utf-8"),
    ("/page.css", "text/css; charset=utf-8"),
    ("/page.js", "text/javascript; charset=utf-8"),
];

/// T05: the page's files come from memory; their names are no prefix of a path. Keeps I1.
#[test]
fn t05_no_file_of_the_page_leads_to_another() {
    let server = Server::start();
    let secret = server.data().join("secret.txt");
    std::fs::write(&secret, "the secret of another place").unwrap();
    let encoded = secret.to_string_lossy().replace('/', "%2F");
    for (asset, media_type) in ASSETS {
        let answer = server.ask("GET", asset, None);
        assert_eq!(answer.status, 200, "{asset}");
        assert_eq!(answer.field("content-type"), Some(media_type));
        for below in [
            format!("{asset}{encoded}"),
            format!("{asset}/{encoded}"),
            format!("{asset}%2F..{encoded}"),
            format!("{asset}/../{encoded}"),
        ] {
            for who in [None, Some(server.alice.token.as_str())] {
                let answer = server.ask("GET", &below, who);
                assert_eq!(answer.status, 404, "{below}");
                assert!(!answer.text().contains("the secret"), "{below}");
            }
        }
    }
}

/// N08: behind a proxy that serves it under a prefix the page finds everything, because it names
/// nothing from the top of the host.
#[test]
fn n08_the_page_names_nothing_from_the_top_of_the_host() {
    let server = Server::start();
    let page = server.ask("GET", "/", None).text();
    let script = server.ask("GET", "/page.js", None).text();
    let quoted = |text: &str, before: &str| -> Vec<String> {
        let after = text.split(before).skip(1);
        after
            .map(|rest| rest.split(['"', '`', '?']).next().unwrap().to_owned())
            .collect()
    };
    let mut names = Vec::new();
    for before in ["href=\"", "src=\""] {
        names.extend(quoted(&page, before));
    }
    for before in ["json(\"", "json(`", "call(\"", "call(`"] {
        names.extend(quoted(&script, before));
    }
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        let relative = !name.starts_with('/') && !name.contains("://");
        assert!(relative, "{name}");
    }
}

/// X05: there is no preview, and nobody else's page can frame ours. Keeps I13.
#[test]
fn x05_the_page_frames_nothing_and_is_framed_by_nobody() {
    let server = Server::start();
    for (asset, _) in ASSETS {
        let answer = server.ask("GET", asset, None);
        let policy = answer.field("content-security-policy").unwrap();
        for rule in [
            "default-src 'none'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "script-src 'self'",
        ] {
            assert!(policy.contains(rule), "{asset}: {policy}");
        }
        assert!(!policy.contains("frame-src") && !policy.contains("unsafe"));
    }
    let page = server.ask("GET", "/", None).text();
    assert!(!page.contains("<iframe") && !page.contains("<object"));
}
