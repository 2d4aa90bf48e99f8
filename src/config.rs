//! Reads the configuration once, at start: a TOML file, then `HOLDFAST_*` variables over it.
//!
//! Promises: an unknown key, a value out of bounds or a variable that is no setting is refused, and
//! the message names line and key; nothing is guessed or repaired. Leaves to others: opening what
//! the settings name (`app`). Every setting is described in `docs/configuration.md`.

#![forbid(unsafe_code)]

mod root;

use std::{
    ffi::OsString,
    fmt, io,
    io::Read as _,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

pub use root::RootConfig;
use root::RootSettings;
use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};
use thiserror::Error;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    access::PrincipalName,
    gate::{DEFAULT_MAX_AGE, Mode},
    handoff::SIMULATION,
    model::{ByteCount, JournalLimits, Limits},
    transfer::live::Executors,
};

/// The largest configuration file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// What a variable that overrides a setting starts with.
const PREFIX: &str = "HOLDFAST_";
/// What a variable that steers the project's own tests starts with.
const TEST_PREFIX: &str = "HOLDFAST_TEST";
/// Variables of the command line, which are no settings (`cli`).
const NOT_SETTINGS: [&str; 6] = [
    "HOLDFAST_CONFIG",
    "HOLDFAST_DIR",
    "HOLDFAST_LOG",
    "HOLDFAST_SESSION",
    "HOLDFAST_TOKEN",
    "HOLDFAST_URL",
];
/// Where the server listens unless told otherwise.
pub const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7411);

/// All settings, checked one by one; how they fit together is checked when `app` opens them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The file it was read from.
    pub source: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// The address of the public listener.
    pub listen: SocketAddr,
    /// The address of the operator's listener, which asks for no token: loopback only.
    pub admin: Option<SocketAddr>,
    /// How clients reach the service when that is not `listen`.
    pub public_url: Option<PublicUrl>,
    /// The certificate of the public listener, which then speaks TLS and nothing else.
    pub tls: Option<TlsConfig>,
    /// Whether a proof may open the gate.
    pub deliverables: Mode,
    /// How old a proof may be.
    pub proof_age: Duration,
    /// The directories whose files may be presented, in the file's order.
    pub roots: Vec<RootConfig>,
    /// The DSH homes whose sessions are served as well, in the file's order.
    pub homes: Vec<HomeConfig>,
    /// Whether and how people are asked.
    pub interactions: Interactions,
    /// Who takes what is handed over.
    pub handoff: HandoffConfig,
    /// Every bound.
    pub limits: Limits,
}

/// `[tls]`: where the certificate and its key lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The chain of certificates, leaf first, PEM.
    pub cert: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

/// `[handoff]`: who takes what is handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoffConfig {
    /// Who, if anybody.
    pub executor: Executors,
}

/// `[interactions]`: whether and how approvals and questions are put to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interactions {
    /// Whether they are put at all.
    pub enabled: bool,
    /// The language people read.
    pub locale: String,
    /// How long an approval waits.
    pub life: Duration,
}

impl Default for Interactions {
    fn default() -> Self {
        Self {
            enabled: false,
            locale: "en".to_owned(),
            life: Duration::from_mins(2),
        }
    }
}

/// One `[[dsh]]`: a DSH home that is read in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeConfig {
    /// Its name in messages and in the database: with another name its sessions get other handles.
    pub name: RootName,
    /// The home; it may be or contain links, and is resolved once, at start.
    pub path: PathBuf,
    /// Where its sessions lie, if not in `sessions` in the home.
    pub sessions: Option<PathBuf>,
    /// Where its attachments lie, if not in `attachments` in the home.
    pub attachments: Option<PathBuf>,
    /// The names of the users who may read every session of it.
    pub owners: Vec<PrincipalName>,
    /// The name of the one host that may act for its sessions.
    pub host: Option<PrincipalName>,
}

impl HomeConfig {
    /// The home at `path`, called `name`, for one user.
    ///
    /// # Errors
    /// What a name is, when `name` is none.
    pub fn of(name: &str, path: PathBuf, owner: PrincipalName) -> Result<Self, &'static str> {
        Ok(Self {
            name: RootName::parse(name)?,
            path,
            sessions: None,
            attachments: None,
            owners: vec![owner],
            host: None,
        })
    }
}

/// The name of a root.
///
/// Invariant: 1..=64 bytes of `a-z`, `0-9`, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootName(Box<str>);

impl RootName {
    /// Takes a name as it stands, or says what a name is.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let plain =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        if text.is_empty() || text.len() > 64 || !text.bytes().all(plain) {
            return Err("a root's name is 1 to 64 of a-z, 0-9, `-` and `_`");
        }
        Ok(Self(text.into()))
    }

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The address clients use: scheme, authority and an optional path prefix, without a slash at the
/// end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(http::Uri);

impl PublicUrl {
    fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "a public URL is `http://` or `https://`, a host, and no query";
        let uri: http::Uri = text.parse().map_err(|_not_a_uri| FORM)?;
        let plain = matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(|a| !a.as_str().contains('@'))
            && uri.query().is_none()
            && !text.contains('#');
        if !plain {
            return Err(FORM);
        }
        Ok(Self(uri))
    }

    /// The host and port a request's `Host` field must name.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.0.authority().map_or("", http::uri::Authority::as_str)
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.0.scheme_str().unwrap_or("http");
        let path = self.0.path().trim_end_matches('/');
        write!(f, "{scheme}://{}{path}", self.authority())
    }
}

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Somebody else could have written the file.
    #[error("the configuration {} {why}", path.display())]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The file says something that is no setting, or sets one wrongly.
    #[error("{}:{line}: {key}{}{message}", path.display(), if key.is_empty() { "" } else { ": " })]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key, dotted; empty when the text is not TOML at all.
        key: String,
        /// What is wrong.
        message: String,
    },
    /// A variable is no setting, or sets one wrongly.
    #[error("environment: {variable}: {message}")]
    Environment {
        /// The variable.
        variable: String,
        /// What is wrong.
        message: String,
    },
}

impl Config {
    /// Reads `file`, lays the `HOLDFAST_*` variables of `environment` over it, and checks every
    /// value. Relative paths in the file are relative to its directory, those of variables to the
    /// working directory.
    ///
    /// # Errors
    /// [`ConfigError`]: what is wrong, and where.
    pub fn load(
        file: &Path,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let text = read(file)?;
        Self::parse(file, &text, environment)
    }

    /// As [`Config::load`], from a text that stands in for the file.
    ///
    /// # Errors
    /// As [`Config::load`], except that nothing is read.
    pub fn parse(
        file: &Path,
        text: &str,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let invalid = |error: &toml::de::Error| ConfigError::at(file, text, error);
        let written: Settings = toml::from_str(text).map_err(|error| invalid(&error))?;
        let twice = written.root.iter().enumerate().find(|(i, root)| {
            let earlier = written.root.iter().take(*i);
            earlier.into_iter().any(|other| other.name.0 == root.name.0)
        });
        if let Some((i, root)) = twice {
            return Err(ConfigError::Invalid {
                path: file.to_owned(),
                line: line_of_entry(text, "root", i),
                key: format!("root[{i}].name"),
                message: format!("there is a root `{}` already", root.name.as_str()),
            });
        }
        let homes = written.dsh.iter().enumerate();
        if let Some((i, home)) = homes.clone().find(|(i, home)| {
            homes
                .clone()
                .any(|(j, other)| j < *i && other.name == home.name)
        }) {
            return Err(ConfigError::Invalid {
                path: file.to_owned(),
                line: line_of_entry(text, "dsh", i),
                key: format!("dsh[{i}].name"),
                message: format!("there is a home `{}` already", home.name.as_str()),
            });
        }
        let base = file.parent().unwrap_or(Path::new(""));
        let written_data = written.data.as_ref().map(|data| base.join(&data.0));
        let mut table: toml::Table = toml::from_str(text).map_err(|error| invalid(&error))?;
        let mut settings = written;
        let mut data = written_data;
        let (mut cert, mut key) = (None, None);
        for (variable, value) in environment {
            let Some((variable, value)) = override_of(variable, value)? else {
                continue;
            };
            settings = lay_over(&mut table, &variable, &value)?;
            match variable.as_str() {
                "HOLDFAST_DATA" => data = Some(PathBuf::from(value)),
                "HOLDFAST_TLS_CERT" => cert = Some(PathBuf::from(value)),
                "HOLDFAST_TLS_KEY" => key = Some(PathBuf::from(value)),
                _ => {}
            }
        }
        if let Some(tls) = &settings.tls
            && tls.cert.is_some() != tls.key.is_some()
        {
            return Err(half_of_tls(file, text));
        }
        let mut config = settings.into_config(file, data);
        if let Some(tls) = &mut config.tls {
            tls.cert = cert.unwrap_or_else(|| tls.cert.clone());
            tls.key = key.unwrap_or_else(|| tls.key.clone());
        }
        Ok(config)
    }
}

impl Config {
    /// How the public listener is spoken to.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

impl ConfigError {
    fn at(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let at = error.span().unwrap_or(0..0).start;
        Self::Invalid {
            path: file.to_owned(),
            line: line_of(text, at),
            key: key_at(text, at),
            message: error.message().to_owned(),
        }
    }
}

/// The file as TOML sees it, every key optional.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    data: Option<Place>,
    listen: Option<SocketAddr>,
    admin: Option<Loopback>,
    public_url: Option<PublicUrl>,
    tls: Option<TlsSettings>,
    #[serde(default)]
    deliverables: DeliverablesSettings,
    #[serde(default)]
    root: Vec<RootSettings>,
    #[serde(default)]
    dsh: Vec<HomeSettings>,
    #[serde(default)]
    interactions: InteractionSettings,
    #[serde(default)]
    handoff: HandoffSettings,
    #[serde(default)]
    limits: LimitSettings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InteractionSettings {
    enabled: Option<bool>,
    locale: Option<String>,
    life: Option<ApprovalLife>,
}

impl InteractionSettings {
    fn into_interactions(self) -> Interactions {
        let usual = Interactions::default();
        Interactions {
            enabled: self.enabled.unwrap_or(usual.enabled),
            locale: self.locale.unwrap_or(usual.locale),
            life: self.life.map_or(usual.life, |life| life.0),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandoffSettings {
    executor: Option<ExecutorKind>,
}

/// The kind of an executor, of which there is one.
#[derive(Debug)]
struct ExecutorKind;

impl<'de> Deserialize<'de> for ExecutorKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kind = String::deserialize(deserializer)?;
        if kind == SIMULATION {
            Ok(Self)
        } else {
            Err(serde::de::Error::custom(
                "the only kind of executor there is is `simulation`",
            ))
        }
    }
}

/// How long an approval may wait: ten minutes at most.
#[derive(Debug)]
struct ApprovalLife(Duration);

impl<'de> Deserialize<'de> for ApprovalLife {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let life = Life::deserialize(deserializer)?.0;
        if life > Duration::from_mins(10) {
            return Err(serde::de::Error::custom(
                "an approval waits for at most `10m`",
            ));
        }
        Ok(Self(life))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeliverablesSettings {
    mode: Option<Opening>,
    max_age: Option<Age>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsSettings {
    cert: Option<Place>,
    key: Option<Place>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HomeSettings {
    name: RootName,
    home: Place,
    sessions: Option<Place>,
    attachments: Option<Place>,
    owners: Vec<Named>,
    host: Option<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitSettings {
    file: Option<Size>,
    session_bytes: Option<Size>,
    free_reserve: Option<Size>,
    json_body: Option<Size>,
    request_head: Option<Size>,
    request_fields: Option<Count>,
    head_deadline: Option<Life>,
    stall: Option<Life>,
    minimum_rate: Option<Size>,
    connections: Option<Count>,
    connections_per_address: Option<Count>,
    requests_per_principal: Option<Count>,
    ticket_life: Option<Life>,
    ticket_grace: Option<Life>,
    tickets_per_principal: Option<Count>,
    release_life: Option<Life>,
    releases_waiting: Option<Count>,
    drain: Option<Life>,
    verified_for: Option<Reuse>,
    #[serde(default)]
    journal: JournalSettings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalSettings {
    event: Option<Size>,
    events_per_append: Option<Count>,
    events_per_page: Option<Count>,
    depth: Option<Depth>,
    references_per_event: Option<Count>,
}

impl Settings {
    fn into_config(self, file: &Path, data: Option<PathBuf>) -> Config {
        let base = file.parent().unwrap_or(Path::new(""));
        Config {
            source: file.to_owned(),
            data: data.unwrap_or_else(|| base.join("data")),
            listen: self.listen.unwrap_or(DEFAULT_LISTEN),
            admin: self.admin.map(|admin| admin.0),
            public_url: self.public_url,
            tls: self.tls.and_then(|tls| {
                Some(TlsConfig {
                    cert: base.join(tls.cert?.0),
                    key: base.join(tls.key?.0),
                })
            }),
            interactions: self.interactions.into_interactions(),
            handoff: HandoffConfig {
                executor: match self.handoff.executor {
                    None => Executors::None,
                    Some(ExecutorKind) => Executors::Simulator,
                },
            },
            deliverables: self
                .deliverables
                .mode
                .map_or_else(Mode::default, |mode| mode.0),
            proof_age: self
                .deliverables
                .max_age
                .map_or(DEFAULT_MAX_AGE, |age| age.0),
            roots: self
                .root
                .into_iter()
                .map(|root| root.into_config(base))
                .collect(),
            homes: self
                .dsh
                .into_iter()
                .map(|home| HomeConfig {
                    name: home.name,
                    path: base.join(home.home.0),
                    sessions: home.sessions.map(|place| base.join(place.0)),
                    attachments: home.attachments.map(|place| base.join(place.0)),
                    owners: home.owners.into_iter().map(|owner| owner.0).collect(),
                    host: home.host.map(|host| host.0),
                })
                .collect(),
            limits: self.limits.into_limits(),
        }
    }
}

impl LimitSettings {
    fn into_limits(self) -> Limits {
        let default = Limits::default();
        let size = |set: Option<Size>, default| set.map_or(default, |size| size.0);
        let count = |set: Option<Count>, default| set.map_or(default, |count| count.0);
        let life = |set: Option<Life>, default| set.map_or(default, |life| life.0);
        let journal = default.journal;
        Limits {
            file: size(self.file, default.file),
            session_bytes: size(self.session_bytes, default.session_bytes),
            free_reserve: size(self.free_reserve, default.free_reserve),
            json_body: size(self.json_body, default.json_body),
            request_head: size(self.request_head, default.request_head),
            request_fields: count(self.request_fields, default.request_fields),
            head_deadline: life(self.head_deadline, default.head_deadline),
            stall: life(self.stall, default.stall),
            minimum_rate: size(self.minimum_rate, default.minimum_rate),
            connections: count(self.connections, default.connections),
            connections_per_address: count(
                self.connections_per_address,
                default.connections_per_address,
            ),
            requests_per_principal: count(
                self.requests_per_principal,
                default.requests_per_principal,
            ),
            ticket_life: life(self.ticket_life, default.ticket_life),
            ticket_grace: life(self.ticket_grace, default.ticket_grace),
            tickets_per_principal: count(self.tickets_per_principal, default.tickets_per_principal),
            release_life: life(self.release_life, default.release_life),
            releases_waiting: count(self.releases_waiting, default.releases_waiting),
            drain: life(self.drain, default.drain),
            verified_for: self
                .verified_for
                .map_or(default.verified_for, |reuse| reuse.0),
            journal: JournalLimits {
                event: size(self.journal.event, journal.event),
                events_per_append: count(self.journal.events_per_append, journal.events_per_append),
                events_per_page: count(self.journal.events_per_page, journal.events_per_page),
                depth: self.journal.depth.map_or(journal.depth, |depth| depth.0),
                references_per_event: count(
                    self.journal.references_per_event,
                    journal.references_per_event,
                ),
            },
        }
    }
}

fn half_of_tls(file: &Path, text: &str) -> ConfigError {
    let at = text.find("[tls]").or_else(|| text.find("tls"));
    let message = "`cert` and `key` go together".to_owned();
    match at {
        Some(at) => ConfigError::Invalid {
            path: file.to_owned(),
            line: line_of(text, at),
            key: "tls".to_owned(),
            message,
        },
        None => ConfigError::Environment {
            variable: "HOLDFAST_TLS_CERT, HOLDFAST_TLS_KEY".to_owned(),
            message,
        },
    }
}

/// Reads the operator's file, once, and refuses one that others may write.
fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the operator names the configuration; it is opened once and asked by descriptor"
    )]
    let file = std::fs::File::open(path).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    let untrusted = |why| ConfigError::Untrusted {
        path: path.to_owned(),
        why,
    };
    if !facts.is_file() {
        return Err(untrusted("is not a file"));
    }
    if facts.mode() & 0o022 != 0 {
        return Err(untrusted("may be written by others (chmod go-w)"));
    }
    let own = rustix::process::geteuid().as_raw();
    if facts.uid() != own && facts.uid() != 0 {
        return Err(untrusted("belongs to another user"));
    }
    if facts.len() > MAX_FILE {
        return Err(untrusted("is larger than 1 MiB"));
    }
    let mut text = String::new();
    file.take(MAX_FILE)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

/// A variable that overrides a setting, or `None` for one that is none of ours.
fn override_of(
    variable: OsString,
    value: OsString,
) -> Result<Option<(String, String)>, ConfigError> {
    let Ok(variable) = variable.into_string() else {
        return Ok(None);
    };
    let setting = variable.starts_with(PREFIX)
        && !variable.starts_with(TEST_PREFIX)
        && !NOT_SETTINGS.contains(&variable.as_str());
    if !setting {
        return Ok(None);
    }
    match value.into_string() {
        Ok(value) => Ok(Some((variable, value))),
        Err(_not_utf8) => Err(ConfigError::Environment {
            variable,
            message: "the value is not UTF-8".to_owned(),
        }),
    }
}

/// Sets what `variable` names in `table` and reads the whole again.
///
/// The file alone was read without an error before, so what is refused now is the variable's doing.
fn lay_over(table: &mut toml::Table, variable: &str, value: &str) -> Result<Settings, ConfigError> {
    let name = variable.strip_prefix(PREFIX).unwrap_or(variable);
    let name = name.to_ascii_lowercase();
    let (sections, key): (&[&str], &str) = if let Some(key) = name.strip_prefix("limits_journal_") {
        (&["limits", "journal"], key)
    } else if let Some(key) = name.strip_prefix("limits_") {
        (&["limits"], key)
    } else if let Some(key) = name.strip_prefix("interactions_") {
        (&["interactions"], key)
    } else if let Some(key) = name.strip_prefix("handoff_") {
        (&["handoff"], key)
    } else if let Some(key) = name.strip_prefix("deliverables_") {
        (&["deliverables"], key)
    } else if let Some(key) = name.strip_prefix("tls_") {
        (&["tls"], key)
    } else {
        (&[], name.as_str())
    };
    let refused = |message: String| ConfigError::Environment {
        variable: variable.to_owned(),
        message,
    };
    let mut place = &mut *table;
    for section in sections {
        let entry = place
            .entry((*section).to_owned())
            .or_insert_with(|| toml::Table::new().into());
        let Some(inner) = entry.as_table_mut() else {
            return Err(refused("not a setting".to_owned()));
        };
        place = inner;
    }
    // A count is a number in TOML, a switch is true or false, and both are text in a variable;
    // everything else is text in both.
    place.insert(key.to_owned(), value.into());
    let literal: Option<toml::Value> = match (value, value.parse::<i64>()) {
        ("true", _) => Some(true.into()),
        ("false", _) => Some(false.into()),
        (_, Ok(number)) => Some(number.into()),
        (_, Err(_text)) => None,
    };
    let as_text = table.clone().try_into::<Settings>();
    let settings = match (as_text, literal) {
        (Err(_text_refused), Some(literal)) => {
            let place = sections.iter().try_fold(&mut *table, |place, section| {
                place.get_mut(*section)?.as_table_mut()
            });
            if let Some(place) = place {
                place.insert(key.to_owned(), literal);
            }
            table.clone().try_into::<Settings>()
        }
        (read, _) => read,
    };
    settings.map_err(|error| refused(error.message().to_owned()))
}

/// The line of byte `at`, from 1.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    before.split(|&byte| byte == b'\n').count().max(1)
}

/// The dotted key whose entry contains byte `at`, as deep as can be told.
fn key_at(text: &str, at: usize) -> String {
    let Ok(table) = DeTable::parse(text) else {
        return String::new();
    };
    let mut key = String::new();
    descend(table.get_ref(), at, &mut key);
    key
}

fn descend(table: &DeTable<'_>, at: usize, key: &mut String) {
    // A section's own span is its header alone, so an entry further in may lie outside of it: an
    // exact hit wins, and otherwise the tables are searched.
    for (name, value) in table {
        if encloses(&name.span(), at) || holds(value, at) {
            if !key.is_empty() {
                key.push('.');
            }
            key.push_str(name.get_ref());
            return descend_value(value, at, key);
        }
    }
}

fn descend_value(value: &Spanned<DeValue<'_>>, at: usize, key: &mut String) {
    if let Some(table) = value.get_ref().as_table() {
        descend(table, at, key);
    } else if let Some(array) = value.get_ref().as_array()
        && let Some((i, item)) = array.iter().enumerate().find(|(_, item)| holds(item, at))
    {
        key.extend(["[", &i.to_string(), "]"]);
        descend_value(item, at, key);
    }
}

/// Whether byte `at` lies in the value or in an entry below it.
fn holds(value: &Spanned<DeValue<'_>>, at: usize) -> bool {
    encloses(&value.span(), at)
        || value.get_ref().as_table().is_some_and(|table| {
            table
                .iter()
                .any(|(name, value)| encloses(&name.span(), at) || holds(value, at))
        })
        || value
            .get_ref()
            .as_array()
            .is_some_and(|array| array.iter().any(|item| holds(item, at)))
}

fn encloses(span: &Range<usize>, at: usize) -> bool {
    span.contains(&at)
}

/// The line of the name of the `i`th entry under `key`.
fn line_of_entry(text: &str, key: &str, i: usize) -> usize {
    let at = DeTable::parse(text).ok().and_then(|table| {
        let entries = table.get_ref().get(key)?.get_ref().as_array()?;
        let name = entries.get(i)?.get_ref().as_table()?.get("name")?;
        Some(name.span().start)
    });
    line_of(text, at.unwrap_or(0))
}

/// Whether path deliverables can be released at all.
#[derive(Debug)]
struct Opening(Mode);
/// An address of this machine alone.
#[derive(Debug)]
struct Loopback(SocketAddr);
/// A path that is not empty.
#[derive(Debug)]
struct Place(PathBuf);
/// The name of a principal.
#[derive(Debug)]
struct Named(PrincipalName);
/// A number of bytes: `4096`, `"64KiB"`, `"1GiB"`.
#[derive(Debug)]
struct Size(ByteCount);
/// A number of things, at least one.
#[derive(Debug)]
struct Count(usize);
/// How deep JSON may nest: at most what the parser itself bears.
#[derive(Debug)]
struct Depth(usize);
/// A time span: `"500ms"`, `"30s"`, `"10m"`, `"12h"`; at least a millisecond, at most a day.
#[derive(Debug)]
struct Life(Duration);
/// How old a proof may be: at least a minute, at most 90 days.
#[derive(Debug)]
struct Age(Duration);
/// How long a verification pass may be reused: at most the minute of I4, `"0s"` for never.
#[derive(Debug)]
struct Reuse(Duration);

/// Reads a type from a string by the function that parses it.
macro_rules! from_text {
    ($($name:ident: $parse:expr;)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                $parse(text.as_str()).map_err(de::Error::custom)
            }
        }
    )*};
}

from_text! {
    Loopback: |text: &str| match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(Self(address)),
        _ => Err("the operator's listener is a loopback address and a port, such as \"127.0.0.1:7412\""),
    };
    Opening: |text: &str| match Mode::parse(text) {
        Some(mode) => Ok(Self(mode)),
        None => Err("the mode is `metadata-only` or `when-proven`"),
    };
    RootName: RootName::parse;
    PublicUrl: PublicUrl::parse;
    Place: |text: &str| match text {
        "" => Err("a path is not empty"),
        text if text.contains('\0') => Err("a path has no NUL"),
        text => Ok(Self(text.into())),
    };
    Named: |text: &str| PrincipalName::parse(text).map(Self);
    Life: |text: &str| match parse_span(text) {
        Some(span) if span.is_zero() || span > Duration::from_hours(24) => {
            Err("a time span is from 1ms to 24h")
        }
        Some(span) => Ok(Self(span)),
        None => Err(SPAN_FORM),
    };
    Age: |text: &str| match parse_span(text) {
        Some(span) if span < Duration::from_mins(1) || span > Duration::from_hours(90 * 24) => {
            Err("a proof's age is from 1m to 90d")
        }
        Some(span) => Ok(Self(span)),
        None => Err(SPAN_FORM),
    };
    Reuse: |text: &str| match parse_span(text) {
        Some(span) if span > Duration::from_mins(1) => {
            Err("a verification is reused for at most 60s (I4)")
        }
        Some(span) => Ok(Self(span)),
        None => Err(SPAN_FORM),
    };
}

/// What a time span looks like.
pub(crate) const SPAN_FORM: &str =
    "a time span is a number and `ms`, `s`, `m`, `h` or `d`, such as \"30s\"";
const SIZE_FORM: &str =
    "a size is a number of bytes, or one with KiB, MiB, GiB or TiB, such as \"64KiB\"";

/// `"30s"` as thirty seconds; `None` for what [`SPAN_FORM`] does not describe.
pub(crate) fn parse_span(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(milliseconds).map(Duration::from_millis)
}

fn parse_size(text: &str) -> Option<ByteCount> {
    let (number, unit) = split_unit(text)?;
    let bytes: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(bytes).map(ByteCount::new)
}

/// `"64KiB"` and `"64 KiB"` as `(64, "KiB")`.
fn split_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit.trim_start_matches(' ')))
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(SIZE_FORM)
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Size, E> {
                let n = u64::try_from(n).map_err(|_negative| E::custom(SIZE_FORM))?;
                Ok(Size(ByteCount::new(n)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                parse_size(text)
                    .map(Size)
                    .ok_or_else(|| E::custom(SIZE_FORM))
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        within(deserializer, 1, 1_000_000).map(Self)
    }
}

impl<'de> Deserialize<'de> for Depth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        within(deserializer, 4, 120).map(Self)
    }
}

fn within<'de, D: Deserializer<'de>>(
    deserializer: D,
    least: usize,
    most: usize,
) -> Result<usize, D::Error> {
    let number = i64::deserialize(deserializer)?;
    usize::try_from(number)
        .ok()
        .filter(|n| (least..=most).contains(n))
        .ok_or_else(|| de::Error::custom(format!("the number is from {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, net::SocketAddr, path::Path, time::Duration};

    use super::{Config, ConfigError, DEFAULT_LISTEN};
    use crate::{
        gate::Mode,
        model::{ByteCount, Limits, RelPath},
    };

    fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let environment = environment
            .iter()
            .map(|(variable, value)| (OsString::from(variable), OsString::from(value)));
        Config::parse(Path::new("/etc/holdfast/holdfast.toml"), text, environment)
    }

    fn refusal(text: &str, environment: &[(&str, &str)]) -> String {
        parse(text, environment).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_is_the_defaults_with_the_gate_closed() {
        let config = parse("", &[]).unwrap();
        assert_eq!(config.data, Path::new("/etc/holdfast/data"));
        assert_eq!(config.listen, DEFAULT_LISTEN);
        assert_eq!(config.deliverables, Mode::MetadataOnly);
        assert_eq!(config.limits, Limits::default());
        assert!(config.roots.is_empty() && config.public_url.is_none());
    }

    #[test]
    fn every_setting_is_read() {
        let config = parse(
            r#"
            data = "/var/lib/holdfast"
            listen = "[::1]:80"
            admin = "127.0.0.1:81"
            public_url = "https://files.example.org/tools/"
            deliverables.mode = "when-proven"
            deliverables.max_age = "36h"
            [limits]
            file = "2GiB"
            stall = "5s"
            connections = 7
            verified_for = "0s"
            [limits.journal]
            event = 4096
            [[root]]
            name = "ci"
            path = "ws"
            arena = "/srv/arena"
            max_file = "5MiB"
            links = "beneath"
            hardlinks = "allow"
            mounts = "allow"
            owner = [1000]
            stability = "double-read"
            leases = "try"
            deny = ["*.bak"]
            builtin_deny = false
            sensitive = ["drafts/**"]
            sensitive_over = "1MiB"
            "#,
            &[],
        )
        .unwrap();
        assert_eq!(config.data, Path::new("/var/lib/holdfast"));
        assert_eq!(config.listen, "[::1]:80".parse::<SocketAddr>().unwrap());
        assert_eq!(config.admin.map(|admin| admin.port()), Some(81));
        let url = config.public_url.unwrap();
        assert_eq!(url.to_string(), "https://files.example.org/tools");
        assert_eq!(url.authority(), "files.example.org");
        assert_eq!(config.deliverables, Mode::WhenProven);
        assert_eq!(config.proof_age, Duration::from_hours(36));
        assert_eq!(config.limits.file, ByteCount::gib(2));
        assert_eq!(config.limits.stall, Duration::from_secs(5));
        assert_eq!(config.limits.connections, 7);
        assert_eq!(config.limits.verified_for, Duration::ZERO);
        assert_eq!(config.limits.journal.event, ByteCount::kib(4));
        let root = &config.roots[0];
        assert_eq!(root.path, Path::new("/etc/holdfast/ws"));
        let arena = config.roots[0].arena.as_deref();
        assert_eq!(arena, Some(Path::new("/srv/arena")));
        assert_eq!(root.max_file, ByteCount::mib(5));
        assert_eq!(
            root.policy.to_string(),
            "links=beneath hardlinks=allow mounts=allow owner=1000 stability=double-read leases=try"
        );
        let judged = |name: &str, bytes| {
            let path = RelPath::parse(name.as_bytes()).unwrap();
            let class = root.names.judge(&path, Some(ByteCount::new(bytes)));
            format!("{class:?}")
        };
        assert_eq!(judged("a.bak", 1), r#"Denied("*.bak")"#);
        assert_eq!(judged("server.key", 1), "Ordinary");
        assert_eq!(judged("a.bin", (1 << 20) + 1), "Sensitive(Large)");
        let listed = r#"Sensitive(Listed("drafts/**"))"#;
        assert_eq!(judged("drafts/a", 1), listed);
    }

    #[test]
    fn a_variable_wins_over_the_file() {
        let config = parse(
            "listen = \"127.0.0.1:1\"\n[limits]\nconnections = 3\n",
            &[
                ("HOLDFAST_LISTEN", "127.0.0.1:2"),
                ("HOLDFAST_LIMITS_CONNECTIONS", "9"),
                ("HOLDFAST_LIMITS_JOURNAL_EVENTS_PER_PAGE", "11"),
                ("HOLDFAST_LIMITS_FILE", "3KiB"),
                ("HOLDFAST_INTERACTIONS_ENABLED", "true"),
                ("HOLDFAST_DELIVERABLES_MODE", "when-proven"),
                ("HOLDFAST_DATA", "elsewhere"),
                ("HOLDFAST_TOKEN", "not a setting, and not refused"),
                ("PATH", "/bin"),
            ],
        )
        .unwrap();
        assert_eq!(config.listen.port(), 2);
        assert_eq!(config.limits.connections, 9);
        assert_eq!(config.limits.journal.events_per_page, 11);
        assert_eq!(config.limits.file, ByteCount::kib(3));
        assert_eq!(config.deliverables, Mode::WhenProven);
        assert!(config.interactions.enabled);
        assert_eq!(config.data, Path::new("elsewhere"));
    }

    #[test]
    fn a_refusal_names_line_and_key() {
        for (text, expected) in [
            ("lisen = 1\n", ":1: lisen: unknown field `lisen`"),
            (
                "\n\nlisten = \"here\"\n",
                ":3: listen: invalid socket address",
            ),
            (
                "[limits]\n\nfile = \"1 gig\"\n",
                ":3: limits.file: a size is",
            ),
            ("[limits]\nfile = -1\n", ":2: limits.file: a size is"),
            (
                "limits.stall = \"0s\"\n",
                ":1: limits.stall: a time span is from 1ms",
            ),
            (
                "limits.stall = \"soon\"\n",
                ":1: limits.stall: a time span is a number",
            ),
            (
                "[limits]\nverified_for = \"61s\"\n",
                ":2: limits.verified_for: a verification",
            ),
            (
                "[limits.journal]\ndepth = 1000\n",
                ":2: limits.journal.depth: the number is",
            ),
            (
                "[limits.journal]\ndeep = 1\n",
                ":2: limits.journal.deep: unknown field",
            ),
            (
                "[[root]]\nname = \"a\"\n",
                ":1: root[0]: missing field `path`",
            ),
            (
                "[[root]]\nname = \"A b\"\npath = \"x\"\n",
                ":2: root[0].name: a root's name",
            ),
            (
                "[[root]]\nname = \"a\"\npath = \"x\"\n[[root]]\nname = \"a\"\npath = \"y\"\n",
                ":5: root[1].name: there is a root `a` already",
            ),
            (
                "[[root]]\nname = \"a\"\npath = \"x\"\nlinks = \"allow\"\n",
                ":4: root[0].links: links are `deny` or `beneath`",
            ),
            (
                "[[root]]\nname = \"a\"\npath = \"x\"\nowner = \"me\"\n",
                ":4: root[0].owner: the owner is",
            ),
            (
                "[[root]]\nname = \"a\"\npath = \"x\"\ndeny = [\"a\", \"[\"]\n",
                ":4: root[0].deny: `[` is no pattern",
            ),
            (
                "[deliverables]\nmode = \"open\"\n",
                ":2: deliverables.mode: the mode is",
            ),
            (
                "deliverables.max_age = \"91d\"\n",
                ":1: deliverables.max_age: a proof's age is",
            ),
            ("public_url = \"ftp://x\"\n", ":1: public_url: a public URL"),
            (
                "\n[tls]\ncert = \"c.pem\"\n",
                ":2: tls: `cert` and `key` go together",
            ),
            (
                "[tls]\ncert = \"\"\nkey = \"k\"\n",
                ":2: tls.cert: a path is not empty",
            ),
            (
                "public_url = \"https://u@x\"\n",
                ":1: public_url: a public URL",
            ),
            (
                "admin = \"0.0.0.0:1\"\n",
                ":1: admin: the operator's listener",
            ),
            ("data = \"\"\n", ":1: data: a path is not empty"),
            ("data = \"x\"\ndata = \"y\"\n", ":2: duplicate key"),
            ("data = \n", ":1: "),
        ] {
            let shown = refusal(text, &[]);
            let expected = format!("/etc/holdfast/holdfast.toml{expected}");
            assert!(shown.starts_with(&expected), "{text:?} gave {shown:?}");
        }
    }

    #[test]
    fn a_variable_that_is_no_setting_is_refused_by_name() {
        for (variable, value, expected) in [
            (
                "HOLDFAST_LISEN",
                "x",
                "environment: HOLDFAST_LISEN: unknown field `lisen`",
            ),
            (
                "HOLDFAST_LIMITS_FILE",
                "big",
                "environment: HOLDFAST_LIMITS_FILE: a size is",
            ),
            (
                "HOLDFAST_LIMITS_CONNECTIONS",
                "0",
                "environment: HOLDFAST_LIMITS_CONNECTIONS: the",
            ),
            (
                "HOLDFAST_ROOT",
                "x",
                "environment: HOLDFAST_ROOT: invalid type",
            ),
        ] {
            let shown = refusal("", &[(variable, value)]);
            assert!(shown.starts_with(expected), "{variable} gave {shown:?}");
        }
    }
}
