//! `anabranch dlq replay`.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use anabranch_record::text::Str;
use anabranch_service::dead_letters::replay::{Failure, ReplayFrom, ReplayOutcome, Request, Tools, replay as run};
use anabranch_service::pipelines::{Pipeline, Pipelines};
use anabranch_service::schemas;
use anabranch_service::traces::{Exporter, FLUSH};
use anabranch_settings::{Database, ServiceFlags, Settings};
use anabranch_store::Status;
use serde_json::{Value, json};

use super::edit::{self, Edited};
use super::{DeadLetters, OpenStore, letters, show};
use crate::cli::completions;
use crate::cli::remote::Remote;
use crate::cli::{Context, Exit, Report, compile_options, registry_with};
use crate::client::escaped;
use crate::codes;

/// Replay dead letters through the rest of the pipeline.
///
/// Records enter the pipeline at the node where they failed, including its condition; with `--from start` directly
/// after their source, or with `--from ID` at another processor or destination. Delivered records leave the queue;
/// records that fail again stay in it. A running pipeline is drained before the replay and resumes after it. Source
/// positions do not change.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// Id of the pipeline
    #[arg(add = completions::pipelines())]
    pipeline: String,
    /// Numbers of the dead letters
    #[arg(required_unless_present = "all")]
    numbers: Vec<u64>,
    /// All dead letters of the pipeline
    #[arg(long, conflicts_with = "numbers")]
    all: bool,
    /// Where records enter the pipeline: at the node where they failed (`step`), directly after their source (`start`),
    /// or at this processor or destination, which can be a new one before the node where they failed. A processor of a
    /// connector is `connector:processor`, or `processor` if this id is unique
    #[arg(long, value_name = "step|start|ID", default_value = "step")]
    from: String,
    /// Replace the record of the dead letter with one in JSON from a file, or from standard input (`-`), in the form
    /// that `dlq show --json` prints. Without a value, the record is opened in $EDITOR. Raw data can be written as
    /// text: {"$text": "…"}
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "", conflicts_with = "all")]
    edit: Option<String>,
    /// Replay even if the store says that the pipeline runs, which is also the case after a crash
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    settings: ServiceFlags,
}

const COMMAND: &str = "dlq.replay";

pub(super) fn replay(arguments: &Arguments, context: &Context) -> Result<Report, Box<Report>> {
    let settings = context.settings(COMMAND, &arguments.settings.0)?;
    if arguments.edit.is_some() && arguments.numbers.len() != 1 {
        let report = Report::new(COMMAND).fail(
            Exit::Invalid,
            codes::DEAD_LETTER_NOT_ONE,
            "--edit needs exactly one dead letter",
        );
        return Err(Box::new(report));
    }
    // Before the store is opened: a `dlq show` that pipes into this command holds the store until it ends.
    let given = arguments.edit.as_deref().filter(|name| !name.is_empty());
    let given = given.map(|name| edit::read(COMMAND, name)).transpose()?;
    let dead_letters = DeadLetters::find_to_change(COMMAND, &settings)?;
    let edited = match arguments.edit.as_deref() {
        None => None,
        Some("") => {
            let letter = show::letter(COMMAND, &dead_letters, &arguments.pipeline, arguments.numbers[0])?;
            match edit::edit(COMMAND, &letter.record)? {
                Some(edited) => Some(edited),
                None => return Ok(Report::new(COMMAND).text("Nothing was changed, so nothing was replayed.\n")),
            }
        }
        Some(_) => given,
    };
    let outcome = match &dead_letters {
        DeadLetters::Service(remote) => ask(arguments, remote, edited)?,
        DeadLetters::Store(opened) => here(arguments, context, opened, &settings, edited)?,
    };
    Ok(told(&outcome, &ReplayFrom::from(arguments.from.clone())))
}

/// Replays through the service, in portions, between which the pipeline runs.
fn ask(arguments: &Arguments, remote: &Remote, edited: Option<Edited>) -> Result<ReplayOutcome, Box<Report>> {
    let path = format!("/v1/pipelines/{}/dead-letters/replay", escaped(&arguments.pipeline));
    let mut body = json!({ "from": ReplayFrom::from(arguments.from.clone()) });
    match arguments.all {
        true => body["all"] = json!(true),
        false => body["numbers"] = json!(arguments.numbers),
    }
    if let Some(edited) = edited {
        body["record"] = edited.json;
    }
    let mut total: ReplayOutcome = remote.post(&path, &body)?;
    while total.stopped.is_none() {
        let refused: BTreeSet<u64> = total.failures.iter().map(|failure| failure.number).collect();
        let left: Vec<u64> = total.remaining.iter().copied().filter(|number| !refused.contains(number)).collect();
        if left.is_empty() {
            break;
        }
        let part: ReplayOutcome =
            remote.post(&path, &json!({ "from": ReplayFrom::from(arguments.from.clone()), "numbers": left }))?;
        let stuck = part.replayed == 0;
        total.replayed += part.replayed;
        total.delivered += part.delivered;
        total.failed_again += part.failed_again;
        total.failures.extend(part.failures);
        total.remaining =
            total.remaining.into_iter().filter(|number| refused.contains(number)).chain(part.remaining).collect();
        total.stopped = part.stopped;
        if stuck && total.stopped.is_none() {
            total.stopped = Some("no dead letter was delivered in time".to_owned());
        }
    }
    Ok(total)
}

/// Replays in this process, with the pipeline as its file declares it.
fn here(
    arguments: &Arguments,
    context: &Context,
    opened: &OpenStore,
    settings: &Settings,
    edited: Option<Edited>,
) -> Result<ReplayOutcome, Box<Report>> {
    let id = Str::from(arguments.pipeline.as_str());
    opened.known(&id)?;
    let live = opened
        .pipeline(&id)?
        .is_some_and(|stored| matches!(stored.status, Status::Running | Status::Recovering { .. }));
    // A running service locks the file of its store, but not a database.
    if live && !arguments.force && !matches!(settings.database, Database::Embedded(_)) {
        let report =
            Report::new(COMMAND).fail(Exit::Environment, codes::PIPELINE_RUNNING, format!("pipeline {id} runs"));
        return Err(Box::new(
            report.suggest("set --api.http.address to the address of its service; if the service crashed, add --force"),
        ));
    }
    let pipeline = compiled(context, settings, &id)?;
    let schemas = schemas::registry(&settings.schemas, &opened.store).map_err(|error| {
        Box::new(Report::new(COMMAND).fail(Exit::Environment, codes::RUN_SCHEMA_REGISTRY, error.to_string()))
    })?;
    let traces = settings.traces.as_ref().map(|traces| Exporter::start(traces, opened.runtime.handle())).transpose();
    let traces =
        traces.map_err(|error| Box::new(Report::new(COMMAND).fail(Exit::Environment, codes::RUN_TRACES, error)))?;
    let tools = Tools {
        store: opened.store.clone(),
        log: Arc::new(anabranch_trial::StderrLog),
        schemas,
        executor: opened.runtime.handle().clone(),
        traces: traces.as_ref().map(|traces| traces.tracing()),
    };
    let request = Request {
        numbers: (!arguments.all).then(|| arguments.numbers.clone()),
        from: arguments.from.clone().into(),
        record: edited.map(|edited| edited.record),
    };
    let replayed = opened.runtime.block_on(async {
        let replayed = run(&tools, &pipeline, request, pending()).await;
        if let Some(traces) = traces {
            traces.close(FLUSH).await;
        }
        replayed
    });
    replayed.map_err(|error| {
        let exit = match error {
            anabranch_service::dead_letters::replay::ReplayError::Store(_) => Exit::Environment,
            _ => Exit::Invalid,
        };
        let report = Report::new(COMMAND).fail(exit, error.code(), error.to_string());
        Box::new(match error.suggestion() {
            Some(suggestion) => report.suggest(suggestion),
            None => report,
        })
    })
}

/// Compiles the pipeline with this id from the configured files.
fn compiled(context: &Context, settings: &Settings, id: &Str) -> Result<Pipeline, Box<Report>> {
    let pipelines =
        Pipelines::load(&[&settings.pipelines.path], &registry_with(settings), &compile_options(settings, false));
    let invalid = pipelines.invalid.iter().any(|invalid| invalid.id.as_ref() == Some(id));
    let findings = context.rendered(&pipelines.all_findings(), &pipelines.files);
    if let Some(pipeline) = pipelines.good.into_iter().find(|pipeline| pipeline.config.id.value == *id) {
        return Ok(pipeline);
    }
    let path = settings.pipelines.path.display();
    Err(Box::new(match invalid {
        true => {
            let message = format!("pipeline {id} has errors: dead letters cannot be replayed through it");
            Report::new(COMMAND).notes(findings).fail(Exit::Invalid, codes::PIPELINE_INVALID, message)
        }
        false => Report::new(COMMAND)
            .fail(Exit::Invalid, codes::PIPELINE_NOT_FOUND, format!("there is no pipeline {id} in {path}"))
            .suggest("if the pipeline files are elsewhere, set --pipelines.path"),
    }))
}

fn told(outcome: &ReplayOutcome, from: &ReplayFrom) -> Report {
    let ReplayOutcome { replayed, delivered, failed_again, failures, remaining, stopped } = outcome;
    let mut text = format!("Replayed {}: {delivered} delivered", letters(*replayed));
    if *failed_again > 0 {
        text.push_str(&format!(", {failed_again} failed again"));
    }
    text.push_str(".\n");
    for Failure { number, node, error } in failures {
        let place = if node.is_empty() { String::new() } else { format!(" at {node}") };
        text.push_str(&format!("  {number}{place}: {}\n", error.message));
    }
    if let ReplayFrom::At(id) = from
        && !failures.is_empty()
    {
        text.push_str(&format!(
            "The records entered at {id}. A record that had failed before {id} skipped the processors between that \
             place and {id}: to run all processors, use `--from start`.\n"
        ));
    }
    let summary = json!({
        "replayed": replayed, "delivered": delivered, "failedAgain": failed_again, "remaining": remaining.len(),
    });
    let result = serde_json::to_value(outcome).unwrap_or(Value::Null);
    let report = Report::new(COMMAND).text(text).summary(summary).result(result);
    match stopped {
        Some(why) => report
            .fail(Exit::Failed, codes::DEAD_LETTER_REPLAY_STOPPED, format!("the replay was stopped: {why}"))
            .suggest(format!(
                "{} still in the queue",
                match remaining.len() {
                    1 => "1 dead letter is".to_owned(),
                    many => format!("{many} dead letters are"),
                }
            )),
        None if *failed_again > 0 || !remaining.is_empty() => report.found(Exit::Failed),
        None => report,
    }
}
