//! The runs of the pipeline on a node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_cluster::{ConfigurationRevision, DrainReason, Membership, RunEnd, Shares, TICK, UnitRuns};
use anabranch_graph::exec::{RunOptions, start};
use anabranch_graph::plan::StagePlan;
use anabranch_plugin::state::Slots;
use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::PlantedFault;
use super::ends::{ClusterDestination, ClusterSource, NoLetters, RunOf};
use super::store::{RunStore, Way};
use super::tables::FileSet;
use super::world::RunPlace;
use crate::plain::{Ends, compiled, services};

/// Time between a failure of a run and the next one.
const AGAIN: Duration = Duration::from_millis(300);
/// Time to drain.
const BUDGET: Duration = Duration::from_secs(5);

/// The orders to a run.
enum RunOrder {
    Drain(DrainReason),
    Kill,
}

/// The configuration that a node has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    pub(super) revision: ConfigurationRevision,
    pub(super) set: FileSet,
}

/// The configuration that a node has read; `None` = none yet.
type Known = watch::Receiver<Option<Configuration>>;

/// The runs of the pipeline on a node.
pub(super) struct SimulatedRuns {
    way: Way,
    membership: Membership,
    known: Known,
    current: Mutex<Current>,
    has_ended: watch::Sender<bool>,
}

#[derive(Default)]
struct Current {
    orders: Option<mpsc::UnboundedSender<RunOrder>>,
    is_lost: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl SimulatedRuns {
    pub(super) fn new(way: Way, membership: Membership, known: Known) -> SimulatedRuns {
        SimulatedRuns { way, membership, known, current: Mutex::default(), has_ended: watch::Sender::new(true) }
    }

    fn order(&self, order: RunOrder) {
        if let Some(orders) = &self.current.lock().unwrap_or_else(PoisonError::into_inner).orders {
            let _ = orders.send(order);
        }
    }
}

#[async_trait]
impl UnitRuns for SimulatedRuns {
    async fn ended(&self) {
        let _ = self.has_ended.subscribe().wait_for(|ended| *ended).await;
    }

    async fn may_begin(&self, _: &Shares) -> bool {
        let Some(latest) = self.membership.standing().borrow().configuration() else { return false };
        let mut known = self.known.clone();
        let is_known = known.wait_for(|known| known.is_some_and(|known| known.revision.covers(latest)));
        timeout(TICK, is_known).await.is_ok_and(|known| known.is_ok())
    }

    fn begin(&self, slots: Slots) -> bool {
        let (orders, to_do) = mpsc::unbounded_channel();
        let is_lost = Arc::new(AtomicBool::new(false));
        self.has_ended.send_replace(false);
        let task = RunTask {
            way: self.way.clone(),
            membership: self.membership.clone(),
            known: self.known.clone(),
            slots,
            is_lost: is_lost.clone(),
            has_ended: self.has_ended.clone(),
        };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        (current.orders, current.is_lost) = (Some(orders), is_lost);
        current.tasks.spawn(task.run(to_do));
        true
    }

    fn drain(&self, reason: DrainReason) {
        self.order(RunOrder::Drain(reason));
    }

    async fn abandon(&self) {
        if self.way.world.is_planted(PlantedFault::NoLocalDeadline) {
            sleep(Duration::from_secs(20)).await;
        }
        sleep(self.way.world.noticing(self.way.node)).await;
        self.current.lock().unwrap_or_else(PoisonError::into_inner).is_lost.store(true, Ordering::Relaxed);
        self.order(RunOrder::Kill);
        self.ended().await;
    }

    fn put_down(&self) {}

    async fn end(&self) -> RunEnd {
        // Runs end only by order.
        RunEnd::Released
    }

    async fn unwant(&self, _: bool) -> bool {
        true
    }
}

/// Runs the pipeline until it is ordered to stop.
struct RunTask {
    way: Way,
    membership: Membership,
    known: Known,
    slots: Slots,
    is_lost: Arc<AtomicBool>,
    has_ended: watch::Sender<bool>,
}

impl RunTask {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<RunOrder>) {
        self.run_until_ordered(&mut orders).await;
        if self.way.world.is_planted(PlantedFault::DrainedLate) {
            sleep(TICK * 2).await;
        }
        self.has_ended.send_replace(true);
    }

    async fn run_until_ordered(&mut self, orders: &mut mpsc::UnboundedReceiver<RunOrder>) {
        let world = self.way.world.clone();
        loop {
            let (node, slots) = (self.way.node, self.slots);
            let set = self.known.borrow_and_update().map_or(0, |known| known.set);
            let run = {
                let mut state = world.lock();
                state.runs += 1;
                let (run, began) = (state.runs, state.now);
                state.here.insert(run, RunPlace { node, began, slots, set });
                run
            };
            world.note(|| {
                let slots: Vec<u32> = slots.iter().collect();
                format!("run {run} begins on node {node} with the slots {slots:?} and the files {set}")
            });
            let stages = match plan(&RunOf { world: world.clone(), run, version: self.way.version }) {
                Ok(stages) => stages,
                Err(what) => return world.lock().breaks(what),
            };
            let store = RunStore {
                way: self.way.clone(),
                membership: self.membership.clone(),
                run,
                is_lost: self.is_lost.clone(),
            };
            let services = services(Arc::new(store), Some("store".into()));
            let mut running = start(stages, services, RunOptions { slots, ..RunOptions::default() });
            let (mut is_ordered, mut is_changed) = (false, false);
            let ending = loop {
                let mut known = self.known.clone();
                tokio::select! {
                    biased;
                    ending = running.wait() => break ending,
                    order = orders.recv() => {
                        is_ordered = true;
                        match order {
                            Some(RunOrder::Drain(reason)) => {
                                let mut state = world.lock();
                                match reason {
                                    DrainReason::Move => state.drains(slots, node),
                                    DrainReason::Stop => state.move_ends(),
                                }
                                drop(state);
                                match world.is_planted(PlantedFault::KilledInsteadOfDrained) {
                                    true => running.kill(),
                                    false => running.stop(Some(BUDGET)),
                                }
                            }
                            Some(RunOrder::Kill) | None => running.kill(),
                        }
                    }
                    // The service has the pipeline run again with the changed files.
                    Ok(_) = known.wait_for(|known| known.is_some_and(|known| known.set != set)), if !is_changed => {
                        is_changed = true;
                        world.lock().drains(slots, node);
                        running.stop(Some(BUDGET));
                    }
                }
            };
            world.note(|| format!("run {run} ends: {ending:?}"));
            world.lock().here.remove(&run);
            if is_ordered {
                return;
            }
            tokio::select! {
                biased;
                _ = orders.recv() => return,
                () = sleep(if is_changed { Duration::ZERO } else { AGAIN }) => {}
            }
        }
    }
}

/// Compiles the pipeline for a run.
fn plan(run: &RunOf) -> Result<Arc<StagePlan>, String> {
    let ends = Ends {
        source: Arc::new(ClusterSource(run.clone())),
        destination: Arc::new(ClusterDestination(run.clone())),
        letters: Arc::new(NoLetters),
    };
    compiled(ends, 64, true)
}
