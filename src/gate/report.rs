#![forbid(unsafe_code)]

use fsprobe::{Claims, Report};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::{
    pinned::{HardLinks, Policy, Resolver},
    seal::SealKey,
};

/// The format of the sealed file. It is also part of what the seal covers.
const FORMAT: &str = "holdfast-probe/1";
/// The largest sealed file that is read, in bytes.
pub const MAX_SEALED: u64 = 64 << 20;

/// The file is not one that was sealed with this key.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the probe report was not sealed here")]
pub struct Forged;

/// Everything one run of the prober found, for the roots of one configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Probed {
    /// The program that was probed; see [`build_id`](super::build_id).
    pub build: String,
    /// The roots, in the configuration's order.
    pub roots: Vec<ProbedRoot>,
}

/// What was found for one root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProbedRoot {
    /// Its name in the configuration.
    pub name: String,
    /// The device of the directory it was.
    pub device: u64,
    /// The inode of the directory it was.
    pub inode: u64,
    /// The policy it was read with.
    pub policy: String,
    /// One report a resolver; none where there was no arena on the root's mount.
    pub reports: Vec<ProbedResolver>,
}

/// What was found for one resolver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProbedResolver {
    /// Its name.
    pub resolver: String,
    /// The prober's report.
    pub report: Report,
}

/// The file: what was found, to the byte, and the seal over it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sealed {
    format: String,
    seal: String,
    probed: Box<RawValue>,
}

impl Probed {
    /// The file's text.
    ///
    /// # Errors
    /// Where a value has no form in JSON, which none of these has.
    pub fn seal(&self, key: &SealKey) -> serde_json::Result<String> {
        let probed = serde_json::value::to_raw_value(self)?;
        let sealed = Sealed {
            format: FORMAT.to_owned(),
            seal: hex(&key.seal(FORMAT, probed.get().as_bytes())),
            probed,
        };
        serde_json::to_string(&sealed).map(|text| text + "\n")
    }

    /// Reads a file that was sealed with `key`. Nothing in it is looked at before the seal fits.
    ///
    /// # Errors
    /// [`Forged`] for anything else, damage included.
    pub fn open(file: &[u8], key: &SealKey) -> Result<Self, Forged> {
        let sealed: Sealed = parse(file)?;
        let seal = unhex(&sealed.seal).ok_or(Forged)?;
        let text = sealed.probed.get();
        if sealed.format != FORMAT || !key.fits(FORMAT, text.as_bytes(), &seal) {
            return Err(Forged);
        }
        parse(sealed.probed.get().as_bytes())
    }

    /// What was found for the root of this name.
    #[must_use]
    pub fn root(&self, name: &str) -> Option<&ProbedRoot> {
        self.roots.iter().find(|root| root.name == name)
    }
}

/// What reports call the reader with this resolver.
#[must_use]
pub const fn subject_name(resolver: Resolver) -> &'static str {
    match resolver {
        Resolver::Openat2 => "pinned-openat2",
        Resolver::Walk => "pinned-walk",
    }
}

/// What a root with this policy undertakes, and must be probed for.
#[must_use]
pub fn claims_of(policy: &Policy) -> Claims {
    Claims {
        hard_links: policy.hard_links == HardLinks::Deny,
        ..Claims::ALL
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Forged> {
    serde_json::from_slice(text).map_err(|_not_ours| Forged)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let mut bytes = [0; 32];
    if pairs.len() != bytes.len() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
    }
    Some(bytes)
}
