//! `anabranch positions copy|export|import`: transfers positions between pipelines, sources and stores.

use std::path::PathBuf;

use anabranch_plugin::registry::Role;
use anabranch_process::files::{output, read_text, system};
use anabranch_record::code::Code;
use anabranch_record::mark::{LaneId, Partition};
use anabranch_record::text::Str;
use anabranch_service::pipelines::Pipeline;
use anabranch_service::positions::{Moved, brief, check, parse_shown, resume_from};
use anabranch_settings::{Database, ServiceFlags, Settings};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{LanePosition, OpenStore, declared, named, of_service, unreadable};
use crate::cli::completions;
use crate::cli::remote::Remote;
use crate::cli::report::counted;
use crate::cli::{Context, Exit, Report};
use crate::client::escaped;
use crate::codes;

/// The version of the exported document.
const VERSION: u64 = 1;
/// The document that `export` writes.
const EXPORT: output::OutputKind = output::OutputKind {
    what: "an export of positions",
    is_ours: |text| serde_json::from_str::<Document>(text).is_ok_and(|document| document.version == VERSION),
};
/// Size limit of documents that are read, in bytes: enough for some hundred thousand partitions.
const LARGEST: u64 = 64 << 20;

/// Resume a renamed pipeline or source from the positions of the old one.
///
/// Positions are stored under the ids of pipeline and source. Under a new id, a source starts at its beginning and
/// everything is delivered again. This command copies the positions of the old id to the new one. Without --yes, it
/// only prints what it would do. A running service drains the pipeline, sets the positions and resumes it; without a
/// service, the command changes the store.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Copy {
    /// The old id: PIPELINE, or PIPELINE:SOURCE
    #[arg(value_name = "FROM", add = completions::pipelines())]
    from: String,
    /// The new id: PIPELINE, or PIPELINE:SOURCE
    #[arg(value_name = "TO")]
    to: String,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    settings: ServiceFlags,
}

/// Export the positions of sources as JSON.
///
/// `positions import` takes the document on another host or with another store. Asks the running service; without one
/// it reads the store. A file that exists is replaced only if it holds such a document.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Export {
    /// Id of a pipeline. Default: all
    #[arg(add = completions::pipelines())]
    pipeline: Option<String>,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    to: Option<PathBuf>,
    #[command(flatten)]
    settings: ServiceFlags,
}

/// Import source positions that `positions export` wrote.
///
/// The pipelines and their sources must exist, in the store or in the pipeline files. Without --yes, the command only
/// prints what it would do. A running service drains each pipeline, sets its positions and resumes it; without a
/// service, the command changes the store. Stop the pipeline on the old host before the export; otherwise records that
/// it delivers after the export are delivered twice.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Import {
    /// The document; `-` reads standard input
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Only this pipeline
    #[arg(long, add = completions::pipelines())]
    pipeline: Option<String>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    settings: ServiceFlags,
}

/// The document that `export` writes.
#[derive(Deserialize)]
struct Document {
    version: u64,
    positions: Vec<LanePosition>,
}

// Flags that allow changes.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Consent {
    /// Allow a pipeline or source that does not exist yet, for example before a renaming
    #[arg(long)]
    new: bool,
    /// Change the positions
    #[arg(long)]
    yes: bool,
    /// Change them even if the store says that the pipeline runs, which is also the case after a crash
    #[arg(long)]
    force: bool,
}

pub(super) fn copy(arguments: &Copy, context: &Context) -> Report {
    copied(arguments, context).unwrap_or_else(|report| *report)
}

pub(super) fn export(arguments: &Export, context: &Context) -> Report {
    exported(arguments, context).unwrap_or_else(|report| *report)
}

pub(super) fn import(arguments: &Import, context: &Context) -> Report {
    imported(arguments, context).unwrap_or_else(|report| *report)
}

fn copied(arguments: &Copy, context: &Context) -> Result<Report, Box<Report>> {
    const COMMAND: &str = "positions.copy";
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let (from, to) = (parts(&arguments.from), parts(&arguments.to));
    if from.1.is_some() != to.1.is_some() || from == to {
        let message = format!("{} cannot be copied to {}", arguments.from, arguments.to);
        let report = Report::new(COMMAND).fail(Exit::Invalid, codes::POSITIONS_AMBIGUOUS, message);
        return Err(Box::new(
            report.suggest("give two pipelines (OLD NEW) or two sources (PIPELINE:OLD PIPELINE:NEW)"),
        ));
    }
    let remote = Remote::find(COMMAND, &settings)?;
    let mut lanes = match &remote {
        Some(remote) => with_set_aside(remote, from.0)?,
        None => stored(COMMAND, &settings, from.0, arguments.consent.force)?,
    };
    lanes.retain(|lane| from.1.is_none_or(|connector| lane.connector == connector));
    if lanes.is_empty() {
        let message = format!("no position is stored for {}", arguments.from);
        let report = Report::new(COMMAND).fail(Exit::Invalid, codes::POSITIONS_NONE, message);
        return Err(Box::new(report.suggest("`anabranch positions show` lists the stored positions")));
    }
    for lane in &mut lanes {
        to.0.clone_into(&mut lane.pipeline);
        if let Some(connector) = to.1 {
            connector.clone_into(&mut lane.connector);
        }
    }
    let consent = arguments.consent;
    let moves = put(COMMAND, &settings, remote.as_ref(), to.0, &lanes, consent)?;
    Ok(told(Report::new(COMMAND), &[(to.0.to_owned(), moves)], consent))
}

/// Splits an id into the pipeline and, after the first colon, the connector.
fn parts(id: &str) -> (&str, Option<&str>) {
    id.split_once(':').map_or((id, None), |(pipeline, connector)| (pipeline, Some(connector)))
}

fn exported(arguments: &Export, context: &Context) -> Result<Report, Box<Report>> {
    const COMMAND: &str = "positions.export";
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let asked = arguments.pipeline.as_deref();
    let lanes = match Remote::find(COMMAND, &settings)? {
        Some(remote) => of_service(&remote, asked)?,
        None => super::show::of_store(COMMAND, &settings, asked)?,
    };
    let document =
        json!({ "version": VERSION, "positions": lanes.iter().map(LanePosition::shown).collect::<Vec<_>>() });
    let report = Report::new(COMMAND).summary(json!({ "positions": lanes.len() })).result(document.clone());
    let text = format!("{document:#}\n");
    let to = arguments.to.as_ref().filter(|path| !output::is_standard_output(path));
    let Some(path) = to else { return Ok(report.text(text)) };
    let unwritable = |error| Box::new(Report::new(COMMAND).unwritable(codes::CLI_SYSTEM, &error));
    output::write(path, EXPORT, &text).map_err(unwritable)?;
    Ok(report.text(format!("Wrote {} to {}.\n", counted(lanes.len(), "position"), path.display())))
}

fn imported(arguments: &Import, context: &Context) -> Result<Report, Box<Report>> {
    const COMMAND: &str = "positions.import";
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let invalid = |code: Code, message: String| Box::new(Report::new(COMMAND).fail(Exit::Invalid, code, message));
    let name = arguments.file.display();
    let text = match arguments.file.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()).map_err(|error| system(&error)),
        _ => read_text(&arguments.file, LARGEST).map_err(|error| error.to_string()),
    };
    let text = text.map_err(|error| invalid(codes::CONFIG_UNREADABLE, format!("cannot read {name}: {error}")))?;
    let document: Document = serde_json::from_str::<Value>(&text)
        // The output of `export --json` contains the document as its result.
        .and_then(|mut value| {
            let document = if value.get("command").is_some() { value["result"].take() } else { value };
            serde_json::from_value(document)
        })
        .map_err(|error| {
            let report =
                invalid(codes::POSITIONS_MALFORMED, format!("{name} does not contain exported positions: {error}"));
            Box::new(report.suggest("`anabranch positions export --to FILE` writes such a file"))
        })?;
    if document.version != VERSION {
        let message =
            format!("{name} is a document of version {}, but this program reads version {VERSION}", document.version);
        return Err(invalid(codes::POSITIONS_MALFORMED, message));
    }
    let mut lanes = document.positions;
    lanes.retain(|lane| arguments.pipeline.as_ref().is_none_or(|id| lane.pipeline == *id));
    lanes.sort_by(|a, b| of_lane(a).cmp(&of_lane(b)));
    lanes.dedup_by(|a, b| of_lane(a) == of_lane(b) && a.position == b.position);
    if let Some(two) = lanes.windows(2).find(|two| of_lane(&two[0]) == of_lane(&two[1])) {
        let LanePosition { pipeline, connector, partition, .. } = &two[0];
        let partition = if partition.is_empty() { String::new() } else { format!(" (partition {partition})") };
        let message = format!("{name} contains two positions of {pipeline}:{connector}{partition}");
        return Err(Box::new(
            invalid(codes::POSITIONS_MALFORMED, message).suggest("remove one of them from the document"),
        ));
    }
    if lanes.is_empty() {
        return Err(invalid(codes::POSITIONS_NONE, format!("{name} contains no position to import")));
    }
    let remote = Remote::find(COMMAND, &settings)?;
    let consent = arguments.consent;
    let pipelines: Vec<&[LanePosition]> = lanes.chunk_by(|a, b| a.pipeline == b.pipeline).collect();
    let all = |consent: Consent| {
        let one = |lanes: &&[LanePosition]| {
            let id = &lanes[0].pipeline;
            Ok((id.clone(), put(COMMAND, &settings, remote.as_ref(), id, lanes, consent)?))
        };
        pipelines.iter().map(one).collect::<Result<Vec<_>, Box<Report>>>()
    };
    // All pipelines are checked before the first one is changed.
    let mut moves = all(Consent { yes: false, ..consent })?;
    if consent.yes {
        moves = all(consent)?;
    }
    Ok(told(Report::new(COMMAND), &moves, consent))
}

/// The pipeline and source of a position.
fn of_lane(lane: &LanePosition) -> (&str, &str, &str) {
    (&lane.pipeline, &lane.connector, &lane.partition)
}

fn told(report: Report, moves: &[(String, Vec<Moved>)], consent: Consent) -> Report {
    let verb = if consent.yes { "resumes" } else { "would resume" };
    let mut text = String::new();
    let mut result = Vec::new();
    for (pipeline, moves) in moves {
        for moved in moves {
            let Moved { connector, partition, from, to, .. } = moved;
            let of = if partition.is_empty() { String::new() } else { format!(" (partition {partition})") };
            let (before, after, remark) = (brief(from), brief(to), moved.remark());
            text.push_str(&format!("{pipeline}:{connector}{of} {verb} after {after} instead of {before}{remark}\n"));
            result.push(json!({
                "pipeline": pipeline, "connector": connector, "partition": partition, "from": from, "to": to,
                "checked": moved.checked,
            }));
        }
    }
    let moved = if consent.yes { result.len() } else { 0 };
    let summary = json!({ "moved": moved, "wouldMove": result.len() - moved, "done": consent.yes });
    let report = report.text(text).summary(summary);
    let report = report.result(json!({ "positions": result }));
    match consent.yes {
        true => report,
        false => report.notes("Nothing was changed. Add --yes to change the positions.\n").found(Exit::Drift),
    }
}

/// Returns the positions of a pipeline from a running service, including those of sources that it does not have any
/// more.
fn with_set_aside(remote: &Remote, pipeline: &str) -> Result<Vec<LanePosition>, Box<Report>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Lanes {
        positions: Vec<LanePosition>,
        #[serde(default)]
        set_aside: Vec<LanePosition>,
    }
    let found: Lanes = remote.get(&format!("/v1/pipelines/{}/positions", escaped(pipeline)))?;
    Ok(together(found.positions, found.set_aside))
}

/// Returns the same positions from the store. If the pipeline did not end, its destinations may have received records
/// after these positions, so `force` is required.
fn stored(
    command: &'static str,
    settings: &Settings,
    pipeline: &str,
    force: bool,
) -> Result<Vec<LanePosition>, Box<Report>> {
    let opened = OpenStore::open(command, &settings.database)?;
    let failed = |error| Box::new(unreadable(command, &error));
    let pipelines = opened.pipelines().map_err(failed)?;
    let known = named(command, &pipelines, pipeline)?;
    let id = &known.id;
    if known.status.is_live() && !force {
        let message = format!(
            "according to the store, pipeline {id} is {}: its service did not end cleanly, and destinations may \
             contain records after the stored position",
            known.status.word()
        );
        let report = Report::new(command).fail(Exit::Environment, codes::PIPELINE_RUNNING, message);
        return Err(Box::new(report.suggest(
            "start the service with the old id, stop it, then copy the position; with --force, records that were \
             delivered after the position are delivered again",
        )));
    }
    let lanes = |marks: std::collections::BTreeMap<LaneId, _>| {
        marks.iter().map(|(lane, mark)| LanePosition::new(id, lane, mark)).collect::<Vec<_>>()
    };
    let set_aside = opened.runtime.block_on(opened.store.detached_marks(id)).map_err(failed)?;
    Ok(together(lanes(opened.positions(id).map_err(failed)?), lanes(set_aside)))
}

/// Combines the positions in use with the set-aside positions of sources that have no other.
fn together(mut used: Vec<LanePosition>, set_aside: Vec<LanePosition>) -> Vec<LanePosition> {
    let known: Vec<String> = used.iter().map(|lane| lane.connector.clone()).collect();
    used.extend(set_aside.into_iter().filter(|lane| !known.contains(&lane.connector)));
    used
}

/// Sets the positions of sources of one pipeline.
fn put(
    command: &'static str,
    settings: &Settings,
    remote: Option<&Remote>,
    pipeline: &str,
    lanes: &[LanePosition],
    consent: Consent,
) -> Result<Vec<Moved>, Box<Report>> {
    match remote {
        Some(remote) => {
            #[derive(Deserialize)]
            struct Answer {
                positions: Vec<Moved>,
            }
            let path = format!("/v1/pipelines/{}/positions/import", escaped(pipeline));
            let lanes: Vec<Value> = lanes.iter().map(LanePosition::shown).collect();
            let answer: Answer =
                remote.post(&path, &json!({ "positions": lanes, "new": consent.new, "yes": consent.yes }))?;
            Ok(answer.positions)
        }
        None => put_in_store(command, settings, pipeline, lanes, consent),
    }
}

fn put_in_store(
    command: &'static str,
    settings: &Settings,
    pipeline: &str,
    lanes: &[LanePosition],
    consent: Consent,
) -> Result<Vec<Moved>, Box<Report>> {
    let opened = OpenStore::open_to_change(command, &settings.database)?;
    let pipelines = opened.pipelines().map_err(|error| Box::new(unreadable(command, &error)))?;
    let known = pipelines.iter().find(|known| *known.id == *pipeline);
    // A running service locks the file of its store, but not a database.
    if let Some(known) = known
        && known.status.is_live()
        && !consent.force
        && !matches!(settings.database, Database::Embedded(_))
    {
        let message = format!("pipeline {pipeline} is {}", known.status.word());
        let report = Report::new(command).fail(Exit::Environment, codes::PIPELINE_RUNNING, message);
        return Err(Box::new(report.suggest("stop the service first; if the service crashed, add --force")));
    }
    // After a renaming, the store does not have the new ids yet.
    let plan = declared(settings, pipeline, known);
    let sources = match (consent.new, known) {
        (true, _) => None,
        (false, known) => Some(match &plan {
            Some(plan) => sources_of(plan),
            None => known.map_or_else(|| named(command, &pipelines, pipeline), Ok)?.sources(),
        }),
    };
    let mut given = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let position = parse_shown(&lane.position).map_err(|error| {
            let message = format!("position of {}:{}: {error}", lane.pipeline, lane.connector);
            Box::new(Report::new(command).fail(Exit::Invalid, codes::POSITIONS_MALFORMED, message))
        })?;
        given.push((id_of(lane), position, lane.generation));
    }
    let id = &Str::from(pipeline);
    let resume = |really| {
        let resuming = resume_from(&opened.store, id, sources.as_deref(), &given, really);
        opened.runtime.block_on(resuming).map_err(|error| Box::new(super::moving::unmoved(command, &error)))
    };
    let mut moves = resume(false)?;
    let unasked = check(plan.as_ref(), id, given.iter().map(|(lane, position, _)| (lane, position)))
        .map_err(|error| Box::new(super::moving::unmoved(command, &error)))?;
    if consent.yes {
        moves = resume(true)?;
    }
    Ok(Moved::checked(moves, &unasked))
}

fn id_of(lane: &LanePosition) -> LaneId {
    LaneId { connector: lane.connector.as_str().into(), partition: Partition(lane.partition.as_str().into()) }
}

fn sources_of(pipeline: &Pipeline) -> Vec<Str> {
    let sources = pipeline.config.connectors.iter().filter(|connector| connector.role.value == Role::Source);
    sources.map(|source| source.id.value.clone()).collect()
}
