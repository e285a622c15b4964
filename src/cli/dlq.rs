//! `anabranch dlq …`: lists, shows, edits, replays and purges dead letters.
//!
//! Dead letters are in the state store. If a running service holds the store, the commands use the HTTP API; otherwise
//! they open the store.

mod edit;
mod list;
mod purge;
mod replay;
mod show;

use anabranch_plugin::state::StoreError;
use anabranch_process::runtime;
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use anabranch_settings::{Database, Settings};
use anabranch_store::{OpenError, Store, StoredPipeline};
use clap::Subcommand;
use tokio::runtime::{Builder, Runtime};

use super::remote::Remote;
use super::{Context, Exit, Report};
use crate::codes;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    List(list::Arguments),
    Show(show::Arguments),
    Replay(replay::Arguments),
    Purge(purge::Arguments),
}

pub(super) fn dispatch(command: Command, context: &Context) -> Report {
    let report = match command {
        Command::List(arguments) => list::list(&arguments, context),
        Command::Show(arguments) => show::show(&arguments, context),
        Command::Replay(arguments) => replay::replay(&arguments, context),
        Command::Purge(arguments) => purge::purge(&arguments, context),
    };
    report.unwrap_or_else(|report| *report)
}

/// Access to the dead letters.
enum DeadLetters {
    /// Through the API of a running service.
    Service(Remote),
    /// Directly in the store.
    Store(OpenStore),
}

/// An open store, and the runtime that its calls need.
struct OpenStore {
    command: &'static str,
    store: Store,
    runtime: Runtime,
}

impl DeadLetters {
    /// Uses the running service if there is one, otherwise opens the store. A service locks the file of its store, so a
    /// file that can be opened belongs to no service. A database is opened only if no service answers.
    fn find(command: &'static str, settings: &Settings) -> Result<DeadLetters, Box<Report>> {
        DeadLetters::opened_by(Store::open, command, settings)
    }

    /// Like `find`, for commands that change dead letters: no service can use the store at the same time.
    fn find_to_change(command: &'static str, settings: &Settings) -> Result<DeadLetters, Box<Report>> {
        DeadLetters::opened_by(Store::own, command, settings)
    }

    fn opened_by(
        open: fn(&Database) -> Result<Store, OpenError>,
        command: &'static str,
        settings: &Settings,
    ) -> Result<DeadLetters, Box<Report>> {
        let unusable = |error: &OpenError| {
            Box::new(Report::new(command).fail(Exit::Environment, codes::STORE_UNAVAILABLE, error.to_string()))
        };
        // If the user names a service, show its dead letters, not those of a store on this machine.
        if settings.api.as_ref().is_some_and(|api| api.named)
            && let Some(remote) = Remote::find(command, settings)?
        {
            return Ok(DeadLetters::Service(remote));
        }
        if let Database::Embedded(_) = &settings.database {
            match Store::open_existing(&settings.database) {
                Ok(Some(store)) => return OpenStore::new(command, store).map(DeadLetters::Store),
                Ok(None) => {}
                Err(OpenError::InUse { .. }) => return Remote::of(command, settings).map(DeadLetters::Service),
                Err(error) => return Err(unusable(&error)),
            }
        }
        if let Some(remote) = Remote::find(command, settings)? {
            return Ok(DeadLetters::Service(remote));
        }
        match &settings.database {
            Database::Postgres(_) => {
                let store = open(&settings.database).map_err(|error| unusable(&error))?;
                OpenStore::new(command, store).map(DeadLetters::Store)
            }
            Database::Embedded(_) | Database::InMemory => Err(Box::new(
                Report::new(command)
                    .fail(Exit::Environment, codes::STORE_NONE, "there is no store yet, and no service answers")
                    .suggest("`anabranch run` creates the store; if it is elsewhere, set --db.path"),
            )),
        }
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.release());
    }
}

impl OpenStore {
    fn new(command: &'static str, store: Store) -> Result<Self, Box<Report>> {
        // Replays run on this runtime too.
        let runtime = runtime::start(&mut Builder::new_multi_thread()).map_err(|error| {
            let message = format!("cannot start the runtime: {}", anabranch_process::files::system(&error));
            Box::new(Report::new(command).fail(Exit::Environment, codes::CLI_SYSTEM, message))
        })?;
        Ok(OpenStore { command, store, runtime })
    }

    fn ask<T>(&self, asking: impl Future<Output = Result<T, StoreError>>) -> Result<T, Box<Report>> {
        self.runtime.block_on(asking).map_err(|error| {
            Box::new(Report::new(self.command).fail(Exit::Environment, codes::STORE_UNAVAILABLE, error.to_string()))
        })
    }

    /// Returns the pipeline with this id, if the store has it.
    fn pipeline(&self, id: &str) -> Result<Option<StoredPipeline>, Box<Report>> {
        Ok(self.ask(self.store.pipelines())?.into_iter().find(|pipeline| *pipeline.id == *id))
    }

    /// Fails unless the store has a pipeline or dead letters with this id.
    fn known(&self, id: &Str) -> Result<(), Box<Report>> {
        let pipelines = self.ask(self.store.pipelines())?;
        if pipelines.iter().any(|pipeline| pipeline.id == *id) || self.ask(self.store.letter_totals(id))?.count > 0 {
            return Ok(());
        }
        let message = format!("the store has no pipeline {:?}", id.as_str());
        let report = Report::new(self.command).fail(Exit::Invalid, codes::PIPELINE_NOT_FOUND, message);
        Err(Box::new(match did_you_mean(id, pipelines.iter().map(|pipeline| pipeline.id.as_str())) {
            Some(near) => report.suggest(format!("did you mean {near}?")),
            None => report.suggest("`anabranch pipelines list` lists them"),
        }))
    }
}

/// The report for a dead letter that does not exist.
fn missing(command: &'static str, pipeline: &str, number: u64) -> Box<Report> {
    Box::new(
        Report::new(command)
            .fail(
                Exit::Invalid,
                codes::DEAD_LETTER_NOT_FOUND,
                format!("pipeline {pipeline} has no dead letter {number}"),
            )
            .suggest(format!("`anabranch dlq list {pipeline}` lists them")),
    )
}

/// Formats a number of dead letters: `1 letter`, `2 letters`.
fn letters(count: u64) -> String {
    format!("{count} dead letter{}", if count == 1 { "" } else { "s" })
}
