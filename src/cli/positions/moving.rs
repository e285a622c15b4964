//! `anabranch positions reset|rewind`.

use anabranch_record::Position;
use anabranch_record::code::Code;
use anabranch_service::positions::{MoveError, Moved, PositionFilter, brief, check, go_on_after, parse, shown};
use anabranch_settings::{ServiceFlags, Settings};

use serde::Deserialize;
use serde_json::json;

use super::{OpenStore, declared, named, unreadable};
use crate::cli::completions;
use crate::cli::remote::Remote;
use crate::cli::report::counted;
use crate::cli::{Context, Exit, Report};
use crate::client::escaped;
use crate::codes;

/// Reset sources of a pipeline to their beginning.
///
/// The sources read everything again, and the pipeline delivers it again. Without --yes, the command only prints what
/// it would do, with exit code 4. A running service drains the pipeline, resets the positions and resumes it. If no
/// service answers, and neither a flag nor a variable gives an address, the command changes the store.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Reset {
    #[command(flatten)]
    lanes: Lanes,
}

/// Rewind a source of a pipeline to a position.
///
/// The position has the form that the source uses, as in `positions show` and in the `position` of records. A position
/// that the source cannot parse is refused; a standalone connector checks it at the next start. Without --yes, the
/// command only prints what it would do, with exit code 4. A running service drains the pipeline, sets the position and
/// resumes it. If no service answers, and neither a flag nor a variable gives an address, the command changes the
/// store.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Rewind {
    /// The position to resume after: its text, or `base64:` and its bytes
    #[arg(long, value_parser = position)]
    to: Position,
    #[command(flatten)]
    lanes: Lanes,
}

#[derive(Debug, clap::Args)]
struct Lanes {
    /// Id of the pipeline
    #[arg(add = completions::pipelines())]
    pipeline: String,
    /// Only this source
    #[arg(long)]
    connector: Option<String>,
    /// Only this partition of the source
    #[arg(long, requires = "connector")]
    partition: Option<String>,
    /// Change the positions
    #[arg(long)]
    yes: bool,
    /// Change them even if the store says that the pipeline runs, which is also the case after a crash
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    settings: ServiceFlags,
}

fn position(text: &str) -> Result<Position, String> {
    if text.is_empty() {
        Err("the position is empty: to move to the beginning, use `anabranch positions reset`".to_owned())
    } else {
        parse(text)
    }
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
    let settings = context.settings(command, &arguments.settings.0)?;
    let moves = match Remote::find(command, &settings)? {
        Some(remote) => by_service(command, &remote, arguments, to)?,
        None => in_store(command, &settings, arguments, to)?,
    };
    let verb = if arguments.yes { "resumes" } else { "would resume" };
    let mut lines = String::new();
    for moved in &moves {
        let Moved { connector, partition, generation, records, from, to, .. } = moved;
        let (from, to, remark) = (brief(from), brief(to), moved.remark());
        let partition = if partition.is_empty() { String::new() } else { format!(" (partition {partition})") };
        let counted = counted(*records as usize, "record");
        lines.push_str(&format!(
            "{connector}{partition} {verb} after {to} instead of {from} ({counted} of generation {generation}){remark}\n"
        ));
    }
    let moved = if arguments.yes { moves.len() } else { 0 };
    let summary = json!({ "moved": moved, "wouldMove": moves.len() - moved, "done": arguments.yes });
    let mut report = Report::new(command).text(lines).summary(summary);
    if !arguments.yes {
        let advice = "Nothing was changed. Add --yes to change the positions; records that are read again are \
                      delivered again.\n";
        report = report.notes(advice).found(Exit::Drift);
    }
    let result: Vec<_> = moves
        .iter()
        .map(|lane| json!({ "connector": lane.connector, "partition": lane.partition, "from": lane.from, "to": lane.to }))
        .collect();
    Ok(report.result(json!({ "pipeline": arguments.pipeline, "positions": result })))
}

/// Moves the positions through a running service.
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

/// Moves the positions in the store, which no service holds.
fn in_store(
    command: &'static str,
    settings: &Settings,
    arguments: &Lanes,
    to: &Position,
) -> Result<Vec<Moved>, Box<Report>> {
    let opened = OpenStore::open_to_change(command, &settings.database)?;
    let failed = |error| Box::new(unreadable(command, &error));
    let pipelines = opened.pipelines().map_err(failed)?;
    let pipeline = named(command, &pipelines, &arguments.pipeline)?;
    let live = pipeline.status.is_live();
    // A running service locks the file of its store, but not a database.
    if live && !arguments.force && !matches!(settings.database, anabranch_settings::Database::Embedded(_)) {
        let message = format!("pipeline {} is {}", pipeline.id, pipeline.status.word());
        let report = Report::new(command).fail(Exit::Environment, codes::PIPELINE_RUNNING, message);
        return Err(Box::new(report.suggest("stop the service first; if the service crashed, add --force")));
    }
    let chosen = PositionFilter { connector: arguments.connector.clone(), partition: arguments.partition.clone() };
    let go_on = |really| {
        let moving = go_on_after(&opened.store, &pipeline.id, &chosen, to, really);
        opened.runtime.block_on(moving).map_err(|error| Box::new(unmoved(command, &error)))
    };
    let mut moves = go_on(false)?;
    // The beginning is a valid position of every source.
    let plan = if to.0.is_empty() { None } else { declared(settings, &pipeline.id, Some(pipeline)) };
    let unasked = check(plan.as_ref(), &pipeline.id, moves.keys().map(|lane| (lane, to)))
        .map_err(|error| Box::new(unmoved(command, &error)))?;
    if arguments.yes {
        moves = go_on(true)?;
    }
    Ok(Moved::checked(Moved::all(&moves, to), &unasked))
}

pub(super) fn unmoved(command: &'static str, error: &MoveError) -> Report {
    let report = |exit, code: Code| Report::new(command).fail(exit, code, error.to_string());
    match error {
        MoveError::None { known, .. } if known.is_empty() => report(Exit::Invalid, codes::POSITIONS_NONE)
            .suggest("no position is stored: the sources of the pipeline start from their beginning anyway"),
        MoveError::None { known, .. } => report(Exit::Invalid, codes::POSITIONS_NONE)
            .suggest(format!("positions are stored for {}", known.join(", "))),
        MoveError::Ambiguous(_) => {
            report(Exit::Invalid, codes::POSITIONS_AMBIGUOUS).suggest("choose one with --connector and --partition")
        }
        MoveError::NoSource { known, .. } => report(Exit::Invalid, codes::POSITIONS_NO_SOURCE).suggest(format!(
            "the sources of the pipeline are {}; to set the position of a new source, add --new",
            known.join(", ")
        )),
        MoveError::NoPartition { .. } => report(Exit::Invalid, codes::POSITIONS_NO_PARTITION)
            .suggest("remove this position from the document: it belongs to another source"),
        MoveError::Refused { .. } => report(Exit::Invalid, codes::POSITIONS_REFUSED),
        MoveError::Store(error) => unreadable(command, error),
    }
}
