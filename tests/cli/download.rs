//! `get`: what stands at the output was read back and checked, or nothing stands there.

use std::{os::unix::fs::symlink, path::PathBuf, sync::atomic::Ordering};

use crate::{
    program::{Done, Home, Server, run},
    proxy::{Hurt, Proxy},
};

/// A session with one file of some size, and a client in a directory of its own.
struct Scene {
    home: Home,
    server: Server,
    content: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        let server = home.up();
        let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let file = home.file("source.bin", &content);
        let session = server.text("session").to_owned();
        let file = file.to_str().unwrap();
        let done = home.run(&[
            "put",
            "--session",
            &session,
            "--reference",
            "--name",
            "r.bin",
            file,
        ]);
        assert_eq!(done.code, 0, "{done:?}");
        std::fs::create_dir(home.path().join("client")).unwrap();
        Self {
            home,
            server,
            content,
        }
    }

    /// `get r.bin` over the network in the client's directory.
    fn get(&self, url: &str, arguments: &[&str]) -> Done {
        let mut command = self.home.command(&["get", "--session", "demo", "r.bin"]);
        command
            .args(["--url", url])
            .args(arguments)
            .env("HOLDFAST_TOKEN", self.server.text("token"))
            .current_dir(self.client());
        run(&mut command)
    }

    fn client(&self) -> PathBuf {
        self.home.path().join("client")
    }

    /// The names in the client's directory.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.client())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn url(&self) -> &str {
        self.server.text("url")
    }

    fn is_whole(&self, name: &str) -> bool {
        std::fs::read(self.client().join(name)).unwrap() == self.content
    }
}

#[test]
fn a_download_arrives_whole_under_its_own_name() {
    let scene = Scene::new();
    let done = scene.get(scene.url(), &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("sha256 verified"), "{done:?}");
    assert_eq!(scene.names(), ["r.bin"]);
    assert!(scene.is_whole("r.bin"));
    assert!(
        !done.err.contains('%'),
        "no progress bar without a terminal: {done:?}"
    );
}

/// I03: a body cut at 60 % is no success, and the next run goes on from the part.
#[test]
fn i03_a_cut_download_fails_loudly_and_the_next_run_goes_on_from_the_part() {
    let scene = Scene::new();
    let proxy = Proxy::start(scene.server.address(), Hurt::CutAfter(720_000), 1);
    let done = scene.get(&proxy.url, &["--retries", "0"]);
    assert_eq!(done.code, 6, "{done:?}");
    assert!(done.err.contains("720000 bytes"), "{done:?}");
    let names = scene.names();
    assert!(names.len() == 1 && names[0].ends_with(".part"), "{names:?}");

    let mut command = scene
        .home
        .command(&["--json", "get", "--session", "demo", "r.bin"]);
    command
        .args(["--url", &proxy.url])
        .env("HOLDFAST_TOKEN", scene.server.text("token"))
        .current_dir(scene.client());
    let done = run(&mut command).json();
    assert_eq!(done["resumedFrom"], 720_000);
    assert_eq!(scene.names(), ["r.bin"]);
    assert!(scene.is_whole("r.bin"));
}

#[test]
fn a_cut_download_goes_on_by_itself_as_long_as_bytes_keep_coming() {
    let scene = Scene::new();
    let proxy = Proxy::start(scene.server.address(), Hurt::CutAfter(500_000), 2);
    let done = scene.get(&proxy.url, &["--retries", "2"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(proxy.downloads.load(Ordering::SeqCst), 3);
    assert!(scene.is_whole("r.bin"));
}

/// I03: what is on disk is checked, not only the answer's form.
#[test]
fn i03_a_download_with_one_wrong_bit_leaves_nothing_and_says_so() {
    let scene = Scene::new();
    let proxy = Proxy::start(scene.server.address(), Hurt::FlipAt(999_999), usize::MAX);
    let done = scene.get(&proxy.url, &[]);
    assert_eq!(done.code, 5, "{done:?}");
    assert!(done.err.contains("nothing was kept"), "{done:?}");
    assert!(scene.names().is_empty(), "{:?}", scene.names());
}

/// I03: a part of an earlier run that went bad on disk is noticed, and the download starts over.
#[test]
fn i03_a_part_that_went_bad_is_not_built_upon() {
    let scene = Scene::new();
    let proxy = Proxy::start(scene.server.address(), Hurt::CutAfter(720_000), 1);
    assert_eq!(scene.get(&proxy.url, &["--retries", "0"]).code, 6);
    let part = scene.client().join(&scene.names()[0]);
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let done = scene.get(scene.url(), &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("starting over"), "{done:?}");
    assert!(scene.is_whole("r.bin"));
}

#[test]
fn a_part_longer_than_the_content_is_started_over() {
    let scene = Scene::new();
    let proxy = Proxy::start(scene.server.address(), Hurt::CutAfter(1000), 1);
    assert_eq!(scene.get(&proxy.url, &["--retries", "0"]).code, 6);
    let part = scene.client().join(&scene.names()[0]);
    std::fs::write(&part, vec![7; scene.content.len() + 5]).unwrap();
    let done = scene.get(scene.url(), &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(scene.is_whole("r.bin"));
}

#[test]
fn what_stands_at_the_output_is_kept_unless_told_otherwise() {
    let scene = Scene::new();
    std::fs::write(scene.client().join("r.bin"), "mine").unwrap();
    let done = scene.get(scene.url(), &[]);
    assert_eq!(done.code, 7, "{done:?}");
    assert!(done.err.contains("--force"), "{done:?}");
    assert_eq!(
        std::fs::read(scene.client().join("r.bin")).unwrap(),
        b"mine"
    );
    assert_eq!(scene.get(scene.url(), &["--force"]).code, 0);
    assert!(scene.is_whole("r.bin"));
}

/// S11: a link at the output, dangling or not, is never followed.
#[test]
fn s11_a_link_at_the_output_is_refused_or_replaced_and_never_followed() {
    let scene = Scene::new();
    let outside = scene.home.path().join("outside.txt");
    let link = scene.client().join("r.bin");
    symlink(&outside, &link).unwrap();
    let done = scene.get(scene.url(), &[]);
    assert_eq!(done.code, 7, "{done:?}");
    assert!(!outside.exists(), "nothing appears at the link's target");

    std::fs::write(&outside, "outside").unwrap();
    let done = scene.get(scene.url(), &["--force"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        link.symlink_metadata().unwrap().is_file(),
        "the link itself was replaced"
    );
    assert_eq!(std::fs::read(&outside).unwrap(), b"outside");
    assert!(scene.is_whole("r.bin"));
}

/// D06: something planted under the part's name is not written through.
#[test]
fn d06_a_planted_part_is_refused() {
    let scene = Scene::new();
    let outside = scene.home.path().join("outside.txt");
    std::fs::write(&outside, "outside").unwrap();
    let proxy = Proxy::start(scene.server.address(), Hurt::CutAfter(1000), 1);
    assert_eq!(scene.get(&proxy.url, &["--retries", "0"]).code, 6);
    let part = scene.client().join(&scene.names()[0]);
    std::fs::remove_file(&part).unwrap();
    for plant in [symlink::<&PathBuf, &PathBuf>, |from, to| {
        std::fs::hard_link(from, to)
    }] {
        plant(&outside, &part).unwrap();
        let done = scene.get(scene.url(), &[]);
        assert_ne!(done.code, 0, "{done:?}");
        assert_eq!(std::fs::read(&outside).unwrap(), b"outside");
        std::fs::remove_file(&part).unwrap();
    }
}

#[test]
fn the_output_may_be_a_file_or_a_directory() {
    let scene = Scene::new();
    std::fs::create_dir(scene.client().join("into")).unwrap();
    for (output, lands) in [
        ("into", "into/r.bin"),
        ("into/", "into/r.bin"),
        ("other", "other"),
    ] {
        let done = scene.get(scene.url(), &["--force", "-o", output]);
        assert_eq!(done.code, 0, "{output}: {done:?}");
        assert!(scene.is_whole(lands), "{output}");
    }
    let done = scene.get(scene.url(), &["-o", "absent/file"]);
    assert_eq!(done.code, 4, "{done:?}");
}

#[test]
fn what_is_not_there_ends_with_its_own_code() {
    let scene = Scene::new();
    for (session, attachment, token) in [
        ("demo", "no-such-name", true),
        ("no-such-session", "r.bin", true),
        ("s_00000000000000000000000000000000", "r.bin", true),
        ("demo", "r.bin", false),
    ] {
        let mut command = scene
            .home
            .command(&["get", "--session", session, attachment]);
        let nobody = format!("hf_{}", "0".repeat(64));
        let token = if token {
            scene.server.text("token")
        } else {
            &nobody
        };
        command
            .args(["--url", scene.url()])
            .env("HOLDFAST_TOKEN", token);
        let done = run(command.current_dir(scene.client()));
        assert_eq!(done.code, 4, "{session} {attachment}: {done:?}");
    }
    assert!(scene.names().is_empty());
}

/// Keeps I4: a stored object with one bit flipped gives no byte, and the command says what it is.
#[test]
fn a_damaged_object_gives_nothing_and_ends_with_damaged() {
    let scene = Scene::new();
    let digest = holdfast::model::Digest::of(&scene.content).to_string();
    let object = scene
        .home
        .data()
        .join("data/objects/sha256")
        .join(&digest[..2])
        .join(&digest);
    let mut bytes = std::fs::read(&object).unwrap();
    bytes[77] ^= 1;
    std::fs::remove_file(&object).unwrap();
    std::fs::write(&object, bytes).unwrap();
    let done = scene.get(scene.url(), &["--retries", "0"]);
    assert_eq!(done.code, 5, "{done:?}");
    let done = scene.home.run(&["--json", "verify", "--session", "demo"]);
    assert_eq!(done.code, 5, "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(
        (&report["attachments"], &report["bad"]),
        (&2.into(), &1.into())
    );
}

/// What is done to the head of an answer.
type Change = fn(&str) -> String;

/// I03: a range that is not the one that was asked for, or of something else, is not put into the part.
#[test]
fn i03_an_answer_that_does_not_fit_is_refused_and_the_part_stays_as_it_was() {
    let scene = Scene::new();
    let half: Hurt = Hurt::CutAfter(720_000);
    let hurts: [(Change, i32, &str); 6] = [
        (
            |head| head.replace("bytes 720000-", "bytes 720001-"),
            1,
            "not the range",
        ),
        (
            |head| head.replace("-1199999/", "-1199998/"),
            1,
            "not the range",
        ),
        (|head| head.replace("/1200000", "/*"), 1, "not the range"),
        (
            |head| head.replace("content-range:", "x-range:"),
            1,
            "not the range",
        ),
        (
            |head| head.replace("1199999/1200000", "1299999/1300000"),
            5,
            "1300000 bytes",
        ),
        (
            |head| {
                let (before, after) = head.split_once("etag: \"").unwrap();
                format!("{before}etag: \"0{}", &after[1..])
            },
            5,
            "other content",
        ),
    ];
    for (change, code, says) in hurts {
        let cut = Proxy::start(scene.server.address(), half, 1);
        assert_eq!(scene.get(&cut.url, &["--retries", "0"]).code, 6);
        let part = scene.client().join(&scene.names()[0]);
        let before = std::fs::read(&part).unwrap();
        let proxy = Proxy::start(scene.server.address(), Hurt::Head(change), 1);
        let done = scene.get(&proxy.url, &["--retries", "0"]);
        assert_eq!(done.code, code, "{says}: {done:?}");
        assert!(done.err.contains(says), "{says}: {done:?}");
        assert!(std::fs::read(&part).unwrap() == before, "{says}");
        assert_eq!(scene.names().len(), 1, "{says}: {:?}", scene.names());
        // The next honest answer ends it.
        assert_eq!(scene.get(scene.url(), &[]).code, 0, "{says}");
        assert!(scene.is_whole("r.bin"));
        std::fs::remove_file(scene.client().join("r.bin")).unwrap();
    }
    // A whole answer of something else, where nothing was kept yet.
    let other =
        Hurt::Head(|head| head.replace("content-length: 1200000", "content-length: 1199999"));
    let proxy = Proxy::start(scene.server.address(), other, 1);
    assert_eq!(scene.get(&proxy.url, &[]).code, 5);
    assert!(scene.names().is_empty(), "{:?}", scene.names());
}

/// I03: killed at any point there is a part or the whole file, and the next run goes on.
#[test]
fn i03_a_download_killed_under_way_leaves_a_part_and_no_file() {
    let scene = Scene::new();
    for at in [1, 4096, 600_000, 1_199_999] {
        let proxy = Proxy::start(scene.server.address(), Hurt::StandAfter(at), 1);
        let mut command = scene.home.command(&["get", "--session", "demo", "r.bin"]);
        let mut child = command
            .args(["--url", &proxy.url])
            .env("HOLDFAST_TOKEN", scene.server.text("token"))
            .current_dir(scene.client())
            .spawn()
            .unwrap();
        let part = || {
            let names = scene.names();
            let part = names.iter().find(|name| name.ends_with(".part"))?;
            Some(std::fs::metadata(scene.client().join(part)).unwrap().len())
        };
        while part() != Some(at as u64) {
            assert!(child.try_wait().unwrap().is_none(), "{at}: it ended");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(scene.names().len(), 1, "{at}: {:?}", scene.names());
        assert!(!scene.client().join("r.bin").exists());
        let mut command = scene
            .home
            .command(&["--json", "get", "--session", "demo", "r.bin"]);
        command
            .args(["--url", scene.url()])
            .env("HOLDFAST_TOKEN", scene.server.text("token"))
            .current_dir(scene.client());
        assert_eq!(run(&mut command).json()["resumedFrom"], at);
        assert_eq!(scene.names(), ["r.bin"]);
        assert!(scene.is_whole("r.bin"));
        std::fs::remove_file(scene.client().join("r.bin")).unwrap();
    }
}

/// A full disk is said, leaves no file under its name, and is gone on from when there is room.
#[test]
fn a_full_disk_leaves_a_part_and_no_file() {
    let scene = Scene::new();
    // A filesystem of a few hundred kibibytes, which only this command sees.
    let script = "mount -t tmpfs -o size=400k none small && cd small && \
                  { \"$@\"; echo code $?; ls -A; mount -o remount,size=4m . && \"$@\"; echo code $?; ls -A; \
                  cmp r.bin ../../source.bin && echo same; }";
    std::fs::create_dir(scene.client().join("small")).unwrap();
    let get = scene.home.command(&["get", "--session", "demo", "r.bin"]);
    let mut command = std::process::Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(get.get_program())
        .args(get.get_args())
        .args(["--url", scene.url(), "--retries", "1"])
        .env("HOLDFAST_TOKEN", scene.server.text("token"))
        .current_dir(scene.client());
    let done = run(&mut command);
    if !done.out.contains("code") {
        return crate::skip::skipped(1, "full disk", "no filesystem may be mounted here");
    }
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!(lines[0], "code 6", "{done:?}");
    assert!(lines[1].ends_with(".part"), "{done:?}");
    assert!(done.err.contains("No space left"), "{done:?}");
    assert!(lines[2].contains("sha256 verified"), "{done:?}");
    assert_eq!(lines[3..], ["code 0", "r.bin", "same"], "{done:?}");
}

/// Somebody at a terminal sees how far it is.
#[test]
fn a_terminal_is_shown_how_far_it_is() {
    let scene = Scene::new();
    let get = scene
        .home
        .command(&["get", "--session", "demo", "r.bin", "--url", scene.url()]);
    let words: Vec<String> = std::iter::once(get.get_program())
        .chain(get.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut command = std::process::Command::new("script");
    command
        .args(["-qec", &words.join(" "), "/dev/null"])
        .env("HOLDFAST_TOKEN", scene.server.text("token"))
        .env("TERM", "xterm")
        .stdin(std::process::Stdio::null())
        .current_dir(scene.client());
    let done = run(&mut command);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("1.14 MiB/1.14 MiB"), "{done:?}");
    assert!(scene.is_whole("r.bin"));
}
