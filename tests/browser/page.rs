//! The page, used by a person.

use serde_json::json;

use crate::{
    scene::{Scene, eventually},
    webdriver::{self, Browser},
};

/// Signing in by the link, looking, downloading: by a ticket, into the browser's own downloads.
#[test]
fn a_person_signs_in_by_the_link_and_downloads_by_a_click() {
    if !webdriver::is_here() {
        return;
    }
    let scene = Scene::new();
    scene.attach("отчёт за год.txt", b"report");
    let browser = Browser::start();
    let code = scene.server.text("loginCode");
    browser.open(&format!("{}/#{code}", scene.url()));
    let labels = "return [...document.querySelectorAll('.files button')].map((b) => b.ariaLabel)";
    eventually("the files are listed", || {
        browser.run(labels, &json!([])).as_array().unwrap().len() == 2
    });
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.png");
    let png = data_encoding::BASE64.decode(browser.screenshot().as_bytes());
    std::fs::write(place, png.unwrap()).unwrap();
    let address = browser.run("return location.href", &json!([]));
    assert_eq!(address, format!("{}/", scene.url()), "the code is gone");
    browser.click(".files li:nth-child(2) button");
    let finished = browser.finished(1);
    assert_eq!(finished[0].file_name().unwrap(), "отчёт за год.txt");
    assert_eq!(std::fs::read(&finished[0]).unwrap(), b"report");
    let note = browser.run(
        "return document.getElementById('note').textContent",
        &json!([]),
    );
    assert_eq!(note, "");
    let kept = "return [document.cookie, Object.keys(localStorage).length]";
    assert_eq!(browser.run(kept, &json!([])), json!(["", 0]));
}

/// A person asks for everything and says yes; what others ask and decide meanwhile is shown without loading anew.
#[test]
fn a_person_gets_everything_as_one_archive_and_sees_what_happens_meanwhile() {
    if !webdriver::is_here() {
        return;
    }
    let scene = Scene::proven();
    let browser = Browser::start();
    let code = scene.server.text("loginCode");
    browser.open(&format!("{}/#{code}", scene.url()));
    let count = |selector: &str| {
        let script = "return document.querySelectorAll(arguments[0]).length";
        browser.run(script, &json!([selector])).as_u64().unwrap()
    };
    eventually("the session is listed", || count(".everything button") == 1);
    // What another program attaches appears.
    let before = count(".files li");
    scene.attach("later.txt", b"attached while somebody looks");
    eventually("the new file is listed", || {
        count(".files li") == before + 1
    });
    browser.click(".everything button");
    eventually("the question is shown", || count(".ask") == 1);
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("everything.png");
    let png = data_encoding::BASE64.decode(browser.screenshot().as_bytes());
    std::fs::write(place, png.unwrap()).unwrap();
    browser.click(".ask button");
    let download = ".ask:not([data-request]) button";
    eventually("it can be downloaded", || count(download) == 1);
    browser.click(download);
    let finished = browser.finished(1);
    let archive = std::fs::read(&finished[0]).unwrap();
    assert!(archive.starts_with(b"PK"), "{finished:?}");
    for inside in [
        &b"attached while somebody looks"[..],
        b"files/notes/plan.md",
    ] {
        assert!(archive.windows(inside.len()).any(|part| part == inside));
    }
    // What is asked and decided elsewhere comes and goes.
    let (home, session) = (&scene.home, scene.server.text("session"));
    let at = ["-s", session, "--as", "you"];
    let asked = home.json(&[&["release"], &at[..], &["notes/plan.md"]].concat());
    let id = asked["requestId"].as_str().unwrap();
    let row = format!("[data-request='{id}']");
    eventually("the question appears", || count(&row) == 1);
    home.json(&[&["decide", "--allow"], &at[..], &[id]].concat());
    eventually("the question goes", || count(&row) == 0);
    let have = "[data-place='3/1/0'] button";
    let text = "return document.querySelector(arguments[0])?.textContent";
    eventually("what was released can be had", || {
        browser.run(text, &json!([have])) == "Download"
    });
}
