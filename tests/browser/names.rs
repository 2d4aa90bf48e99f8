//! Nasty names, and what Chromium saves them as.

use std::{fs, path::PathBuf};

use holdfast::model::SaveName;

use crate::{
    nasty::{is_safe, nasty},
    scene::Scene,
    webdriver::{self, Browser},
};

/// n01, n02, n05: every name arrives as the safe one.
#[test]
fn chromium_saves_every_nasty_name_under_its_safe_form() {
    if !webdriver::is_here() {
        return;
    }
    let scene = Scene::new();
    let browser = Browser::start();
    let names = nasty();
    assert!(names.len() >= 60);
    for (number, name) in names.iter().enumerate() {
        let content = number.to_string();
        let ticket = scene.ticket(&scene.attach(name, content.as_bytes()), 1);
        browser.try_open(&format!("{}{ticket}", scene.url()));
        let all = browser.finished(number + 1);
        let is_it = |path: &&PathBuf| fs::read(path).unwrap() == content.as_bytes();
        let saved = all.iter().find(is_it).unwrap();
        let saved = saved.file_name().unwrap().to_str().unwrap();
        assert!(is_safe(saved), "{name:?} as {saved:?}");
        let safe = SaveName::new(name);
        let expected = own_way(safe.as_str());
        let is_second = [" (1)", " (2)"]
            .map(|mark| saved.replace(mark, ""))
            .contains(&expected);
        assert!(saved == expected || is_second, "{name:?} as {saved:?}");
    }
}

/// What Chromium makes of a safe name: it hides no file and starts none with a tilde.
fn own_way(safe: &str) -> String {
    match safe.strip_prefix('~') {
        Some(rest) => format!("_{rest}"),
        None => safe.trim_start_matches('.').to_owned(),
    }
}
