//! Running one test: the compiled graph with the executor that ships, between scripted ends.
//!
//! Time: where all of a pipeline is computed in this process on the runtime's own thread, its clock is paused: it jumps
//! to the next timer when nobody has anything to do, so that backoffs, lingers and delays cost nothing. A step that waits
//! for the network or runs on a thread of its own is invisible to that clock, which would jump ahead of it; then time is
//! real. The limit of a test always goes by the clock on the wall, from outside.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anabranch_graph::exec::{self, Ending, Progress, RunOptions, Services as Reach};
use anabranch_graph::plan::stage::{StageKind, StagePlan};
use anabranch_graph::plan::{Compiled, Doubtful, Measured, Observer, StepCount};
use anabranch_plugin::host::{LogLevel, LogLine, LogSink, Network};
use anabranch_plugin::schema::MemoryRegistry;
use anabranch_plugin::state::Oblivion;
use anabranch_record::clock;
use anabranch_record::fault::FaultClass;
use anabranch_record::phrase::{counted, plural};
use anabranch_record::text::Str;
use serde_json::Value as Json;
use tokio::runtime::Builder;
use tokio::sync::Notify;

use super::case::{FaultSpec, Status, TestCase};
use super::input::Reads;
use super::script::{Kept, Marks, Script};
use super::step::Step;
use super::stub::Services;
use crate::files::system;
use crate::service::recovery::Recovery;
use crate::settings::RecoveryPolicy;
use crate::trial::watch::watched;

/// What a test is run with: its parts by the ids of the pipeline.
pub(super) struct Play {
    pub(super) case: Arc<TestCase>,
    pub(super) compiled: Compiled,
    pub(super) sources: BTreeMap<Str, Reads>,
    pub(super) faults: Vec<FaultSpec>,
    pub(super) recovery: RecoveryPolicy,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) kept: Kept,
    /// How it ended; `None` where it was cut off.
    pub(super) status: Option<Status>,
    /// Why, where it did not finish.
    pub(super) error: Option<String>,
    /// HTTP requests, those of them that no stub answers, and how often each stub did.
    pub(super) requests: Vec<Json>,
    pub(super) unmatched: Vec<usize>,
    pub(super) answered: Vec<usize>,
    /// What every node did.
    pub(super) measured: Measured,
    /// How often it was started.
    pub(super) starts: usize,
    /// Whether time was virtual.
    pub(super) paused: bool,
    /// What is hardly meant, though no record fails over it.
    pub(super) doubts: Vec<Doubtful>,
}

/// Most starts of one test.
const MOST_STARTS: usize = 100;
/// The same where time is real: the retries of a run take seconds.
const MOST_REAL_STARTS: usize = 5;
/// Longest wait between two starts where time is real.
const WAIT: Duration = Duration::from_millis(50);
/// How long a test may still take when its time is up, until its thread is left behind.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a test on a thread of its own, no longer than its timeout.
pub(super) fn play(play: Play) -> Observed {
    let over = Arc::new(Notify::new());
    let timeout = play.case.timeout;
    let script = match Script::new(play.sources.clone(), play.faults.clone()) {
        Ok(script) => script,
        Err(error) => return Observed { error: Some(error), ..Observed::default() },
    };
    let (done, ended) = std::sync::mpsc::channel();
    let (signal, shared) = (over.clone(), script.clone());
    let playing = std::thread::Builder::new().name("test".into()).spawn(move || {
        // Whoever waited may have left.
        let _ = done.send(on_thread(&play, &shared, &signal));
    });
    let error = match playing {
        Err(error) => format!("cannot start a thread: {}", system(&error)),
        // Not joined: a step that never returns keeps its thread for ever.
        Ok(_) => match ended.recv_timeout(timeout) {
            Ok(observed) => return observed,
            Err(RecvTimeoutError::Disconnected) => "the test panicked; this is a mistake of the engine".to_owned(),
            Err(RecvTimeoutError::Timeout) => {
                over.notify_one();
                match ended.recv_timeout(GRACE) {
                    Ok(observed) => return observed,
                    Err(_) => format!("time was up after {timeout:?}, and a step does not return"),
                }
            }
        },
    };
    Observed { kept: script.kept(), error: Some(error), ..Observed::default() }
}

fn on_thread(play: &Play, script: &Arc<Script>, over: &Notify) -> Observed {
    let threads = play.compiled.stages.stages.iter().any(|stage| matches!(stage.kind, StageKind::Isolate { .. }));
    let network = !play.case.http.is_empty() || threads || waits(&play.compiled.stages);
    let paused = !network;
    let runtime = match crate::runtime::start(Builder::new_current_thread().start_paused(paused)) {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = Some(format!("cannot start: {}", system(&error)));
            return Observed { error, ..Observed::default() };
        }
    };
    clock::hold(play.case.now);
    let observed = runtime.block_on(run(play, script, over, network, paused));
    runtime.shutdown_background();
    observed
}

/// Whether a step waits for the outside world.
fn waits(plan: &StagePlan) -> bool {
    plan.stages.iter().any(|stage| matches!(stage.kind, StageKind::Async { .. }))
}

async fn run(play: &Play, script: &Arc<Script>, over: &Notify, network: bool, paused: bool) -> Observed {
    let mut observed = Observed { paused, ..Observed::default() };
    let begin = Instant::now();
    // What only computes cannot reach the network: no socket need be opened for it.
    let services = match network {
        true => match Services::start(&play.case.http).await.and_then(|services| Ok((services.address()?, services))) {
            Ok((address, services)) => Some((address, services)),
            Err(error) => {
                observed.error = Some(format!("cannot listen on 127.0.0.1: {}", system(&error)));
                return observed;
            }
        },
        false => None,
    };
    let way = services.as_ref().map_or(Network::Open, |(address, _)| Network::Through(*address));
    let observer = Arc::new(Observer::of(&play.compiled));
    let plan = Arc::new(watched(&scripted(play, script, way), &observer));
    let playing = lives(play, script, &plan, over, &mut observed);
    match &services {
        Some((_, services)) => tokio::select! {
            () = playing => {}
            never = services.serve() => match never {},
        },
        None => playing.await,
    }
    if let Some((_, services)) = &services {
        (observed.requests, observed.unmatched, observed.answered) = services.asked();
    }
    observed.doubts = observer.doubts();
    observed.kept = script.kept();
    observed.measured.elapsed = begin.elapsed();
    observed.measured.broken = observed.status != Some(Status::Finished);
    observed
}

/// Runs the pipeline as the service would: what is transient starts it again, and so does a crash.
async fn lives(play: &Play, script: &Script, plan: &Arc<StagePlan>, over: &Notify, observed: &mut Observed) {
    let reach = Reach {
        store: Arc::new(Marks::default()),
        log: Arc::new(Silence),
        memo: Arc::new(Oblivion),
        schemas: Arc::new(MemoryRegistry::new()),
    };
    let mask: Arc<[Str]> = play.compiled.secrets.clone().into();
    let mut recovery = Recovery::new(play.recovery);
    let most_starts = if observed.paused { MOST_STARTS } else { MOST_REAL_STARTS };
    loop {
        observed.starts += 1;
        let options = RunOptions { once: true, mask: mask.clone(), ..RunOptions::default() };
        let mut running = exec::start(plan.clone(), reach.clone(), options);
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
                let timeout = play.case.timeout;
                observed.error = Some(format!(
                    "time was up after {timeout:?}, with {on_their_way} {} on their way",
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
                        observed.error = Some(format!("time was up while it recovered of: {fault}"));
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
                observed.error = Some("it was stopped".to_owned());
                return;
            }
        }
        if observed.starts >= most_starts {
            observed.error =
                Some(format!("it was started {} and did not come to an end", counted(most_starts, "time")));
            return;
        }
    }
}

/// Adds what a run did to what the runs before did.
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

/// Adds the counters of a node to others of it.
pub(super) fn sum(count: &mut StepCount, more: &StepCount) {
    count.rows_in += more.rows_in;
    count.selected += more.selected;
    count.rows_out += more.rows_out;
    count.filtered += more.filtered;
    count.failed += more.failed;
    count.busy += more.busy;
}

/// The plan between scripted ends.
fn scripted(play: &Play, script: &Arc<Script>, network: Network) -> StagePlan {
    let mut plan = StagePlan::clone(&play.compiled.stages);
    let wrap = |step: &mut anabranch_graph::plan::stage::StepSpec| {
        step.operator = Arc::new(Step {
            operator: step.operator.clone(),
            node: step.node.clone(),
            script: script.clone(),
            network,
            now: play.case.now,
        });
    };
    for stage in &mut plan.stages {
        match &mut stage.kind {
            StageKind::Read(read) => read.source = script.source(&read.connector),
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                steps.iter_mut().for_each(wrap);
            }
            StageKind::Async { step, .. } => wrap(step),
            StageKind::Write(write) => {
                write.destination = script.destination(&write.connector, write.destination.policy());
            }
        }
    }
    plan.dead_letter.destination = script.dead_letters(plan.dead_letter.destination.policy());
    plan
}

/// Nobody reads the log of a test.
struct Silence;

impl LogSink for Silence {
    fn enabled(&self, _: LogLevel) -> bool {
        false
    }

    fn write_records(&self, _: &LogLine<'_>, _: &mut dyn Iterator<Item = &[u8]>) -> std::io::Result<()> {
        Ok(())
    }
}
