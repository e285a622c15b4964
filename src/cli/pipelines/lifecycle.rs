//! `anabranch pipelines start`, `stop` and `delete`: what a running service is told to do with a pipeline.

use std::time::{Duration, Instant};

use anabranch_graph::arguments::parse_duration;
use chrono::Utc;
use serde_json::{Value, json};

use crate::cli::answers::{PipelineAnswer, StatusAnswer};
use crate::cli::remote::Remote;
use crate::cli::{Context, Exit, Report};
use crate::client::escaped;
use crate::settings::ServiceFlags;

/// Start a pipeline that does not run.
///
/// Tells the running service to start it. It goes on where it was.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Start {
    #[command(flatten)]
    which: Which,
}

/// Stop a pipeline.
///
/// Tells the running service to stop it: its sources are read no further, and what was read is delivered. It stays
/// stopped until it is started, or until the service is.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Stop {
    /// Drop what is on its way instead of delivering it; it is read again at the next start.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    which: Which,
}

/// Which pipeline, and whether to wait.
#[derive(Debug, clap::Args)]
struct Which {
    /// Id of the pipeline.
    id: String,
    /// Wait until it runs or stands.
    #[arg(long)]
    wait: bool,
    /// How long to wait at most.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration, requires = "wait")]
    timeout: Duration,
    #[command(flatten)]
    settings: ServiceFlags,
}

/// Delete a pipeline, with its positions and dead letters.
///
/// Only what does not run can be deleted, and only what no file declares any more: a pipeline of a file comes back with
/// the next start of the service. Without --yes it is asked for.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Delete {
    /// Id of the pipeline.
    id: String,
    /// Do it without asking.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    settings: ServiceFlags,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a duration is meant, as 30s or 5m".to_owned())
}

/// How often a pipeline is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn start(arguments: &Start, context: &Context) -> Report {
    told("pipelines.start", "start", &arguments.which, &json!({}), context).unwrap_or_else(|report| *report)
}

pub(super) fn stop(arguments: &Stop, context: &Context) -> Report {
    let body = json!({ "force": arguments.force });
    told("pipelines.stop", "stop", &arguments.which, &body, context).unwrap_or_else(|report| *report)
}

fn told(
    command: &'static str,
    verb: &str,
    which: &Which,
    body: &Value,
    context: &Context,
) -> Result<Report, Box<Report>> {
    let settings = context.settings(command, &which.settings.0)?;
    let remote = Remote::of(command, &settings)?;
    let path = format!("/v1/pipelines/{}", escaped(&which.id));
    let _: Value = remote.post(&format!("{path}/{verb}"), body)?;
    let starts = verb == "start";
    let until = |status: &StatusAnswer| match starts {
        true => !["starting", "stopped"].contains(&status.word.as_str()),
        false => !status.is_live(),
    };
    let begun = Instant::now();
    let mut status = remote.get::<PipelineAnswer>(&path)?.status;
    while which.wait && !until(&status) {
        if begun.elapsed() > which.timeout {
            let message = format!("pipeline {} is still {} after {:?}", which.id, status.word, which.timeout);
            let report = Report::new(command).fail(Exit::Environment, "pipeline.timeout", message);
            return Err(Box::new(if starts { report } else { report.suggest("--force drops what is on its way") }));
        }
        std::thread::sleep(LOOK);
        status = remote.get::<PipelineAnswer>(&path)?.status;
    }
    let detail = status.detail(Utc::now());
    let text = match (starts, status.word.as_str()) {
        (_, "degraded" | "recovering" | "invalid") => format!("{} is {}: {detail}", which.id, status.word),
        (true, _) if which.wait => format!("{} is {}", which.id, status.word),
        (true, _) => format!("{} starts", which.id),
        (false, _) if status.is_live() => format!("{} stops once what it has read is delivered", which.id),
        (false, _) => format!("{} is {}", which.id, status.word),
    };
    let failed = starts && ["degraded", "invalid"].contains(&status.word.as_str());
    let failed = failed || (!starts && which.wait && status.word == "degraded");
    Ok(Report::new(command)
        .text(format!("{text}.\n"))
        .result(json!({ "id": which.id, "state": status.word, "error": status.error }))
        .found(if failed { Exit::Failed } else { Exit::Ok }))
}

pub(super) fn delete(arguments: &Delete, context: &Context) -> Report {
    deleted(arguments, context).unwrap_or_else(|report| *report)
}

fn deleted(arguments: &Delete, context: &Context) -> Result<Report, Box<Report>> {
    const COMMAND: &str = "pipelines.delete";
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    let remote = Remote::of(COMMAND, &settings)?;
    let path = format!("/v1/pipelines/{}", escaped(&arguments.id));
    let pipeline: PipelineAnswer = remote.get(&path)?;
    let id = &pipeline.id;
    if !arguments.yes {
        // Nobody is asked for what will be refused.
        if pipeline.status.is_live() {
            let report = Report::new(COMMAND).fail(Exit::Invalid, "pipeline.running", format!("pipeline {id} runs"));
            return Err(Box::new(report.suggest(format!("stop it first: `anabranch pipelines stop {id}`"))));
        }
        let question = format!("Delete pipeline {id} with its positions and dead letters? It cannot be undone.");
        match context.confirm(&question) {
            Some(true) => {}
            Some(false) => {
                return Ok(Report::new(COMMAND).text("Nothing was deleted.\n").result(json!({ "deleted": false })));
            }
            None => {
                let message = format!("pipeline {id} would be deleted with its positions and dead letters");
                let report = Report::new(COMMAND).fail(Exit::Invalid, "cli.not_confirmed", message);
                return Err(Box::new(report.suggest("--yes does it")));
            }
        }
    }
    let _: Value = remote.delete(&format!("{path}?parts=true&positions=true"))?;
    Ok(Report::new(COMMAND).text(format!("Deleted {id}.\n")).result(json!({ "id": id, "deleted": true })))
}
