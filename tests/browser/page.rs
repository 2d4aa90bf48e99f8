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
