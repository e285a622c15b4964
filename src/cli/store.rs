//! `anabranch store …`.

use std::path::Path;
use std::time::{Duration, Instant};

use anabranch_process::signals::Signals;
use anabranch_process::terminal::{self, Stream, is_terminal};
use anabranch_settings::{Credential, Database, PostgresDatabase, ServiceFlags};
use anabranch_store::{Backup, BackupError, CopiedCounts, CopyError, OpenError, Store};
use clap::Subcommand;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use super::report::counted;
use super::{Context, Exit, Report};
use crate::codes;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Copy(Copy),
}

/// Copy the state store to another one, for example to the database of a cluster.
///
/// Copies pipelines, positions, dead letters and schemas from the store of the settings (`db.*` or `cluster.url`) to an
/// empty store in PostgreSQL, or to a new file. No service and no node may use either of them; `db.wait` waits for one that
/// does. The old store stays as it is. Do not start a service with it afterwards: it would deliver records again that the
/// new one has delivered. Cached results of processors are not copied.
///
/// The copy is complete or refused: the file gets its name at the end, and no service starts with a table that a copy was
/// interrupted in. SIGINT and SIGTERM remove what was copied.
///
/// In a cluster, pipelines that a user has stopped stay stopped. A service alone starts those of its files, as it does each
/// time it starts.
///
/// Exit codes: 0 the store is copied, 1 the copy was stopped, 2 the arguments or the settings are not valid, or the store to
/// copy to is not empty, 3 there is nothing to copy, or a store cannot be opened, read or written.
#[derive(Debug, clap::Args)]
pub(super) struct Copy {
    /// The store to copy to: a file that does not exist, or the address of a PostgreSQL database, as a URL or as
    /// `host=… dbname=…`. `${NAME}` stands for the value of a variable of the environment, so that the command line need not
    /// have a password.
    #[arg(long, value_name = "STORE", value_hint = clap::ValueHint::FilePath)]
    to: String,
    /// The table to copy to, in PostgreSQL. Other tables of the store have names that begin with this one.
    #[arg(long, value_name = "NAME", default_value = "anabranch_kv_store")]
    table: String,
    #[command(flatten)]
    settings: ServiceFlags,
}

const COPY: &str = "store.copy";

pub(super) fn dispatch(command: &Command, context: &Context) -> Report {
    match command {
        Command::Copy(arguments) => copied(arguments, context).unwrap_or_else(|report| *report),
    }
}

fn copied(arguments: &Copy, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(COPY, &arguments.settings.0)?;
    let destination = destination(&arguments.to)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| failed(error.to_string()))?;
    let wait = Waiting { begun: Instant::now(), limit: settings.store_wait };
    let from = Owned::open(|| Store::own_existing(&settings.database), &runtime, wait)?;
    let (counts, to) = match destination {
        Destination::Postgres(connection) => {
            let to = Database::Postgres(PostgresDatabase { connection, table: arguments.table.clone() });
            if to == settings.database {
                let message = "--to: this is the store that the settings name";
                return Err(Box::new(Report::new(COPY).fail(Exit::Invalid, codes::CLI_USAGE, message)));
            }
            let opened = Owned::open(|| Store::own(&to).map(Some), &runtime, wait)?;
            (copy(&from, &opened.store, &place(&to), &runtime)?, place(&to))
        }
        Destination::File(path) => {
            let draft = Backup::begin(Path::new(&path)).map_err(unwritten)?;
            let store = draft.create_store().map_err(|error| failed(error.to_string()))?;
            let counts = copy(&from, &store, &path, &runtime)?;
            drop(store);
            draft.finish().map_err(unwritten)?;
            (counts, path)
        }
    };
    let CopiedCounts { pipelines, positions, letters, schemas } = counts;
    let what = [
        counted(pipelines, "pipeline"),
        counted(positions, "position"),
        counted(usize::try_from(letters).unwrap_or(usize::MAX), "dead letter"),
        counted(schemas, "schema"),
    ];
    let counts = json!({ "pipelines": pipelines, "positions": positions, "deadLetters": letters, "schemas": schemas });
    let from = place(&settings.database);
    Ok(Report::new(COPY)
        .text(format!("Copied {} from {from} to {to}.\n", what.join(", ")))
        .notes("Do not start a service with the old store any more: it would deliver records again.\n")
        .summary(counts.clone())
        .result(json!({ "from": from, "to": to, "copied": counts })))
}

/// The store to copy to.
enum Destination {
    Postgres(Credential),
    File(String),
}

/// Returns what `--to` names. No message has its text, which may contain a password.
fn destination(written: &str) -> Result<Destination, Box<Report>> {
    let invalid =
        |message: &str| Box::new(Report::new(COPY).fail(Exit::Invalid, codes::CLI_USAGE, format!("--to: {message}")));
    let Some(credential) = Credential::of_text(written) else {
        return Err(invalid("a variable in it is not set"));
    };
    let text = credential.at_start();
    let is_path = ["/", "./", "../"].iter().any(|start| text.starts_with(start));
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    match scheme {
        _ if text.is_empty() => Err(invalid("the name of the store is empty")),
        _ if is_path => Ok(Destination::File(text.to_owned())),
        Some("postgres" | "postgresql") => Ok(Destination::Postgres(credential)),
        Some(_) => Err(invalid("expected postgres://user:password@host:port/database, or the name of a file")),
        None if text.contains('=') => Ok(Destination::Postgres(credential)),
        // The address of a database without its scheme, or standard output.
        None if text.contains('@') || text == "-" => Err(invalid(
            "this is neither the address of a PostgreSQL database nor the name of a file: write postgres:// or ./ before it",
        )),
        None => Ok(Destination::File(text.to_owned())),
    }
}

/// How long a command waits for a store that another process uses.
#[derive(Clone, Copy)]
struct Waiting {
    begun: Instant,
    limit: Duration,
}

/// Time between two attempts to open a store.
const AGAIN: Duration = Duration::from_millis(500);

/// A store that this process owns until it is dropped.
struct Owned<'r> {
    store: Store,
    runtime: &'r Runtime,
}

impl<'r> Owned<'r> {
    fn open(
        open: impl Fn() -> Result<Option<Store>, OpenError>,
        runtime: &'r Runtime,
        wait: Waiting,
    ) -> Result<Owned<'r>, Box<Report>> {
        loop {
            let error = match open() {
                Ok(Some(store)) => return Ok(Owned { store, runtime }),
                Ok(None) => return Err(nothing("there is no store to copy".to_owned())),
                Err(error) => error,
            };
            let left = wait.limit.saturating_sub(wait.begun.elapsed());
            if !left.is_zero() && error.is_passing() {
                std::thread::sleep(left.min(AGAIN));
                continue;
            }
            return Err(match &error {
                OpenError::InUse { .. } | OpenError::Cluster { .. } => {
                    Box::new(Report::new(COPY).fail(Exit::Environment, codes::STORE_IN_USE, error.to_string()))
                }
                error if error.is_invalid() => {
                    Box::new(Report::new(COPY).fail(Exit::Invalid, codes::CLI_USAGE, error.to_string()))
                }
                error => failed(error.to_string()),
            });
        }
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.release());
    }
}

/// Copies a store to the one that `place` names. If it fails or is stopped, what was copied is removed.
fn copy(from: &Owned<'_>, to: &Store, place: &str, runtime: &Runtime) -> Result<CopiedCounts, Box<Report>> {
    let shows = is_terminal(Stream::Err);
    let mut shown = 0;
    let progress = |copied: u64, all: u64| {
        let percent = copied * 100 / all.max(1);
        if shows && percent >= shown + 10 {
            shown = percent;
            let _ = terminal::print(Stream::Err, &format!("copied {copied} of {all} dead letters ({percent} %)\n"));
        }
    };
    let copied = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(|error| failed(error.to_string()))?;
        tokio::select! {
            copied = from.store.copy_into(to, progress) => Ok::<_, Box<Report>>(Some(copied)),
            _ = signals.next() => Ok(None),
        }
    });
    let report = match copied? {
        Some(Ok(counts)) => return Ok(counts),
        Some(Err(error @ CopyError::NotEmpty)) => {
            let report = Report::new(COPY).fail(Exit::Invalid, codes::STORE_NOT_EMPTY, format!("{place}: {error}"));
            return Err(Box::new(report.suggest("copy to another --table, or remove the tables of the other store")));
        }
        Some(Err(error @ CopyError::Nothing)) => return Err(nothing(error.to_string())),
        Some(Err(CopyError::Store(error))) => failed(error.to_string()),
        None => {
            let message = "the copy was stopped: nothing was copied";
            Box::new(Report::new(COPY).fail(Exit::Failed, codes::STORE_COPY_STOPPED, message))
        }
    };
    match runtime.block_on(to.abandon_copy()) {
        Ok(()) => Err(report),
        Err(error) => Err(Box::new(report.suggest(format!("the parts of the copy cannot be removed: {error}")))),
    }
}

fn nothing(message: String) -> Box<Report> {
    let report = Report::new(COPY).fail(Exit::Environment, codes::STORE_NONE, message);
    Box::new(report.suggest("if it is elsewhere, set --db.path, --db.type, --db.postgres.table or --cluster.url"))
}

fn unwritten(error: BackupError) -> Box<Report> {
    match error {
        BackupError::Exists(_) => {
            Box::new(Report::new(COPY).fail(Exit::Invalid, codes::STORE_NOT_EMPTY, error.to_string()))
        }
        error => failed(error.to_string()),
    }
}

fn failed(what: String) -> Box<Report> {
    Box::new(Report::new(COPY).fail(Exit::Environment, codes::STORE_UNAVAILABLE, what))
}

/// Returns where a store is, without the password.
fn place(database: &Database) -> String {
    match database {
        Database::Embedded(path) => path.display().to_string(),
        Database::InMemory => "memory".to_owned(),
        Database::Postgres(postgres) => format!("the table {} in PostgreSQL", postgres.table),
    }
}
