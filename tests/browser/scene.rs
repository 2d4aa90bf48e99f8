//! A server with files in it, and tickets for them.

use serde_json::{Value, json};

use crate::{
    program::{Home, Server},
    wire,
};

pub(crate) struct Scene {
    pub(crate) home: Home,
    pub(crate) server: Server,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let home = Home::new();
        let server = home.up();
        Self { home, server }
    }

    /// With a workspace whose gate stands open.
    pub(crate) fn proven() -> Self {
        let home = Home::new();
        let server = home.up_proving(|_| {});
        Self { home, server }
    }

    pub(crate) fn url(&self) -> &str {
        self.server.text("url")
    }

    pub(crate) fn token(&self) -> &str {
        self.server.text("token")
    }

    /// Attaches a file to the demo session; its id.
    pub(crate) fn attach(&self, name: &str, content: &[u8]) -> String {
        let file = self.home.file("source", content);
        let name = format!("--name={name}");
        let session = self.server.text("session");
        let put = ["put", "--session", session, "--reference", &name];
        let stored = self
            .home
            .json(&[&put[..], &[file.to_str().unwrap()]].concat());
        stored["attachmentId"].as_str().unwrap().to_owned()
    }

    /// The path of the attachment's own address.
    pub(crate) fn path(&self, id: &str) -> String {
        format!(
            "/v1/sessions/{}/attachments/{id}",
            self.server.text("session")
        )
    }

    /// The path of a new ticket's address.
    pub(crate) fn ticket(&self, id: &str, uses: u32) -> String {
        let session = self.server.text("session");
        let wish = json!({"session": session, "attachmentId": id, "uses": uses});
        let address = self.server.address();
        let made = wire::post_json_as(address, "/v1/tickets", self.token(), &wish);
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["href"].as_str().unwrap().to_owned()
    }

    /// How many uses of each living ticket are open, in the order they were made.
    pub(crate) fn opened(&self) -> Vec<u64> {
        let listed: Value = self.server.get("/v1/tickets").json();
        let rows = listed["tickets"].as_array().unwrap().iter().rev();
        rows.map(|row| row["opened"].as_u64().unwrap()).collect()
    }

    /// Revokes every ticket.
    pub(crate) fn revoke_all(&self) {
        let listed: Value = self.server.get("/v1/tickets").json();
        for row in listed["tickets"].as_array().unwrap() {
            let path = format!("/v1/tickets/{}", row["ticket"].as_str().unwrap());
            let (address, token) = (self.server.address(), Some(self.token()));
            let answer = wire::request(address, "DELETE", &path, token, &[], b"");
            assert_eq!(answer.status, 204, "{answer:?}");
        }
    }
}

/// Waits until `reached`, or fails with `what`.
pub(crate) fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if reached() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("not within 30 s: {what}");
}
