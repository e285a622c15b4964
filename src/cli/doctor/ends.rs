//! Checks of the external systems that connectors use.

use std::time::Duration;

use anabranch_graph::plan::stage::StageKind;
use anabranch_plugin::secret::mask;
use anabranch_process::files::system;
use anabranch_process::runtime;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_service::pipelines::{Pipeline, Pipelines};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::{CheckResult, CheckSeverity, DoctorContext, Problem};
use crate::cli::report::counted;
use crate::cli::{compile_options, registry_with};

/// Time limit for the answer of an external system.
const PATIENCE: Duration = Duration::from_secs(15);
/// Number of systems that are asked at the same time.
const AT_ONCE: usize = 8;
/// Maximum number of connectors that a message names.
const TOLD: usize = 5;

/// A connector of a pipeline, as `pipeline:connector`, and its examination.
type Examination = (String, BoxFuture<'static, Result<Vec<String>, Fault>>);

/// Examines the external systems of all connectors.
pub(super) fn connectors(subject: &mut DoctorContext<'_>) -> CheckResult {
    let settings = subject.settings;
    let path = &settings.pipelines.path;
    let (registry, options) = (registry_with(settings), compile_options(settings, false));
    if !path.exists() {
        return CheckResult::well("there is no pipeline, and so no connector");
    }
    let pipelines = match subject.deep {
        true => Pipelines::load(&[path], &registry, &options),
        false => Pipelines::load_ready(&[path], &registry, &options).0,
    };
    let examinations: Vec<Examination> = pipelines.good.iter().flat_map(examinations).collect();
    let count = examinations.len();
    // Errors may quote settings, and so the variables in them.
    let secrets: Vec<Str> =
        pipelines.good.iter().flat_map(|pipeline| pipeline.compiled.secrets.iter().cloned()).collect();
    let runtime = match runtime::start(&mut Builder::new_current_thread()) {
        Ok(runtime) => runtime,
        Err(error) => return CheckResult::environment(system(&error)),
    };
    let outcomes = runtime.block_on(async {
        let outcomes = examinations.into_iter().map(|(name, examination)| async move {
            let outcome = timeout(PATIENCE, examination).await;
            (name, outcome.unwrap_or_else(|_| Ok(vec![format!("no answer within {} s", PATIENCE.as_secs())])))
        });
        futures::stream::iter(outcomes).buffered(AT_ONCE).collect::<Vec<_>>().await
    });
    let (mut failed, mut warned) = (Vec::new(), Vec::new());
    for (name, outcome) in outcomes {
        match outcome {
            Ok(warnings) => {
                let problem = |warning: String| format!("{name}: {}", mask(&warning, &secrets));
                warned.extend(
                    warnings.into_iter().map(|warning| Problem { message: problem(warning), suggestion: None }),
                );
            }
            Err(fault) => failed.push(Problem {
                message: format!("{name}: {}", mask(&fault.message(), &secrets)),
                suggestion: Some(fault.code().remedy()).filter(|remedy| !remedy.is_empty()),
            }),
        }
    }
    match (failed.is_empty(), warned.is_empty()) {
        (false, _) => listed(CheckSeverity::Environment, failed),
        (true, false) => listed(CheckSeverity::Warning, warned),
        (true, true) => CheckResult::well(format!("{} without problems", counted(count, "connector"))),
    }
}

/// Returns a result with problems, at most [`TOLD`].
fn listed(mark: CheckSeverity, mut problems: Vec<Problem>) -> CheckResult {
    let more = problems.len().saturating_sub(TOLD);
    problems.truncate(TOLD);
    if more > 0 {
        problems.push(Problem { message: format!("and {more} more"), suggestion: None });
    }
    let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    let mut found = CheckResult::new(mark, messages.join("; "));
    found.advice = problems.iter().find_map(|problem| problem.suggestion).map(str::to_owned);
    if problems.len() > 1 {
        found.problems = problems;
    }
    found
}

/// Returns the examinations of the sources, destinations and dead-letter queues of a pipeline.
fn examinations(pipeline: &Pipeline) -> Vec<Examination> {
    let plan = &pipeline.compiled.stages;
    let named = |connector: &str| format!("{}:{connector}", plan.pipeline);
    let mut found: Vec<Examination> = Vec::new();
    for stage in &plan.stages {
        match &stage.kind {
            StageKind::Read(read) => {
                let source = read.source.clone();
                found.push((named(&read.connector), Box::pin(async move { source.examine().await })));
            }
            StageKind::Write(write) => {
                let destination = write.destination.clone();
                found.push((named(&write.connector), Box::pin(async move { destination.examine().await })));
            }
            _ => {}
        }
    }
    found
}
