//! The parts that the nodes of a simulation share: the store, the destination, the network and the time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_record::mark::Partition;
use fastrand::Rng;

use super::PlantedFault;
use super::scenario::{ClusterScenario, TROUBLE};
use super::sink::Sink;
use super::tables::{Request, Tables};
use crate::scenario::mix;

/// How long the states of the store are kept that a standby may have, in milliseconds, and how far they are apart.
const KEPT: u64 = 4_000;
const APART: u64 = 100;
/// How long a node is busy after a pause, in milliseconds.
const BUSY: u64 = 500;

/// A run of the pipeline on a node. Later ones have higher numbers.
pub(super) type RunId = u64;

/// The changing state of a simulation.
pub(super) struct State {
    /// Time since the beginning, in milliseconds.
    pub(super) now: u64,
    /// Milliseconds by which the clock of the server is ahead of the time.
    pub(super) skew: i64,
    pub(super) random: Rng,
    pub(super) tables: Tables,
    /// Number of the history of the server.
    pub(super) history: u64,
    /// Earlier states of the tables.
    earlier: VecDeque<(u64, Tables)>,
    /// Requests that arrive later, when nobody waits for an answer.
    late: Vec<(u64, Request)>,
    pub(super) sink: Sink,
    /// Until when a node is cut off from the store.
    pub(super) cut: BTreeMap<usize, u64>,
    /// When a node was last woken up.
    pub(super) woken: BTreeMap<usize, u64>,
    /// The runs that exist, with their nodes.
    pub(super) here: BTreeMap<RunId, usize>,
    /// Runs whose node was paused while they existed.
    pub(super) paused: BTreeSet<RunId>,
    /// Number of the latest run.
    pub(super) runs: RunId,
    pub(super) broken: Option<String>,
    pub(super) log: Option<Vec<String>>,
}

/// The world.
pub(super) struct World {
    pub(super) scenario: ClusterScenario,
    pub(super) planted: Option<PlantedFault>,
    state: Mutex<State>,
}

/// The way of a request through the network.
pub(super) struct Passage {
    /// Time until it arrives, and until the answer is back.
    pub(super) there: Duration,
    pub(super) back: Duration,
    pub(super) fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    /// It never arrives.
    Lost,
    /// It arrives much later, and nobody gets the answer.
    Late,
    /// It is done, and the answer is lost.
    Unanswered,
}

impl World {
    pub(super) fn new(scenario: ClusterScenario, planted: Option<PlantedFault>, logging: bool) -> Arc<World> {
        let state = State {
            now: 0,
            skew: 0,
            random: Rng::with_seed(mix(scenario.seed, 91)),
            tables: Tables::new(&scenario, planted),
            history: 1,
            earlier: VecDeque::new(),
            late: Vec::new(),
            sink: Sink::new(scenario.sink),
            cut: BTreeMap::new(),
            woken: BTreeMap::new(),
            here: BTreeMap::new(),
            paused: BTreeSet::new(),
            runs: 0,
            broken: None,
            log: logging.then(Vec::new),
        };
        Arc::new(World { scenario, planted, state: Mutex::new(state) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> u64 {
        self.lock().now
    }

    pub(super) fn is_planted(&self, fault: PlantedFault) -> bool {
        self.planted == Some(fault)
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        self.lock().note(what);
    }

    /// Lets time pass: late requests arrive. Returns the time.
    pub(super) fn passes(&self, step: Duration) -> u64 {
        let mut state = self.lock();
        state.now += step.as_millis() as u64;
        let now = state.now;
        if state.earlier.back().is_none_or(|(at, _)| now >= at + APART) {
            let tables = state.tables.clone();
            state.earlier.push_back((now, tables));
            state.earlier.retain(|(at, _)| *at + KEPT >= now);
        }
        let (due, later) = std::mem::take(&mut state.late).into_iter().partition(|(at, _)| *at <= now);
        state.late = later;
        let due: Vec<(u64, Request)> = due;
        for (_, request) in due {
            state.note(|| format!("a late request arrives: {request:?}"));
            state.handle(&request);
        }
        now
    }

    /// Returns the order in which the nodes get a step.
    pub(super) fn order(&self, nodes: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..nodes).collect();
        self.lock().random.shuffle(&mut order);
        order
    }

    /// Decides what becomes of a request of a node to the store.
    pub(super) fn passage(&self, node: usize) -> Passage {
        let mut state = self.lock();
        let (now, faults) = (state.now, if state.now < TROUBLE { self.scenario.faults } else { 0 });
        let is_cut = state.cut.get(&node).is_some_and(|until| now < *until);
        let hits = |random: &mut Rng| faults > 0 && random.u64(..faults) == 0;
        let random = &mut state.random;
        let delay =
            |random: &mut Rng| Duration::from_millis(if hits(random) { random.u64(..2_500) } else { random.u64(..12) });
        let (there, back) = (delay(random), delay(random));
        let fate = match (is_cut, hits(random)) {
            (true, _) => Fate::Lost,
            (false, false) => Fate::Answered,
            (false, true) => [Fate::Lost, Fate::Late, Fate::Unanswered][random.usize(..3)],
        };
        Passage { there, back, fate }
    }

    /// Returns a time for a call to the destination, and whether it fails before or after it has taken effect.
    pub(super) fn call(&self) -> (Duration, Option<bool>) {
        let mut state = self.lock();
        let faults = if state.now < TROUBLE { self.scenario.faults } else { 0 };
        let fails = faults > 0 && state.random.u64(..faults) == 0;
        let takes = Duration::from_millis(state.random.u64(1..60));
        (takes, fails.then(|| state.random.bool()))
    }

    /// Returns the time until the destination is open.
    pub(super) fn opening(&self) -> Duration {
        let most = self.scenario.opening;
        Duration::from_millis(self.lock().random.u64(..most))
    }

    /// Returns the time that a node takes to learn that it has lost a unit: it may be busy after a pause.
    pub(super) fn noticing(&self, node: usize) -> Duration {
        let mut state = self.lock();
        let is_busy = state.woken.get(&node).is_some_and(|woken| state.now < woken + BUSY);
        Duration::from_millis(if is_busy { state.random.u64(..BUSY) } else { 0 })
    }

    /// Has a request arrive some time later.
    pub(super) fn delay(&self, request: Request) {
        let mut state = self.lock();
        let at = state.now + state.random.u64(500..9_000);
        state.late.push((at, request));
    }
}

impl State {
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>6} ms: {}", self.now, what()));
        }
    }

    /// Notes a broken guarantee, which ends the simulation.
    pub(super) fn breaks(&mut self, what: String) {
        self.note(|| what.clone());
        self.broken.get_or_insert(what);
    }

    /// Notes that a node is paused.
    pub(super) fn pauses(&mut self, node: usize) {
        let runs = self.here.iter().filter(|(_, at)| **at == node).map(|(run, _)| *run);
        self.paused.extend(runs);
    }

    /// Returns the time of the clock of the server, in milliseconds.
    pub(super) fn clock(&self) -> u64 {
        // It began before the simulation.
        (self.now + 1_000_000).saturating_add_signed(self.skew)
    }

    /// Another server takes over, which lacks what was written in the last milliseconds.
    pub(super) fn fails_over(&mut self, forgotten: u64) {
        let from = self.now.saturating_sub(forgotten);
        let tables = self.earlier.iter().rev().find(|(at, _)| *at <= from).or(self.earlier.front());
        if let Some((_, tables)) = tables {
            self.tables = tables.clone();
        }
        self.history += 1;
        // Requests that were sent to the old server do not arrive.
        self.late.clear();
    }

    /// Returns what is not delivered or not stored yet.
    pub(super) fn missing(&self, scenario: &ClusterScenario) -> Option<String> {
        (0..scenario.partitions).map(partition).find_map(|partition| {
            let (last, stored) = (self.sink.last(&partition), self.tables.stored(&partition));
            let missing = last < scenario.rows || stored < scenario.rows;
            missing.then(|| {
                format!("of {} rows of {}, {last} are delivered and {stored} stored", scenario.rows, partition.0)
            })
        })
    }
}

/// Returns a partition of the source.
pub(super) fn partition(number: u32) -> Partition {
    Partition(format!("topic/{number}").into())
}
