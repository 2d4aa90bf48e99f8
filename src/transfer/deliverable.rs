//! A declared file: where the path in the log leads, and which rules govern it. Nothing is opened here.

use super::{OpenRoot, Parts, Place, TransferError, setting_of};
use crate::{
    access::{DeliverableRef, Grant, Principal, ReadSession},
    deliverable::Target,
    model::{ByteCount, LogGeneration, Seq, SessionHandle},
    permission::{Choice, InForce},
    pinned::{Kind, PinnedError},
    policy::{Asking, Decision, NameClass, Preset},
};

/// Where a declared file stands in a log. Nothing else names one (I1).
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The session.
    pub session: SessionHandle,
    /// The numbering of `seq`.
    pub log_generation: LogGeneration,
    /// The event.
    pub seq: Seq,
    /// The position in the event.
    pub index: u32,
}

/// Everything that is known of a declared file without opening anything.
#[derive(Debug)]
pub struct Located {
    pub(super) grant: Grant<DeliverableRef>,
    pub(super) place: Place,
    pub(super) preset: Preset,
}

impl Located {
    /// Where it lies.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }
}

/// Finds the declaration the address names and where its path lies. Opens nothing.
///
/// # Errors
/// [`TransferError::Access`] when the caller may not have it or nothing is declared there;
/// [`TransferError::Outside`] for a path that leads out of the session's directory;
/// [`TransferError::NoRoot`] when that directory lies in no root.
pub async fn locate(
    parts: &Parts,
    caller: &Principal,
    at: Address,
) -> Result<Located, TransferError> {
    let (own, caller) = (parts.clone(), caller.clone());
    let looking = move || {
        let access = &own.access;
        let session = access.read_session(&caller, at.session)?;
        access.release_from_session(&caller, at.session)?;
        let grant = access.deliverable(&session, at.log_generation, at.seq, at.index)?;
        let preset = preset(&own, &session)?;
        Ok::<_, TransferError>((grant, preset))
    };
    let (grant, preset) = parts.pools.control.run(looking).await??;
    let target = Target::parse(grant.path(), grant.cwd()).map_err(TransferError::Outside)?;
    let place = grant
        .cwd()
        .and_then(|cwd| parts.roots.place(cwd, target.path()))
        .ok_or(TransferError::NoRoot)?;
    Ok(Located {
        grant,
        place,
        preset,
    })
}

/// The permission a session runs under, as far as files are concerned. What a DSH home's log says of
/// it its agents can write; there everything is asked.
pub(super) fn preset(parts: &Parts, session: &Grant<ReadSession>) -> Result<Preset, TransferError> {
    if !parts.access.is_native(session)? {
        return Ok(Preset::ReadOnly);
    }
    let in_force = InForce::read(parts.journal.as_ref(), session.session())?;
    Ok(match in_force.choice() {
        Some(Choice::ReadOnly) => Preset::ReadOnly,
        Some(Choice::WorkspaceWrite) => Preset::WorkspaceWrite,
        Some(Choice::DangerFullAccess) => Preset::DangerFullAccess,
        None if in_force.asks() => Preset::Custom(Asking::Ask),
        None => Preset::Custom(Asking::Never),
    })
}

/// What governs a declared file, rule by rule.
#[derive(Debug)]
pub struct Explained {
    /// `release`, `ask` or `refuse`, as far as can be said without opening anything.
    pub outcome: &'static str,
    /// The rules, in the order they are asked; those after one that refuses are not asked.
    pub rules: Vec<Rule>,
}

/// One rule and what it says.
#[derive(Debug)]
pub struct Rule {
    /// What it is about.
    pub rule: &'static str,
    /// Whether it lets the file through.
    pub passed: bool,
    /// What it found.
    pub class: Option<String>,
    /// What to do about it.
    pub remedy: Option<String>,
    /// The setting that governs it.
    pub setting: Option<&'static str>,
}

impl Rule {
    const fn passed(rule: &'static str) -> Self {
        Self {
            rule,
            passed: true,
            class: None,
            remedy: None,
            setting: None,
        }
    }

    fn refuses(rule: &'static str, class: impl Into<String>) -> Self {
        Self {
            passed: false,
            class: Some(class.into()),
            ..Self::passed(rule)
        }
    }
}

/// Asks every rule about a declared file, in the order a release asks them, and opens nothing (I15). With
/// `look`, and where nothing refuses before, the file is pinned and examined as a release of it begins:
/// still nothing is opened for reading.
///
/// # Errors
/// [`TransferError::Access`] as for the release; with `look` whatever says nothing of the file.
pub async fn explain(
    parts: &Parts,
    caller: &Principal,
    at: Address,
    look: bool,
) -> Result<Explained, TransferError> {
    let mut rules = Vec::new();
    let refuse = |mut rules: Vec<Rule>, rule| {
        rules.push(rule);
        Ok(Explained {
            outcome: "refuse",
            rules,
        })
    };
    let located = match locate(parts, caller, at).await {
        Err(TransferError::Outside(refused)) => {
            return refuse(rules, Rule::refuses("path", refused.code()));
        }
        Err(TransferError::NoRoot) => {
            rules.push(Rule::passed("path"));
            let rule = Rule {
                remedy: Some("register the session's directory as a root".to_owned()),
                setting: Some("root.path"),
                ..Rule::refuses("root", "no-root")
            };
            return refuse(rules, rule);
        }
        located => located?,
    };
    rules.extend([Rule::passed("path"), Rule::passed("root")]);
    let (grant, place, preset) = (located.grant, located.place, located.preset);
    let proof = match parts.gate.proof(&place.root) {
        Ok(proof) => proof,
        Err(closed) => {
            let rule = Rule {
                remedy: Some(closed.remedy().to_owned()),
                ..Rule::refuses("gate", closed.code())
            };
            return refuse(rules, rule);
        }
    };
    rules.push(Rule::passed("gate"));
    let held = parts
        .roots
        .named(&place.root)
        .ok_or(TransferError::NoRoot)?;
    let class = held.rules().names.judge(&place.path, None);
    let name = match &class {
        NameClass::Denied(pattern) => {
            let rule = Rule {
                remedy: Some(format!("the pattern `{pattern}` denies the name")),
                setting: Some("root.deny"),
                ..Rule::refuses("name", "denied_name")
            };
            return refuse(rules, rule);
        }
        NameClass::Ordinary => Rule::passed("name"),
        NameClass::Sensitive(why) => Rule {
            class: Some(why.as_str().to_owned()),
            setting: Some("root.sensitive"),
            ..Rule::passed("name")
        },
    };
    rules.push(name);
    let outcome = match preset.decide(&class) {
        Decision::Release => "release",
        Decision::Ask => "ask",
        Decision::Denied | Decision::NobodyAsked => {
            return refuse(rules, Rule::refuses("permission", "policy-never"));
        }
    };
    rules.push(Rule::passed("permission"));
    if !look {
        return Ok(Explained { outcome, rules });
    }
    let open = parts.roots.of(&grant, &proof);
    let open = open.ok_or(TransferError::NoRoot)?;
    let (rule, bytes) = looked(parts, &open, &place).await?;
    if !rule.passed {
        return refuse(rules, rule);
    }
    rules.push(rule);
    // By its length a file may be one to ask about.
    let outcome = match bytes.map(|bytes| open.rules().names.judge(&place.path, Some(bytes))) {
        None => outcome,
        Some(class) => match preset.decide(&class) {
            Decision::Release => "release",
            Decision::Ask => "ask",
            Decision::Denied | Decision::NobodyAsked => {
                return refuse(rules, Rule::refuses("permission", "policy-never"));
            }
        },
    };
    Ok(Explained { outcome, rules })
}

/// What the file itself says, and its length where it is one.
async fn looked(
    parts: &Parts,
    open: &OpenRoot,
    place: &Place,
) -> Result<(Rule, Option<ByteCount>), TransferError> {
    let limit = open.rules().max_file.min(parts.limits.file);
    match open.look(&parts.gate, place.path.clone(), limit).await {
        Ok(bytes) => {
            let rule = Rule {
                class: Some(bytes.to_string()),
                ..Rule::passed("file")
            };
            Ok((rule, Some(bytes)))
        }
        Err(TransferError::Pinned(PinnedError::NotRegular(Kind::Directory))) => {
            let rule = Rule {
                class: Some("a directory, released as one archive of its files".to_owned()),
                ..Rule::passed("file")
            };
            Ok((rule, None))
        }
        Err(TransferError::Pinned(error)) => {
            let rule = Rule {
                remedy: Some(error.to_string()),
                setting: setting_of(&error),
                ..Rule::refuses("file", error.class())
            };
            Ok((rule, None))
        }
        Err(error) => Err(error),
    }
}
