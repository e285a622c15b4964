//! `anabranch store …`.

use std::path::Path;

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
/// empty store in PostgreSQL, or to a new file. No service and no node may use either of them. The old store stays as it
/// is. Do not start a service with it afterwards: it would deliver records again that the new one has delivered.
/// Cached results of processors are not copied.
///
/// The copy is complete or refused: the file gets its name at the end, and no service starts with a table that a copy was
/// interrupted in.
///
/// Exit codes: 0 the store is copied, 2 the store to copy to is not empty, 3 a store cannot be opened, read or written.
#[derive(Debug, clap::Args)]
pub(super) struct Copy {
    /// The store to copy to: a file that does not exist, or the connection URL of a PostgreSQL database. `${NAME}` stands
    /// for the value of a variable of the environment, so that the command line need not have a password.
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
    if matches!(&settings.database, Database::Embedded(path) if !path.exists()) {
        let report = Report::new(COPY).fail(Exit::Environment, codes::STORE_NONE, "there is no store to copy");
        return Err(Box::new(report.suggest("if it is elsewhere, set --db.path, --db.type or --cluster.url")));
    }
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| failed(error.to_string()))?;
    let from = Owned::open(&settings.database, &runtime)?;
    let (counts, to) = match destination(&arguments.to)? {
        Destination::Postgres(connection) => {
            let to = Database::Postgres(PostgresDatabase { connection, table: arguments.table.clone() });
            if to == settings.database {
                let message = "--to: this is the store that the settings name";
                return Err(Box::new(Report::new(COPY).fail(Exit::Invalid, codes::CLI_USAGE, message)));
            }
            let opened = Owned::open(&to, &runtime)?;
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

fn destination(written: &str) -> Result<Destination, Box<Report>> {
    let invalid = |message: String| Box::new(Report::new(COPY).fail(Exit::Invalid, codes::CLI_USAGE, message));
    let text = match written.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
        None => written.to_owned(),
        Some(name) => std::env::var(name).map_err(|_| invalid(format!("--to: the variable {name} is not set")))?,
    };
    match text.starts_with("postgres://") || text.starts_with("postgresql://") {
        true => Ok(Destination::Postgres(text.into())),
        false if text.is_empty() => Err(invalid("--to: the name of the store is empty".to_owned())),
        false => Ok(Destination::File(text)),
    }
}

/// A store that this process owns until it is dropped.
struct Owned<'r> {
    store: Store,
    runtime: &'r Runtime,
}

impl<'r> Owned<'r> {
    fn open(database: &Database, runtime: &'r Runtime) -> Result<Owned<'r>, Box<Report>> {
        let in_use = |error: &OpenError| matches!(error, OpenError::InUse { .. } | OpenError::Cluster { .. });
        let store = Store::own(database).map_err(|error| match in_use(&error) {
            true => Box::new(Report::new(COPY).fail(Exit::Environment, codes::STORE_IN_USE, error.to_string())),
            false => failed(error.to_string()),
        })?;
        Ok(Owned { store, runtime })
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.release());
    }
}

/// Copies a store to the one that `place` names.
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
    runtime.block_on(from.store.copy_into(to, progress)).map_err(|error| match error {
        CopyError::NotEmpty => {
            let report = Report::new(COPY).fail(Exit::Invalid, codes::STORE_NOT_EMPTY, format!("{place}: {error}"));
            Box::new(report.suggest("copy to another --table, or remove the tables of the other store"))
        }
        CopyError::Store(error) => failed(error.to_string()),
    })
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
