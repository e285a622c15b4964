//! `anabranch positions reset|rewind`.

use std::collections::BTreeMap;

use anabranch_graph::record::Position;
use anabranch_graph::source::Mark;
use anabranch_graph::state::{LaneId, StateStore as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use super::{BASE64, Opened, named, shown, unreadable};
use crate::cli::remote::Remote;
use crate::cli::report::counted;
use crate::cli::{Context, Exit, Report};
use crate::client::escaped;
use crate::settings::{ServiceFlags, Settings};
use crate::store::StoredPipeline;

/// Let the sources of a pipeline start at their beginning.
///
/// What they delivered is delivered again. Without --yes it only says what it would do. A service that runs drains the
/// pipeline, moves it, and lets it go on; where none answers, the store is changed.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Reset {
    #[command(flatten)]
    lanes: Lanes,
}

/// Let a source of a pipeline go on after another position.
///
/// The position is one of the source's own, as `positions show` and the records' `position` have it; the source
/// checks it at the next start. Without --yes it only says what it would do. A service that runs drains the pipeline,
/// moves it, and lets it go on; where none answers, the store is changed.
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
    settings: ServiceFlags,
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

/// A lane that is moved, or would be.
#[derive(Deserialize)]
struct Moved {
    connector: String,
    #[serde(default)]
    partition: String,
    #[serde(default)]
    generation: u64,
    #[serde(default)]
    records: u64,
    /// Where it goes on now.
    from: String,
    /// Where it goes on then.
    to: String,
}

fn moved(command: &'static str, arguments: &Lanes, to: &Position, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(command, &arguments.settings.0)?;
    let moves = match Remote::find(command, &settings)? {
        Some(remote) => by_service(command, &remote, arguments, to)?,
        None => in_store(command, &settings, arguments, to)?,
    };
    let verb = if arguments.yes { "goes on" } else { "would go on" };
    let mut lines = String::new();
    for Moved { connector, partition, generation, records, from, to } in &moves {
        let partition = if partition.is_empty() { String::new() } else { format!(" (partition {partition})") };
        let counted = counted(*records as usize, "record");
        lines.push_str(&format!(
            "{connector}{partition} {verb} after {to} instead of {from} ({counted} of generation {generation})\n"
        ));
    }
    let mut report = Report::new(command).text(lines).summary(json!({ "moved": moves.len(), "done": arguments.yes }));
    if !arguments.yes {
        report = report.notes("Nothing was changed. Add --yes to do it; what is read again is delivered again.\n");
    }
    let result: Vec<_> = moves
        .iter()
        .map(|lane| json!({ "connector": lane.connector, "partition": lane.partition, "from": lane.from, "to": lane.to }))
        .collect();
    Ok(report.result(json!({ "pipeline": arguments.pipeline, "positions": result })))
}

/// Has a running service move them.
fn by_service(
    command: &'static str,
    remote: &Remote,
    arguments: &Lanes,
    to: &Position,
) -> Result<Vec<Moved>, Box<Report>> {
    #[derive(Deserialize)]
    struct Answer {
        positions: Vec<Moved>,
    }
    let mut asked = json!({ "yes": arguments.yes });
    let given = [("connector", &arguments.connector), ("partition", &arguments.partition)];
    for (name, text) in given.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?))) {
        asked[name] = text.as_str().into();
    }
    let verb = command.rsplit('.').next().unwrap_or_default();
    if !to.0.is_empty() {
        asked["to"] = shown(to).into();
    }
    let path = format!("/v1/pipelines/{}/positions/{verb}", escaped(&arguments.pipeline));
    let answer: Answer = remote.post(&path, &asked)?;
    Ok(answer.positions)
}

/// Moves them in the store, which no service holds.
fn in_store(
    command: &'static str,
    settings: &Settings,
    arguments: &Lanes,
    to: &Position,
) -> Result<Vec<Moved>, Box<Report>> {
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
    let moved = moves.iter().map(|(lane, mark)| Moved {
        connector: lane.connector.to_string(),
        partition: lane.partition.0.to_string(),
        generation: mark.generation,
        records: mark.seq,
        from: shown(&mark.position),
        to: shown(to),
    });
    Ok(moved.collect())
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
