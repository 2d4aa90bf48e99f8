use std::{collections::BTreeSet, fs, path::Path};

use holdfast::http::{openapi::document, router::routes};

use crate::support::Server;

/// The description that is kept is the one the code makes. After a change of the interface run the
/// test with `HOLDFAST_BLESS=1` and read the difference before committing it.
#[test]
fn the_golden_description_is_the_present_one() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    if std::env::var_os("HOLDFAST_BLESS").is_some() {
        fs::write(&golden, document()).unwrap();
    }
    let kept = fs::read_to_string(&golden).unwrap_or_default();
    let same = kept == document();
    assert!(
        same,
        "openapi.json differs from the code; see this test's comment"
    );
}

fn is_download(path: &str) -> bool {
    path.ends_with("{attachment}") || path.ends_with("/content") || path == "/d/{ticket}"
}

#[test]
fn the_description_is_served_and_names_every_route_under_v1() {
    let server = Server::start();
    let answer = server.ask("GET", "/openapi.json", None);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.text(), document());
    let body = answer.json();
    assert_eq!(body["openapi"].as_str().map(|v| &v[..3]), Some("3.1"));
    assert_eq!(body["info"]["version"], env!("CARGO_PKG_VERSION"));
    let described: BTreeSet<(String, String)> = body["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, operations)| {
            let methods = operations.as_object().unwrap().keys();
            methods.map(|method| (path.clone(), method.to_uppercase()))
        })
        .collect();
    let routed: BTreeSet<(String, String)> = routes()
        .filter(|route| route.path.starts_with("/v1/") || route.path.starts_with("/d/"))
        .flat_map(|route| {
            let methods = route.methods.iter();
            // HEAD is described where it means more than GET without a body.
            methods
                .filter(move |method| **method != "HEAD" || is_download(route.path))
                .map(move |method| (route.path.to_owned(), (*method).to_owned()))
        })
        .collect();
    assert_eq!(described, routed);
}

/// Programs that read the description name their functions after it.
#[test]
fn no_two_operations_have_one_name() {
    let body: serde_json::Value = serde_json::from_str(&document()).unwrap();
    let mut names = BTreeSet::new();
    for (path, operations) in body["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            assert!(names.insert(name), "{method} {path}");
        }
    }
    assert!(names.contains("getV1SessionsSessionSnapshot"), "{names:?}");
}
