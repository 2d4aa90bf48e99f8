use crate::support::Server;

fn ask(server: &Server, target: &str, hosts: &[&str]) -> (u16, String) {
    let mut text = format!("GET {target} HTTP/1.1\r\n");
    for host in hosts {
        text.extend(["Host: ", host, "\r\n"]);
    }
    text.push_str("\r\n");
    let answer = server.connect().ask(text.as_bytes());
    let code = if answer.status == 200 {
        String::new()
    } else {
        answer.code()
    };
    assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    (answer.status, code)
}

/// The fence against rebinding stands before every route, open ones too.
#[test]
fn a_request_names_this_host_exactly_once() {
    let server = Server::start();
    let port = server.address.port();
    let here = format!("127.0.0.1:{port}");
    for (hosts, status, code) in [
        (&[here.as_str()][..], 200, ""),
        (&["localhost"], 200, ""),
        (&["[::1]:80"], 200, ""),
        (&[], 400, "malformed"),
        (&["localhost", "localhost"], 400, "malformed"),
        (&["localhost", "evil.example"], 400, "malformed"),
        (&["user@localhost"], 400, "malformed"),
        (&["localhost, evil.example"], 400, "malformed"),
        (&["localhost:port"], 400, "malformed"),
        (&["evil.example"], 421, "misdirected"),
        (&["localhost.evil.example"], 421, "misdirected"),
        (&["0.0.0.0"], 421, "misdirected"),
    ] {
        for target in ["/v1/host", "/v1/sessions", "/nothing"] {
            let answer = ask(&server, target, hosts);
            if status == 200 {
                assert_ne!(answer.0, 421, "{hosts:?} {target}");
            } else {
                assert_eq!(answer, (status, code.to_owned()), "{hosts:?} {target}");
            }
        }
    }
}

#[test]
fn a_target_that_is_no_path_is_refused() {
    let server = Server::start();
    for target in ["http://evil.example/v1/host", "*", "evil.example:80"] {
        let (status, _) = ask(&server, target, &["localhost"]);
        assert_eq!(status, 400, "{target}");
    }
    let long = format!("/v1/host?{}", "x".repeat(8 << 10));
    assert_eq!(ask(&server, &long, &["localhost"]).0, 414);
}
