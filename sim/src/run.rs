//! Runs a simulation until its sources are exhausted, through all crashes and restarts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_graph::exec::{Ending, Progress, RunOptions, Running, start};
use anabranch_graph::mutant::set_credit;
use anabranch_record::fault::{Fault, FaultClass};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::codes;
use crate::ends::SimStore;
use crate::inspect::Inspections;
use crate::pipeline::plan;
use crate::plain::services;
use crate::scenario::Scenario;
use crate::world::{DriverCommand, TROUBLED_RUNS, World, result_counts};

/// Time limit of progress on the paused clock.
const STALLED: Duration = Duration::from_secs(600);
/// Time limit of progress in real time, if threads take part.
const THREADS_STALLED: Duration = Duration::from_secs(5);
/// Time budget for stopping a run that hangs, in milliseconds.
const BUDGET: u64 = 10_000;

/// A broken guarantee.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The guarantee.
    pub what: String,
    /// The log of events, if requested.
    pub log: Vec<String>,
}

/// Runs a scenario.
///
/// # Errors
/// The first broken guarantee.
pub fn simulate(scenario: &Arc<Scenario>, logging: bool) -> Result<(), Failure> {
    let (result, log, _) = observe(scenario, logging, !scenario.seed.is_multiple_of(4));
    result.map_err(|what| Failure { what, log })
}

/// Runs a scenario on several threads and the real clock, with short delays, to find races. The course is different
/// every time.
///
/// # Errors
/// The first broken guarantee.
pub fn race(scenario: &Scenario) -> Result<(), Failure> {
    let world = World::new(&Arc::new(scenario.with_short_delays()), true);
    world.lock().threaded = true;
    let runtime = Builder::new_multi_thread().worker_threads(3).enable_time().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run_to_end(&world, true)),
        Err(error) => Err(format!("no runtime: {error}")),
    };
    let mut state = world.lock();
    let log = state.log.take().unwrap_or_default();
    state.broken.take().map_or(result, Err).map_err(|what| Failure { what, log })
}

fn observe(scenario: &Arc<Scenario>, logging: bool, watched: bool) -> (Result<(), String>, Vec<String>, u64) {
    // In half of the scenarios, credit runs out soon.
    set_credit(if scenario.seed.is_multiple_of(2) { 1 << 10 } else { 1 << 31 });
    let world = World::new(scenario, logging);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run_to_end(&world, watched)),
        Err(error) => Err(format!("no runtime: {error}")),
    };
    let mut state = world.lock();
    let log = state.log.take().unwrap_or_default();
    (state.broken.take().map_or(result, Err), log, state.inspections.seen)
}

/// Returns the events of a scenario, one per line, with or without inspections, and the number of inspected records.
pub fn course(scenario: &Arc<Scenario>, watched: bool) -> (Vec<String>, u64) {
    let (result, mut log, seen) = observe(scenario, true, watched);
    log.extend(result.err());
    (log, seen)
}

async fn run_to_end(world: &Arc<World>, watched: bool) -> Result<(), String> {
    let mut stages = plan(world, false)?;
    if watched {
        world.lock().inspections = Inspections::at(&stages, world.scenario.seed);
    }
    let taps = world.lock().inspections.taps.clone();
    for run in 0.. {
        let services = services(Arc::new(SimStore(world.clone())), None);
        let traces = world.lock().inspections.tracing();
        let options = RunOptions { once: world.scenario.once, taps: taps.clone(), traces, ..RunOptions::default() };
        let mut running = start(stages.clone(), services, options);
        let progress = running.progress();
        world.lock().progress = Some(progress.clone());
        let (ending, stopped) = follow(world, &mut running).await?;
        world.lock().note(|| format!("ended: {ending:?}"));
        if world.lock().broken.is_some() {
            return Ok(());
        }
        if watched {
            let whole = matches!(ending, Ending::Finished | Ending::Stopped);
            let inspections = &world.lock().inspections;
            inspections.spans.check(inspections.share(), progress.totals().read, whole)?;
        }
        if check_ending(world, run, &ending, stopped, &progress)? {
            return Ok(());
        }
        let mut state = world.lock();
        let fatal = |fault: &Fault| fault.class() == FaultClass::Fatal && fault.code() != codes::FENCED;
        if matches!(&ending, Ending::Faulted(fault) if fatal(fault)) && !state.repaired {
            state.repaired = true;
            drop(state);
            stages = plan(world, true)?;
            state = world.lock();
        }
        if run > TROUBLED_RUNS + 4 {
            return Err(format!("it does not end although nothing fails: {ending:?}"));
        }
        state.end_run();
        world.between_runs(&mut state);
        drop(state);
        if world.lock().broken.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// Waits for the end of a run and carries out the orders of the scenario. Returns whether the run was ordered to stop.
async fn follow(world: &World, running: &mut Running) -> Result<(Ending, bool), String> {
    let mut stopped = false;
    let mut since = Instant::now();
    let mut seen = 0;
    loop {
        tokio::select! {
            biased;
            ending = running.wait() => return Ok((ending, stopped)),
            () = world.orders.notified() => match world.take_order() {
                Some(DriverCommand::Kill) => running.kill(),
                Some(DriverCommand::Stop(budget)) => {
                    stopped = true;
                    running.stop(budget.map(Duration::from_millis));
                }
                // A source that waits for more records will not get any.
                None => {
                    let done = world.lock().nothing_to_do();
                    if done && !stopped {
                        stopped = true;
                        running.stop(None);
                    }
                }
            },
            () = sleep(STALLED) => {
                if world.scenario.has_threads() && since.elapsed() < THREADS_STALLED {
                    // The clock continues while threads work, or while they wait for a CPU.
                    std::thread::sleep(Duration::from_micros(200));
                    continue;
                }
                let ticks = world.lock().ticks_in_all();
                if ticks > std::mem::replace(&mut seen, ticks) {
                    since = Instant::now();
                    continue;
                }
                if !world.lock().hung {
                    let progress = running.progress();
                    return Err(format!("it stalls: {:?}, lanes {:?}, stages {:?}", progress.totals(), progress.lanes(), progress.stages()));
                }
                running.stop(Some(Duration::from_millis(BUDGET)));
                return match timeout(STALLED, running.wait()).await {
                    Ok(ending) => Ok((ending, true)),
                    Err(_) => Err("it does not stop within its budget".to_owned()),
                };
            }
        }
    }
}

/// Checks whether a run may end in this way. Returns `true` if it was the last run.
fn check_ending(world: &World, run: u32, ending: &Ending, stopped: bool, progress: &Progress) -> Result<bool, String> {
    let state = world.lock();
    let scenario = &world.scenario;
    let unacknowledged = state.unacknowledged();
    let all_acknowledged = state.all_acknowledged();
    match ending {
        Ending::Finished | Ending::Stopped if !unacknowledged.is_empty() => {
            Err(format!("{ending:?}, and rows of lanes {unacknowledged:?} were not acknowledged"))
        }
        Ending::Finished if !state.nothing_to_do() => Err("finished, and rows are left".to_owned()),
        Ending::Stopped | Ending::NotDrained { .. } if !stopped => Err(format!("{ending:?}, and no one ordered it")),
        Ending::Killed if !state.dead => Err("killed without an order".to_owned()),
        Ending::Finished if !scenario.is_transactional() && state.remembered().is_some() => {
            Err(format!("finished, and the mark of lane {:?} is not removed", state.remembered()))
        }
        Ending::Finished | Ending::Stopped => {
            let (window, threshold) = if state.repaired { (0, 0) } else { (scenario.window, scenario.threshold) };
            if window > 0 && threshold == 0 && state.exceeded(window, threshold) {
                return Err("more dead letters than the dead-letter queue allows".to_owned());
            }
            let totals = progress.totals();
            let result_counts = state.lanes.iter().flat_map(|lane| &lane.fates).map(result_counts);
            let sum =
                result_counts.reduce(|a, b| Some([0, 1, 2].map(|i| a.map_or(0, |a| a[i]) + b.map_or(0, |b| b[i]))));
            let counted = [totals.delivered, totals.dead_lettered, totals.filtered];
            let certain = scenario.is_certain() && !state.reads_again() && !state.others_delivered;
            if run == 0 && all_acknowledged && certain && sum.flatten().unwrap_or_default() != counted {
                return Err(format!("counted {totals:?}, and {sum:?} is right"));
            }
            if !totals.balance() {
                return Err(format!("{totals:?} does not balance"));
            }
            // The next run is the earliest that can notice what a destination loses now. A run that is stopped at its
            // beginning has not read again what was lost before.
            let now = state.destinations.iter().any(|destination| destination.went_back_now);
            let is_stopped = matches!(ending, Ending::Stopped);
            let later = now || is_stopped && state.destinations.iter().any(|destination| destination.went_back);
            let unsafe_row = state.unsafe_row();
            if let Some((lane, row)) = unsafe_row.filter(|_| !later) {
                return Err(format!("{ending:?}, and row {row} of lane {lane} is no longer safe"));
            }
            Ok(all_acknowledged && !now && unsafe_row.is_none())
        }
        Ending::NotDrained { .. } | Ending::Killed => Ok(false),
        Ending::Faulted(fault) => check_fault(&state, scenario, fault).map(|()| false),
    }
}

/// Checks whether a run may end with this fault.
fn check_fault(state: &crate::world::State, scenario: &Scenario, fault: &Fault) -> Result<(), String> {
    let unfair = || Err(format!("it ends with {fault:?}"));
    match (fault.class(), fault.code()) {
        (FaultClass::Transient, codes::SIM_PASSING | codes::STORE_UNAVAILABLE) if state.is_troubled() => Ok(()),
        (FaultClass::Transient, codes::MARKS_MOVED)
            if state.fenced || state.destinations.iter().any(|destination| destination.went_back_now) =>
        {
            Ok(())
        }
        (FaultClass::Fatal, codes::DEAD_LETTER_FAILED) if state.is_troubled() => Ok(()),
        (FaultClass::Fatal, codes::OPERATOR_PANICKED) if scenario.panics() && !state.repaired => Ok(()),
        (FaultClass::Fatal, codes::ENGINE_PANICKED | codes::OPERATOR_PANICKED) if state.panicked_outside => Ok(()),
        (FaultClass::Fatal, codes::SIM_BROKEN) if state.is_troubled() && !state.repaired => Ok(()),
        (FaultClass::Fatal, codes::FENCED) if state.fenced => Ok(()),
        (FaultClass::Fatal, codes::VERDICT_COUNT) if state.miscounted => Ok(()),
        (FaultClass::Fatal, codes::NOT_CONVERGING) if scenario.is_mute() && !state.repaired => Ok(()),
        (
            FaultClass::Fatal,
            codes::DEAD_LETTER_THRESHOLD
            | anabranch_plugin::testing::codes::FAILED
            | anabranch_plugin::testing::codes::REFUSED
            | codes::CONDITION_NOT_BOOLEAN
            | codes::UNMATCHED,
        ) => {
            let due = !state.repaired && scenario.window > 0 && state.may_exceed(scenario.window, scenario.threshold);
            if due { Ok(()) } else { unfair() }
        }
        _ => unfair(),
    }
}
