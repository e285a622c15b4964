//! The state around the graph: rows that were read, are durable, stored and acknowledged, with checks of the
//! guarantees. It survives crashes.

mod destinations;
mod group;
mod lanes;
mod takeover;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_graph::exec::Progress;
use anabranch_plugin::state::Receipt;
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use tokio::sync::Notify;

use crate::inspect::Inspections;
use crate::oracle::{RequiredOutcome, fate};
use crate::scenario::{Interruption, Scenario, hits, mix};
use destinations::expect;

pub use destinations::{DestinationContents, result_counts};
pub use lanes::{SourcePartition, first, position};

/// Number of runs after which no more failures happen.
pub const TROUBLED_RUNS: u32 = 8;

/// Maximum number of ticks of a run.
const MOST_TICKS: u64 = 5_000_000;

/// Maximum number of unanswered calls of processors in a run.
const MOST_SILENCES: u32 = 5000;

/// A hasher for record ids, which are random already.
#[derive(Default)]
pub struct Random(u64);

impl Hasher for Random {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| mix(hash, u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Random>>;
pub(crate) type HashSet<K> = std::collections::HashSet<K, BuildHasherDefault<Random>>;

/// An order for the driver of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverCommand {
    /// Drop everything immediately.
    Kill,
    /// Stop the run, within this many milliseconds or without a limit.
    Stop(Option<u64>),
}

/// The world, shared by all ends of the graph.
pub struct World {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    state: Mutex<State>,
    /// Notified when there is an order.
    pub orders: Notify,
}

/// The mutable state of the world.
pub struct State {
    scenario: Arc<Scenario>,
    /// Number of the run.
    pub run: u32,
    ticks: u64,
    /// `true` if the process is dead. Then calls have no effect.
    pub dead: bool,
    /// Partitions of all sources.
    pub lanes: Vec<SourcePartition>,
    /// Destinations; the dead-letter queue is last.
    pub destinations: Vec<DestinationContents>,
    /// Dead letters that may be written, by node, record and generation, with their names.
    letters: HashMap<u64, Option<Vec<u8>>>,
    names: HashMap<Vec<u8>, u64>,
    letters_in_run: Vec<(usize, u32)>,
    marks: BTreeMap<LaneId, Mark>,
    receipts: Vec<Receipt>,
    /// Number of the owner of the marks.
    pub epoch: u64,
    /// `true` while a commit takes its time.
    pub storing: bool,
    /// Number of commits, flushes, transactions and acknowledgements in progress.
    busy: u32,
    /// Positions of each source in the order of reading, if a planted fault counts acknowledgements.
    read_order: Vec<VecDeque<(usize, Position)>>,
    /// Number of calls of everything but destinations, for random numbers.
    pub calls: u64,
    /// `true` if the simulation runs on several threads, so that calls overlap.
    pub threaded: bool,
    /// `true` if a call never returned in this run.
    pub hung: bool,
    /// `true` if another run claimed the pipeline during this run.
    pub fenced: bool,
    fence_reported: bool,
    /// `true` if a source, a destination or an open panicked in this run.
    pub panicked_outside: bool,
    /// `true` if a destination returned a wrong number of verdicts in this run.
    pub miscounted: bool,
    /// Number of calls without an answer of a processor in this run.
    silences: u32,
    /// The counters of this run.
    pub progress: Option<Arc<Progress>>,
    /// True if another run has delivered rows, which this one does not count.
    pub others_delivered: bool,
    panicked: HashSet<u64>,
    /// `true` if panics and excessive numbers of refusals have stopped.
    pub repaired: bool,
    /// The first broken guarantee.
    pub broken: Option<String>,
    order: Option<DriverCommand>,
    /// The log of events, if requested.
    pub log: Option<Vec<String>>,
    /// The inspections.
    pub inspections: Inspections,
}

impl World {
    /// Creates a world before its first event.
    pub fn new(scenario: &Arc<Scenario>, logging: bool) -> Arc<World> {
        let mut lanes = Vec::new();
        let mut destinations: Vec<DestinationContents> =
            (0..=scenario.sinks.len()).map(|_| DestinationContents::default()).collect();
        for (source, upstream) in scenario.sources.iter().enumerate() {
            for (i, rows) in upstream.partitions.iter().enumerate() {
                let lane = lanes.len();
                let partition = match upstream.partitions.len() {
                    1 => Partition::ONLY,
                    _ => Partition(format!("p{i}").into()),
                };
                let fates: Vec<RequiredOutcome> =
                    (0..*rows).map(|row| fate(scenario, source, first(lane, row))).collect();
                for (row, fate) in fates.iter().enumerate() {
                    expect(fate, lane, row as u32, &mut destinations);
                }
                let id = LaneId { connector: format!("s{source}").into(), partition };
                lanes.push(SourcePartition::new(id, source, fates));
            }
        }
        let state = State {
            scenario: scenario.clone(),
            run: 0,
            ticks: 0,
            dead: false,
            lanes,
            destinations,
            letters: HashMap::default(),
            names: HashMap::default(),
            letters_in_run: Vec::new(),
            marks: BTreeMap::new(),
            receipts: Vec::new(),
            epoch: 0,
            storing: false,
            busy: 0,
            read_order: vec![VecDeque::new(); scenario.sources.len()],
            calls: 0,
            threaded: false,
            hung: false,
            fenced: false,
            fence_reported: false,
            panicked_outside: false,
            miscounted: false,
            silences: 0,
            progress: None,
            others_delivered: false,
            panicked: HashSet::default(),
            repaired: false,
            broken: None,
            order: None,
            log: logging.then(Vec::new),
            inspections: Inspections::default(),
        };
        Arc::new(World { scenario: scenario.clone(), state: Mutex::new(state), orders: Notify::new() })
    }

    /// Returns the locked state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an event. Never returns if the process is dead.
    pub async fn tick(&self) {
        if !self.lives() {
            std::future::pending::<()>().await;
        }
    }

    /// Like [`World::tick`], for callers that cannot wait: returns `true` if the process is alive.
    pub fn lives(&self) -> bool {
        let mut state = self.lock();
        if state.dead {
            return false;
        }
        let at = state.ticks;
        state.ticks += 1;
        if let Err(broken) = state.transactions_end_late() {
            self.broken(&mut state, || broken);
            return false;
        }
        state.inspections.turn();
        if at > MOST_TICKS {
            self.broken(&mut state, || "the run does not end".to_owned());
            return false;
        }
        let order = match state.interruption() {
            Interruption::Crash(tick) if tick == at => DriverCommand::Kill,
            Interruption::Stop(tick, budget) if tick == at => DriverCommand::Stop(budget),
            Interruption::Fence(tick) if tick == at => {
                state.note(|| "another run claims the pipeline".to_owned());
                state.epoch += 1;
                state.fenced = true;
                self.other_run(&mut state);
                return !state.dead;
            }
            _ => return true,
        };
        state.note(|| format!("{order:?}"));
        self.give(&mut state, order);
        !state.dead
    }

    fn give(&self, state: &mut State, order: DriverCommand) {
        state.dead |= order == DriverCommand::Kill;
        state.order = Some(order);
        self.orders.notify_one();
    }

    /// Never returns.
    pub async fn hang(&self) {
        self.hangs();
        std::future::pending::<()>().await;
    }

    fn hangs(&self) {
        let mut state = self.lock();
        state.hung = true;
        state.note(|| "a call hangs".to_owned());
    }

    /// Opens a part asynchronously.
    ///
    /// # Errors
    /// The errors of [`World::opens`].
    pub async fn opening(&self) -> Result<(), Fault> {
        self.tick().await;
        let hangs = {
            let mut state = self.lock();
            let call = state.next_call();
            state.is_troubled() && hits(8, call, self.scenario.open_hangs)
        };
        if hangs {
            self.hang().await;
        }
        self.opens()
    }

    /// Opens a part.
    ///
    /// # Errors
    /// It cannot be opened, with a transient or a fatal fault.
    pub fn opens(&self) -> Result<(), Fault> {
        let mut state = self.lock();
        let call = state.next_call();
        if !state.is_troubled() || !hits(9, call, self.scenario.open_fails) {
            return Ok(());
        }
        match mix(call, 3) % 4 {
            0 if !state.repaired => {
                state.panicked_outside = true;
                drop(state);
                panic!("simulated")
            }
            1 if !state.repaired => Err(Fault::fatal(crate::codes::SIM_BROKEN, "it cannot be opened")),
            _ => Err(Fault::transient(crate::codes::SIM_PASSING, "it cannot be opened")),
        }
    }

    /// Panics in some calls of a source or a destination.
    pub fn may_panic(&self) {
        let mut state = self.lock();
        let call = state.next_call();
        if state.is_troubled() && !state.repaired && hits(10, call, self.scenario.panics) {
            state.panicked_outside = true;
            state.note(|| "a panic".to_owned());
            drop(state);
            panic!("simulated");
        }
    }

    /// Returns `true` if a destination may return a wrong number of verdicts.
    pub fn miscounts(&self) -> bool {
        let mut state = self.lock();
        state.miscounted |= !state.repaired;
        !state.repaired
    }

    /// Counts a call that a processor does not answer.
    pub fn silent(&self) {
        let mut state = self.lock();
        state.silences += 1;
        if state.silences > MOST_SILENCES {
            self.broken(&mut state, || "a processor that does not answer is called too often".to_owned());
        }
    }

    /// Returns the number of the run that owns the marks, if it is another one.
    pub fn refuses(&self, epoch: u64) -> Option<u64> {
        let mut state = self.lock();
        if epoch == state.epoch {
            return None;
        }
        if !state.fenced || state.fence_reported {
            self.broken(&mut state, || "a run stores marks that another run owns".to_owned());
        }
        state.fence_reported = true;
        Some(state.epoch)
    }

    /// Like [`World::broken`], for callers that do not hold the lock.
    pub fn breaks(&self, what: impl FnOnce() -> String) {
        self.broken(&mut self.lock(), what);
    }

    /// Records a broken guarantee, which ends the simulation.
    pub fn broken(&self, state: &mut State, what: impl FnOnce() -> String) {
        if state.broken.is_none() {
            let what = what();
            state.note(|| what.clone());
            state.broken = Some(what);
        }
        self.give(state, DriverCommand::Kill);
    }

    /// Takes the pending order.
    pub fn take_order(&self) -> Option<DriverCommand> {
        self.lock().order.take()
    }
}

impl State {
    /// Adds a line to the log of events.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("run {} tick {}: {}", self.run, self.ticks, what()));
        }
    }

    /// Returns the number of events in this run, including reads and writes in progress.
    pub fn ticks_in_all(&self) -> u64 {
        self.ticks + self.calls + self.destinations.iter().map(|destination| destination.calls).sum::<u64>()
    }

    /// Returns `true` if failures happen in this run.
    pub fn is_troubled(&self) -> bool {
        self.run < TROUBLED_RUNS
    }

    /// Counts a call of anything but a destination.
    pub fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Returns the interruption of this run.
    pub fn interruption(&self) -> Interruption {
        self.scenario.interruptions.get(self.run as usize).copied().unwrap_or(Interruption::None)
    }

    /// Returns `true` if a processor panics: only the first time for each record.
    pub fn panics(&mut self, salt: u64, id: u64) -> bool {
        !self.repaired && self.panicked.insert(mix(salt, id))
    }

    /// Ends the process. Each row that was only accepted is lost or not.
    pub fn end_run(&mut self) {
        self.run += 1;
        self.ticks = 0;
        self.dead = false;
        self.hung = false;
        self.storing = false;
        self.busy = 0;
        self.read_order.iter_mut().for_each(VecDeque::clear);
        self.fenced = false;
        self.fence_reported = false;
        self.panicked_outside = false;
        self.miscounted = false;
        self.silences = 0;
        self.progress = None;
        self.order = None;
        self.letters_in_run.clear();
        let salt = mix(self.scenario.seed, u64::from(self.run));
        for destination in &mut self.destinations {
            destination.end_run(salt);
        }
        for lane in &mut self.lanes {
            lane.end_run();
        }
    }

    /// Returns `true` if a commit, a flush, a transaction or an acknowledgement is in progress.
    pub fn is_busy(&self) -> bool {
        self.busy > 0
    }
}

/// Counts a call in progress until it is dropped.
pub struct Busy<'a>(&'a World);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy = state.busy.saturating_sub(1);
    }
}

impl World {
    /// Notes that a commit, a flush, a transaction or an acknowledgement is in progress.
    pub fn busy(&self) -> Busy<'_> {
        self.lock().busy += 1;
        Busy(self)
    }
}
