//! `anabranch pipelines dry-run`.

pub(super) mod show;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::exec::{Ending, RunOptions, Services, start};
use anabranch_graph::plan::stage::StageId;
use anabranch_graph::plan::{Observer, ProbableMistake};
use anabranch_plugin::arguments::parse_duration;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::secret::mask;
use anabranch_process::files::system;
use anabranch_record::text::Str;
use anabranch_service::pipelines::Pipeline;
use anabranch_settings::SettingFlags;
use anabranch_trial::schemas::registry;
use anabranch_trial::services;
use anabranch_trial::tap::tapped;
use anabranch_trial::trace::{History, StepInfo, StepOutcome, Trace, steps};
use anabranch_trial::watch::watched;
use serde_json::{Value, json};

use super::chosen::{ChosenPipelines, NoRunnablePipeline};
use crate::cli::completions;
use crate::cli::{Context, Exit, Report};
use crate::codes;

/// Run a pipeline on a few records and show the changes of each processor; nothing is written.
///
/// Reads a few records from the real sources, starting at their beginning instead of the stored positions, and applies
/// all processors. Nothing is written to the destinations or the dead-letter queue, no position is stored, and no
/// record is acknowledged to its source. Processors that call external services do call them.
///
/// Shows each record as read, the changes of each processor, and, for destinations that write lines, the line that
/// would be written. A record that a destination refuses regardless of its connection counts as failed. Raw data is
/// shown as text if it is text, otherwise as base64.
///
/// Reports probable mistakes that make no record fail, with their place in the file and the number of records: a
/// template that prints `<no value>`, a number whose fraction is cut off, the removal of a field that no record has.
/// Reports conditions that were true for none or all of two or more records; these do not affect the exit code.
///
/// Exit codes: 0 no record failed, 1 a record or a source failed, no record was read or passed all processors in time,
/// or a probable mistake concerns every record, 2 the pipeline is not valid.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// A pipeline file, or the id of a pipeline in `pipelines.path`. Default: all pipelines.
    #[arg(value_name = "PATH|ID", add = completions::files_or_pipelines())]
    which: Option<String>,
    /// Maximum number of records of each source.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    records: u32,
    /// How long to wait for the records.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    settings: SettingFlags<false>,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "it is not a duration (for example 500ms, 10s or 1m)".to_owned())
}

const COMMAND: &str = "pipelines.dry-run";
/// Additional time for records that were read before the time limit.
const DRAIN: Duration = Duration::from_secs(2);
/// How long the shutdown may take after that. A processor that does not return is abandoned.
const END: Duration = Duration::from_secs(1);

const REFUSAL: NoRunnablePipeline =
    NoRunnablePipeline { command: COMMAND, invalid: "a pipeline that has errors cannot be run" };

pub(super) fn dry_run(arguments: &Arguments, context: &Context) -> Report {
    let settings = match context.settings(COMMAND, &arguments.settings) {
        Ok(settings) => settings,
        Err(report) => return *report,
    };
    let chosen = ChosenPipelines::load(arguments.which.as_deref(), &settings);
    let good = match chosen.good(&REFUSAL, context) {
        Ok(good) => good,
        Err(report) => return *report,
    };
    let pipelines = &chosen.pipelines;
    let runtime = match anabranch_process::runtime::start(tokio::runtime::Builder::new_multi_thread().worker_threads(2))
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("cannot start the runtime: {}", system(&error));
            return Report::new(COMMAND).fail(Exit::Environment, codes::CLI_SYSTEM, message);
        }
    };
    let schemas = match registry(&settings) {
        Ok(schemas) => schemas,
        Err(error) => {
            return Report::new(COMMAND).fail(Exit::Environment, codes::RUN_SCHEMA_REGISTRY, error.to_string());
        }
    };
    let mut text = String::new();
    let mut results = Vec::new();
    let mut total = Counts::default();
    let mut faults = Vec::new();
    let mut timed_out = false;
    let mut doubts = Diagnostics::new();
    let mut wrong = false;
    for pipeline in good {
        let trial = runtime.block_on(run(pipeline, arguments, services(schemas.clone())));
        total.add(&trial.counts);
        timed_out |= trial.timed_out;
        show::text(&trial, context.color, &mut text);
        results.push(show::json(&trial, &pipelines.files));
        faults.extend(trial.fault);
        wrong |= trial.doubts.iter().any(ProbableMistake::is_of_all);
        doubts.0.extend(trial.doubts.iter().map(ProbableMistake::finding));
    }
    runtime.shutdown_background();
    let report = Report::new(COMMAND)
        .notes(context.rendered(&pipelines.findings, &pipelines.files) + &context.rendered(&doubts, &pipelines.files))
        .text(text)
        .summary(total.json())
        .result(json!({ "pipelines": results }));
    let ended = total.delivered + total.dropped;
    match faults.as_slice() {
        [] if total.failed > 0 => report.found(Exit::Failed),
        [] if total.read == 0 => {
            let why = if timed_out { " in time" } else { "" };
            report
                .fail(
                    Exit::Failed,
                    codes::DRY_RUN_NOTHING_READ,
                    format!("no record was read{why}: no processor was tried"),
                )
                .suggest("check that the source has the right path and contains records; to wait longer, set --timeout")
        }
        [] if timed_out && ended == 0 => report
            .fail(
                Exit::Failed,
                codes::DRY_RUN_TIMED_OUT,
                "the time limit expired before any record had passed all processors",
            )
            .suggest("check the last processor shown, which may not return; to wait longer, set --timeout"),
        [] if wrong => report.found(Exit::Failed),
        [] => report,
        faults => report.fail(Exit::Failed, codes::DRY_RUN_FAILED, faults.join("; ")),
    }
}

/// The result of the dry run of a pipeline.
struct Trial {
    pipeline: String,
    steps: Vec<StepInfo>,
    histories: Vec<History>,
    counts: Counts,
    /// Probable mistakes that make no record fail.
    doubts: Vec<ProbableMistake>,
    /// `true` if the time was up before all sources had returned the requested records.
    timed_out: bool,
    /// The reason why the run ended early.
    fault: Option<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    read: usize,
    delivered: usize,
    dropped: usize,
    failed: usize,
    doubtful: usize,
}

impl Counts {
    fn of(histories: &[History]) -> Self {
        let events = || histories.iter().flat_map(|history| &history.events);
        let count = |is: fn(&StepOutcome) -> bool| events().filter(|event| is(&event.outcome)).count();
        Counts {
            read: histories.len(),
            delivered: count(|outcome| matches!(outcome, StepOutcome::Delivered(_))),
            dropped: count(|outcome| matches!(outcome, StepOutcome::Dropped)),
            failed: count(|outcome| matches!(outcome, StepOutcome::Failed { .. })),
            doubtful: 0,
        }
    }

    fn add(&mut self, other: &Counts) {
        self.read += other.read;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.failed += other.failed;
        self.doubtful += other.doubtful;
    }

    fn json(&self) -> Value {
        json!({
            "read": self.read,
            "delivered": self.delivered,
            "dropped": self.dropped,
            "failed": self.failed,
            "doubts": self.doubtful,
        })
    }
}

/// Masks values of variables in what would be written, because a template can contain them.
fn hide(histories: &mut [History], secrets: &[Str]) {
    if secrets.is_empty() {
        return;
    }
    let outcomes = histories.iter_mut().flat_map(|history| &mut history.events).map(|event| &mut event.outcome);
    for outcome in outcomes {
        if let StepOutcome::Delivered(Some(written)) = outcome
            && let Ok(text) = std::str::from_utf8(written)
        {
            *written = mask(text, secrets).into_bytes();
        }
    }
}

/// Returns how many records each step dropped, in pipeline order.
fn drops(histories: &[History]) -> Vec<(StageId, usize, u64)> {
    let mut drops = BTreeMap::<_, u64>::new();
    let events = histories.iter().flat_map(|history| &history.events);
    for event in events.filter(|event| matches!(event.outcome, StepOutcome::Dropped)) {
        *drops.entry(event.step).or_default() += 1;
    }
    drops.into_iter().map(|(id, count)| (id.stage, id.step, count)).collect()
}

async fn run(pipeline: &Pipeline, arguments: &Arguments, services: Services) -> Trial {
    let trace = Arc::new(Trace::default());
    let plan = &pipeline.compiled.stages;
    let observer = Arc::new(Observer::of(&pipeline.compiled));
    let tapped = Arc::new(tapped(&watched(plan, &observer), arguments.records as usize, &trace));
    let options = RunOptions { once: true, mask: pipeline.compiled.secrets.clone().into(), ..RunOptions::default() };
    let mut running = start(tapped, services, options);
    let mut timed_out = false;
    let ending = tokio::select! {
        biased;
        ending = running.wait() => Some(ending),
        () = tokio::time::sleep(arguments.timeout) => {
            timed_out = true;
            None
        }
        _ = tokio::signal::ctrl_c() => None,
    };
    let ending = match ending {
        Some(ending) => Some(ending),
        None => {
            running.stop(Some(DRAIN));
            tokio::time::timeout(DRAIN + END, running.wait()).await.ok()
        }
    };
    let steps = steps(plan);
    let mut histories = trace.histories(plan, &steps);
    hide(&mut histories, &pipeline.compiled.secrets);
    let fault = match ending {
        Some(Ending::Faulted(fault)) => {
            let node = fault.node().map_or_else(String::new, |node| format!(" at {node}"));
            let message = mask(&fault.message(), &pipeline.compiled.secrets);
            Some(format!("pipeline {}{node}: {message}", pipeline.config.id.value))
        }
        _ => None,
    };
    let mut doubts = observer.doubts();
    let verdicts = observer.verdicts();
    let counts = Counts::of(&histories);
    if counts.delivered == 0 && counts.failed == 0 && !timed_out {
        doubts.extend(observer.all_dropped(&drops(&histories)));
    }
    doubts.extend(verdicts);
    let counts = Counts { doubtful: doubts.len(), ..counts };
    Trial { pipeline: pipeline.config.id.value.to_string(), steps, histories, counts, doubts, timed_out, fault }
}
