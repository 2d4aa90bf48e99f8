//! Paths: `RelPath`, its shown form, and what a declared path can mean.

use holdfast::model::RelPath;
use proptest::prelude::*;

#[expect(unreachable_pub, reason = "public in the fuzzing crate it belongs to")]
#[path = "../../fuzz/src/rel_path.rs"]
mod body;

#[test]
fn the_corpus_of_paths_holds() {
    super::corpus::replay("rel_path", body::check);
}

/// Mostly plausible paths, so that the rules beyond the first are reached too.
fn path_like() -> impl Strategy<Value = Vec<u8>> {
    let component = prop_oneof![
        4 => "[a-z.\\\\]{1,5}".prop_map(String::into_bytes),
        1 => Just(b"..".to_vec()),
        1 => Just(b".".to_vec()),
        1 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 1..8),
        1 => "[\u{202a}-\u{202e}\u{200b}é\u{1b}]{1,3}".prop_map(String::into_bytes),
        1 => (250_usize..260).prop_map(|n| vec![b'n'; n]),
    ];
    prop_oneof![
        8 => proptest::collection::vec(component, 0..20).prop_map(|parts| parts.join(&b'/')),
        1 => proptest::collection::vec(any::<u8>(), 0..300),
        1 => (120_usize..140).prop_map(|n| vec!["d"; n].join("/").into_bytes()),
        1 => (4080_usize..4110).prop_map(|n| {
            let mut long = vec!["x".repeat(200); 21].join("/").into_bytes();
            long.truncate(n);
            long
        }),
    ]
}

proptest! {
    #[test]
    fn bytes_are_a_path_as_they_stand_or_not_at_all(bytes in path_like()) {
        body::check(&bytes);
    }

    #[test]
    fn a_path_survives_being_shown_and_read_back(bytes in path_like()) {
        if let Ok(path) = RelPath::parse(&bytes) {
            prop_assert_eq!(RelPath::parse(&body::read_back(&path.to_string())), Ok(path));
        }
    }
}

#[cfg(feature = "service")]
mod declared {
    use holdfast::deliverable::Target;
    use proptest::prelude::*;

    /// What a path means when every dot component is followed by its letters; none for what climbs
    /// above `/`.
    fn followed(cwd: &str, path: &str) -> Option<Vec<String>> {
        let whole = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("{cwd}/{path}")
        };
        let mut parts = Vec::new();
        for part in whole.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop()?;
                }
                name => parts.push(name.to_owned()),
            }
        }
        Some(parts)
    }

    fn spelled() -> impl Strategy<Value = String> {
        let part = prop_oneof![3 => "[ab]", 1 => Just("..".into()), 1 => Just(".".into()), 1 => Just(String::new())];
        (any::<bool>(), proptest::collection::vec(part, 0..7)).prop_map(|(absolute, parts)| {
            format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"))
        })
    }

    proptest! {
        /// Keeps I2: what is taken for a path below the session's directory is below it, and means
        /// what the declaration meant.
        #[test]
        fn a_target_lies_below_the_session_s_directory(
            declared in spelled(),
            cwd in "/([ab]/){0,3}[ab]?",
        ) {
            let inside = followed(&cwd, "").unwrap();
            let means = followed(&cwd, &declared)
                .filter(|means| means.len() > inside.len() && means.starts_with(&inside));
            if let Ok(target) = Target::parse(&declared, Some(&cwd)) {
                let parts = target
                    .path()
                    .components()
                    .map(|part| String::from_utf8(part.to_vec()).unwrap());
                let below = means.map(|means| means[inside.len()..].to_vec());
                prop_assert_eq!(Some(parts.collect::<Vec<_>>()), below);
            } else {
                // A plain spelling of something below is never refused.
                let plain = !declared
                    .split('/')
                    .skip(usize::from(declared.starts_with('/')))
                    .any(|part| matches!(part, "" | "." | ".."));
                prop_assert!(!plain || means.is_none());
            }
        }
    }
}
