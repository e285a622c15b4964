//! `anabranch positions …`: shows, resets, rewinds, exports and imports source positions.
//!
//! The commands use the running service; if none answers, they open the store.

mod moving;
mod show;
mod transfer;

use std::collections::BTreeMap;

use anabranch_plugin::state::StoreError;
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use anabranch_service::pipelines::{Pipeline, Pipelines};
use anabranch_service::positions::shown;
use anabranch_service::text_of;
use anabranch_settings::{Database, Settings};
use anabranch_store::letters::LetterTotals;
use anabranch_store::{OpenError, Origin, Store, StoredPipeline};
use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::remote::Remote;
use super::{Context, Exit, Report, compile_options, registry_with};
use crate::client::escaped;
use crate::codes;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Show(show::Arguments),
    Reset(moving::Reset),
    Rewind(moving::Rewind),
    Copy(transfer::Copy),
    Export(transfer::Export),
    Import(transfer::Import),
}

pub(super) fn dispatch(command: Command, context: &Context) -> Report {
    match command {
        Command::Show(arguments) => show::show(&arguments, context),
        Command::Reset(arguments) => moving::reset(&arguments, context),
        Command::Rewind(arguments) => moving::rewind(&arguments, context),
        Command::Copy(arguments) => transfer::copy(&arguments, context),
        Command::Export(arguments) => transfer::export(&arguments, context),
        Command::Import(arguments) => transfer::import(&arguments, context),
    }
}

/// Position of a source, or of one partition of it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LanePosition {
    #[serde(default)]
    pub(super) pipeline: String,
    pub(super) connector: String,
    #[serde(default)]
    pub(super) partition: String,
    pub(super) generation: u64,
    /// Records of this generation that are delivered and acknowledged.
    pub(super) records: u64,
    /// Position of the last of these records, in readable form.
    pub(super) position: String,
}

impl LanePosition {
    /// Builds the position from an entry of the store.
    pub(super) fn new(pipeline: &str, lane: &LaneId, mark: &Mark) -> Self {
        LanePosition {
            pipeline: pipeline.to_owned(),
            connector: lane.connector.to_string(),
            partition: lane.partition.0.to_string(),
            generation: mark.generation,
            records: mark.seq,
            position: shown(&mark.position),
        }
    }

    /// The position as JSON.
    pub(super) fn shown(&self) -> Value {
        json!({
            "pipeline": self.pipeline, "connector": self.connector, "partition": self.partition,
            "generation": self.generation, "records": self.records, "position": self.position,
        })
    }
}

/// Returns the positions of a pipeline, or of all pipelines, from a running service.
///
/// # Errors
/// The service refuses the request.
pub(super) fn of_service(remote: &Remote, pipeline: Option<&str>) -> Result<Vec<LanePosition>, Box<Report>> {
    #[derive(Deserialize)]
    struct Named {
        id: String,
    }
    #[derive(Deserialize)]
    struct Lanes {
        positions: Vec<LanePosition>,
    }
    let pipelines = match pipeline {
        Some(id) => vec![id.to_owned()],
        None => remote.get::<Vec<Named>>("/v1/pipelines")?.into_iter().map(|pipeline| pipeline.id).collect(),
    };
    let mut lanes = Vec::new();
    for id in pipelines {
        let found: Lanes = remote.get(&format!("/v1/pipelines/{}/positions", escaped(&id)))?;
        lanes.extend(found.positions.into_iter().map(|lane| LanePosition { pipeline: id.clone(), ..lane }));
    }
    Ok(lanes)
}

/// An open store, and the runtime that its calls need.
pub(super) struct OpenStore {
    store: Store,
    runtime: Runtime,
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.release());
    }
}

impl OpenStore {
    /// Opens the existing store.
    ///
    /// # Errors
    /// Returns the report of `command` if the store does not exist or cannot be opened.
    pub(super) fn open(command: &'static str, database: &Database) -> Result<Self, Box<Report>> {
        OpenStore::opened_by(Store::open, command, database)
    }

    /// Like [`OpenStore::open`], for commands that change positions: no service can use the store at the same time.
    ///
    /// # Errors
    /// As [`OpenStore::open`]; also if a service uses the store.
    pub(super) fn open_to_change(command: &'static str, database: &Database) -> Result<Self, Box<Report>> {
        OpenStore::opened_by(Store::own, command, database)
    }

    fn opened_by(
        open: fn(&Database) -> Result<Store, OpenError>,
        command: &'static str,
        database: &Database,
    ) -> Result<Self, Box<Report>> {
        let failed =
            |message: String| Box::new(Report::new(command).fail(Exit::Environment, codes::STORE_UNAVAILABLE, message));
        let there = !matches!(database, Database::Embedded(path) if !path.exists());
        let store = if there { Some(open(database).map_err(|e| failed(e.to_string()))?) } else { None };
        let Some(store) = store else {
            let report = Report::new(command).fail(Exit::Environment, codes::POSITIONS_NONE, "there is no store yet");
            return Err(Box::new(
                report.suggest("`anabranch run` creates the store; if it is elsewhere, set --db.path"),
            ));
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(OpenStore { store, runtime: runtime.map_err(|e| failed(e.to_string()))? })
    }

    pub(super) fn pipelines(&self) -> Result<Vec<StoredPipeline>, StoreError> {
        self.runtime.block_on(self.store.pipelines())
    }

    pub(super) fn letter_totals(&self, pipeline: &Str) -> Result<LetterTotals, StoreError> {
        self.runtime.block_on(self.store.letter_totals(pipeline))
    }

    pub(super) fn positions(&self, pipeline: &Str) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        self.runtime.block_on(self.store.positions(pipeline))
    }
}

/// Returns the pipeline as its file declares it, or as it was created through the API; `None` if it has errors.
fn declared(settings: &Settings, id: &str, stored: Option<&StoredPipeline>) -> Option<Pipeline> {
    let (registry, options) = (registry_with(settings), compile_options(settings, false));
    let found = Pipelines::load(&[&settings.pipelines.path], &registry, &options);
    let in_files = found.good.into_iter().find(|good| *good.config.id.value == *id);
    in_files.or_else(|| {
        let made = stored.filter(|stored| stored.origin == Origin::Api)?;
        Pipelines::of_text(&made.id, text_of(made), &registry, &options).good.pop()
    })
}

/// The report for a store that failed.
pub(super) fn unreadable(command: &'static str, error: &StoreError) -> Report {
    Report::new(command).fail(Exit::Environment, codes::STORE_UNAVAILABLE, error.to_string())
}

/// Returns the pipeline with this id.
///
/// # Errors
/// Returns the report of `command` if the store has no such pipeline, with a similar id if there is one.
fn named<'a>(
    command: &'static str,
    pipelines: &'a [StoredPipeline],
    id: &str,
) -> Result<&'a StoredPipeline, Box<Report>> {
    pipelines.iter().find(|pipeline| pipeline.id.as_str() == id).ok_or_else(|| {
        let message = format!("the store has no pipeline {id:?}");
        let report = Report::new(command).fail(Exit::Invalid, codes::PIPELINE_NOT_FOUND, message);
        Box::new(match did_you_mean(id, pipelines.iter().map(|pipeline| pipeline.id.as_str())) {
            Some(near) => report.suggest(format!("did you mean {near}?")),
            None => report.suggest("`anabranch pipelines list` lists them"),
        })
    })
}
