//! `anabranch positions …`: where sources go on, and how to move that.
//!
//! These commands use the store themselves, so the service must not run.

mod moving;
mod show;

use std::collections::BTreeMap;

use anabranch_graph::diagnostic::did_you_mean;
use anabranch_graph::record::Position;
use anabranch_graph::source::Mark;
use anabranch_graph::state::{LaneId, StoreError};
use anabranch_graph::text::Str;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use tokio::runtime::Runtime;

use super::{Context, Exit, Report};
use crate::settings::Database;
use crate::store::{Store, StoredPipeline};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Show(show::Arguments),
    Reset(moving::Reset),
    Rewind(moving::Rewind),
}

pub(super) fn dispatch(command: Command, context: &Context) -> Report {
    match command {
        Command::Show(arguments) => show::show(&arguments, context),
        Command::Reset(arguments) => moving::reset(&arguments, context),
        Command::Rewind(arguments) => moving::rewind(&arguments, context),
    }
}

/// Bytes that are no text are written so, and read so.
const BASE64: &str = "base64:";

/// A position as people see it: its text, or its bytes in base64.
fn shown(position: &Position) -> String {
    match std::str::from_utf8(&position.0) {
        Ok("") => "(the beginning)".to_owned(),
        Ok(text) if !text.starts_with(BASE64) && !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("{BASE64}{}", STANDARD.encode(&position.0)),
    }
}

/// The store of a command, and the runtime that it needs.
struct Opened {
    store: Store,
    runtime: Runtime,
}

impl Opened {
    /// Opens the store that is there.
    ///
    /// # Errors
    /// The report of the command `command`: there is none, or it cannot be used.
    fn open(command: &'static str, database: &Database) -> Result<Self, Box<Report>> {
        let failed =
            |message: String| Box::new(Report::new(command).fail(Exit::Environment, "store.unavailable", message));
        let Some(store) = Store::open_existing(database).map_err(|e| failed(e.to_string()))? else {
            let report = Report::new(command).fail(Exit::Environment, "positions.none", "there is no store yet");
            return Err(Box::new(report.suggest("the first `anabranch run` makes it; --db.path names another place")));
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Opened { store, runtime: runtime.map_err(|e| failed(e.to_string()))? })
    }

    fn pipelines(&self) -> Result<Vec<StoredPipeline>, StoreError> {
        self.runtime.block_on(self.store.pipelines())
    }

    fn positions(&self, pipeline: &Str) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        self.runtime.block_on(self.store.positions(pipeline))
    }
}

/// The report of a store that failed.
fn unreadable(command: &'static str, error: &StoreError) -> Report {
    Report::new(command).fail(Exit::Environment, "store.unavailable", error.to_string())
}

/// The pipeline with this id.
///
/// # Errors
/// The store has none, and says which is meant.
fn named<'a>(
    command: &'static str,
    pipelines: &'a [StoredPipeline],
    id: &str,
) -> Result<&'a StoredPipeline, Box<Report>> {
    pipelines.iter().find(|pipeline| pipeline.id.as_str() == id).ok_or_else(|| {
        let message = format!("the store knows no pipeline {id:?}");
        let report = Report::new(command).fail(Exit::Invalid, "pipeline.unknown", message);
        Box::new(match did_you_mean(id, pipelines.iter().map(|pipeline| pipeline.id.as_str())) {
            Some(near) => report.suggest(format!("did you mean {near}?")),
            None => report.suggest("`anabranch pipelines list` lists them"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_shown_as_text_where_they_are_text() {
        let text = |bytes: &[u8]| shown(&Position::copy_from(bytes));
        assert_eq!(text(b""), "(the beginning)");
        assert_eq!(text(br#"{"offset":12}"#), r#"{"offset":12}"#);
        assert_eq!(text(b"\xff\x00"), "base64:/wA=");
        // What could be taken for the other form is in it.
        assert_eq!(text(b"base64:x"), "base64:YmFzZTY0Ong=");
        assert_eq!(text(b"a\nb"), "base64:YQpi");
    }
}
