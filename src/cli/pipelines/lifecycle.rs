//! `anabranch pipelines start`, `stop` and `delete`: control pipelines of a running service.

use std::time::{Duration, Instant};

use anabranch_plugin::arguments::parse_duration;
use anabranch_settings::ServiceFlags;
use chrono::Utc;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::answers::{PipelineAnswer, StatusAnswer};
use crate::cli::completions;
use crate::cli::remote::Remote;
use crate::cli::{Context, Exit, Report};
use crate::client::escaped;
use crate::codes;

/// Start pipelines that do not run.
///
/// The running service starts them. Their sources resume from their stored positions.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Start {
    /// Ids of the pipelines.
    #[arg(value_name = "ID", required_unless_present = "degraded", add = completions::pipelines())]
    ids: Vec<String>,
    /// Start all degraded pipelines, for example after their common cause is repaired.
    #[arg(long, conflicts_with = "ids")]
    degraded: bool,
    #[command(flatten)]
    flags: WaitFlags,
}

/// Stop pipelines.
///
/// The running service stops them: their sources stop reading, and records that were read are delivered. They stay
/// stopped until they are started or the service restarts.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Stop {
    /// Ids of the pipelines.
    #[arg(value_name = "ID", required = true, add = completions::pipelines())]
    ids: Vec<String>,
    /// Drop records in flight instead of delivering them. They are read again at the next start.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    flags: WaitFlags,
}

/// Options for waiting.
#[derive(Debug, clap::Args)]
struct WaitFlags {
    /// Wait until each pipeline runs or has stopped.
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
/// Only a stopped pipeline that no file declares can be deleted: a pipeline of a file would come back at the next start
/// of the service. Asks for confirmation unless --yes is given.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Delete {
    /// Id of the pipeline.
    #[arg(add = completions::pipelines())]
    id: String,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    settings: ServiceFlags,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "it is not a duration (for example 30s or 5m)".to_owned())
}

/// Polling interval while waiting.
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn start(arguments: &Start, context: &Context) -> Report {
    requested(
        "pipelines.start",
        &LifecycleRequest::Start { degraded: arguments.degraded },
        &arguments.ids,
        &arguments.flags,
        context,
    )
    .unwrap_or_else(|report| *report)
}

pub(super) fn stop(arguments: &Stop, context: &Context) -> Report {
    requested(
        "pipelines.stop",
        &LifecycleRequest::Stop { force: arguments.force },
        &arguments.ids,
        &arguments.flags,
        context,
    )
    .unwrap_or_else(|report| *report)
}

/// Requests to the service.
enum LifecycleRequest {
    /// `degraded`: start all degraded pipelines.
    Start {
        degraded: bool,
    },
    Stop {
        force: bool,
    },
}

/// The result for one pipeline.
struct LifecycleResult {
    id: String,
    status: StatusAnswer,
    text: String,
    failed: bool,
}

fn requested(
    command: &'static str,
    request: &LifecycleRequest,
    ids: &[String],
    flags: &WaitFlags,
    context: &Context,
) -> Result<Report, Box<Report>> {
    let settings = context.settings(command, &flags.settings.0)?;
    let remote = Remote::of(command, &settings)?;
    let ids = match request {
        LifecycleRequest::Start { degraded: true } => {
            let all: Vec<PipelineAnswer> = remote.get("/v1/pipelines")?;
            all.into_iter().filter(|pipeline| pipeline.status.word == "degraded").map(|pipeline| pipeline.id).collect()
        }
        LifecycleRequest::Start { degraded: false } | LifecycleRequest::Stop { .. } => ids.to_vec(),
    };
    if ids.is_empty() {
        return Ok(Report::new(command).text("No pipeline is degraded.\n").result(json!({ "pipelines": [] })));
    }
    let (mut all, mut refused) = (Vec::new(), Vec::new());
    // All requests are sent before the first wait, and a refused request does not stop the others.
    for id in &ids {
        match send(&remote, request, id) {
            Ok(()) => all.push(id),
            Err(report) => refused.push((id, report)),
        }
    }
    let mut seen = Vec::with_capacity(all.len());
    for id in all {
        match attended(command, &remote, request, id, flags) {
            Ok(result) => seen.push(result),
            Err(report) => refused.push((id, report)),
        }
    }
    let text: String = seen.iter().map(|result| format!("{}.\n", result.text)).collect();
    let shown = |one: &LifecycleResult| json!({ "id": one.id, "state": one.status.word, "error": one.status.error });
    let result = match (&ids[..], &seen[..]) {
        ([_], [one]) => shown(one),
        _ => json!({ "pipelines": seen.iter().map(shown).collect::<Vec<_>>() }),
    };
    let failed = seen.iter().any(|result| result.failed);
    if let Some((id, report)) = refused.pop() {
        if ids.len() == 1 {
            return Err(report);
        }
        let others: String = refused.iter().map(|(id, _)| format!("{id}, ")).collect();
        let notes = format!("Failed: {others}{id}\n");
        return Err(Box::new(report.text(text).notes(notes).result(result)));
    }
    Ok(Report::new(command).text(text).result(result).found(if failed { Exit::Failed } else { Exit::Ok }))
}

fn send(remote: &Remote, request: &LifecycleRequest, id: &str) -> Result<(), Box<Report>> {
    let (verb, body) = match request {
        LifecycleRequest::Start { .. } => ("start", json!({})),
        LifecycleRequest::Stop { force } => ("stop", json!({ "force": force })),
    };
    let _: Value = remote.post(&format!("/v1/pipelines/{}/{verb}", escaped(id)), &body)?;
    Ok(())
}

/// Returns the status of a pipeline, at once or after waiting for the request to be carried out.
fn attended(
    command: &'static str,
    remote: &Remote,
    request: &LifecycleRequest,
    id: &str,
    flags: &WaitFlags,
) -> Result<LifecycleResult, Box<Report>> {
    let path = format!("/v1/pipelines/{}", escaped(id));
    let starts = matches!(request, LifecycleRequest::Start { .. });
    let until = |status: &StatusAnswer| match starts {
        true => !["starting", "stopped"].contains(&status.word.as_str()),
        false => !status.is_live(),
    };
    let begun = Instant::now();
    let mut status = remote.get::<PipelineAnswer>(&path)?.status;
    while flags.wait && !until(&status) {
        if begun.elapsed() > flags.timeout {
            let message = format!("pipeline {id} is still {} after {:?}", status.word, flags.timeout);
            let report = Report::new(command).fail(Exit::Environment, codes::PIPELINE_TIMEOUT, message);
            return Err(Box::new(if starts {
                report
            } else {
                report.suggest("add --force to drop the records in flight")
            }));
        }
        std::thread::sleep(LOOK);
        status = remote.get::<PipelineAnswer>(&path)?.status;
    }
    let detail = status.detail(Utc::now());
    let text = match (starts, status.word.as_str()) {
        (_, "degraded" | "recovering" | "invalid") => format!("{id} is {}: {detail}", status.word),
        (true, _) if flags.wait => format!("{id} is {}", status.word),
        (true, _) => format!("{id} is starting"),
        (false, _) if status.is_live() => format!("{id} stops when all records that it has read are delivered"),
        (false, _) => format!("{id} is {}", status.word),
    };
    let failed = starts && ["degraded", "invalid"].contains(&status.word.as_str());
    let failed = failed || (!starts && flags.wait && status.word == "degraded");
    Ok(LifecycleResult { id: id.to_owned(), status, text, failed })
}

/// The service's answer for a deleted pipeline.
#[derive(Deserialize)]
struct DeletedAnswer {
    /// Problems that did not prevent the deletion.
    #[serde(default)]
    warnings: Vec<String>,
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
        // No confirmation for a request that the service will refuse.
        if pipeline.status.is_live() {
            let report =
                Report::new(COMMAND).fail(Exit::Invalid, codes::PIPELINE_RUNNING, format!("pipeline {id} runs"));
            return Err(Box::new(report.suggest(format!("stop the pipeline first: `anabranch pipelines stop {id}`"))));
        }
        let question = format!("Delete pipeline {id} with its positions and dead letters? This cannot be undone.");
        match context.confirm(&question) {
            Some(true) => {}
            Some(false) => {
                return Ok(Report::new(COMMAND).text("Nothing was deleted.\n").result(json!({ "deleted": false })));
            }
            None => {
                let message = format!("pipeline {id} would be deleted with its positions and dead letters");
                let report = Report::new(COMMAND).fail(Exit::Invalid, codes::CLI_NOT_CONFIRMED, message);
                return Err(Box::new(report.suggest("add --yes to delete it")));
            }
        }
    }
    let DeletedAnswer { warnings } = remote.delete(&format!("{path}?parts=true&positions=true"))?;
    let notes: String = warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    let result = json!({ "id": id, "deleted": true, "warnings": warnings });
    Ok(Report::new(COMMAND).text(format!("Deleted {id}.\n")).notes(notes).result(result))
}
