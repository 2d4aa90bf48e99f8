//! Every door by which content leaves, for the tests that hold for all of them.
//!
//! A new door is a row of [`DOORS`] and the function that opens it. Every test that asks
//! [`House::open`] for `DOORS` then runs over it too: `downloads.rs`, `damage.rs`, `connections.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{
    releases::Scene,
    support::{
        Answer, Options, Server,
        server::{id, request},
    },
};

/// A way by which content leaves.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) name: &'static str,
    /// What its whole, partial and unchanged answers say about keeping them.
    pub(crate) cache: &'static str,
    pub(crate) vary: Option<&'static str>,
    /// Brings content behind the door, to be saved under this name.
    open: fn(&House, &str, &[u8]) -> Behind,
}

const KEPT: &str = "private, max-age=31536000, immutable, no-transform";

pub(crate) static DOORS: [Door; 4] = [
    Door {
        name: "attachment",
        cache: KEPT,
        vary: Some("Authorization"),
        open: attachment,
    },
    Door {
        name: "ticket",
        cache: "private, no-store",
        vary: None,
        open: ticket,
    },
    Door {
        name: "receipt",
        cache: KEPT,
        vary: Some("Authorization"),
        open: receipt,
    },
    Door {
        name: "archive",
        cache: KEPT,
        vary: Some("Authorization"),
        open: archive,
    },
];

/// Content behind a door.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    pub(crate) target: String,
    /// What must be shown to get it.
    pub(crate) token: Option<String>,
    /// The name it is saved under.
    pub(crate) name: String,
    /// What has to come: not what was brought, where a door wraps that.
    pub(crate) bytes: Vec<u8>,
}

impl Behind {
    /// The octets of a request for it.
    pub(crate) fn request(&self, method: &str, fields: &[(&str, &str)]) -> Vec<u8> {
        request(method, &self.target, self.token.as_deref(), fields, None)
    }

    /// Asks for it over a connection of its own.
    pub(crate) fn ask(&self, server: &Server, method: &str, fields: &[(&str, &str)]) -> Answer {
        server.connect().ask(&self.request(method, fields))
    }

    pub(crate) fn get(&self, server: &Server) -> Answer {
        self.ask(server, "GET", &[])
    }

    /// The strong tag it has to have.
    pub(crate) fn tag(&self) -> String {
        format!("\"{}\"", id(&self.bytes).trim_start_matches("sha256:"))
    }
}

/// A server with every door: a session of alice's in a workspace, and a gate that stands open.
pub(crate) struct House {
    scene: Scene,
    files: AtomicUsize,
}

impl House {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    /// One whose tests count what the whole process holds.
    pub(crate) fn alone() -> Self {
        Self::with(Options {
            alone: true,
            ..Options::default()
        })
    }

    fn with(options: Options) -> Self {
        let max_file = options.limits.file;
        Self {
            scene: Scene::proven(Options {
                max_file,
                ..options
            }),
            files: AtomicUsize::new(0),
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.scene.server
    }

    /// Brings content behind a door. The same content twice may be behind it twice.
    pub(crate) fn open(&self, door: &Door, name: &str, content: &[u8]) -> Behind {
        (door.open)(self, name, content)
    }

    fn session(&self) -> String {
        format!("/v1/sessions/{}", self.scene.session)
    }

    fn alices_token(&self) -> String {
        self.server().alice.token.clone()
    }
}

fn attachment(house: &House, name: &str, content: &[u8]) -> Behind {
    let target = house.server().attach(&house.session(), name, content);
    let name_asked: String =
        percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).collect();
    Behind {
        target: format!("{target}?name={name_asked}"),
        token: Some(house.alices_token()),
        name: name.to_owned(),
        bytes: content.to_owned(),
    }
}

fn ticket(house: &House, name: &str, content: &[u8]) -> Behind {
    let server = house.server();
    server.attach(&house.session(), name, content);
    let form = json!({"session": house.scene.session, "attachmentId": id(content), "name": name,
        "uses": 100, "lifeSeconds": 600});
    let made = server.post("/v1/tickets", &server.alice, &form);
    assert_eq!(made.status, 201, "{}", made.text());
    Behind {
        target: made.json()["href"].as_str().unwrap().to_owned(),
        token: None,
        name: name.to_owned(),
        bytes: content.to_owned(),
    }
}

fn receipt(house: &House, name: &str, content: &[u8]) -> Behind {
    let nth = house.files.fetch_add(1, Ordering::Relaxed);
    let path = format!("out/{nth}/{name}");
    house.scene.file(&path, content);
    let receipt = released(house, &path);
    Behind {
        target: receipt["href"].as_str().unwrap().to_owned(),
        token: Some(house.alices_token()),
        name: name.to_owned(),
        bytes: content.to_owned(),
    }
}

/// A directory with the content in a file of it. What has to come is what was decided on.
fn archive(house: &House, name: &str, content: &[u8]) -> Behind {
    let nth = house.files.fetch_add(1, Ordering::Relaxed);
    let path = format!("out/{nth}/{name}");
    house.scene.file(&format!("{path}/inside"), content);
    let receipt = released(house, &path);
    let statement = &receipt["statement"];
    let hex = statement["attachmentId"].as_str().unwrap();
    let hex = hex.trim_start_matches("sha256:");
    let object = house.server().data().join("data/objects/sha256");
    let bytes = std::fs::read(object.join(&hex[..2]).join(hex)).unwrap();
    assert_eq!(statement["attachmentId"], json!(id(&bytes)));
    assert!(
        bytes
            .windows(content.len().max(1))
            .any(|part| part == content)
            || content.is_empty()
    );
    Behind {
        target: receipt["href"].as_str().unwrap().to_owned(),
        token: Some(house.alices_token()),
        name: format!("{name}.zip"),
        bytes,
    }
}

/// The receipt of what is declared at `path`, after a yes.
fn released(house: &House, path: &str) -> Value {
    let asked = house.scene.ask_for(path);
    assert_eq!(asked.status, 202, "{}", asked.text());
    let alice = &house.server().alice;
    let decided = house.scene.decide(alice, &asked.json(), "allowed-once");
    assert_eq!(decided.status, 200, "{}", decided.text());
    decided.json()["receipt"].clone()
}
