//! Trials of pipelines with synthetic records. Without real records, they find points where every record fails.
//!
//! A pipeline that compiles runs with synthetic records of very different data, which use the names in the pipeline.
//! A point where all records fail for the same reason is reported. Nothing is opened: connectors are replaced, and a
//! processor that needs the outside world filters all records, so that no later point is judged.

mod judge;
mod names;
mod origins;
mod patterns;
mod records;
mod script;
mod taps;
mod values;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anabranch_graph::exec::{Ending, RunOptions, Services, start};
use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::graph::NodeKind;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::schema::MemoryRegistry;
use anabranch_plugin::secret::mask;
use anabranch_plugin::state::DiscardingState;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_record::{Record, clock};
use anabranch_service::pipelines::{Pipeline, Pipelines};

use crate::codes;
use crate::services::DiscardingStore;
use anabranch_plugin::host::{DiscardingLog, Network};
use judge::judge;
use records::{Synthetic, names, of_source};
use taps::{Observations, tapped};

/// Time limits of trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialLimits {
    /// Maximum duration of the trial of a pipeline; a longer trial has no findings.
    pub one: Duration,
    /// Maximum duration of all trials of a call; the remaining pipelines are not tried.
    pub all: Duration,
}

impl Default for TrialLimits {
    fn default() -> Self {
        TrialLimits { one: Duration::from_secs(5), all: Duration::from_secs(10) }
    }
}

/// The time of day of every trial.
const NOW: Duration = Duration::from_secs(1_714_979_289);

/// The result of trials.
#[derive(Debug, Default)]
pub struct TrialResult {
    /// A warning for each point where every record fails.
    pub findings: Diagnostics,
    /// Pipelines for which there was no time.
    pub untried: usize,
}

/// Tries compiled pipelines one after the other. Opens nothing, and ends when the time is up.
pub fn findings<'a>(pipelines: impl IntoIterator<Item = &'a Compiled>, limits: TrialLimits) -> TrialResult {
    let begin = Instant::now();
    let mut tried = TrialResult::default();
    for compiled in pipelines {
        let left = limits.all.saturating_sub(begin.elapsed()).min(limits.one);
        if left.is_zero() {
            tried.untried += 1;
            continue;
        }
        tried.findings.extend(within(compiled.clone(), left));
    }
    tried
}

/// Tries the pipelines that can run with synthetic records, and adds a warning about each point where all of them
/// fail, unless the point already has a finding. Takes some milliseconds per pipeline, and at most `patience`.
/// Returns the number of pipelines for which there was no time.
pub fn try_pipelines(pipelines: &mut Pipelines, limits: TrialLimits) -> usize {
    try_some(pipelines, limits, |_| true)
}

/// Tries some of the pipelines, as [`try_pipelines`] does.
pub fn try_some(pipelines: &mut Pipelines, limits: TrialLimits, is_wanted: impl Fn(&Pipeline) -> bool) -> usize {
    let wanted = pipelines.good.iter().filter(|pipeline| is_wanted(pipeline));
    let tried = findings(wanted.map(|pipeline| &pipeline.compiled), limits);
    pipelines.add(tried.findings);
    tried.untried
}

/// Tries a pipeline on its own thread. If the time is up, the thread continues without a receiver.
fn within(compiled: Compiled, time: Duration) -> Diagnostics {
    let (done, ended) = mpsc::channel();
    let trying = std::thread::Builder::new().name("trial".into()).spawn(move || {
        // The receiver may have stopped waiting.
        let _ = done.send(tried(&compiled, time));
    });
    match trying {
        Ok(_) => ended.recv_timeout(time).unwrap_or_default(),
        Err(_) => Diagnostics::new(),
    }
}

fn tried(compiled: &Compiled, time: Duration) -> Diagnostics {
    let Ok(runtime) = anabranch_process::runtime::start(&mut tokio::runtime::Builder::new_current_thread()) else {
        return Diagnostics::new();
    };
    clock::hold(Some(UNIX_EPOCH + NOW));
    let found = runtime.block_on(run(compiled, time));
    runtime.shutdown_background();
    found
}

async fn run(compiled: &Compiled, time: Duration) -> Diagnostics {
    let plan = &compiled.rewritten;
    let names = names(plan);
    let unwraps = |kind: &NodeKind| kind.operator().is_some_and(|step| step.plugin.starts_with("unwrap."));
    let envelopes = plan.node_weights().any(|node| unwraps(&node.kind));
    let mut given: BTreeMap<Str, Vec<Record>> = BTreeMap::new();
    let mut all: HashMap<usize, Synthetic> = HashMap::new();
    for node in plan.node_weights() {
        if let NodeKind::Source(read) = &node.kind {
            let made = of_source(&read.source.shape(), &names, envelopes, all.len());
            given.insert(read.connector.clone(), made.iter().map(|one| one.record.clone()).collect());
            let first = all.len();
            all.extend(made.into_iter().enumerate().map(|(number, one)| (first + number, one)));
        }
    }
    let observations = Arc::new(Observations::default());
    let (plan, left_out) = tapped(&compiled.stages, &given, &observations);
    let services = Services {
        store: Arc::new(DiscardingStore),
        log: Arc::new(DiscardingLog),
        result_cache: Arc::new(DiscardingState),
        active: Arc::new(DiscardingState),
        letters: None,
        schemas: Arc::new(MemoryRegistry::new()),
        network: Network::Open,
        shared: None,
    };
    let options = RunOptions { once: true, mask: compiled.secrets.clone().into(), ..RunOptions::default() };
    let mut running = start(Arc::new(plan), services, options);
    match tokio::time::timeout(time, running.wait()).await {
        Ok(Ending::Faulted(fault)) => return Diagnostics(unloaded(compiled, &fault).into_iter().collect()),
        Ok(_) => {}
        Err(_) => {
            running.kill();
            return Diagnostics::new();
        }
    }
    let seen = observations.take();
    let judged = seen.iter().filter(|(point, _)| !left_out.contains(point));
    let failing = judged.filter_map(|(point, observations)| judge(compiled, *point, observations, &all));
    Diagnostics(failing.filter(|failing| !is_said(compiled, failing)).map(|one| finding(compiled, one)).collect())
}

/// A script that cannot be loaded, because its top-level code fails before the first record.
fn unloaded(compiled: &Compiled, fault: &Fault) -> Option<Diagnostic> {
    if fault.code() != codes::SCRIPT_FAILED {
        return None;
    }
    let node = compiled.rewritten.node_weights().find(|node| fault.node() == Some(&node.id))?;
    let script = node.settings.iter().find(|given| given.name.starts_with("script"));
    let span = script.map_or(node.span, |given| given.value.span());
    let message = mask(&fault.message(), &compiled.secrets);
    let finding =
        Diagnostic::warning(codes::TRIAL_ALWAYS_FAILS, format!("{}: the script cannot be loaded: {message}", node.id));
    let hint = "what stands outside of `process` runs once, before the first record: correct it";
    Some(finding.with_span(span).with_path(node.path.to_string()).with_hint(hint))
}

/// Returns `true` if the compiler has a warning about the node, which is then the probable cause.
fn is_said(compiled: &Compiled, failing: &judge::AlwaysFails<'_>) -> bool {
    let is_below = |path: &str| {
        path.strip_prefix(&*failing.node.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    compiled.warnings.iter().any(|finding| finding.path.as_deref().is_some_and(is_below))
}

fn finding(compiled: &Compiled, failing: judge::AlwaysFails<'_>) -> Diagnostic {
    let judge::AlwaysFails { node, fault, records } = failing;
    let located = compiled.stages.located.as_ref();
    let span = located.and_then(|located| located.span(&fault.clone().at(&node.id))).unwrap_or(node.span);
    let message = mask(&fault.message(), &compiled.secrets);
    let hint = format!(
        "all {records} made-up records of different data fail here, so it is not the data; `pipelines dry-run` tries \
         real records"
    );
    Diagnostic::warning(codes::TRIAL_ALWAYS_FAILS, format!("{}: every record fails: {message}", node.id))
        .with_span(span)
        .with_path(node.path.to_string())
        .with_hint(hint)
}
