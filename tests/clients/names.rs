//! Nasty names, and what clients save them as.

use std::{ffi::OsString, fs, path::Path, process::Command};

use holdfast::model::{FileName, SaveName};

use percent_encoding::percent_decode_str;

use crate::{
    has,
    program::{Home, Server},
};

/// Names a reference may carry. None of them is what it seems, or none of them is easy.
fn nasty() -> Vec<String> {
    let mut names: Vec<String> = [
        "报告.md",
        "отчёт за год.txt",
        "تقرير.pdf",
        "naïve café.txt",
        "Straße–Łódź.txt",
        "🎉 party.png",
        "👨\u{200d}👩\u{200d}👧.png",
        "e\u{301}.txt",
        "a b c.txt",
        "a, b; c.txt",
        "a+b.txt",
        "100%.txt",
        "%41%2e%2e%2f.txt",
        "%22%0d%0aX: y.txt",
        "my%20file.txt",
        "%2ebashrc",
        "%252e%252e%252fx",
        "a\"; filename=evil.html; x=\".txt",
        "a\"b.txt",
        "\"quoted\".txt",
        "it's.txt",
        "back`tick`.txt",
        "$(id).txt",
        "a;id;.txt",
        "a|b.txt",
        "a&b.txt",
        "<script>.html",
        "a<b>c.txt",
        "a:b.txt",
        "C:evil.txt",
        "a*?.txt",
        "NUL.bin",
        "con",
        "Aux.tar.gz",
        "com1.txt",
        "LPT³.txt",
        "CONIN$",
        "x.txt.",
        "x. . .",
        "...x",
        "..x..",
        "-rf",
        "--output=x",
        ".bashrc",
        ".ssh",
        ".gitignore",
        "~",
        "~root",
        "inno\u{202e}gpj.exe",
        "\u{2066}a\u{2069}b.txt",
        "zero\u{200b}width.txt",
        "\u{feff}bom.txt",
        "soft\u{ad}hyphen.txt",
        "line\u{2028}break.txt",
        "c1\u{85}control\u{9b}31m.txt",
        "ＮＵＬ.txt",
        "a／b＼c.txt",
        "‥",
        "UTF-8''x.txt",
        "=?utf-8?q?x?=.txt",
        "filename*=UTF-8''x.txt",
        "index.html",
    ]
    .map(String::from)
    .into();
    names.push(format!("{}.txt", "长".repeat(200)));
    names.push(format!("{}.tar.gz", "x".repeat(240)));
    names
}

/// A server whose session refers to one attachment for each name, its content being its number.
struct Scene {
    home: Home,
    server: Server,
    urls: Vec<(String, String)>,
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
            let url = server.text("url");
            (
                name,
                format!("{url}/v1/sessions/{session}/attachments/{id}"),
            )
        });
        let urls = urls.collect();
        let bearer = format!("Authorization: Bearer {}\n", server.text("token"));
        home.file("bearer", bearer.as_bytes());
        Self { home, server, urls }
    }

    /// Runs a client for each name in an empty directory of its own, and compares what it saved
    /// with what it may save.
    fn each(&self, client: impl Fn(&str) -> Command, may_save: impl Fn(&SaveName, &str) -> bool) {
        for (number, (name, url)) in self.urls.iter().enumerate() {
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
