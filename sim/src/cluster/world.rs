//! The parts that the nodes of a simulation share: the store, the destination, the network and the time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_cluster::NodeId;
use anabranch_plugin::state::Slots;
use anabranch_record::mark::Partition;
use fastrand::Rng;

use super::PlantedFault;
use super::forms::ProgramVersion;
use super::oracle::Moves;
use super::requests::Request;
use super::scenario::{ClusterScenario, TROUBLE};
use super::sink::Sink;
use super::tables::{FileSet, Tables};
use super::user::User;
use crate::scenario::mix;

/// How long the states of the store are kept that a standby may have, in milliseconds, and how far they are apart.
const KEPT: u64 = 4_000;
const APART: u64 = 100;
/// How long a node is busy after a pause, in milliseconds.
const BUSY: u64 = 500;
/// Maximum time of a call to the destination, in milliseconds.
const CALL: u64 = 60;
/// Rows of each partition that appear after the last fault.
pub(super) const LAST: u64 = 5;

/// A run of the pipeline on a node. Later ones have higher numbers.
pub(super) type RunId = u64;

/// A run that exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPlace {
    pub(super) node: usize,
    pub(super) began: u64,
    pub(super) slots: Slots,
    /// The set of files that it runs.
    pub(super) set: FileSet,
}

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
    late: Vec<(u64, ProgramVersion, Request)>,
    pub(super) sink: Sink,
    /// Until when a node is cut off from the store.
    pub(super) cut: BTreeMap<usize, u64>,
    /// When a node was last paused or woken up.
    pub(super) woken: BTreeMap<usize, u64>,
    /// The numbers of the nodes that have joined.
    pub(super) ids: BTreeMap<NodeId, usize>,
    /// The runs that exist.
    pub(super) here: BTreeMap<RunId, RunPlace>,
    pub(super) user: User,
    pub(super) moves: Moves,
    /// Since when nothing goes wrong any more.
    pub(super) quiet: Option<u64>,
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
            ids: BTreeMap::new(),
            here: BTreeMap::new(),
            user: User::new(),
            moves: Moves::default(),
            quiet: None,
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
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.late).into_iter().partition(|(at, ..)| *at <= now);
        state.late = later;
        for (_, version, request) in due {
            state.note(|| format!("a late request arrives: {request:?}"));
            state.handle(&request, version);
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
        let takes = Duration::from_millis(state.random.u64(1..CALL));
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
    pub(super) fn delay(&self, request: Request, version: ProgramVersion) {
        let mut state = self.lock();
        let at = state.now + state.random.u64(500..9_000);
        state.late.push((at, version, request));
    }

    /// Returns the number of rows that each partition has.
    pub(super) fn rows(&self) -> u64 {
        let state = self.lock();
        match state.quiet {
            None => (state.now / self.scenario.period).min(self.scenario.rows),
            Some(_) => self.scenario.rows + LAST,
        }
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

    /// Returns `true` if nothing that was sent or cut off is left.
    pub(super) fn is_calm(&self) -> bool {
        self.late.is_empty() && self.cut.values().all(|until| *until <= self.now)
    }

    /// Returns `true` if the node of a run may not know yet what happened while it was paused.
    pub(super) fn is_drowsy(&self, run: RunId) -> bool {
        let Some(place) = self.here.get(&run) else { return false };
        let woken = self.woken.get(&place.node).filter(|woken| place.began < **woken);
        woken.is_some_and(|woken| self.now < woken + BUSY + 2 * CALL)
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
        self.user.looks_again();
    }
}

/// Returns a partition of the source.
pub(super) fn partition(number: u32) -> Partition {
    Partition(format!("topic/{number}").into())
}
