//! Finds the server a command talks to: the one named, the one that has the data directory, or none,
//! and then the same router in this process.

use std::{
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};

use http::Method;
use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use super::{
    arguments::{Common, Reach},
    client::{Client, Network, Transport},
    exit::{Exit, Failure},
    find::string,
    output::shown,
};
use crate::{
    app::{self, SOCKET, Service},
    config::Config,
};

/// The configuration file in the directory of `up` and `init`.
pub(super) const CONFIG_FILE: &str = "holdfast.toml";

/// The configuration a command goes by.
pub(super) fn config_file(common: &Common) -> PathBuf {
    common
        .config
        .clone()
        .unwrap_or_else(|| common.data.join(CONFIG_FILE))
}

/// Reads the configuration a command goes by.
pub(super) fn config(common: &Common) -> Result<Config, Failure> {
    Config::load(&config_file(common), std::env::vars_os())
        .map_err(|error| Failure::of(Exit::Configuration, &error))
}

/// A way to the data directory's service, before it is known as whom to act.
#[derive(Debug)]
pub(super) struct Beside {
    way: Way,
}

#[derive(Debug)]
enum Way {
    Socket(PathBuf, std::os::fd::OwnedFd),
    Here(Box<Service>),
}

impl Beside {
    /// The server that has the data directory, or the directory itself when there is none. Blocks.
    pub(super) fn open(config: &Config) -> Result<Self, Failure> {
        if let Some((path, dir)) = socket(&config.data) {
            return Ok(Self {
                way: Way::Socket(path, dir),
            });
        }
        match Service::open(config) {
            Ok(service) => Ok(Self {
                way: Way::Here(Box::new(service)),
            }),
            Err(error) => Err(opening(&error)),
        }
    }

    /// Whether no server runs, and this process holds the directory itself.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.way, Way::Here(_))
    }

    /// A client that acts as `acting`.
    pub(super) fn client(
        &self,
        token: Option<&str>,
        acting: Option<&str>,
    ) -> Result<Client, Failure> {
        let transport = match &self.way {
            Way::Socket(path, _dir) => Transport::Socket(path.clone()),
            Way::Here(service) => Transport::Here(service.local()),
        };
        Client::new(transport, token, acting)
    }
}

/// Why the parts could not be opened, with the exit code of its kind.
pub(super) fn opening(error: &app::AppError) -> Failure {
    let exit = if error.is_busy() {
        Exit::TryAgain
    } else {
        Exit::Configuration
    };
    Failure::of(exit, error)
}

/// A socket on which somebody listens. The path goes through an open descriptor, because the address
/// of a socket holds 108 bytes and the data directory's may be longer.
fn socket(data: &Path) -> Option<(PathBuf, std::os::fd::OwnedFd)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(data, flags, Mode::empty()).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd()));
    std::os::unix::net::UnixStream::connect(&path).ok()?;
    Some((path, dir))
}

/// A client as the command line describes it, and what must live as long as it.
pub(super) async fn reach(
    common: &Common,
    reach: &Reach,
) -> Result<(Client, Option<Beside>), Failure> {
    let token = reach.token.as_deref();
    if let Some(url) = &reach.url {
        let server = Network::parse(url, reach.cacert.as_deref())?;
        let client = Client::new(Transport::Network(server), token, None)?;
        return Ok((client, None));
    }
    let beside = Beside::open(&config(common)?)?;
    let client = if token.is_some() {
        beside.client(token, None)?
    } else {
        let rows = principals(&beside.client(None, None)?).await?;
        let acting = match &reach.acting {
            Some(name) if rows.iter().any(|row| string(row, "name") == name) => name.clone(),
            Some(name) => {
                let message = format!("there is no principal `{}`", shown(name));
                return Err(Failure::new(Exit::NotFound, message));
            }
            None => only_host(&rows)?,
        };
        beside.client(None, Some(&acting))?
    };
    Ok((client, Some(beside)))
}

/// Everyone who can hold a token, as rows of id, kind and name. Asks an owner-only way in.
pub(super) async fn principals(client: &Client) -> Result<Vec<Value>, Failure> {
    let mut answer = client
        .json(Method::GET, "/local/v1/principals", None)
        .await?;
    match answer.get_mut("principals").map(Value::take) {
        Some(Value::Array(rows)) => Ok(rows),
        _ => Err(Failure::new(Exit::Failed, "the answer has no principals")),
    }
}

/// The only host there is.
fn only_host(rows: &[Value]) -> Result<String, Failure> {
    let mut hosts = rows.iter().filter(|row| string(row, "kind") == "host");
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => Ok(string(host, "name").to_owned()),
        (None, _) => Err(Failure::new(
            Exit::Usage,
            "there is no host to act as; make one with `token create NAME --kind host`, or say \
             whom to act as with --as",
        )),
        (Some(one), Some(other)) => Err(Failure::new(
            Exit::Usage,
            format!(
                "there are several hosts, such as `{}` and `{}`; say whom to act as with --as",
                shown(string(one, "name")),
                shown(string(other, "name")),
            ),
        )),
    }
}
