use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de};

use super::{Place, RootName, Size};
use crate::{
    model::ByteCount,
    pinned::{Grade, HardLinks, Leases, Links, Mounts, Owner, Policy},
    policy::NameRules,
};

/// What is asked about for its size alone, unless the configuration says otherwise.
const LARGE: ByteCount = ByteCount::mib(256);
/// The largest file released, unless the configuration says otherwise.
const MAX_FILE: ByteCount = ByteCount::gib(1);

/// One `[[root]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootConfig {
    /// Its name in messages and logs; never a path.
    pub name: RootName,
    /// The directory; it may be or contain links, and is resolved once, at start.
    pub path: PathBuf,
    /// A directory of ours on the same mount, outside every root, in which reads are proven; one
    /// beside the root when none is named.
    pub arena: Option<PathBuf>,
    /// What it lets out, besides being beneath it and a plain file.
    pub policy: Policy,
    /// The largest file it lets out.
    pub max_file: ByteCount,
    /// Names that never leave, and names that ask.
    pub names: NameRules,
}

/// A `[[root]]` as TOML sees it, every key but the first two optional.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RootSettings {
    pub(super) name: RootName,
    path: Place,
    arena: Option<Place>,
    max_file: Option<Size>,
    #[serde(default)]
    links: Word<Links>,
    #[serde(default)]
    hardlinks: Word<HardLinks>,
    #[serde(default)]
    mounts: Word<Mounts>,
    #[serde(default)]
    owner: Word<Owner>,
    stability: Option<Word<Grade>>,
    #[serde(default)]
    leases: Word<Leases>,
    #[serde(default)]
    deny: Patterns,
    builtin_deny: Option<bool>,
    #[serde(default)]
    sensitive: Patterns,
    sensitive_over: Option<Size>,
}

/// A value the configuration spells with one word.
#[derive(Debug, Default)]
struct Word<T>(T);

/// Patterns over names, each found to be one.
#[derive(Debug, Default)]
struct Patterns(Vec<String>);

impl RootSettings {
    /// The root; its path is relative to `base`.
    pub(super) fn into_config(self, base: &Path) -> RootConfig {
        let Patterns(deny) = self.deny;
        let Patterns(sensitive) = self.sensitive;
        let large = self.sensitive_over.map_or(LARGE, |size| size.0);
        let builtin = self.builtin_deny.unwrap_or(true);
        RootConfig {
            name: self.name,
            path: base.join(self.path.0),
            arena: self.arena.map(|arena| base.join(arena.0)),
            policy: Policy {
                links: self.links.0,
                hard_links: self.hardlinks.0,
                mounts: self.mounts.0,
                owner: self.owner.0,
                stability: self
                    .stability
                    .map_or(Policy::default().stability, |grade| grade.0),
                leases: self.leases.0,
            },
            max_file: self.max_file.map_or(MAX_FILE, |size| size.0),
            names: NameRules::new(&deny, builtin, &sensitive, large)
                .expect("every pattern was found to be one when it was read"),
        }
    }
}

/// Reads a word by a table of spellings.
macro_rules! words {
    ($($type:ty, $form:literal: $($word:literal => $value:expr),+;)*) => {$(
        impl<'de> Deserialize<'de> for Word<$type> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match String::deserialize(deserializer)?.as_str() {
                    $($word => Ok(Self($value)),)+
                    _ => Err(de::Error::custom($form)),
                }
            }
        }
    )*};
}

words! {
    Links, "links are `deny` or `beneath`": "deny" => Links::Deny, "beneath" => Links::Beneath;
    HardLinks, "hard links are `deny` or `allow`":
        "deny" => HardLinks::Deny, "allow" => HardLinks::Allow;
    Mounts, "mounts are `deny` or `allow`": "deny" => Mounts::Deny, "allow" => Mounts::Allow;
    Leases, "leases are `never` or `try`": "never" => Leases::Never, "try" => Leases::Try;
    Grade, "the stability is `double-read`, `stamped`, `lease` or `clone`":
        "double-read" => Grade::DoubleRead, "stamped" => Grade::Stamped,
        "lease" => Grade::Lease, "clone" => Grade::Clone;
}

impl<'de> Deserialize<'de> for Word<Owner> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Any(String),
            Users(Vec<u32>),
        }
        let owner = match Written::deserialize(deserializer) {
            Ok(Written::Any(any)) if any == "any" => Owner::Any,
            Ok(Written::Users(users)) if !users.is_empty() => Owner::Users(users),
            Ok(_) | Err(_) => {
                let form = "the owner is `any` or a list of user ids, such as [1000]";
                return Err(de::Error::custom(form));
            }
        };
        Ok(Self(owner))
    }
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let patterns = Vec::<String>::deserialize(deserializer)?;
        NameRules::new(&patterns, false, &[], LARGE).map_err(de::Error::custom)?;
        Ok(Self(patterns))
    }
}
