//! Runs one test: the compiled graph with the production executor, between scripted ends.
//!
//! Time: if a pipeline is computed entirely on the runtime's own thread, the clock of the runtime is paused. It jumps
//! to the next timer when all tasks are idle, so that back-offs, lingers and delays take no real time. The clock does
//! not see a processor that waits for the network or runs on a thread of its own, and would jump ahead of it; in that
//! case, time is real. The time limit of a test always refers to real time and is enforced from outside.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anabranch_graph::exec::{self, Ending, Progress, RunOptions, Services};
use anabranch_graph::plan::stage::{StageKind, StagePlan};
use anabranch_graph::plan::{Compiled, Measured, Observer, ProbableMistake, StepCount};
use anabranch_plugin::host::{DiscardingLog, Network};
use anabranch_plugin::schema::MemoryRegistry;
use anabranch_plugin::state::DiscardingState;
use anabranch_process::files::system;
use anabranch_record::clock;
use anabranch_record::fault::FaultClass;
use anabranch_record::phrase::{counted, plural};
use anabranch_record::text::Str;
use anabranch_service::recovery::Recovery;
use anabranch_settings::RecoveryPolicy;
use serde_json::Value as Json;
use tokio::runtime::Builder;
use tokio::sync::Notify;

use super::case::{FaultSpec, Status, TestCase};
use super::input::Reads;
use super::script::{EndContents, Marks, Script};
use super::step::TestStep;
use super::stub::StubProxy;
use crate::watch::watched;

/// The input of a test run, with ids of the pipeline.
pub(super) struct TestInput {
    pub(super) case: Arc<TestCase>,
    pub(super) compiled: Compiled,
    pub(super) sources: BTreeMap<Str, Reads>,
    pub(super) faults: Vec<FaultSpec>,
    pub(super) recovery: RecoveryPolicy,
}

/// The results of a test run.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) kept: EndContents,
    /// Status at the end; `None` if the run was aborted.
    pub(super) status: Option<Status>,
    /// The error, if the pipeline did not finish.
    pub(super) error: Option<String>,
    /// HTTP requests, the indices of those without a matching stub, and the number of requests for each stub.
    pub(super) requests: Vec<Json>,
    pub(super) unmatched: Vec<usize>,
    pub(super) answered: Vec<usize>,
    /// Counters of every node.
    pub(super) measured: Measured,
    /// Number of starts.
    pub(super) starts: usize,
    /// `true` if time was virtual.
    pub(super) paused: bool,
    /// Probable mistakes that made no record fail.
    pub(super) doubts: Vec<ProbableMistake>,
}

/// Maximum number of starts in one test.
const MOST_STARTS: usize = 100;
/// Maximum number of starts with real time, in which retries take seconds.
const MOST_REAL_STARTS: usize = 5;
/// Maximum delay between two starts with real time.
const WAIT: Duration = Duration::from_millis(50);
/// How long a test may take after its time limit before its thread is abandoned.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a test on a thread of its own, within its time limit.
pub(super) fn play(input: TestInput) -> Observed {
    let over = Arc::new(Notify::new());
    let timeout = input.case.timeout;
    let script = match Script::new(input.sources.clone(), input.faults.clone()) {
        Ok(script) => script,
        Err(error) => return Observed { error: Some(error), ..Observed::default() },
    };
    let (done, ended) = std::sync::mpsc::channel();
    let (signal, shared) = (over.clone(), script.clone());
    let playing = std::thread::Builder::new().name("test".into()).spawn(move || {
        // The receiver may have given up waiting.
        let _ = done.send(on_thread(&input, &shared, &signal));
    });
    let error = match playing {
        Err(error) => format!("cannot start a thread: {}", system(&error)),
        // Not joined: a processor that never returns blocks its thread forever.
        Ok(_) => match ended.recv_timeout(timeout) {
            Ok(observed) => return observed,
            Err(RecvTimeoutError::Disconnected) => "the test panicked; this is a defect of the engine".to_owned(),
            Err(RecvTimeoutError::Timeout) => {
                over.notify_one();
                match ended.recv_timeout(GRACE) {
                    Ok(observed) => return observed,
                    Err(_) => format!("the time limit of {timeout:?} expired, and a processor does not return"),
                }
            }
        },
    };
    Observed { kept: script.kept(), error: Some(error), ..Observed::default() }
}

fn on_thread(input: &TestInput, script: &Arc<Script>, over: &Notify) -> Observed {
    let threads = input.compiled.stages.stages.iter().any(|stage| matches!(stage.kind, StageKind::Isolate { .. }));
    let network = !input.case.http.is_empty() || threads || waits(&input.compiled.stages);
    let paused = !network;
    let runtime = match anabranch_process::runtime::start(Builder::new_current_thread().start_paused(paused)) {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = Some(format!("cannot start the runtime: {}", system(&error)));
            return Observed { error, ..Observed::default() };
        }
    };
    clock::hold(input.case.now);
    let observed = runtime.block_on(run(input, script, over, network, paused));
    runtime.shutdown_background();
    observed
}

/// Returns `true` if a processor waits for the network or another thread.
fn waits(plan: &StagePlan) -> bool {
    plan.stages.iter().any(|stage| matches!(stage.kind, StageKind::Async { .. }))
}

async fn run(input: &TestInput, script: &Arc<Script>, over: &Notify, network: bool, paused: bool) -> Observed {
    let mut observed = Observed { paused, ..Observed::default() };
    let begin = Instant::now();
    // A pipeline that only computes needs no socket.
    let proxy = match network {
        true => match StubProxy::start(&input.case.http).await.and_then(|proxy| Ok((proxy.address()?, proxy))) {
            Ok((address, proxy)) => Some((address, proxy)),
            Err(error) => {
                observed.error = Some(format!("cannot listen on 127.0.0.1: {}", system(&error)));
                return observed;
            }
        },
        false => None,
    };
    let way = proxy.as_ref().map_or(Network::Open, |(address, _)| Network::Through(*address));
    let observer = Arc::new(Observer::of(&input.compiled));
    let plan = Arc::new(watched(&scripted(input, script), &observer));
    let playing = lives(input, script, &plan, (way, over), &mut observed);
    match &proxy {
        Some((_, proxy)) => tokio::select! {
            () = playing => {}
            never = proxy.serve() => match never {},
        },
        None => playing.await,
    }
    if let Some((_, proxy)) = &proxy {
        (observed.requests, observed.unmatched, observed.answered) = proxy.asked();
    }
    observed.doubts = observer.doubts();
    observed.kept = script.kept();
    observed.measured.elapsed = begin.elapsed();
    observed.measured.broken = observed.status != Some(Status::Finished);
    observed
}

/// Runs the pipeline like the service: transient failures and crashes restart it.
async fn lives(
    input: &TestInput,
    script: &Script,
    plan: &Arc<StagePlan>,
    (network, over): (Network, &Notify),
    observed: &mut Observed,
) {
    let services = Services {
        store: Arc::new(Marks::default()),
        log: Arc::new(DiscardingLog),
        result_cache: Arc::new(DiscardingState),
        active: Arc::new(DiscardingState),
        letters: None,
        schemas: Arc::new(MemoryRegistry::new()),
        network,
        shared: None,
    };
    let mask: Arc<[Str]> = input.compiled.secrets.clone().into();
    let mut recovery = Recovery::new(input.recovery);
    let most_starts = if observed.paused { MOST_STARTS } else { MOST_REAL_STARTS };
    loop {
        observed.starts += 1;
        let options = RunOptions { once: true, mask: mask.clone(), ..RunOptions::default() };
        let mut running = exec::start(plan.clone(), services.clone(), options);
        let progress = running.progress();
        let ending = tokio::select! {
            biased;
            ending = running.wait() => ending,
            () = script.crashed() => {
                running.kill();
                running.wait().await
            }
            () = over.notified() => {
                let on_their_way = progress.totals().in_flight;
                running.kill();
                running.wait().await;
                add(&mut observed.measured, &progress);
                let timeout = input.case.timeout;
                observed.error = Some(format!(
                    "the time limit of {timeout:?} expired with {on_their_way} {} in flight",
                    plural(on_their_way, "record")
                ));
                return;
            }
        };
        add(&mut observed.measured, &progress);
        match ending {
            Ending::Finished => {
                observed.status = Some(Status::Finished);
                return;
            }
            Ending::Killed => {}
            Ending::Faulted(fault) if fault.class() == FaultClass::Transient => {
                let Some(wait) = recovery.next(tokio::time::Instant::now()) else {
                    observed.status = Some(Status::Degraded);
                    observed.error = Some(format!("{fault} (after {} starts)", observed.starts));
                    return;
                };
                if observed.starts >= most_starts {
                    observed.status = Some(Status::Recovering);
                    observed.error = Some(format!("{fault} (after {} starts)", observed.starts));
                    return;
                }
                let wait = if observed.paused { wait } else { wait.min(WAIT) };
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = over.notified() => {
                        observed.error = Some(format!("the time limit expired while the pipeline recovered from: \
                                                       {fault}"));
                        return;
                    }
                }
            }
            Ending::Faulted(fault) => {
                observed.status = Some(Status::Degraded);
                observed.error = Some(fault.to_string());
                return;
            }
            Ending::Stopped | Ending::NotDrained { .. } => {
                observed.error = Some("the pipeline was stopped".to_owned());
                return;
            }
        }
        if observed.starts >= most_starts {
            observed.error =
                Some(format!("the pipeline was started {} and did not finish", counted(most_starts, "time")));
            return;
        }
    }
}

/// Adds the counters of a run to those of earlier runs.
fn add(measured: &mut Measured, progress: &Progress) {
    let totals = progress.totals();
    measured.read += totals.read;
    measured.delivered += totals.delivered;
    measured.failed += totals.failed;
    let stages: Vec<Vec<StepCount>> =
        progress.stages().iter().map(|stage| stage.nodes.iter().map(|node| node.count).collect()).collect();
    match measured.stages.is_empty() {
        true => measured.stages = stages,
        false => measured.stages.iter_mut().flatten().zip(stages.into_iter().flatten()).for_each(|(a, b)| sum(a, &b)),
    }
}

/// Adds counters to those of a node.
pub(super) fn sum(count: &mut StepCount, more: &StepCount) {
    count.rows_in += more.rows_in;
    count.selected += more.selected;
    count.rows_out += more.rows_out;
    count.filtered += more.filtered;
    count.failed += more.failed;
    count.busy += more.busy;
}

/// Replaces the ends of the plan by scripted ones.
fn scripted(input: &TestInput, script: &Arc<Script>) -> StagePlan {
    let mut plan = StagePlan::clone(&input.compiled.stages);
    let wrap = |step: &mut anabranch_graph::plan::stage::StepSpec| {
        let layer = TestStep { node: step.node.clone(), script: script.clone(), now: input.case.now };
        step.operator = step.operator.clone().layered(layer);
    };
    for stage in &mut plan.stages {
        match &mut stage.kind {
            StageKind::Read(read) => read.source = script.source(&read.connector),
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                steps.iter_mut().for_each(wrap);
            }
            StageKind::Async { step, .. } => wrap(step),
            StageKind::Route(_) => {}
            StageKind::Write(write) => {
                write.destination = script.destination(&write.connector, write.destination.policy());
            }
        }
    }
    plan.dead_letter.destination = script.dead_letters(plan.dead_letter.destination.policy());
    plan
}
