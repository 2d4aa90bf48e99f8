use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use thiserror::Error;

use crate::model::{ByteCount, RelPath};

/// Names that never leave: keys, credentials, and what shells and clients remember. What leaks in
/// practice, not everything that could.
const DENIED: &[&str] = &[
    // Private keys and keyrings.
    ".ssh",
    ".gnupg",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "*.key",
    "*.pem",
    "*.p12",
    "*.pfx",
    "*.ppk",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.agekey",
    // Environments with secrets in them.
    ".env",
    ".env.*",
    ".envrc",
    "*.env",
    // Clouds and clusters.
    ".aws",
    ".azure",
    "**/.config/gcloud",
    ".kube",
    ".boto",
    ".s3cfg",
    "rclone.conf",
    "*.tfstate",
    "*.tfstate.backup",
    ".terraformrc",
    "credentials.tfrc.json",
    "application_default_credentials.json",
    "service-account*.json",
    "service_account*.json",
    // Packages, containers, version control.
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pypirc",
    ".dockercfg",
    "**/.docker/config.json",
    "**/.cargo/credentials",
    "**/.cargo/credentials.toml",
    "**/.gem/credentials",
    "**/.m2/settings.xml",
    "**/.gradle/gradle.properties",
    "auth.json",
    ".git-credentials",
    "**/.git/config",
    "**/.config/gh",
    "**/.config/hub",
    "**/.config/git/credentials",
    // Networks and databases.
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".htpasswd",
    ".vault-token",
    // Histories.
    ".*_history",
    ".*-history",
    ".lesshst",
    ".viminfo",
];

/// Documents that a program runs or a browser would act on.
const ACTIVE: &[&str] = &[
    "*.html",
    "*.htm",
    "*.xhtml",
    "*.xht",
    "*.shtml",
    "*.mht",
    "*.mhtml",
    "*.hta",
    "*.svg",
    "*.svgz",
    "*.xml",
    "*.xsl",
    "*.xslt",
    "*.js",
    "*.mjs",
    "*.pdf",
    "*.swf",
    "*.docm",
    "*.xlsm",
    "*.pptm",
    "*.exe",
    "*.msi",
    "*.bat",
    "*.cmd",
    "*.ps1",
    "*.lnk",
    "*.url",
    "*.desktop",
];

/// A pattern that is none.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{pattern}` is no pattern: {why}")]
pub struct PatternError {
    /// As it was written.
    pub pattern: String,
    /// What is wrong with it.
    pub why: String,
}

/// What the rules of a root say of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameClass<'a> {
    /// Nothing.
    Ordinary,
    /// Somebody should look before it leaves.
    Sensitive(Sensitive<'a>),
    /// It never leaves; the pattern that says so.
    Denied(&'a str),
}

/// Why somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sensitive<'a> {
    /// A component starts with a dot.
    DotName,
    /// A document that is run, or that acts when it is opened.
    Active,
    /// It has more bytes than a person would expect.
    Large,
    /// The operator's list has this pattern.
    Listed(&'a str),
}

impl Sensitive<'_> {
    /// The reason as one stable word.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::DotName => "dot-name",
            Self::Active => "active-document",
            Self::Large => "large",
            Self::Listed(_) => "listed",
        }
    }
}

/// Patterns over paths beneath a root.
#[derive(Clone, Debug)]
struct Patterns {
    set: GlobSet,
    /// As they were written, in the order of the set.
    texts: Box<[String]>,
}

impl Patterns {
    fn new<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<Self, PatternError> {
        let mut set = GlobSetBuilder::new();
        let mut texts = Vec::new();
        for pattern in patterns {
            let error = |why: String| PatternError {
                pattern: pattern.to_owned(),
                why,
            };
            if pattern.is_empty() || pattern.len() > 1024 {
                return Err(error(
                    "it is empty, or has more than 1,024 bytes".to_owned(),
                ));
            }
            // One without a slash is about names at any depth; one with a slash about the path.
            let path = match pattern.strip_prefix('/') {
                Some(path) => path.to_owned(),
                None if pattern.contains('/') => pattern.to_owned(),
                None => format!("**/{pattern}"),
            };
            let glob = GlobBuilder::new(&path)
                .case_insensitive(true)
                .literal_separator(true)
                .backslash_escape(true)
                .build()
                .map_err(|found| error(found.kind().to_string()))?;
            set.add(glob);
            texts.push(pattern.to_owned());
        }
        let set = set.build().map_err(|found| PatternError {
            pattern: found.glob().unwrap_or_default().to_owned(),
            why: found.kind().to_string(),
        })?;
        Ok(Self {
            set,
            texts: texts.into(),
        })
    }

    /// The first pattern that names `path` or a directory it lies in.
    fn first(&self, path: &RelPath) -> Option<&str> {
        let bytes = path.as_bytes();
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        ends.map(|(at, _)| at)
            .chain([bytes.len()])
            .filter_map(|end| bytes.get(..end))
            .find_map(|prefix| {
                let found = self.set.matches_candidate(&Candidate::from_bytes(prefix));
                found.first().and_then(|at| self.texts.get(*at))
            })
            .map(String::as_str)
    }
}

/// Which names of one root never leave, and which always ask.
#[derive(Clone, Debug)]
pub struct NameRules {
    denied: Patterns,
    listed: Patterns,
    active: Patterns,
    large: ByteCount,
}

/// Rules are the same when they are written the same.
impl PartialEq for NameRules {
    fn eq(&self, other: &Self) -> bool {
        let texts = |rules: &Self| (rules.denied.texts.clone(), rules.listed.texts.clone());
        texts(self) == texts(other) && self.large == other.large
    }
}

impl Eq for NameRules {}

impl NameRules {
    /// The operator's patterns beside the built-in ones; `builtin` is false where the operator
    /// takes the built-in denied names back. More than `large` bytes are sensitive.
    ///
    /// A pattern without a slash is about names at any depth, one with a slash about the path
    /// beneath the root; `*` stays within a component and `**` does not. Letters of either case are
    /// the same. What names a directory covers everything in it.
    ///
    /// # Errors
    /// [`PatternError`] for the first pattern that is none.
    pub fn new(
        denied: &[String],
        builtin: bool,
        sensitive: &[String],
        large: ByteCount,
    ) -> Result<Self, PatternError> {
        let own = denied.iter().map(String::as_str);
        let builtin: &[&str] = if builtin { DENIED } else { &[] };
        Ok(Self {
            denied: Patterns::new(own.chain(builtin.iter().copied()))?,
            listed: Patterns::new(sensitive.iter().map(String::as_str))?,
            active: Patterns::new(ACTIVE.iter().copied())?,
            large,
        })
    }

    /// What the rules say of a file of `bytes` bytes; without a length, of the name alone.
    #[must_use]
    pub fn judge(&self, path: &RelPath, bytes: Option<ByteCount>) -> NameClass<'_> {
        if let Some(pattern) = self.denied.first(path) {
            return NameClass::Denied(pattern);
        }
        let why = if let Some(pattern) = self.listed.first(path) {
            Sensitive::Listed(pattern)
        } else if path
            .components()
            .any(|component| component.starts_with(b"."))
        {
            Sensitive::DotName
        } else if self.active.first(path).is_some() {
            Sensitive::Active
        } else if bytes.is_some_and(|bytes| bytes > self.large) {
            Sensitive::Large
        } else {
            return NameClass::Ordinary;
        };
        NameClass::Sensitive(why)
    }
}

#[cfg(test)]
mod tests {
    use super::{NameClass, NameRules, Sensitive};
    use crate::model::{ByteCount, RelPath};

    fn rules(denied: &[&str], builtin: bool, sensitive: &[&str]) -> NameRules {
        let own = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
        let large = ByteCount::kib(1);
        NameRules::new(&own(denied), builtin, &own(sensitive), large).unwrap()
    }

    fn path(text: &[u8]) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    /// P01: what leaks in practice never leaves, at any depth and in either case. Keeps FR-04.
    #[test]
    fn p01_secrets_are_denied_wherever_they_lie() {
        let rules = rules(&[], true, &[]);
        for name in [
            &b".env"[..],
            b"app/.env",
            b"app/.env.local",
            b"app/.ENVRC",
            b"x/Id_Rsa",
            b".ssh/known_hosts",
            b"home/.ssh/a/b",
            b"server.key",
            b"CERT.PEM",
            b".aws/credentials",
            b"a/.git/config",
            b".docker/config.json",
            b"a/.config/gh/hosts.yml",
            b".bash_history",
            b".npmrc",
            b"infra/terraform.tfstate",
            b"prod.env",
            b".kube/config",
            b"\xff/.env",
        ] {
            let path = path(name);
            let class = rules.judge(&path, None);
            assert!(matches!(class, NameClass::Denied(_)), "{path}: {class:?}");
        }
        for name in [
            &b"report.txt"[..],
            b"environment.txt",
            b"keys.md",
            b"monkey",
            b"a/id_rsa.txt",
            b"git/config",
            b"ssh/known_hosts",
            b"history.md",
        ] {
            let path = path(name);
            assert_eq!(rules.judge(&path, None), NameClass::Ordinary, "{path}");
        }
    }

    /// P04: an ordinary dot file asks, and is not refused.
    #[test]
    fn p04_an_ordinary_dot_file_asks() {
        let rules = rules(&[], true, &[]);
        let class = rules.judge(&path(b".config/needed.json"), None);
        assert_eq!(class, NameClass::Sensitive(Sensitive::DotName));
    }

    #[test]
    fn active_large_and_listed_files_ask() {
        let rules = rules(&[], true, &["drafts/**", "*.csv"]);
        for (name, bytes, why) in [
            (&b"a/page.HTML"[..], 1, Sensitive::Active),
            (b"drawing.svg", 1, Sensitive::Active),
            (b"out.bin", 1025, Sensitive::Large),
            (b"drafts/a/b.txt", 1, Sensitive::Listed("drafts/**")),
            (b"data/people.csv", 1, Sensitive::Listed("*.csv")),
        ] {
            let path = path(name);
            let class = rules.judge(&path, Some(ByteCount::new(bytes)));
            assert_eq!(class, NameClass::Sensitive(why), "{path}");
        }
        let at_the_bound = rules.judge(&path(b"out.bin"), Some(ByteCount::kib(1)));
        assert_eq!(at_the_bound, NameClass::Ordinary);
    }

    #[test]
    fn the_operators_list_comes_first_and_the_built_in_one_can_be_taken_back() {
        let mine = rules(&["/top/only", "secret*"], false, &[]);
        for (name, denied) in [
            (&b"top/only"[..], Some("/top/only")),
            (b"top/only/below", Some("/top/only")),
            (b"x/top/only", None),
            (b"x/Secret-plan.txt", Some("secret*")),
            (b"server.key", None),
        ] {
            let path = path(name);
            let class = rules_class(&mine, &path);
            assert_eq!(class, denied, "{path}");
        }
    }

    fn rules_class<'a>(rules: &'a NameRules, path: &RelPath) -> Option<&'a str> {
        match rules.judge(path, None) {
            NameClass::Denied(pattern) => Some(pattern),
            NameClass::Ordinary | NameClass::Sensitive(_) => None,
        }
    }

    #[test]
    fn a_pattern_that_is_none_is_named() {
        for bad in ["[", "", "a{b"] {
            let error = NameRules::new(&[bad.to_owned()], true, &[], ByteCount::ZERO).unwrap_err();
            assert_eq!(error.pattern, bad);
            assert!(!error.why.is_empty());
        }
    }
}
