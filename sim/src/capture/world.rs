//! What the parts of a simulation share: the database, what arrived, the clock of events, and the destination and store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_plugin::destination::{Delivered, Destination, Retry, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::state::{Commit, Epoch, Receipt, StateStore, StoreError, Unit};
use anabranch_plugin::testing::MemoryStore;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use anabranch_record::{Data, Position, Record};
use async_trait::async_trait;
use fastrand::Rng;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::database::{Change, Database};
use super::history::History;
use super::position::{decode, encode};
use super::scenario::CaptureScenario;
use crate::ends::passing;
use crate::scenario::{hits, mix};

/// Number of runs in which things fail.
pub(super) const TROUBLED_RUNS: u32 = 5;
/// The metadata key of the lane of a record.
const LANE: &str = "lane";

/// The changing state of a simulation.
pub(super) struct State {
    pub(super) database: Database,
    pub(super) history: History,
    pub(super) run: u32,
    ticks: u64,
    calls: u64,
    /// True if the process has crashed.
    pub(super) dead: bool,
    pub(super) broken: Option<String>,
    pub(super) log: Option<Vec<String>>,
}

/// The world.
pub(super) struct World {
    pub(super) scenario: CaptureScenario,
    state: Mutex<State>,
    /// Notified when the database changed.
    moved: Notify,
    /// Notified when the process is to be killed.
    killed: Notify,
}

impl World {
    pub(super) fn new(scenario: CaptureScenario, logging: bool) -> Arc<World> {
        let rng = Rng::with_seed(mix(scenario.seed, 77));
        let state = State {
            database: Database::new(rng, scenario.keys, scenario.pages, scenario.transactions),
            history: History::default(),
            run: 0,
            ticks: 0,
            calls: 0,
            dead: false,
            broken: None,
            log: logging.then(Vec::new),
        };
        Arc::new(World { scenario, state: Mutex::new(state), moved: Notify::new(), killed: Notify::new() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the run.
    pub(super) fn run(&self) -> u32 {
        self.lock().run
    }

    /// Counts a call, for random numbers.
    pub(super) fn next(&self) -> u64 {
        let mut state = self.lock();
        state.calls += 1;
        state.calls
    }

    /// Counts an event. Never returns if the process is dead.
    pub(super) async fn tick(&self) {
        let is_dead = {
            let mut state = self.lock();
            let at = state.ticks;
            state.ticks += 1;
            if !state.dead && self.scenario.crashes.get(state.run as usize) == Some(&at) {
                state.dead = true;
                state.note(|| "the process crashes".to_owned());
                self.killed.notify_one();
            }
            state.dead
        };
        if is_dead {
            std::future::pending::<()>().await;
        }
    }

    /// Begins the next run.
    pub(super) fn next_run(&self) {
        let mut state = self.lock();
        (state.run, state.ticks, state.dead) = (state.run + 1, 0, false);
    }

    /// Waits until the process is to be killed.
    pub(super) async fn killed(&self) {
        while !self.lock().dead {
            self.killed.notified().await;
        }
    }

    /// Executes a part of a transaction of the database. Returns `false` if nothing is left.
    pub(super) fn step(&self) -> bool {
        let moved = self.lock().database.step();
        self.moved.notify_waiters();
        moved
    }

    /// Waits until the database changes.
    pub(super) async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Adds a line to the log of events.
    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        self.lock().note(what);
    }

    /// Notes a broken guarantee, which ends the simulation.
    pub(super) fn breaks(&self, what: String) {
        let mut state = self.lock();
        state.note(|| what.clone());
        state.broken.get_or_insert(what);
        state.dead = true;
        self.killed.notify_one();
    }

    /// Checks that the server still has the log from a place on.
    pub(super) fn check_start(&self, from: u64) {
        let confirmed = self.lock().database.confirmed();
        self.note(|| format!("changes are read from {from} on; {confirmed:?} is confirmed"));
        if confirmed.is_none_or(|confirmed| confirmed > from) {
            self.breaks(format!("the changes from {from} on are needed, and {confirmed:?} is confirmed"));
        }
    }

    /// Returns `true` if the connection to the server breaks now.
    pub(super) fn breaks_connection(&self) -> bool {
        let call = self.next();
        self.run() < TROUBLED_RUNS && hits(self.scenario.seed ^ 3, call, self.scenario.disconnects)
    }

    fn is_troubled(&self) -> bool {
        self.run() < TROUBLED_RUNS
    }
}

impl State {
    /// Adds a line to the log of events.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("run {} tick {}: {}", self.run, self.ticks, what()));
        }
    }
}

/// Builds the record of a change in a lane.
pub(super) fn record(change: Change, lane: &Partition, position: Position) -> Record {
    let numbers = encode(&[u64::from(change.key), change.version, u64::from(change.exists)]);
    let mut record = Record::create(position, Data::Absent, Data::Raw(numbers.0));
    record.metadata.insert(LANE, lane.0.to_string());
    record
}

/// Returns the change that a record represents, and its lane.
fn change(record: &Record) -> Option<(Change, String)> {
    let Data::Raw(bytes) = &record.payload.after else { return None };
    let [key, version, exists] = decode(&Position(bytes.clone()))[..] else { return None };
    let lane = record.metadata.get(LANE)?.as_str().to_owned();
    Some((Change { key: key as u32, version, exists: exists == 1 }, lane))
}

/// The destination.
pub(super) struct CaptureDestination(pub(super) Arc<World>);

#[async_trait]
impl Destination for CaptureDestination {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        self.0.tick().await;
        Ok(Box::new(CaptureWriter(self.0.clone())))
    }

    fn policy(&self) -> WritePolicy {
        let rows = self.0.scenario.per_write;
        WritePolicy { rows, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }
}

struct CaptureWriter(Arc<World>);

#[async_trait]
impl Writer for CaptureWriter {
    async fn write(&mut self, write: Write<'_>) -> Result<Verdicts, Fault> {
        let world = &self.0;
        sleep(world.scenario.write_time(world.next())).await;
        world.tick().await;
        let fails = world.is_troubled() && hits(world.scenario.seed ^ 4, world.next(), world.scenario.write_fails);
        if fails {
            return Err(passing("the destination is away"));
        }
        for row in write.rows {
            // A crash can happen between two rows.
            world.tick().await;
            let received = match change(row) {
                Some((change, lane)) => {
                    let mut state = world.lock();
                    state.note(|| format!("{change:?} of lane {lane:?} arrives"));
                    let run = state.run;
                    state.history.receive(change, &lane, run)
                }
                None => Err(format!("{row:?} arrives")),
            };
            if let Err(broken) = received {
                world.breaks(broken);
            }
        }
        Ok(Verdicts::All(Delivered::Durable))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// A store that takes time, and in which a crash may happen before or after a commit.
pub(super) struct SlowStore {
    pub(super) world: Arc<World>,
    pub(super) store: MemoryStore,
}

#[async_trait]
impl StateStore for SlowStore {
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError> {
        self.store.claim(unit).await
    }

    async fn load(&self, epoch: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        self.store.load(epoch).await
    }

    async fn receipts(&self, epoch: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        self.store.receipts(epoch).await
    }

    async fn commit(&self, epoch: &Epoch, commit: Commit<'_>) -> Result<(), StoreError> {
        self.world.tick().await;
        sleep(self.world.scenario.store_time(self.world.next())).await;
        self.world.tick().await;
        self.store.commit(epoch, commit).await?;
        self.world.tick().await;
        Ok(())
    }

    async fn survey(&self, pipeline: &Str) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        self.store.survey(pipeline).await
    }
}
