//! Every door by which content leaves, as a person opens it with the command line.
//!
//! A new door is a row of [`DOORS`] and the function that opens it; resumes, names and proxies are then
//! tested over it too. `tests/api/doors.rs` is the same for the octets of answers.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use holdfast::model::Digest;
use serde_json::{Value, json};

use crate::program::{Home, Server};

/// A way by which content leaves.
pub(crate) struct Door {
    pub(crate) name: &'static str,
    /// Whether a name on disk is the name it is saved under, so that only what a disk holds gets there.
    pub(crate) is_named_by_path: bool,
    /// Whether a token has to be shown.
    pub(crate) needs_token: bool,
    open: fn(&House, &str, &[u8]) -> Behind,
}

/// Content behind a door.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) target: String,
    /// The name it is saved under, before a client has its way with it.
    pub(crate) name: String,
    /// What has to come: not what was brought, where a door wraps that.
    pub(crate) bytes: Vec<u8>,
}

pub(crate) static DOORS: [Door; 4] = [
    Door {
        name: "attachment",
        is_named_by_path: false,
        needs_token: true,
        open: attachment,
    },
    Door {
        name: "ticket",
        is_named_by_path: false,
        needs_token: false,
        open: ticket,
    },
    Door {
        name: "receipt",
        is_named_by_path: true,
        needs_token: true,
        open: receipt,
    },
    Door {
        name: "archive",
        is_named_by_path: true,
        needs_token: true,
        open: archive,
    },
];

/// A server with every door: a demo session whose workspace is proven.
pub(crate) struct House {
    pub(crate) home: Home,
    pub(crate) server: Server,
    files: AtomicUsize,
}

impl House {
    pub(crate) fn new(start: impl FnOnce(&Home) -> Server) -> Self {
        let home = Home::new();
        let server = start(&home);
        let bearer = format!("Authorization: Bearer {}\n", server.text("token"));
        home.file("bearer", bearer.as_bytes());
        Self {
            home,
            server,
            files: AtomicUsize::new(0),
        }
    }

    /// The one of all tests that run at this moment: proving a workspace takes a while.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<House>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(house) = shared.upgrade() {
            return house;
        }
        let house = Arc::new(Self::new(|home| home.up_proving(|_| {})));
        *shared = Arc::downgrade(&house);
        house
    }

    /// Brings content behind a door, to be saved under this name.
    pub(crate) fn open(&self, door: &Door, name: &str, content: &[u8]) -> Behind {
        (door.open)(self, name, content)
    }

    pub(crate) fn bearer(&self) -> PathBuf {
        self.home.path().join("bearer")
    }

    pub(crate) fn token(&self) -> &str {
        self.server.text("token")
    }

    fn session(&self) -> &str {
        self.server.text("session")
    }

    fn next(&self) -> usize {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    /// Uploads and refers to it; its id.
    fn attach(&self, name: &str, content: &[u8]) -> String {
        let file = self.home.file(&format!("source-{}", self.next()), content);
        let name = format!("--name={name}");
        let put = ["put", "-s", self.session(), "--reference", &name];
        let path = file.to_str().unwrap();
        let stored = self.home.json(&[&put[..], &[path]].concat());
        std::fs::remove_file(&file).unwrap();
        stored["attachmentId"].as_str().unwrap().to_owned()
    }
}

impl Behind {
    fn itself(target: &str, name: &str, content: &[u8]) -> Self {
        Self {
            target: target.to_owned(),
            name: name.to_owned(),
            bytes: content.to_owned(),
        }
    }
}

fn attachment(house: &House, name: &str, content: &[u8]) -> Behind {
    let id = house.attach(name, content);
    let target = format!("/v1/sessions/{}/attachments/{id}", house.session());
    Behind::itself(&target, name, content)
}

fn ticket(house: &House, name: &str, content: &[u8]) -> Behind {
    let id = house.attach(name, content);
    let create = ["ticket", "create", "-s", house.session(), "--uses", "100"];
    let made = house.home.json(&[&create[..], &[&id]].concat());
    Behind::itself(made["href"].as_str().unwrap(), name, content)
}

fn receipt(house: &House, name: &str, content: &[u8]) -> Behind {
    let path = format!("out/{}/{name}", house.next());
    let receipt = released(house, &path, &path, content);
    Behind::itself(receipt["href"].as_str().unwrap(), name, content)
}

/// A directory with the content in a file of it. What has to come is what was decided on.
fn archive(house: &House, name: &str, content: &[u8]) -> Behind {
    let path = format!("out/{}/{name}", house.next());
    let receipt = released(house, &path, &format!("{path}/inside"), content);
    let id = receipt["statement"]["attachmentId"].as_str().unwrap();
    let hex = id.trim_start_matches("sha256:");
    let objects = house.home.data().join("data/objects/sha256");
    let bytes = std::fs::read(objects.join(&hex[..2]).join(hex)).unwrap();
    assert_eq!(Digest::of(&bytes).to_string(), hex);
    Behind {
        target: receipt["href"].as_str().unwrap().to_owned(),
        name: format!("{name}.zip"),
        bytes,
    }
}

/// The receipt of what is declared at `path`, where `file` is brought first.
fn released(house: &House, path: &str, file: &str, content: &[u8]) -> Value {
    let (home, nth) = (&house.home, house.next());
    let file = home.data().join("workspace").join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, content).unwrap();
    let event = json!({"type": "deliverables/presented",
        "data": {"turn": 1, "callId": "c", "files": [{"path": path}]}});
    let events = home.file(&format!("events-{nth}"), event.to_string().as_bytes());
    let at = ["-s", house.session()];
    let told = home.json(&[&["append"], &at[..], &[events.to_str().unwrap()]].concat());
    let place = format!("3/{}/0", told["lastSeq"]);
    let asked = home.json(&[&["release", "--as", "you"], &at[..], &[&place]].concat());
    match asked["requestId"].as_str() {
        None => asked,
        Some(id) => {
            let decide = ["decide", "--as", "you", "--allow"];
            let decided: Value = home.json(&[&decide[..], &at, &[id]].concat());
            decided["receipt"].clone()
        }
    }
}
