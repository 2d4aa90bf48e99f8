//! The service is killed while files are captured, released and decided about.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use holdfast::control::rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    program::{Home, Server},
    restart::Client,
};

/// What the service said before it died: where content is, and what it was.
type Said = Vec<(String, String)>;

/// Captures, asks and decides until nobody answers any more.
fn work(client: &Client, home: &Home, said: &Mutex<Said>, next: &AtomicU64) -> Option<()> {
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let name = format!("notes/f{n}.txt");
        let content = format!("content {n}");
        fs::write(home.data().join("workspace").join(&name), &content).unwrap();
        let form = json!({"turn": 1, "callId": "c", "capture": true, "files": [{"path": name}]});
        let captured = client.send(
            &client.host,
            "POST",
            &client.at("deliverables"),
            None,
            &form,
        )?;
        let release = &captured["files"][0]["release"];
        let decision = if n.is_multiple_of(3) {
            "rejected"
        } else {
            "allowed-once"
        };
        let form = json!({"attachmentId": release["attachmentId"], "bytes": release["bytes"],
            "decision": decision});
        let path = client.at(&format!(
            "releases/{}/decision",
            release["requestId"].as_str()?
        ));
        let decided = client.send(&client.person, "POST", &path, None, &form)?;
        if let Some(href) = decided["receipt"]["href"].as_str() {
            said.lock().unwrap().push((href.to_owned(), content));
        }
    }
}

/// What lies in the store, and what the database says that somebody needs.
fn kept(home: &Home) -> [BTreeSet<String>; 2] {
    let mut objects = BTreeSet::new();
    for shard in fs::read_dir(home.data().join("data/objects/sha256")).unwrap() {
        for object in fs::read_dir(shard.unwrap().path()).unwrap() {
            objects.insert(object.unwrap().file_name().into_string().unwrap());
        }
    }
    let database = Connection::open(home.data().join("data/journal/db")).unwrap();
    let mut needed = database
        .prepare(
            "SELECT lower(hex(digest)) FROM uploads UNION SELECT lower(hex(digest)) FROM refs
             UNION SELECT lower(hex(digest)) FROM receipts
             UNION SELECT lower(hex(digest)) FROM asks WHERE outcome IS NULL",
        )
        .unwrap();
    let needed = needed.query_map([], |row| row.get(0)).unwrap();
    [objects, needed.collect::<Result<_, _>>().unwrap()]
}

/// Keeps I5 and I12: whenever the process dies, every receipt that was given has its bytes, and at the next
/// start no bytes are without an owner.
#[test]
#[ignore = "two minutes, most of them proving"]
fn killed_while_files_are_released_no_receipt_lacks_its_bytes_and_no_bytes_an_owner() {
    let home = Home::new();
    let mut server = home.up_proving(|_| {});
    let session = server.text("session").to_owned();
    let token = |name: &str| {
        let made = home.json(&["token", "create", name]);
        made["token"].as_str().unwrap().to_owned()
    };
    let (host, person) = (token("demo-host"), token("you"));
    let client = |server: &Server| Client {
        address: server.address().to_owned(),
        session: session.clone(),
        host: host.clone(),
        person: person.clone(),
    };
    let (next, said) = (AtomicU64::new(0), Mutex::new(Said::new()));
    for round in 0..20 {
        let client_now = client(&server);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| work(&client_now, &home, &said, &next));
            }
            std::thread::sleep(Duration::from_millis(300 + round * 41));
            server.signal(Signal::KILL);
            server.wait();
        });
        server = home.up();
        let now = client(&server);
        for (href, content) in said.lock().unwrap().iter() {
            let got = now.bytes(&person, href);
            assert_eq!(got, content.as_bytes(), "{round}: {href}");
        }
        let [objects, needed] = kept(&home);
        assert_eq!(objects, needed, "{round}: bytes and owners");
    }
    let said = said.into_inner().unwrap();
    assert!(said.len() > 20, "{} receipts", said.len());
    let pending = client(&server).send(
        &person,
        "GET",
        &client(&server).at("releases"),
        None,
        &Value::Null,
    );
    assert!(pending.is_some());
}

/// The host's own command: what it captures is there, changed or not, and a refusal names its rule.
#[test]
fn a_host_presents_and_captures_by_the_command_line() {
    let home = Home::new();
    let server = home.up_proving(|_| {});
    let session = server.text("session");
    let workspace = home.data().join("workspace");
    fs::write(workspace.join("report.txt"), "as it was").unwrap();
    let at = ["-s", session];
    let captured = home.json(&[&["present", "--capture"], &at[..], &["report.txt"]].concat());
    fs::write(workspace.join("report.txt"), "changed since").unwrap();
    let asked = &captured["files"][0];
    assert_eq!(asked["outcome"], "awaiting-decision", "{captured}");
    let id = asked["release"]["requestId"].as_str().unwrap();
    let decided = home.json(&[&["decide", "--as", "you", "--allow"], &at[..], &[id]].concat());
    let href = decided["receipt"]["href"].as_str().unwrap();
    assert_eq!(server.get(href).body, b"as it was");
    let declared = home.json(&[&["present"], &at[..], &["report.txt"]].concat());
    assert_eq!(declared["files"][0]["outcome"], "presented", "{declared}");
    let told = home.run(&[&["present", "--capture"], &at[..], &["report.txt", ".env"]].concat());
    assert_eq!(told.code, 7, "{told:?}");
    for fact in ["index 1", "class denied_name", "setting root.deny"] {
        assert!(told.err.contains(fact), "{told:?}");
    }
    let person = home.run(&[&["present", "--as", "you"], &at[..], &["report.txt"]].concat());
    assert_eq!(person.code, 4, "{person:?}");
}
