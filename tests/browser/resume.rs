//! A large file, cut on its way.

use std::sync::atomic::Ordering;

use holdfast::model::Digest;

use crate::{
    proxy::{Hurt, Proxy},
    scene::Scene,
    webdriver::{self, Browser},
};

const SIZE: usize = 64 << 20;

/// Keeps I4. Chromium goes on by itself after a cut, by a ticket of one use, and has the right bytes.
#[test]
fn chromium_goes_on_with_64_mib_by_a_one_use_ticket_where_it_was_cut() {
    if !webdriver::is_here() {
        return;
    }
    let scene = Scene::new();
    let mut content = vec![0; SIZE];
    for (index, word) in content.chunks_exact_mut(8).enumerate() {
        let mixed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    let ticket = scene.ticket(&scene.attach("large.bin", &content), 1);
    let proxy = Proxy::start(scene.server.address(), Hurt::CutAfter(20_000_000), 2);
    let browser = Browser::start();
    browser.try_open(&format!("{}{ticket}", proxy.url));
    let finished = browser.finished(1);
    assert_eq!(finished[0].file_name().unwrap(), "large.bin");
    let saved = std::fs::read(&finished[0]).unwrap();
    assert_eq!(Digest::of(&saved), Digest::of(&content));
    assert_eq!(proxy.downloads.load(Ordering::SeqCst), 3);
    assert_eq!(scene.opened(), [1]);
}
