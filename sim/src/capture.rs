//! Simulation of a source that captures the changes of a database: its snapshot, the hand-over to the changes, rows that
//! are read beside them, and what it confirms to the server.
//!
//! The database is a model of PostgreSQL ([`database`]), and the source follows the protocol of the source `postgres` step by
//! step ([`driver`]). Only the processes between them are left out. The executor reads it through the same contract, through
//! crashes and broken connections, until the database is quiet. The guarantees:
//!
//! * every change that was committed since the slot exists arrives, and nothing arrives that was not committed;
//! * at the destination, no older form of a row replaces a newer one, except repetitions after a crash, in the lane that had
//!   both;
//! * in the end, the destination has what the database has;
//! * the server never removes a part of the log that a later run needs, and in the end it may remove all;
//! * all rows arrive again after a request that the source has confirmed.

mod acknowledged;
mod backfills;
mod changes;
mod database;
mod driver;
mod filling;
mod history;
mod plan;
mod position;
mod scenario;
mod snapshot;
mod source;
mod world;

use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::exec::{Ending, RunOptions, Running, SourceRequests, start};
use anabranch_graph::mutant::set_credit;
use anabranch_graph::plan::StagePlan;
use anabranch_plugin::source::Request;
use anabranch_plugin::testing::{Journal, MemoryStore};
use anabranch_record::fault::FaultClass;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until};

pub use scenario::CaptureScenario;

use crate::plain::{Ends, SOURCE, compiled, services};
use crate::run::Failure;
use source::CaptureSource;
use world::{CaptureDestination, SlowStore, TROUBLED_RUNS, World};

/// Time in which everything must arrive after the database has become quiet, on the paused clock.
const STALLED: Duration = Duration::from_secs(600);
/// Steps of the database between two runs.
const BETWEEN_RUNS: u32 = 12;
/// Runs the scenario of a seed.
///
/// # Errors
/// The first broken guarantee.
pub fn simulate(seed: u64, logging: bool) -> Result<(), Failure> {
    set_credit(1 << 31);
    let world = World::new(CaptureScenario::generate(seed), logging);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run_to_end(&world)),
        Err(error) => Err(format!("no runtime: {error}")),
    };
    let mut state = world.lock();
    let log = state.log.take().unwrap_or_default();
    state.broken.take().map_or(result, Err).map_err(|what| Failure { what, log })
}

async fn run_to_end(world: &Arc<World>) -> Result<(), String> {
    let stages = plan(world)?;
    let store = Arc::new(SlowStore { world: world.clone(), store: MemoryStore::new(&Journal::default()) });
    for run in 0..=TROUBLED_RUNS + 2 {
        let services = services(store.clone(), None);
        let requests = Arc::new(SourceRequests::default());
        let options = RunOptions { requests: requests.clone(), ..RunOptions::default() };
        let mut running = start(stages.clone(), services, options);
        let ending = follow(world, &mut running, &requests).await?;
        world.note(|| format!("ended: {ending:?}"));
        let is_dead = {
            let state = world.lock();
            if state.broken.is_some() {
                return Ok(());
            }
            state.dead
        };
        match ending {
            Ending::Stopped => {
                let state = world.lock();
                return match state.history.missing(&state.database)? {
                    Some(missing) => Err(format!("stopped, and {missing}")),
                    None => Ok(()),
                };
            }
            Ending::Killed if is_dead => {}
            // A write that fails is not repeated during a stop.
            Ending::NotDrained { .. } if run < TROUBLED_RUNS => {}
            Ending::Faulted(fault) if fault.class() == FaultClass::Transient && run < TROUBLED_RUNS => {}
            ending => return Err(format!("it ends with {ending:?}")),
        }
        world.next_run();
        for _ in 0..BETWEEN_RUNS {
            world.step();
        }
    }
    Err("it does not end although nothing fails".to_owned())
}

/// Waits for the end of a run, while the database changes and a user asks for rows.
async fn follow(world: &World, running: &mut Running, requests: &Arc<SourceRequests>) -> Result<Ending, String> {
    let mut step = Instant::now();
    let mut quiet_since = None;
    let mut asks = world.scenario.requests.get(world.run() as usize).map(|at| step + Duration::from_millis(*at));
    let (mut is_stopping, mut is_killed) = (false, false);
    let asked = ask(world, requests.clone(), asks.take());
    tokio::pin!(asked);
    let mut has_answer = false;
    loop {
        tokio::select! {
            biased;
            ending = running.wait() => return Ok(ending),
            () = world.killed(), if !is_killed => {
                is_killed = true;
                running.kill();
            }
            () = &mut asked, if !has_answer => has_answer = true,
            () = sleep_until(step) => {
                step = Instant::now() + world.scenario.pause(world.next());
                if world.step() || is_stopping {
                    continue;
                }
                step = Instant::now() + Duration::from_millis(200);
                let (missing, unconfirmed) = {
                    let state = world.lock();
                    (state.history.missing(&state.database)?, state.database.confirmed() < Some(state.database.end()))
                };
                if missing.is_none() && !unconfirmed && has_answer {
                    is_stopping = true;
                    running.stop(None);
                } else if quiet_since.get_or_insert_with(Instant::now).elapsed() > STALLED {
                    let missing = missing.unwrap_or_else(|| "the end of the log is not confirmed".to_owned());
                    return Err(format!("it stalls: {missing}"));
                }
            }
        }
    }
}

/// Asks for all rows at a time, and notes what the source then owes.
async fn ask(world: &World, requests: Arc<SourceRequests>, at: Option<Instant>) {
    let Some(at) = at else { return };
    sleep_until(at).await;
    let (arrivals, keys) = {
        let state = world.lock();
        let rows = state.database.committed().into_values().filter(|change| change.exists);
        (state.history.arrivals(), rows.map(|change| change.key).collect::<Vec<u32>>())
    };
    if requests.ask(SOURCE, Request::Backfill { part: "t".into() }).await.is_ok() {
        world.note(|| "a request is confirmed".to_owned());
        world.lock().history.confirmed(arrivals, keys);
    }
}

/// Compiles the pipeline: the source and the destination.
fn plan(world: &Arc<World>) -> Result<Arc<StagePlan>, String> {
    let destination = Arc::new(CaptureDestination(world.clone()));
    let ends = Ends { source: Arc::new(CaptureSource(world.clone())), letters: destination.clone(), destination };
    compiled(ends, world.scenario.replay_rows, false)
}
