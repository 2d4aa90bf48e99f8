//! `up`: from an empty directory to a served demo session and lines to paste.

use std::{fmt::Write as _, path::Path, time::Duration};

use axum::body::Body;
use http::{Method, header};
use serde::Serialize;
use serde_json::json;

use super::{
    arguments::{Common, Up},
    beside::opening,
    client::{Client, Transport, read_json, segment, succeeded},
    events,
    exit::{Exit, Failure},
    find::{self, Listed, string},
    output::{Output, line, note, shown},
    prove, serve,
    setup::{self, FirstRoot},
};
use crate::{
    access::PrincipalKind,
    app::Service,
    config::{Config, HomeConfig},
    gate::Mode,
    model::{Clock as _, PrincipalId, SessionHandle, SystemClock},
};

/// The names of the demo's principals.
const OPERATOR: &str = "operator";
const HOST: &str = "demo-host";
/// What the home of `--dsh-home` is called.
const HOME: &str = "home";
/// The demo session's own id.
const SESSION: &str = "demo";
/// The uploaded file.
const FILE: &str = "welcome.txt";
const WELCOME: &str = "\
Welcome to Holdfast.

These bytes were uploaded to the demo session, made durable under their SHA-256, and referred to by an
event of its journal. Before the first of them left, all of them were checked against that digest.
";
/// How long the token and the sign-in code last.
const TOKEN_LIFE: Duration = Duration::from_hours(12);
const CODE_LIFE: Duration = Duration::from_mins(15);

/// Everything a person or a program needs to go on.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ready {
    url: String,
    directory: String,
    session: SessionHandle,
    owner: String,
    attachment_id: String,
    name: &'static str,
    bytes: u64,
    token: String,
    login_code: String,
    pid: u32,
}

/// Sets up, serves, prints, and returns when the server has ended.
pub(super) fn run(common: &Common, up: &Up, output: Output) -> Result<(), Failure> {
    if common.config.is_some() {
        let message = "`up` goes by the directory of --data; with --config use `serve`";
        return Err(Failure::new(Exit::Usage, message));
    }
    let place = setup::directory(&common.data, FirstRoot::Demo)?;
    let mut config = Config::load(&place.config, std::env::vars_os())
        .map_err(|error| Failure::of(Exit::Configuration, &error))?;
    config.listen = up.listen.unwrap_or(config.listen);
    let service = Service::open(&config).map_err(|error| opening(&error))?;
    warn(&service);
    if !up.no_prove && config.deliverables == Mode::WhenProven && !service.is_proven() {
        prove::briefly(&config)?;
        service.gatekeeper().reload();
    }
    let access = service.access();
    setup::principal(access, PrincipalKind::Operator, OPERATOR)?;
    setup::principal(access, PrincipalKind::Host, HOST)?;
    let user = setup::principal(access, PrincipalKind::User, &up.owner)?;
    let failed = |error: &dyn std::error::Error| Failure::new(Exit::Failed, error.to_string());
    let token = access
        .issue_token(user.id, "holdfast up", Some(TOKEN_LIFE))
        .map_err(|error| failed(&error))?
        .token
        .reveal();
    let login_code = access
        .issue_login_code(user.id, CODE_LIFE)
        .map_err(|error| failed(&error))?
        .reveal();
    if let Some(path) = &up.dsh_home {
        let home = HomeConfig::of(HOME, path.clone(), user.name.clone())
            .map_err(|why| Failure::new(Exit::Usage, why))?;
        service.serve_home(&home).map_err(|error| opening(&error))?;
    }
    let listen = config.listen;
    serve::on_runtime(async move {
        let client = Client::new(Transport::Here(service.local()), None, Some(HOST))?;
        let (session, file) = demo(&client, user.id, &place.config).await?;
        drop(client);
        let directory = common.data.display().to_string();
        serve::until_stopped(service, listen, |address| {
            let ready = Ready {
                url: serve::url(&config, address),
                directory,
                session,
                owner: user.name.to_string(),
                attachment_id: file.id.to_string(),
                name: FILE,
                bytes: file.bytes.unwrap_or_default(),
                token,
                login_code,
                pid: std::process::id(),
            };
            match output {
                Output::Json => output.print(&ready, |_| String::new()),
                Output::Text => line(text(&ready, place.is_new)),
            }
        })
        .await
    })
}

/// What a person should know before looking further.
fn warn(service: &Service) {
    if rustix::process::geteuid().is_root() {
        note(
            "warning: running as root. Fine for a first look; nothing separates Holdfast from what \
             else root does here.",
        );
    }
    for held in service.roots().filter(|held| held.is_our_own()) {
        note(format_args!(
            "note: root `{}` belongs to the user Holdfast runs as. There is no boundary to whoever \
             writes there: it could write into the data directory as well.",
            held.name()
        ));
    }
}

/// The demo session and the file in it, made when they are not there. Goes the way of every host.
async fn demo(
    client: &Client,
    user: PrincipalId,
    config: &Path,
) -> Result<(SessionHandle, Listed), Failure> {
    let sessions = find::sessions(client).await?;
    let session = if let Some(row) = sessions.iter().find(|row| string(row, "id") == SESSION) {
        find::handle_of(row)?
    } else {
        let workspace = config.with_file_name("workspace");
        let cwd = std::path::absolute(workspace).ok();
        let cwd = cwd.as_deref().and_then(Path::to_str);
        let form = json!({"id": SESSION, "cwd": cwd, "owners": [user]});
        let made = client
            .json(Method::POST, "/v1/sessions", Some(&form))
            .await?;
        find::handle_of(&made)?
    };
    let is_it = |file: &Listed| file.name.as_ref().is_some_and(|name| name.as_str() == FILE);
    if let Some(file) = find::attachments(client, session)
        .await?
        .into_iter()
        .find(is_it)
    {
        return Ok((session, file));
    }
    let path = format!("/v1/sessions/{session}/attachments?name={}", segment(FILE));
    let upload = client
        .request(Method::POST, &path)
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_LENGTH, WELCOME.len())
        .body(Body::from(WELCOME))
        .map_err(|error| Failure::of(Exit::Failed, &error))?;
    let stored = read_json(succeeded(client.send(upload).await?).await?).await?;
    let file = find::listed(&stored)?;
    let presented = json!({
        "type": "deliverables/presented",
        "time": SystemClock.now().as_millis(),
        "data": {
            "turn": 1,
            "callId": "demo-call",
            "files": [{"path": "notes/plan.md", "description": "The plan, in the workspace"}],
        },
    });
    let message = events::message("Here is the file you asked for.", &file);
    events::append(client, session, vec![message, presented], None).await?;
    let listed = find::attachments(client, session)
        .await?
        .into_iter()
        .find(is_it);
    let lost = || Failure::new(Exit::Failed, "the demo session does not list its file");
    Ok((session, listed.ok_or_else(lost)?))
}

fn text(ready: &Ready, is_new: bool) -> String {
    let Ready {
        url,
        directory,
        session,
        owner,
        attachment_id,
        name,
        token,
        login_code,
        ..
    } = ready;
    let digest = attachment_id.trim_start_matches("sha256:");
    let set_up = if is_new { "set up" } else { "found" };
    let directory = shown(directory);
    let mut text = String::new();
    // Writing to a String cannot fail.
    write!(
        text,
        "
Holdfast {version} serves {url}  (ctrl-C stops it)
The demo session {session} in {directory} was {set_up}.

Open it in a browser, signed in (15 minutes, works once):

  {url}/#{login_code}

Or paste into another terminal. The token is yours for 12 hours:

  TOKEN={token}

  # your sessions
  curl -sS -H \"Authorization: Bearer $TOKEN\" {url}/v1/sessions

  # what the demo session shows: a file to download, and a workspace file that can be asked for
  curl -sS -H \"Authorization: Bearer $TOKEN\" {url}/v1/sessions/{session}/snapshot

  # download the file and check it
  curl -fsS -H \"Authorization: Bearer $TOKEN\" -o {name} \\
    '{url}/v1/sessions/{session}/attachments/{attachment_id}'
  echo '{digest}  {name}' | sha256sum --check

  # ask for the workspace file: a question about exactly its bytes, or the reason why not
  curl -sS -X POST -H \"Authorization: Bearer $TOKEN\" \\
    {url}/v1/sessions/{session}/deliverables/3/1/0/release

  # sign in with the same one-time code instead of using it in the browser
  curl -sS -X POST -H 'Content-Type: application/json' \\
    -d '{{\"code\":\"{login_code}\"}}' {url}/v1/login

The same beside the server, with a download that resumes and checks what it wrote:

  holdfast --data {directory} ls  --session {SESSION}
  holdfast --data {directory} get --session {SESSION} {name}
  holdfast --data {directory} release --session {SESSION} --as {owner} notes/plan.md

An agent's question, and a person who answers it in another terminal:

  holdfast --data {directory} watch --as {owner}
  holdfast --data {directory} ask --session {SESSION} --question 'Which colour?' --option red --option blue
",
        version = env!("CARGO_PKG_VERSION"),
    )
    .ok();
    text
}
