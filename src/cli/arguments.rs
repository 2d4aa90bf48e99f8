//! The words of the command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::exit::{EXIT_CODES, PROVE_EXIT_CODES};

/// Hands out files from directories something untrusted still writes to: from inside, whole, and
/// the approved bytes.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// The directory `up` and `init` set up; its `holdfast.toml` is the configuration
    #[arg(
        long,
        value_name = "DIR",
        env = "HOLDFAST_DIR",
        default_value = "holdfast-data",
        global = true
    )]
    pub(super) data: PathBuf,
    /// The configuration file, when it is not `holdfast.toml` in the directory
    #[arg(long, value_name = "FILE", env = "HOLDFAST_CONFIG", global = true)]
    pub(super) config: Option<PathBuf>,
    /// Print one JSON value for programs instead of text for people
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Set up a directory with a demo session and serve it: the way to look at Holdfast
    Up(Up),
    /// Serve as configured
    Serve(Serve),
    /// Attack the reader of every root with swaps, and keep the report that opens the gate
    Prove(Prove),
    /// Set up a directory: data, keys, configuration, principals
    Init(Init),
    /// Check the configuration and what it names, and say what it comes to
    CheckConfig,
    /// Make, list and revoke tokens
    #[command(subcommand)]
    Token(Token),
    /// Create and list sessions
    #[command(subcommand)]
    Session(Session),
    /// Append events to a session's journal
    Append(Append),
    /// Upload a file to a session
    Put(Put),
    /// Download an attachment, verified
    Get(Get),
    /// Make, list and revoke tickets: addresses that open one attachment without a token
    #[command(subcommand)]
    Ticket(Ticket),
    /// List a session's attachments and presented files
    Ls(InSession),
    /// Present files of a session's directory as its host, and capture them at this moment
    Present(Present),
    /// Say which rule governs a presented file and what to do; nothing is opened
    Explain(Presented),
    /// Release a presented file, or everything in a session as one archive: exactly its bytes of this
    /// moment, or a question about them
    Release(Release),
    /// Show what waits for a decision in a session, or decide about exactly these bytes
    Decide(Decide),
    /// Put an approval or a question to a session's people as its host, and wait for their answer
    Ask(Ask),
    /// Show what waits for somebody's answer, as it comes, and take the answers at a terminal
    Watch(Watch),
    /// Download and check every attachment of a session, without keeping anything, and its log
    Verify(Verify),
    /// Read the audit trail, and check that nothing of it was changed
    #[command(subcommand)]
    Audit(Audit),
    /// Write a session and its attachments into a directory laid out as a DSH home
    Export(Export),
    /// Take in the sessions of a directory laid out as a DSH home
    Import(Import),
    /// Print a session's snapshot
    Snapshot(InSession),
    /// Print the OpenAPI document of this build
    Openapi,
}

/// Whom a command talks to, and as whom.
#[derive(Debug, Args)]
pub(super) struct Reach {
    /// A server to talk to over the network instead of the one (or none) beside us; needs a token
    #[arg(long, value_name = "URL", env = "HOLDFAST_URL", requires = "token")]
    pub(super) url: Option<String>,
    /// Trust the certificates in this PEM file, and no others, to vouch for an https:// URL
    #[arg(long, value_name = "FILE", env = "HOLDFAST_CACERT", requires = "url")]
    pub(super) cacert: Option<PathBuf>,
    /// The bearer token to show; better given in the environment, where others cannot read it
    #[arg(
        long,
        value_name = "TOKEN",
        env = "HOLDFAST_TOKEN",
        hide_env_values = true
    )]
    pub(super) token: Option<String>,
    /// The principal to act as beside us; by default the only host
    #[arg(long = "as", value_name = "NAME", conflicts_with = "token")]
    pub(super) acting: Option<String>,
}

/// `up`.
#[derive(Debug, Args)]
pub(super) struct Up {
    /// Serve the sessions of this DSH home as well; nothing is ever written there
    #[arg(long, value_name = "DIR")]
    pub(super) dsh_home: Option<PathBuf>,
    /// The user who may read them, and whom the printed token and link are for
    #[arg(long, value_name = "NAME", default_value = "you")]
    pub(super) owner: String,
    /// The address to listen on instead of the configured one; port 0 is any free port
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) listen: Option<SocketAddr>,
    /// Start at once; presented files stay metadata until `prove` was run
    #[arg(long)]
    pub(super) no_prove: bool,
}

/// `prove`.
#[derive(Debug, Args)]
#[command(after_help = PROVE_EXIT_CODES)]
pub(super) struct Prove {
    /// How long the storm of random swaps lasts, for each root and resolver
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(super) storm: String,
    /// Repeat a run: the same seed gives the same contents and the same order
    #[arg(long, value_name = "NUMBER")]
    pub(super) seed: Option<u64>,
}

/// `serve`.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The address to listen on instead of the configured one; port 0 is any free port
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) listen: Option<SocketAddr>,
    /// Serve as uid 0 all the same: then nothing separates us from what else root does
    #[arg(long)]
    pub(super) allow_root: bool,
}

/// `init`.
#[derive(Debug, Args)]
pub(super) struct Init {
    /// A directory whose files sessions may present
    #[arg(long, value_name = "DIR")]
    pub(super) root: Option<PathBuf>,
}

/// `token`.
#[derive(Debug, Subcommand)]
pub(super) enum Token {
    /// Make a token and print it once
    Create(TokenCreate),
    /// List tokens: whose, until when, never the secret
    List,
    /// Revoke a token by its id
    Revoke {
        /// The token's id, as `list` prints it
        #[arg(value_name = "TOKEN-ID")]
        id: String,
    },
}

/// `token create`.
#[derive(Debug, Args)]
pub(super) struct TokenCreate {
    /// The principal's name; it is made when --kind says what it is and it is not there
    #[arg(value_name = "NAME")]
    pub(super) principal: String,
    /// What a new principal is
    #[arg(long)]
    pub(super) kind: Option<Kind>,
    /// How long the token lasts, such as 12h or 30d
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub(super) expires: String,
}

/// The kinds of principal.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Kind {
    /// Runs the service; sees no session on that account
    Operator,
    /// A host program: creates sessions, sees and writes those it created
    Host,
    /// A person: reads the sessions it owns
    User,
}

/// `session`.
#[derive(Debug, Subcommand)]
pub(super) enum Session {
    /// Create a session
    Create(SessionCreate),
    /// List the sessions the caller may see
    List {
        #[command(flatten)]
        reach: Reach,
    },
    /// Delete a session as its host, with everything in it
    Delete {
        /// The session, by handle (`s_…`) or by its own id
        #[arg(value_name = "SESSION")]
        session: String,
        #[command(flatten)]
        reach: Reach,
    },
}

/// `session create`.
#[derive(Debug, Args)]
pub(super) struct SessionCreate {
    /// The session's own id; drawn at random when there is none
    #[arg(long)]
    pub(super) id: Option<String>,
    /// The absolute directory its presented paths are relative to
    #[arg(long, value_name = "DIR")]
    pub(super) cwd: Option<String>,
    /// A principal who may read it, by name or id; may be given several times
    #[arg(long = "owner", value_name = "NAME")]
    pub(super) owners: Vec<String>,
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// A command about one session.
#[derive(Debug, Args)]
pub(super) struct InSession {
    /// The session, by handle (`s_…`) or by its own id
    #[arg(long, short, value_name = "SESSION", env = "HOLDFAST_SESSION")]
    pub(super) session: String,
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// `append`.
#[derive(Debug, Args)]
pub(super) struct Append {
    #[command(flatten)]
    pub(super) at: InSession,
    /// A file of events, one JSON object a line: `{"type", "data", "time"?, "ignorable"?}`;
    /// standard input when absent or `-`
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Append only when the log's next seq is this one
    #[arg(long, value_name = "SEQ")]
    pub(super) expected_seq: Option<u64>,
}

/// `put`.
#[derive(Debug, Args)]
pub(super) struct Put {
    #[command(flatten)]
    pub(super) at: InSession,
    /// The file; `-` is standard input and needs --name
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// The attachment's name, when it is not the file's
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Also append a `user/message` that refers to it, so that it can be downloaded
    #[arg(long)]
    pub(super) reference: bool,
}

/// `get`.
#[derive(Debug, Args)]
pub(super) struct Get {
    #[command(flatten)]
    pub(super) at: InSession,
    /// The attachment, by id (`sha256:…`) or by name, or what a receipt (`r_…`) released
    #[arg(value_name = "ATTACHMENT")]
    pub(super) attachment: String,
    /// Where to write it; a directory takes it under its own name
    #[arg(long, short, value_name = "PATH")]
    pub(super) output: Option<PathBuf>,
    /// Replace what stands at the output; a link there is replaced, never followed
    #[arg(long)]
    pub(super) force: bool,
    /// How often to go on after a cut, as long as bytes keep coming
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(super) retries: u32,
}

/// `ticket`.
#[derive(Debug, Subcommand)]
pub(super) enum Ticket {
    /// Make a ticket and print its address once
    Create(TicketCreate),
    /// List the caller's living tickets, never their addresses
    List {
        #[command(flatten)]
        reach: Reach,
    },
    /// Revoke a ticket by its id
    Revoke {
        /// The ticket's id, as `create` and `list` print it (`t_…`)
        #[arg(value_name = "TICKET-ID")]
        id: String,
        #[command(flatten)]
        reach: Reach,
    },
}

/// `ticket create`.
#[derive(Debug, Args)]
pub(super) struct TicketCreate {
    #[command(flatten)]
    pub(super) at: InSession,
    /// The attachment, by id (`sha256:…`) or by name
    #[arg(value_name = "ATTACHMENT")]
    pub(super) attachment: String,
    /// How long it lasts, such as 10m or 12h
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub(super) expires: String,
    /// How often the content may be fetched
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) uses: u32,
}

/// `audit`.
#[derive(Debug, Subcommand)]
pub(super) enum Audit {
    /// Show the last lines
    Tail {
        /// How many
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
        lines: u32,
        /// Go on with those that come
        #[arg(short, long)]
        follow: bool,
    },
    /// Show the lines that say all of this
    Query(AuditFilter),
    /// Check every line against the one before it
    Verify {
        /// Where the trail stood by a log kept elsewhere (`SEQ:SEAL`): that line has to be there
        #[arg(long, value_name = "HEAD")]
        head: Option<String>,
    },
}

/// `audit query`.
#[derive(Debug, Default, Args)]
pub(super) struct AuditFilter {
    /// What happened: `sending`, `sent`, `aborted`, `refused`, `released`, …
    #[arg(long, value_name = "EVENT")]
    pub(super) event: Option<String>,
    /// By this principal, by id
    #[arg(long, value_name = "PRINCIPAL")]
    pub(super) who: Option<String>,
    /// In this session, by handle
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// About this content (`sha256:…`)
    #[arg(long, value_name = "ID")]
    pub(super) attachment: Option<String>,
    /// By this receipt
    #[arg(long, value_name = "RECEIPT")]
    pub(super) receipt: Option<String>,
    /// By this ticket, by its public id
    #[arg(long, value_name = "TICKET")]
    pub(super) ticket: Option<String>,
    /// In the last so many hours
    #[arg(long, value_name = "HOURS")]
    pub(super) last: Option<u32>,
}

/// `explain`.
#[derive(Debug, Args)]
pub(super) struct Presented {
    #[command(flatten)]
    pub(super) at: InSession,
    /// The presented file, by its place in the log as `ls` prints it (`3/1/0`) or by its path
    #[arg(value_name = "FILE")]
    pub(super) file: String,
    /// Look at the file too, as a release of it begins: its type, links, mount, owner and length
    #[arg(long)]
    pub(super) look: bool,
}

/// `present`.
#[derive(Debug, Args)]
pub(super) struct Present {
    #[command(flatten)]
    pub(super) at: InSession,
    /// The turn the files were made in
    #[arg(long, value_name = "TURN", default_value_t = 0)]
    pub(super) turn: u64,
    /// The tool call that made them
    #[arg(long, value_name = "ID", default_value = "present")]
    pub(super) call: String,
    /// Copy them now: the answer has a receipt, or a question, for each
    #[arg(long)]
    pub(super) capture: bool,
    /// For how many seconds to try again while a file changes: 60 at most
    #[arg(long, value_name = "SECONDS", requires = "capture",
        value_parser = clap::value_parser!(u64).range(0..=60))]
    pub(super) wait: Option<u64>,
    /// The files, by their paths in the session's directory: 1 to 16
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<String>,
}

/// `release`.
#[derive(Debug, Args)]
pub(super) struct Release {
    #[command(flatten)]
    pub(super) at: InSession,
    /// The presented file, by its place in the log as `ls` prints it (`3/1/0`) or by its path
    #[arg(value_name = "FILE", required_unless_present = "all")]
    pub(super) file: Option<String>,
    /// Every attachment and every presented file of the session, as one archive
    #[arg(long, conflicts_with_all = ["file", "wait"])]
    pub(super) all: bool,
    /// For how many seconds to try again while the file changes: 60 at most
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=60))]
    pub(super) wait: Option<u64>,
}

/// `decide`.
#[derive(Debug, Args)]
pub(super) struct Decide {
    #[command(flatten)]
    pub(super) at: InSession,
    /// What to decide, by id (`i_…`); everything that waits is shown when absent
    #[arg(value_name = "ID")]
    pub(super) interaction: Option<String>,
    #[command(flatten)]
    pub(super) choice: Choice,
}

/// Yes or no.
#[derive(Debug, Args)]
#[group(multiple = false, requires = "interaction")]
pub(super) struct Choice {
    /// Let exactly these bytes leave
    #[arg(long)]
    pub(super) allow: bool,
    /// Keep them; the copy made for the question goes
    #[arg(long)]
    pub(super) reject: bool,
}

/// `ask`.
#[derive(Debug, Args)]
pub(super) struct Ask {
    #[command(flatten)]
    pub(super) at: InSession,
    #[command(flatten)]
    pub(super) what: AskWhat,
    /// Why the tool is to be run; hidden characters are made visible before anybody sees it
    #[arg(long, value_name = "TEXT", requires = "tool")]
    pub(super) reason: Option<String>,
    /// An answer to choose from; as often as there are
    #[arg(long = "option", value_name = "TEXT", requires = "question")]
    pub(super) options: Vec<String>,
    /// The exact agent that asks
    #[arg(long, value_name = "NAME", default_value = "cli")]
    pub(super) agent: String,
}

/// What `ask` puts.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct AskWhat {
    /// Whether this tool may be run once; the session needs an open turn
    #[arg(long, value_name = "NAME")]
    pub(super) tool: Option<String>,
    /// A question, answered by an option or in words
    #[arg(long, value_name = "TEXT")]
    pub(super) question: Option<String>,
}

/// `watch`.
#[derive(Debug, Args)]
pub(super) struct Watch {
    /// The one session to watch, by handle (`s_…`) or by its own id; all the caller may see when absent
    #[arg(long, short, value_name = "SESSION", env = "HOLDFAST_SESSION")]
    pub(super) session: Option<String>,
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// What `verify` checks instead of attachments.
#[derive(Debug, Subcommand)]
pub(super) enum VerifyWhat {
    /// Check the seal of a receipt this installation issued
    Receipt {
        /// The receipt as JSON, as GET /v1/receipts/{receipt} and `release --json` give it; `-` reads
        /// standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// `verify`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Verify {
    #[command(subcommand)]
    pub(super) what: Option<VerifyWhat>,
    /// The session, by handle (`s_…`) or by its own id; all the caller may see when absent
    #[arg(long, short, value_name = "SESSION", env = "HOLDFAST_SESSION")]
    pub(super) session: Option<String>,
    #[command(flatten)]
    pub(super) reach: Reach,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Arguments;

    #[test]
    fn the_words_fit_together() {
        Arguments::command().debug_assert();
    }
}

/// `export`. Beside us alone: the log names the session's working directory.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// The session, by handle (`s_…`) or by its own id
    #[arg(value_name = "SESSION")]
    pub(super) session: String,
    /// Where to; made when it is not there, and a log that lies there is only ever continued
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,
    #[command(flatten)]
    pub(super) reach: Reach,
}

/// `import`. Beside us alone, as a host: the sessions become that host's own.
#[derive(Debug, Args)]
pub(super) struct Import {
    /// Where from: a directory with `sessions` and `attachments`, as `export` writes it
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,
    /// Only the session of this own id
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<String>,
    /// A principal who may read what comes in, by name or id; may be given several times
    #[arg(long = "owner", value_name = "NAME")]
    pub(super) owners: Vec<String>,
    /// Read and check everything, and take in nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) reach: Reach,
}
