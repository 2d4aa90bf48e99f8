//! Nasty names, and what clients save them as.

use std::{ffi::OsString, fs, path::Path, process::Command, sync::Arc};

use holdfast::model::{FileName, SaveName};

use percent_encoding::percent_decode_str;

use crate::{
    doors::{Behind, DOORS, House},
    has,
    nasty::{is_safe, nasty},
};

/// A server that has one content for each name behind each door, its content being its number.
struct Scene {
    house: Arc<House>,
    /// Each address, with what is there and what it is called.
    urls: Vec<(String, Behind)>,
}

impl Scene {
    fn new() -> Self {
        let house = House::shared();
        let names = nasty();
        assert!(names.len() >= 60);
        let urls = names.into_iter().enumerate().flat_map(|(number, name)| {
            assert!(FileName::parse(&name).is_ok(), "{name:?}");
            // What a disk cannot hold, or the usual rules keep, is behind the other doors alone.
            let is_kept = name.len() > 255 || [".bashrc", ".ssh"].contains(&&*name);
            let doors = DOORS
                .iter()
                .filter(|door| !(door.is_named_by_path && is_kept));
            let urls = doors.map(|door| {
                let behind = house.open(door, &name, number.to_string().as_bytes());
                let url = format!("{}{}", house.server.text("url"), behind.target);
                (url, behind)
            });
            urls.collect::<Vec<_>>()
        });
        let urls = urls.collect();
        Self { house, urls }
    }

    /// Runs a client for each name and address in an empty directory of its own, and compares what it
    /// saved with what it may save.
    fn each(&self, client: impl Fn(&str) -> Command, may_save: impl Fn(&SaveName, &str) -> bool) {
        for (url, behind) in &self.urls {
            let name = &behind.name;
            let dir = tempfile::tempdir().unwrap();
            let run = client(url)
                .current_dir(dir.path())
                .env("HOME", dir.path())
                .env("LC_ALL", "C.UTF-8")
                .output()
                .unwrap();
            assert!(run.status.success(), "{name:?}: {run:?}");
            let [saved] = &names_in(dir.path())[..] else {
                panic!("{name:?}: {:?}", names_in(dir.path()));
            };
            let shown = saved.to_string_lossy();
            assert!(is_safe(&shown), "{name:?} as {shown:?}");
            assert!(
                may_save(&SaveName::new(name), &shown),
                "{name:?} as {shown:?}"
            );
            let content = fs::read(dir.path().join(saved)).unwrap();
            assert_eq!(content, behind.bytes, "{name:?}");
        }
    }
}

fn names_in(dir: &Path) -> Vec<OsString> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect()
}

/// n01, n02, n05: curl knows the ASCII form alone, and takes it as it stands.
#[test]
fn curl_saves_every_nasty_name_under_its_ascii_form() {
    if !has("curl", &["--version"]) {
        return;
    }
    let scene = Scene::new();
    let bearer = scene.house.bearer();
    scene.each(
        |url| {
            let mut curl = Command::new("curl");
            curl.args(["-fsSOJ", "-H"]);
            curl.arg(format!("@{}", bearer.display())).arg(url);
            curl
        },
        |safe, saved| saved == safe.ascii(),
    );
}

/// n01, n02, n05: wget knows both forms, and decodes the second twice.
#[test]
fn wget_saves_every_nasty_name_under_one_of_its_forms() {
    if !has("wget", &["--version"]) {
        return;
    }
    let scene = Scene::new();
    scene.each(
        |url| {
            let mut wget = Command::new("wget");
            wget.args(["-q", "--content-disposition"]).arg(format!(
                "--header=Authorization: Bearer {}",
                scene.house.token()
            ));
            wget.args(["--restrict-file-names=nocontrol"]).arg(url);
            wget
        },
        |safe, saved| {
            let twice = percent_decode_str(safe.as_str()).decode_utf8().unwrap();
            // It cuts what is long in its encoded form, and not between characters.
            let cut = safe.as_str().len() > 200 && safe.as_str().starts_with(&saved[..60]);
            let is_safe = SaveName::new(saved).as_str() == saved;
            cut || is_safe && [safe.ascii().as_str(), safe.as_str(), &twice].contains(&saved)
        },
    );
}
