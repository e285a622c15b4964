//! `anabranch positions reset|rewind`.

use std::collections::BTreeMap;

use anabranch_graph::record::Position;
use anabranch_graph::source::Mark;
use anabranch_graph::state::{LaneId, StateStore as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{BASE64, Opened, named, shown, unreadable};
use crate::cli::{Context, Exit, Report};
use crate::settings::SettingFlags;
use crate::store::StoredPipeline;

/// Let the sources of a pipeline start at their beginning.
///
/// What they delivered is delivered again. Without --yes it only says what it would do. The service must not run.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Reset {
    #[command(flatten)]
    lanes: Lanes,
}

/// Let a source of a pipeline go on after another position.
///
/// The position is one of the source's own, as `positions show` and the records' `position` have it; the source
/// checks it at the next start. Without --yes it only says what it would do. The service must not run.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Rewind {
    /// The position to go on after: its text, or `base64:` and its bytes
    #[arg(long, value_parser = position)]
    to: Position,
    #[command(flatten)]
    lanes: Lanes,
}

#[derive(Debug, clap::Args)]
struct Lanes {
    /// Id of the pipeline
    pipeline: String,
    /// Only this source
    #[arg(long)]
    connector: Option<String>,
    /// Only this partition of it
    #[arg(long, requires = "connector")]
    partition: Option<String>,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// Even if the store says that the pipeline runs, as it does after a crash
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

fn position(text: &str) -> Result<Position, String> {
    let bytes = match text.strip_prefix(BASE64) {
        Some(encoded) => STANDARD.decode(encoded).map_err(|error| format!("this is not base64: {error}"))?,
        None => text.as_bytes().to_vec(),
    };
    if bytes.is_empty() {
        return Err("an empty position is the beginning: `anabranch positions reset`".to_owned());
    }
    Ok(Position::copy_from(&bytes))
}

pub(super) fn reset(arguments: &Reset, context: &Context) -> Report {
    const COMMAND: &str = "positions.reset";
    match moved(COMMAND, &arguments.lanes, &Position::copy_from(b""), context) {
        Ok(report) => report,
        Err(report) => *report,
    }
}

pub(super) fn rewind(arguments: &Rewind, context: &Context) -> Report {
    const COMMAND: &str = "positions.rewind";
    match moved(COMMAND, &arguments.lanes, &arguments.to, context) {
        Ok(report) => report,
        Err(report) => *report,
    }
}

fn moved(command: &'static str, arguments: &Lanes, to: &Position, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(command, &arguments.settings)?;
    let opened = Opened::open(command, &settings.database)?;
    let failed = |error| Box::new(unreadable(command, &error));
    let pipelines = opened.pipelines().map_err(failed)?;
    let pipeline = named(command, &pipelines, &arguments.pipeline)?;
    let live = pipeline.status.is_live();
    // The file is locked by a service that runs; a database is not.
    if live && !arguments.force && !matches!(settings.database, crate::settings::Database::Embedded(_)) {
        let message = format!("pipeline {} is {}", pipeline.id, pipeline.status.word());
        let report = Report::new(command).fail(Exit::Environment, "pipeline.running", message);
        return Err(Box::new(report.suggest("stop the service first; if it crashed, add --force")));
    }
    let found = opened.positions(&pipeline.id).map_err(failed)?;
    let mut moves = chosen(command, arguments, pipeline, &found)?;
    if moves.len() > 1 && !to.0.is_empty() {
        let names: Vec<String> = moves.keys().map(name).collect();
        let message = format!("a position belongs to one source and partition, here are {}", names.join(", "));
        return Err(Box::new(
            Report::new(command)
                .fail(Exit::Invalid, "positions.ambiguous", message)
                .suggest("choose one with --connector and --partition"),
        ));
    }
    if arguments.yes {
        let epoch = opened.runtime.block_on(opened.store.claim(&pipeline.id)).map_err(failed)?;
        // Whoever had the claim before may have moved them until now.
        let latest = opened.runtime.block_on(opened.store.load(&epoch)).map_err(failed)?;
        for (lane, mark) in &mut moves {
            *mark = latest.get(lane).unwrap_or(mark).clone();
        }
        let marks: Vec<(LaneId, Mark)> = moves
            .iter()
            .map(|(lane, mark)| (lane.clone(), Mark { generation: mark.generation + 1, seq: 0, position: to.clone() }))
            .collect();
        opened.runtime.block_on(opened.store.commit(&epoch, &marks)).map_err(failed)?;
    }
    let verb = if arguments.yes { "goes on" } else { "would go on" };
    let lines: String = moves
        .iter()
        .map(|(lane, mark)| {
            let records = if mark.seq == 1 { "record" } else { "records" };
            format!(
                "{} {verb} after {} instead of {} ({} {records} of generation {})\n",
                name(lane),
                shown(to),
                shown(&mark.position),
                mark.seq,
                mark.generation
            )
        })
        .collect();
    let mut report = Report::new(command).text(lines).summary(json!({ "moved": moves.len(), "done": arguments.yes }));
    if !arguments.yes {
        report = report.notes("Nothing was changed. Add --yes to do it; what is read again is delivered again.\n");
    }
    let result: Vec<_> = moves
        .iter()
        .map(|(lane, mark)| {
            json!({
                "connector": lane.connector.as_str(), "partition": lane.partition.0.as_str(),
                "from": shown(&mark.position), "to": shown(to),
            })
        })
        .collect();
    Ok(report.result(json!({ "pipeline": pipeline.id.as_str(), "positions": result })))
}

/// The lanes that are meant, and where they are.
fn chosen(
    command: &'static str,
    arguments: &Lanes,
    pipeline: &StoredPipeline,
    found: &BTreeMap<LaneId, Mark>,
) -> Result<BTreeMap<LaneId, Mark>, Box<Report>> {
    let wanted = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
    let lanes: BTreeMap<LaneId, Mark> = found
        .iter()
        .filter(|(lane, _)| {
            wanted(&arguments.connector, &lane.connector) && wanted(&arguments.partition, &lane.partition.0)
        })
        .map(|(lane, mark)| (lane.clone(), mark.clone()))
        .collect();
    if !lanes.is_empty() {
        return Ok(lanes);
    }
    let message = format!("pipeline {} has no such position", pipeline.id);
    let known: Vec<String> = found.keys().map(name).collect();
    let report = Report::new(command).fail(Exit::Invalid, "positions.none", message);
    Err(Box::new(if known.is_empty() {
        report.suggest("none is stored: its sources start at their beginning anyway")
    } else {
        report.suggest(format!("there are {}", known.join(", ")))
    }))
}

/// A lane by its connector, and its partition where it has one.
fn name(lane: &LaneId) -> String {
    match lane.partition.0.as_str() {
        "" => lane.connector.to_string(),
        partition => format!("{} (partition {partition})", lane.connector),
    }
}
