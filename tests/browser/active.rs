//! Active content, by attachment and by ticket, in a browser that would like to run it.
//!
//! Every payload tells another origin when it runs, and writes into the storage of the origin it runs
//! in. Each has a control: the same octets from a careless server must be seen to run, by the same
//! browser in the same test.

use std::fs;

use serde_json::json;

use crate::{
    elsewhere::Elsewhere,
    scene::{Scene, eventually},
    webdriver::{self, Browser},
};

/// How a control gets a payload to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Navigate,
    Script,
    Module,
}

/// A payload, and the type and way by which it runs where nothing holds it back.
struct Payload {
    name: &'static str,
    media_type: &'static str,
    way: Way,
    content: Vec<u8>,
}

fn payload(
    name: &'static str,
    media_type: &'static str,
    way: Way,
    content: impl Into<Vec<u8>>,
) -> Payload {
    Payload {
        name,
        media_type,
        way,
        content: content.into(),
    }
}

/// Payloads that say `what(name)` when they run.
fn payloads(tell: impl Fn(&str) -> String) -> Vec<Payload> {
    let html = |name| {
        let run = tell(name);
        format!(
            "<!doctype html><title>x</title><body><script>{run}</script><img src=x onerror=\"{run}\">"
        )
    };
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\"><script><![CDATA[{}]]></script></svg>",
        tell("drawing.svg")
    );
    let xml = |name| {
        format!(
            "<?xml version=\"1.0\"?><html xmlns=\"http://www.w3.org/1999/xhtml\"><body>\
             <script><![CDATA[{}]]></script></body></html>",
            tell(name)
        )
    };
    let behind = |magic: &[u8], rest: String| [magic, rest.as_bytes()].concat();
    let utf_16: Vec<u8> = format!("\u{feff}{}", html("utf-16.html"))
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    vec![
        payload("page.html", "text/html", Way::Navigate, html("page.html")),
        payload("utf-16.html", "text/html", Way::Navigate, utf_16),
        payload("drawing.svg", "image/svg+xml", Way::Navigate, svg),
        payload(
            "page.xhtml",
            "application/xhtml+xml",
            Way::Navigate,
            xml("page.xhtml"),
        ),
        payload("data.xml", "text/xml", Way::Navigate, xml("data.xml")),
        payload(
            "script.js",
            "text/javascript",
            Way::Script,
            tell("script.js"),
        ),
        payload(
            "module.mjs",
            "text/javascript",
            Way::Module,
            format!("export default 1; {}", tell("module.mjs")),
        ),
        // Octets that are two things at once.
        payload(
            "gif.js",
            "text/javascript",
            Way::Script,
            behind(b"GIF89a/*\x01\x00\x01\x00\x00\x00*/=1;", tell("gif.js")),
        ),
        payload(
            "picture.png",
            "text/html",
            Way::Navigate,
            behind(b"\x89PNG\r\n\x1a\n", html("picture.png")),
        ),
        payload(
            "paper.pdf",
            "text/html",
            Way::Navigate,
            behind(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", html("paper.pdf")),
        ),
        payload(
            "archive.zip",
            "text/html",
            Way::Navigate,
            behind(b"PK\x03\x04\x14\x00\x00\x00", html("archive.zip")),
        ),
        payload("notes.txt", "text/html", Way::Navigate, html("notes.txt")),
    ]
}

/// A paper that is one: a single empty page.
const PDF: &[u8] = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R/OpenAction<</S/JavaScript/JS\
    (app.alert\\(1\\))>>>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n\
    3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n";

/// How a page of another site can ask for an address, as script that leaves a promise behind where
/// the end of it can be known.
const EMBEDDED: [(&str, &str); 12] = [
    ("script", "put('script', { src })"),
    ("module", "put('script', { src, type: 'module' })"),
    ("style", "put('link', { href: src, rel: 'stylesheet' })"),
    ("image", "put('img', { src })"),
    ("video", "put('video', { src })"),
    ("frame", "frame('iframe', { src })"),
    (
        "loose frame",
        "frame('iframe', { src, sandbox: 'allow-scripts allow-same-origin allow-downloads' })",
    ),
    ("object", "frame('object', { data: src })"),
    ("embed", "frame('embed', { src })"),
    ("fetch", "fetch(src, { mode: 'no-cors' })"),
    ("import", "import(src)"),
    ("window", "open(src)"),
];

/// Those of them in which the address is a document of its own: there it becomes a download.
const AS_DOCUMENT: [&str; 5] = ["frame", "loose frame", "object", "embed", "window"];

/// Those of them with which a browser says which page asks: another site's is refused before its ticket is
/// looked at.
const REFUSED: [&str; 2] = ["module", "import"];

/// A page of another site that does all of that, each with an address of its own.
fn embedder(addresses: &[String]) -> String {
    let mut script = String::from(
        "const frame = (tag, more) => {
            const element = Object.assign(document.createElement(tag), more);
            document.body.append(element);
            return element;
        };
        const put = (tag, more) => new Promise((end) => {
            const element = frame(tag, more);
            element.onload = element.onerror = end;
        });
        const ended = [];
        let src;
        ",
    );
    for ((_, way), address) in EMBEDDED.iter().zip(addresses) {
        script.extend(["src = '", address, "'; ended.push(", way, ");"]);
    }
    script.push_str("window.ended = Promise.allSettled(ended).then((all) => all.length);");
    format!("<!doctype html><title>embedder</title><body><script>{script}</script>")
}

/// What a script in our own page tries, with all the rights the page's policy leaves it.
const FROM_WITHIN: &str = "
    const [address] = args;
    const any = trustedTypes.createPolicy('any', { createScriptURL: (x) => x });
    const ended = (element, more) => new Promise((end) => {
        Object.assign(element, more);
        element.onload = () => end('loaded');
        element.onerror = () => end('refused');
        document.body.append(element);
    });
    const tried = {};
    tried.script = await ended(document.createElement('script'), { src: any.createScriptURL(address) });
    tried.module = await ended(document.createElement('script'),
        { type: 'module', src: any.createScriptURL(address) });
    tried.style = await ended(document.createElement('link'), { rel: 'stylesheet', href: address });
    tried.import = await import(address).then(() => 'loaded', () => 'refused');
    tried.worker = await new Promise((end) => {
        const worker = new Worker(any.createScriptURL(address));
        worker.onerror = () => end('refused');
        worker.onmessage = () => end('loaded');
    });
    tried.service = await navigator.serviceWorker.register(any.createScriptURL(address))
        .then(() => 'loaded', () => 'refused');
    return tried;";

struct Stage {
    scene: Scene,
    browser: Browser,
    elsewhere: Elsewhere,
    saved: usize,
}

impl Stage {
    fn new() -> Self {
        Self {
            scene: Scene::new(),
            browser: Browser::start(),
            elsewhere: Elsewhere::start(),
            saved: 0,
        }
    }

    /// Runs the payload where nothing holds it back, and waits until it was seen to.
    fn control(&self, payload: &Payload) {
        let path = format!("/control/{}", payload.name);
        let url = self
            .elsewhere
            .serve(&path, payload.media_type, &payload.content);
        let before = self.count(payload.name);
        let page = match payload.way {
            Way::Navigate => url,
            Way::Script => self.page(&format!("<script src='{url}'></script>")),
            Way::Module => self.page(&format!("<script type=module src='{url}'></script>")),
        };
        self.browser.open(&page);
        eventually(payload.name, || self.count(payload.name) > before);
    }

    fn page(&self, body: &str) -> String {
        let page = format!("<!doctype html><title>page</title>{body}");
        self.elsewhere.serve("/page", "text/html", page.as_bytes())
    }

    fn count(&self, name: &str) -> usize {
        let told = self.elsewhere.told();
        told.iter().filter(|one| *one == name).count()
    }

    /// Waits for one more download and checks that it is this content.
    fn is_saved(&mut self, content: &[u8]) {
        self.saved += 1;
        let all = self.browser.finished(self.saved);
        let found = all.iter().any(|path| fs::read(path).unwrap() == content);
        assert!(found, "{all:?}");
    }

    /// The payload has not run; and it runs, later than all that was tried, where nothing holds it
    /// back, so that the silence means something.
    fn nothing_ran(&self, payload: &Payload) {
        let told = self.elsewhere.told();
        assert_eq!(
            self.count(payload.name),
            0,
            "{} ran: {told:?}",
            payload.name
        );
        self.control(payload);
    }

    /// What payloads left in the storage of our origin.
    fn left_behind(&self) -> serde_json::Value {
        self.browser.open(&format!("{}/", self.scene.url()));
        let look = "return [localStorage.length, document.cookie,
            (await navigator.serviceWorker.getRegistrations()).length]";
        self.browser.run(look, &json!([]))
    }
}

/// Keeps I13; x01, x03: by ticket, whoever asks for it and however, nothing runs.
#[test]
fn x01_x03_active_content_by_ticket_never_runs_in_chromium() {
    if !webdriver::is_here() {
        return;
    }
    let mut stage = Stage::new();
    for payload in payloads(|name| stage.elsewhere.tell(name)) {
        let name = payload.name;
        let id = stage.scene.attach(name, &payload.content);
        let url = stage.scene.url().to_owned();
        // Gone to: it is saved, and the page stays what it was.
        stage.browser.open(&stage.page("here"));
        let ticket = format!("{url}{}", stage.scene.ticket(&id, 1));
        stage.browser.try_open(&ticket);
        stage.is_saved(&payload.content);
        let shown = stage.browser.run("return document.title", &json!([]));
        assert_eq!(shown, "page", "{name}");
        // Embedded by another site, in every way there is; every one of them asks for the bytes.
        stage.scene.revoke_all();
        let addresses = EMBEDDED.map(|_| format!("{url}{}", stage.scene.ticket(&id, 9)));
        let page = embedder(&addresses);
        let page = stage
            .elsewhere
            .serve("/embedder", "text/html", page.as_bytes());
        stage.browser.open(&page);
        let ended = stage.browser.run("return await window.ended", &json!([]));
        assert_eq!(ended, EMBEDDED.len(), "{name}");
        eventually(
            "every way has asked, and been refused where it says so",
            || {
                let opened = stage.scene.opened();
                let mut ways = EMBEDDED.iter().zip(&opened);
                ways.all(|((way, _), uses)| (*uses == 0) == REFUSED.contains(way))
            },
        );
        for _ in EMBEDDED.iter().filter(|(way, _)| AS_DOCUMENT.contains(way)) {
            stage.is_saved(&payload.content);
        }
        stage.scene.revoke_all();
        // Asked for by our own page.
        stage.browser.open(&format!("{url}/"));
        let ticket = format!("{url}{}", stage.scene.ticket(&id, 100));
        let tried = stage.browser.run(FROM_WITHIN, &json!([ticket]));
        let tried = tried.as_object().unwrap();
        assert_eq!(tried.len(), 6, "{name}: {tried:?}");
        for (way, outcome) in tried {
            assert_eq!(outcome, "refused", "{name} as {way}");
        }
        stage.nothing_ran(&payload);
    }
    assert_eq!(stage.left_behind(), json!([0, "", 0]));
}

/// Keeps I13; x01, x03: by its own address, gone to or fetched by the page, nothing runs.
#[test]
fn x01_x03_active_content_by_attachment_never_runs_in_chromium() {
    if !webdriver::is_here() {
        return;
    }
    let mut stage = Stage::new();
    stage.browser.tool("Network.enable", &json!({}));
    for payload in payloads(|name| stage.elsewhere.tell(name)) {
        let name = payload.name;
        let id = stage.scene.attach(name, &payload.content);
        let url = stage.scene.url().to_owned();
        let address = format!("{url}{}", stage.scene.path(&id));
        let bearer = format!("Bearer {}", stage.scene.token());
        // Gone to, without a right and with one.
        stage.browser.open(&address);
        stage.browser.open(&stage.page("here"));
        stage
            .browser
            .send_always(&json!({ "Authorization": bearer }));
        stage.browser.try_open(&address);
        stage.is_saved(&payload.content);
        stage.browser.send_always(&json!({}));
        let shown = stage.browser.run("return document.title", &json!([]));
        assert_eq!(shown, "page", "{name}");
        // Fetched by the page, as a blob it could show, and gone to.
        stage.browser.open(&format!("{url}/"));
        let fetched = stage.browser.run(
            "const [address, bearer] = args;
             const answer = await fetch(address, { headers: { Authorization: bearer } });
             const blob = await answer.blob();
             const frame = document.createElement('iframe');
             frame.src = URL.createObjectURL(blob);
             document.body.append(frame);
             location = frame.src;
             return [answer.status, blob.type];",
            &json!([address, bearer]),
        );
        assert_eq!(fetched, json!([200, "application/octet-stream"]), "{name}");
        stage.is_saved(&payload.content);
        stage.nothing_ran(&payload);
    }
    assert_eq!(stage.left_behind(), json!([0, "", 0]));
}

/// Keeps I13: a paper is saved, and no viewer opens it as a page of ours.
#[test]
fn x01_a_paper_is_shown_by_a_careless_server_and_saved_from_ours() {
    if !webdriver::is_here() {
        return;
    }
    let mut stage = Stage::new();
    let look = "return document.contentType";
    let careless = stage.elsewhere.serve("/paper", "application/pdf", PDF);
    stage.browser.open(&careless);
    assert_eq!(stage.browser.run(look, &json!([])), "application/pdf");
    stage.browser.open(&stage.page("here"));
    let ticket = stage.scene.ticket(&stage.scene.attach("paper.pdf", PDF), 1);
    let ticket = format!("{}{ticket}", stage.scene.url());
    stage.browser.try_open(&ticket);
    stage.is_saved(PDF);
    assert_eq!(stage.browser.run(look, &json!([])), "text/html");
}
