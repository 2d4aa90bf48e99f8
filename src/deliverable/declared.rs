#![forbid(unsafe_code)]

use thiserror::Error;

use crate::model::{ParsePathError, RelPath};

/// Why a declared path names nothing below the session's directory.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refused {
    /// It is absolute and not below the session's directory, or it climbs out of it.
    #[error("the declared path lies outside the session's directory")]
    OutsideRoot,
    /// It is not a path a root can be asked for.
    #[error("the declared path cannot be used")]
    Invalid(#[source] ParsePathError),
}

impl Refused {
    /// The refusal as one stable word.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::OutsideRoot => "outside-root",
            Self::Invalid(_) => "invalid-path",
        }
    }
}

/// Where a declared path points, by its letters alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(RelPath);

impl Target {
    /// Takes a declared path as it stands; `cwd` is the session's directory.
    ///
    /// An absolute path below `cwd` is made relative first. Nothing is looked up, and nothing else
    /// is repaired.
    ///
    /// # Errors
    /// [`Refused::OutsideRoot`] for what lies or climbs outside; [`Refused::Invalid`] for the rest
    /// of what [`RelPath::parse`] refuses.
    pub fn parse(declared: &str, cwd: Option<&str>) -> Result<Self, Refused> {
        let relative = if declared.starts_with('/') {
            cwd.and_then(|cwd| below(declared, cwd))
                .ok_or(Refused::OutsideRoot)?
        } else {
            declared
        };
        if climbs_out(relative) {
            return Err(Refused::OutsideRoot);
        }
        RelPath::parse(relative.as_bytes())
            .map(Self)
            .map_err(Refused::Invalid)
    }

    /// The path below the session's directory.
    #[must_use]
    pub fn path(&self) -> &RelPath {
        &self.0
    }
}

/// What follows `cwd` and a slash in `declared`. A `cwd` that is relative or has dot components
/// says nothing about what is below it.
fn below<'a>(declared: &'a str, cwd: &str) -> Option<&'a str> {
    let plain = |part: &str| !matches!(part, "." | "..");
    if !cwd.starts_with('/') || !cwd.split('/').all(plain) {
        return None;
    }
    declared
        .strip_prefix(cwd.trim_end_matches('/'))?
        .strip_prefix('/')
}

/// Whether the path, read from left to right, is ever above where it started.
fn climbs_out(path: &str) -> bool {
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match depth.checked_sub(1) {
                Some(above) => depth = above,
                None => return true,
            },
            _ => depth = depth.saturating_add(1),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{Refused, Target};
    use crate::model::ParsePathError;

    #[test]
    fn a_declared_path_names_something_below_the_session_s_directory_or_nothing() {
        let dots = Refused::Invalid(ParsePathError::DotComponent);
        for (declared, cwd, expected) in [
            ("out/a.txt", None, Ok("out/a.txt")),
            ("/w/s/out/a.txt", Some("/w/s"), Ok("out/a.txt")),
            ("/w/s/a", Some("/w/s/"), Ok("a")),
            ("/a", Some("/"), Ok("a")),
            ("/w/s/a", None, Err(Refused::OutsideRoot)),
            ("/w/secret/a", Some("/w/s"), Err(Refused::OutsideRoot)),
            ("/w/s", Some("/w/s"), Err(Refused::OutsideRoot)),
            ("/w/s/../x", Some("/w/s"), Err(Refused::OutsideRoot)),
            ("/w/s/x", Some("/w/../w/s"), Err(Refused::OutsideRoot)),
            ("/w/s/x", Some("w/s"), Err(Refused::OutsideRoot)),
            ("../x", Some("/w/s"), Err(Refused::OutsideRoot)),
            ("a/../../x", Some("/w/s"), Err(Refused::OutsideRoot)),
            ("a/../x", Some("/w/s"), Err(dots)),
            ("./x", Some("/w/s"), Err(dots)),
            (
                "",
                Some("/w/s"),
                Err(Refused::Invalid(ParsePathError::Empty)),
            ),
            ("a\0b", None, Err(Refused::Invalid(ParsePathError::Nul))),
            (
                "/w/s/",
                Some("/w/s"),
                Err(Refused::Invalid(ParsePathError::Empty)),
            ),
            (
                "/w/s//a",
                Some("/w/s"),
                Err(Refused::Invalid(ParsePathError::Absolute)),
            ),
        ] {
            let target = Target::parse(declared, cwd).map(|t| t.path().to_string());
            assert_eq!(
                target.as_deref().map_err(|e| *e),
                expected,
                "{declared:?} in {cwd:?}"
            );
        }
    }
}
