//! Nasty names, and what clients save them as.

use std::{ffi::OsString, fs, path::Path, process::Command};

use holdfast::model::{FileName, SaveName};

use percent_encoding::percent_decode_str;

use crate::{
    has,
    nasty::{is_safe, nasty},
    program::{Home, Server},
};

/// A server whose session refers to one attachment for each name, its content being its number.
struct Scene {
    home: Home,
    server: Server,
    /// For each name the attachment's own address and that of a ticket.
    urls: Vec<(String, [String; 2])>,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        let server = home.up();
        let session = server.text("session").to_owned();
        let names = nasty();
        assert!(names.len() >= 60);
        let urls = names.into_iter().enumerate().map(|(number, name)| {
            assert!(FileName::parse(&name).is_ok(), "{name:?}");
            let file = home.file("source", number.to_string().as_bytes());
            let argument = format!("--name={name}");
            let put = ["put", "--session", &session, "--reference", &argument];
            let stored = home.json(&[&put[..], &[file.to_str().unwrap()]].concat());
            let id = stored["attachmentId"].as_str().unwrap();
            let create = ["ticket", "create", "--session", &session, id];
            let ticket = home.json(&create);
            let (url, href) = (server.text("url"), ticket["href"].as_str().unwrap());
            let own = format!("{url}/v1/sessions/{session}/attachments/{id}");
            (name, [own, format!("{url}{href}")])
        });
        let urls = urls.collect();
        let bearer = format!("Authorization: Bearer {}\n", server.text("token"));
        home.file("bearer", bearer.as_bytes());
        Self { home, server, urls }
    }

    /// Runs a client for each name and address in an empty directory of its own, and compares what it
    /// saved with what it may save.
    fn each(&self, client: impl Fn(&str) -> Command, may_save: impl Fn(&SaveName, &str) -> bool) {
        let numbered = self.urls.iter().enumerate();
        let all = numbered.flat_map(|(number, (name, urls))| {
            let urls = urls.iter();
            urls.map(move |url| (number, name, url))
        });
        for (number, name, url) in all {
            let dir = tempfile::tempdir_in(self.home.path()).unwrap();
            let run = client(url)
                .current_dir(dir.path())
                .env("HOME", self.home.path())
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
            assert_eq!(content, number.to_string().as_bytes(), "{name:?}");
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
    let bearer = scene.home.path().join("bearer");
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
                scene.server.text("token")
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
