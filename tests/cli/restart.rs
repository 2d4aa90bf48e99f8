//! The service is killed while people are asked, permissions chosen and messages submitted: what was said to
//! be so is so at the next start, and nothing that waited is brought back.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    program::{Home, Server},
    wire,
};

/// What the service said before it died.
#[derive(Debug, Default)]
struct Said {
    /// The seqs of messages that were acknowledged, and their keys.
    messages: Vec<(u64, String)>,
    /// The approvals whose outcome the host was told.
    allowed: Vec<String>,
    /// The last permission that was acknowledged, and whether another was on its way.
    permission: Option<(&'static str, bool)>,
    /// The last approval that was put.
    asked: Option<String>,
}

pub(crate) struct Client {
    pub(crate) address: String,
    pub(crate) session: String,
    pub(crate) host: String,
    pub(crate) person: String,
}

impl Client {
    /// Sends a request; none when nobody answers any more.
    pub(crate) fn send(
        &self,
        who: &str,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &Value,
    ) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let key = key.map_or_else(String::new, |key| format!("Idempotency-Key: {key}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Authorization: Bearer {who}\r\nContent-Type: application/json\r\n{key}\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut octets = Vec::new();
        stream.read_to_end(&mut octets).ok()?;
        octets.windows(4).position(|four| four == b"\r\n\r\n")?;
        let answer = wire::parse(&octets);
        (answer.status < 300).then(|| serde_json::from_slice(&answer.body).ok())?
    }

    /// What is at an address.
    pub(crate) fn bytes(&self, who: &str, path: &str) -> Vec<u8> {
        let answer = wire::get(&self.address, path, Some(who), &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    pub(crate) fn at(&self, rest: &str) -> String {
        format!("/v1/sessions/{}/{rest}", self.session)
    }

    /// Keeps somebody present until it is over.
    fn be_present(&self, is_over: &AtomicBool) {
        let Ok(mut stream) = TcpStream::connect(&self.address) else {
            return;
        };
        stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let head = format!(
            "GET /v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.address, self.person
        );
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
        let (mut text, mut bytes) = (String::new(), [0; 4096]);
        while !is_over.load(Ordering::Relaxed) {
            match stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(n) => text.push_str(&String::from_utf8_lossy(&bytes[..n])),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            let named = text
                .split("\"streamId\":\"")
                .nth(1)
                .and_then(|rest| rest.split('"').next());
            let last = text
                .rsplit("\nid: ")
                .next()
                .and_then(|rest| rest.lines().next());
            if let (Some(named), Some(last)) = (named, last) {
                let path = format!("/v1/streams/{named}/ack");
                self.send(
                    &self.person,
                    "POST",
                    &path,
                    None,
                    &json!({"lastEventId": last.trim()}),
                );
            }
        }
    }

    /// Does what hosts and people do until nobody answers.
    fn work(&self, said: &Mutex<Said>, round: u64) -> Option<()> {
        let told = |change: &dyn Fn(&mut Said)| change(&mut said.lock().unwrap());
        for n in 0_u64.. {
            let key = format!("m-{round}-{n}");
            let message = json!({"text": key});
            let receipt = self.send(
                &self.person,
                "POST",
                &self.at("messages"),
                Some(&key),
                &message,
            )?;
            let seq = receipt["seq"].as_u64()?;
            told(&|said| said.messages.push((seq, key.clone())));

            let value = ["read-only", "workspace-write"][usize::try_from(n % 2).unwrap()];
            told(&|said| {
                if let Some((_, is_another)) = &mut said.permission {
                    *is_another = true;
                }
            });
            self.send(
                &self.person,
                "PUT",
                &self.at("permission"),
                None,
                &json!({"value": value}),
            )?;
            told(&|said| said.permission = Some((value, false)));

            let ask = json!({"kind": "approval", "agent": "a", "toolName": "shell", "reason": "x"});
            let Some(asked) = self.send(&self.host, "POST", &self.at("interactions"), None, &ask)
            else {
                TcpStream::connect(&self.address).ok()?;
                continue;
            };
            let id = asked["requestId"].as_str()?.to_owned();
            told(&|said| said.asked = Some(id.clone()));
            let list = self.send(
                &self.person,
                "GET",
                &self.at("interactions"),
                None,
                &Value::Null,
            )?;
            let items = list["pendingInteractions"].as_array()?;
            let Some(item) = items.iter().find(|item| item["requestId"] == id.as_str()) else {
                continue;
            };
            let mut form = json!({"decision": "allowed-once"});
            for fact in [
                "bridgeGeneration",
                "hostId",
                "session",
                "requestId",
                "turn",
                "turnStartSeq",
            ] {
                form[fact] = item[fact].clone();
            }
            let path = self.at(&format!("interactions/{id}/decision"));
            self.send(&self.person, "POST", &path, None, &form)?;
            let path = self.at(&format!("interactions/{id}?waitSeconds=5"));
            let end = self.send(&self.host, "GET", &path, None, &Value::Null)?;
            if end["outcome"] == "allowed-once" {
                told(&|said| {
                    said.allowed
                        .push(item["approvalId"].as_str().unwrap().to_owned());
                });
            }
        }
        Some(())
    }

    /// Every event of the session.
    fn events(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let mut before = None;
        loop {
            let query = before.map_or_else(String::new, |seq: u64| format!("&beforeSeq={seq}"));
            let path = self.at(&format!("events?limit=200{query}"));
            let page = self
                .send(&self.person, "GET", &path, None, &Value::Null)
                .unwrap();
            let events = page["events"].as_array().unwrap();
            all.splice(0..0, events.iter().cloned());
            if page["hasMore"] != true {
                return all;
            }
            before = events[0]["seq"].as_u64();
        }
    }
}

fn serve(home: &Home) -> Server {
    home.up_with(|command| {
        command.env("HOLDFAST_INTERACTIONS_ENABLED", "true");
    })
}

/// Keeps I6 and I12: whenever the process dies, nothing granted or pending is revived, and everything that
/// was acknowledged is there.
#[test]
fn killed_at_any_moment_nothing_pending_lives_on_and_nothing_said_is_lost() {
    let home = Home::new();
    let mut server = serve(&home);
    let session = server.text("session").to_owned();
    let turn = home.file("turn", b"{\"type\":\"turn/start\",\"data\":{\"turn\":1}}\n");
    home.json(&["append", "-s", &session, turn.to_str().unwrap()]);
    let token = |name: &str| {
        let made = home.json(&["token", "create", name]);
        made["token"].as_str().unwrap().to_owned()
    };
    let (host, person) = (token("demo-host"), token("you"));
    let (mut allowed, mut messages) = (0, 0);
    for round in 0..8 {
        let client = Arc::new(Client {
            address: server.address().to_owned(),
            session: session.clone(),
            host: host.clone(),
            person: person.clone(),
        });
        let said = Mutex::new(Said::default());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| client.be_present(&is_over));
            scope.spawn(|| client.work(&said, round));
            // Another moment each time, once something was said.
            let start = Instant::now();
            while said.lock().unwrap().messages.is_empty() && start.elapsed().as_secs() < 30 {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(400 + round * 37));
            server.signal(rustix::process::Signal::KILL);
            server.wait();
            is_over.store(true, Ordering::Relaxed);
        });
        server = serve(&home);
        let client = Client {
            address: server.address().to_owned(),
            session: session.clone(),
            host: host.clone(),
            person: person.clone(),
        };
        let said = said.into_inner().unwrap();
        let list = client.send(
            &person,
            "GET",
            &client.at("interactions"),
            None,
            &Value::Null,
        );
        assert_eq!(list.unwrap()["pendingInteractions"], json!([]), "{round}");
        if let Some(id) = &said.asked {
            let path = client.at(&format!("interactions/{id}"));
            let told = client.send(&host, "GET", &path, None, &Value::Null);
            assert_eq!(told, None, "{round}: {id} is of another life");
        }
        let events = client.events();
        for (seq, key) in &said.messages {
            let event = events.iter().find(|event| event["seq"] == *seq).unwrap();
            assert_eq!(
                event["data"]["source"]["requestId"],
                key.as_str(),
                "{round}"
            );
            let message = json!({"text": key});
            let again = client.send(&person, "POST", &client.at("messages"), Some(key), &message);
            assert_eq!(again.unwrap()["seq"], *seq, "{round}: {key} once");
        }
        for id in &said.allowed {
            let decided = |event: &&Value| {
                event["type"] == "approval/decided" && event["data"]["id"] == id.as_str()
            };
            let decided: Vec<_> = events.iter().filter(decided).collect();
            assert_eq!(decided.len(), 1, "{round}: {id}");
            assert_eq!(decided[0]["data"]["outcome"], "allowed-once", "{round}");
        }
        if let Some((value, false)) = said.permission {
            let now = client.send(&person, "GET", &client.at("permission"), None, &Value::Null);
            assert_eq!(now.unwrap()["currentValue"], value, "{round}");
        }
        allowed += said.allowed.len();
        messages += said.messages.len();
    }
    assert!(
        allowed > 0 && messages > 8,
        "{allowed} approvals, {messages} messages"
    );
    let verified = home.json(&["verify", "--as", "you"]);
    assert_eq!(
        (&verified["bad"], &verified["badLogs"]),
        (&json!(0), &json!(0))
    );
}

/// ST-05: killed right after a receipt, the message is in the log, once; and its repeat inserts nothing.
#[test]
fn st_05_a_message_whose_receipt_came_is_there_once_after_a_kill() {
    let home = Home::new();
    let mut server = serve(&home);
    let session = server.text("session").to_owned();
    let made = home.json(&["token", "create", "you"]);
    let person = made["token"].as_str().unwrap().to_owned();
    for n in 0..4 {
        let client = |server: &Server| Client {
            address: server.address().to_owned(),
            session: session.clone(),
            host: String::new(),
            person: person.clone(),
        };
        let (before, key) = (client(&server), format!("once-{n}"));
        let message = json!({"text": key});
        let submit = |client: &Client| {
            client.send(
                &person,
                "POST",
                &client.at("messages"),
                Some(&key),
                &message,
            )
        };
        let receipt = submit(&before).unwrap();
        server.signal(rustix::process::Signal::KILL);
        server.wait();
        server = serve(&home);
        let after = client(&server);
        let own = |event: &&Value| event["data"]["source"]["requestId"] == key.as_str();
        let events = after.events();
        let seqs: Vec<_> = events
            .iter()
            .filter(own)
            .map(|event| event["seq"].clone())
            .collect();
        assert_eq!(seqs, [receipt["seq"].clone()], "{key}");
        assert_eq!(submit(&after), Some(receipt), "{key}");
        assert_eq!(after.events().len(), events.len(), "{key}");
    }
}

/// PM-05: a choice that is held between turns is still held after a kill, and says so.
#[test]
fn pm_05_a_choice_between_turns_is_still_pending_after_a_kill() {
    let home = Home::new();
    let mut server = serve(&home);
    let made = home.json(&["token", "create", "you"]);
    let person = made["token"].as_str().unwrap().to_owned();
    let client = |server: &Server| Client {
        address: server.address().to_owned(),
        session: server.text("session").to_owned(),
        host: String::new(),
        person: person.clone(),
    };
    let before = client(&server);
    let choice = json!({"value": "workspace-write"});
    let path = before.at("permission");
    let chosen = before.send(&person, "PUT", &path, None, &choice).unwrap();
    assert_eq!(
        (&chosen["pending"], &chosen["effectiveValue"]),
        (&json!(true), &json!("read-only"))
    );
    server.signal(rustix::process::Signal::KILL);
    server.wait();
    server = serve(&home);
    let after = client(&server);
    let now = after
        .send(&person, "GET", &path, None, &Value::Null)
        .unwrap();
    assert_eq!(now, chosen);
}
