//! Counters of a run.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anabranch_plugin::secret::mask;
use anabranch_record::code::Code;
use anabranch_record::fault::Fault;
use anabranch_record::mark::LaneId;
use anabranch_record::text::Str;
use tokio::time::Instant;

use super::backlog::LatestBacklog;
use super::meter::{Meter, RowOutcomes};
use super::queue::Gauge;
use super::tap::NodeRole;
use crate::plan::StepCount;
use crate::plan::graph::RouteNode;
use crate::plan::stage::{DeadLetterSpec, StageKind, StagePlan, StageSpec, StepSpec, WriteSpec};
use anabranch_plugin::histogram::{Distribution, Histogram};

/// Counters of a run, readable during the run and after it. They are relaxed atomics, written once per strip; readers
/// and writers do not wait for each other.
#[derive(Debug)]
pub struct Progress {
    pub(super) clock: Clock,
    /// Time when all parts were open; 0 = not yet.
    opened: AtomicU64,
    lanes: RwLock<Vec<Arc<LaneProgress>>>,
    /// Counters of lanes that were removed.
    retired: Retired,
    pub(super) stages: Box<[StageProgress]>,
    /// Fill levels of the queues in front of the stages, once the queues exist.
    queues: OnceLock<Box<[Gauge]>>,
    pub(super) letters: Meter,
    born: AtomicU64,
    filtered: AtomicU64,
    letters_evicted: AtomicU64,
    /// Times from the read of a position until it is stored.
    pub(super) latency: Histogram,
    /// Time when positions were last stored; 0 = never.
    stored: AtomicU64,
    /// Start time of the running commit; 0 = none.
    pub(super) storing: AtomicU64,
    /// Sources that ended, possibly without having read anything.
    unread: Mutex<Vec<UnreadSource>>,
    left: Mutex<Vec<UnfinishedSource>>,
    mask: Arc<[Str]>,
}

/// A source that ended without having read anything: neither in this run nor, judged by its marks, in earlier runs; or
/// the data to read does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadSource {
    /// Id of the connector.
    pub connector: Str,
    /// Description of the missing data, if the data to read does not exist.
    pub missing: Option<String>,
}

/// A source that ended and left data for a later run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedSource {
    /// Id of the connector.
    pub connector: Str,
    /// The data that is left, and the reason.
    pub what: String,
}

/// Clock of a run: nanoseconds since its start, beginning at 1, because 0 means never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begin: Instant,
    began: SystemTime,
}

impl Clock {
    fn start() -> Self {
        Clock { begin: Instant::now(), began: SystemTime::now() }
    }

    pub(super) fn now(&self) -> u64 {
        self.at(Instant::now())
    }

    pub(super) fn at(&self, instant: Instant) -> u64 {
        u64::try_from((instant - self.begin).as_nanos()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Converts a time of the run to wall-clock time.
    pub(super) fn wall(&self, at: u64) -> SystemTime {
        self.began + Duration::from_nanos(at.saturating_sub(1))
    }

    /// Returns the time elapsed since `at`; zero if `at` is 0.
    fn age(&self, at: u64) -> Duration {
        if at == 0 { Duration::ZERO } else { Duration::from_nanos(self.now().saturating_sub(at)) }
    }
}

/// Counters of a lane.
#[derive(Debug)]
pub(super) struct LaneProgress {
    pub(super) id: LaneId,
    /// Rows before the first one of this run.
    before: u64,
    pub(super) read: AtomicU64,
    pub(super) settled: AtomicU64,
    pub(super) persisted: AtomicU64,
    /// Read time of the oldest position that is not stored; 0 = all are stored.
    pub(super) unstored_since: AtomicU64,
}

/// Counters of the lanes that are finished.
#[derive(Debug, Default)]
pub(super) struct Retired {
    read: AtomicU64,
    settled: AtomicU64,
    /// Connectors with finished lanes that had rows.
    connectors: Mutex<BTreeSet<Str>>,
}

impl Retired {
    fn add(&self, lane: &LaneProgress) {
        let read = lane.read.load(Ordering::Relaxed);
        self.read.fetch_add(read, Ordering::Relaxed);
        self.settled.fetch_add(lane.settled.load(Ordering::Relaxed), Ordering::Relaxed);
        if read > 0 {
            self.connectors.lock().unwrap_or_else(PoisonError::into_inner).insert(lane.id.connector.clone());
        }
    }
}

/// The meters of a stage, by step. Sources and destinations have a single step.
#[derive(Debug)]
pub(super) struct StageProgress {
    name: Str,
    pub(super) kind: Role,
    pub(super) steps: Box<[Meter]>,
    /// Backlog of the source, for [`Role::Read`].
    pub(super) backlog: LatestBacklog,
}

/// Role of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Read,
    Process,
    Write {
        /// True if the destination holds rows until others have arrived.
        transactional: bool,
    },
}

/// The counters of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneCount {
    /// The lane.
    pub id: LaneId,
    /// Rows delivered by earlier runs.
    pub before: u64,
    /// Rows read.
    pub read: u64,
    /// Rows whose copies are all settled.
    pub settled: u64,
    /// Positions stored.
    pub persisted: u64,
    /// Age of the oldest row that is not stored, if some rows are not settled; otherwise zero.
    pub lag: Duration,
    /// Age of the first position after the stored one; zero if there is none.
    pub unstored: Duration,
}

/// The counters of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageCount {
    /// Name of the stage.
    pub name: Str,
    /// Counters of its nodes.
    pub nodes: Vec<NodeCount>,
    /// Queue in front of the stage; always empty for sources.
    pub queue: QueueCount,
}

/// The counters of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCount {
    /// Id of the connector or processor.
    pub node: Str,
    /// Kind of the node.
    pub role: NodeRole,
    /// Counters and times.
    pub count: StepCount,
    /// Latest failure of a record in the node, or of a call that is retried.
    pub last_error: Option<LastError>,
}

/// A displayable failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// Time of the failure.
    pub at: SystemTime,
    /// Stable code.
    pub code: Code,
    /// Description, with secrets masked.
    pub message: String,
}

/// Fill level of a queue between stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCount {
    /// Rows in the queue.
    pub rows: u64,
    /// Approximate weight of the rows.
    pub bytes: u64,
    /// Maximum number of rows.
    pub bound_rows: u64,
    /// Maximum number of bytes.
    pub bound_bytes: u64,
    /// True if a sender waits for room.
    pub full: bool,
}

/// Outcome of all copies of all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rows read.
    pub read: u64,
    /// Rows settled.
    pub settled: u64,
    /// Copies added by split, clone and fan-out.
    pub born: u64,
    /// Copies delivered.
    pub delivered: u64,
    /// Copies filtered.
    pub filtered: u64,
    /// Copies that failed, whether dead-lettered or not yet.
    pub failed: u64,
    /// Copies whose dead letter is durable.
    pub dead_lettered: u64,
    /// Dead letters of this or earlier runs that were removed in this run because of the limits of the queue.
    pub letters_evicted: u64,
    /// Copies in flight: read + born − delivered − filtered − dead-lettered.
    pub in_flight: u64,
}

/// Time that rows may stay in a node before it counts as stalled, in addition to the expected time of the node.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl StageProgress {
    fn of(stage: &StageSpec) -> Self {
        let step = |step: &StepSpec| {
            Meter::new(
                NodeRole::Processor,
                step.node.clone(),
                PATIENCE + step.operator.patience().unwrap_or(Duration::ZERO),
            )
        };
        let (kind, steps) = match &stage.kind {
            StageKind::Read(read) => {
                (Role::Read, [Meter::new(NodeRole::Source, read.connector.clone(), PATIENCE)].into())
            }
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                (Role::Process, steps.iter().map(step).collect())
            }
            StageKind::Async { step: only, .. } => (Role::Process, [step(only)].into()),
            StageKind::Route(_) => {
                let node = Str::from_static(RouteNode::NODE);
                (Role::Process, [Meter::new(NodeRole::Processor, node, PATIENCE)].into())
            }
            StageKind::Write(write) => {
                let meter = Meter::new(NodeRole::Destination, write.connector.clone(), PATIENCE + holds(write));
                (Role::Write { transactional: stage.is_transactional() }, [meter].into())
            }
        };
        StageProgress { name: stage.name.clone(), kind, steps, backlog: LatestBacklog::default() }
    }
}

/// Returns the time that a destination holds rows because of its configuration.
fn holds(write: &WriteSpec) -> Duration {
    let policy = write.destination.policy();
    let rows = write.batch_rows.unwrap_or(policy.rows).max(1) as f64;
    let paced = write.rate.filter(|rate| *rate > 0.0).and_then(|rate| Duration::try_from_secs_f64(rows / rate).ok());
    write.batch_delay.unwrap_or(policy.linger) + paced.unwrap_or(Duration::ZERO)
}

impl Progress {
    pub(super) fn new(plan: &StagePlan, mask: Arc<[Str]>) -> Self {
        Progress {
            clock: Clock::start(),
            opened: AtomicU64::new(0),
            lanes: RwLock::default(),
            retired: Retired::default(),
            stages: plan.stages.iter().map(StageProgress::of).collect(),
            queues: OnceLock::new(),
            letters: Meter::new(NodeRole::DeadLetters, Str::from_static(DeadLetterSpec::NODE), PATIENCE),
            born: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
            letters_evicted: AtomicU64::new(0),
            latency: Histogram::default(),
            stored: AtomicU64::new(0),
            storing: AtomicU64::new(0),
            unread: Mutex::default(),
            left: Mutex::default(),
            mask,
        }
    }

    /// Adds a lane. `before` is the number of rows before the first one read in this run.
    pub(super) fn add_lane(&self, id: LaneId, before: u64) -> Arc<LaneProgress> {
        let lane = Arc::new(LaneProgress {
            id,
            before,
            read: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            persisted: AtomicU64::new(0),
            unstored_since: AtomicU64::new(0),
        });
        self.lanes.write().unwrap_or_else(PoisonError::into_inner).push(lane.clone());
        lane
    }

    /// Removes a lane that is finished. Its counters remain part of the totals.
    pub(super) fn retire_lane(&self, lane: &Arc<LaneProgress>) {
        self.retired.add(lane);
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|other| !Arc::ptr_eq(other, lane));
    }

    /// Sets the queues in front of the stages, by stage.
    pub(super) fn set_queues(&self, queues: Box<[Gauge]>) {
        // Queues are set only once per run.
        let _ = self.queues.set(queues);
    }

    /// Notes the start or end of storing and acknowledging positions.
    pub(super) fn set_storing(&self, storing: bool) {
        self.storing.store(if storing { self.clock.now() } else { 0 }, Ordering::Relaxed);
    }

    /// Notes that all parts are open.
    pub(super) fn set_opened(&self) {
        self.opened.store(self.clock.now(), Ordering::Relaxed);
    }

    pub(super) fn opened_at(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    pub(super) fn add_born(&self, copies: usize) {
        self.born.fetch_add(copies as u64, Ordering::Relaxed);
    }

    pub(super) fn add_filtered(&self, copies: usize) {
        self.filtered.fetch_add(copies as u64, Ordering::Relaxed);
    }

    /// Notes a fault in the only step of a stage; `None` = in the dead-letter queue.
    pub(super) fn note_fault(&self, stage: Option<usize>, fault: &Fault) {
        let meter = stage.map_or(Some(&self.letters), |stage| self.stages[stage].steps.first());
        if let Some(meter) = meter {
            meter.note_fault(self.clock.now(), fault);
        }
    }

    /// Counts copies that failed in a stage and become dead letters.
    pub(super) fn add_failed(&self, stage: usize, faults: &[Fault]) {
        self.letters.enter(faults.len());
        let (steps, now) = (&self.stages[stage].steps, self.clock.now());
        // Faults of one step are adjacent; the last one is displayed.
        for run in faults.chunk_by(|one, next| one.node() == next.node()) {
            let Some(last) = run.last() else { continue };
            let step = last.node().and_then(|node| steps.iter().find(|step| step.node == *node)).or(steps.first());
            if let Some(step) = step {
                step.note_fault(now, last);
            }
        }
    }

    pub(super) fn add_dead_lettered(&self, copies: usize) {
        self.letters.leave(RowOutcomes { out: copies, ..RowOutcomes::default() }, self.clock.now());
    }

    /// Counts dead letters that were removed because of the limits of the queue.
    pub(super) fn add_letters_evicted(&self, letters: u64) {
        self.letters_evicted.fetch_add(letters, Ordering::Relaxed);
    }

    /// Notes the time when positions were stored.
    pub(super) fn note_stored(&self, now: u64) {
        self.stored.store(now, Ordering::Relaxed);
    }

    /// Returns the time when positions were last stored; `None` = not in this run. Everything before them is delivered,
    /// filtered or dead-lettered, and is being acknowledged to the source.
    pub fn stored_at(&self) -> Option<SystemTime> {
        let at = self.stored.load(Ordering::Relaxed);
        (at > 0).then(|| self.clock.wall(at))
    }

    /// Returns the distribution of times from reading a record until it is delivered and its position stored, with a
    /// resolution of 10 ms. Positions that move without a record are included.
    pub fn latency(&self) -> Distribution {
        self.latency.distribution()
    }

    /// Returns `true` if sources, operators, destinations and the dead-letter queue are open.
    pub fn is_open(&self) -> bool {
        self.opened_at() > 0
    }

    /// Returns the start time of the run.
    pub fn began(&self) -> SystemTime {
        self.clock.wall(0)
    }

    /// Returns the counters of the lanes, in the order in which they appeared.
    pub fn lanes(&self) -> Vec<LaneCount> {
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        lanes
            .iter()
            .map(|lane| {
                // Settled is read before read, so that concurrent movement never makes settled exceed read.
                let settled = lane.settled.load(Ordering::Relaxed);
                let read = lane.read.load(Ordering::Relaxed);
                let unstored = self.clock.age(lane.unstored_since.load(Ordering::Relaxed));
                LaneCount {
                    id: lane.id.clone(),
                    before: lane.before,
                    read,
                    settled,
                    persisted: lane.persisted.load(Ordering::Relaxed),
                    lag: if read > settled { unstored } else { Duration::ZERO },
                    unstored,
                }
            })
            .collect()
    }

    /// Returns the counters of the stages, in plan order.
    pub fn stages(&self) -> Vec<StageCount> {
        let stage = |(index, stage): (usize, &StageProgress)| StageCount {
            name: stage.name.clone(),
            nodes: stage.steps.iter().map(|step| self.node(step)).collect(),
            queue: match stage.kind {
                Role::Read => QueueCount::default(),
                Role::Process | Role::Write { .. } => self.queue(index),
            },
        };
        self.stages.iter().enumerate().map(stage).collect()
    }

    fn node(&self, meter: &Meter) -> NodeCount {
        let last_error = meter.last_fault().map(|(at, fault)| LastError {
            at: self.clock.wall(at),
            code: fault.code(),
            message: mask(&fault.message(), &self.mask),
        });
        NodeCount { node: meter.node.clone(), role: meter.role, count: meter.count(), last_error }
    }

    pub(super) fn queue(&self, stage: usize) -> QueueCount {
        self.queues.get().and_then(|queues| queues.get(stage)).map(Gauge::count).unwrap_or_default()
    }

    /// Returns the counters of the dead-letter queue: failed copies enter, and leave when their dead letter is durable.
    pub fn dead_letters(&self) -> NodeCount {
        self.node(&self.letters)
    }

    /// Returns the copies delivered per destination connector, in plan order.
    pub fn delivered(&self) -> Vec<(Str, u64)> {
        let writes = self.stages.iter().filter(|stage| matches!(stage.kind, Role::Write { .. }));
        writes.flat_map(|stage| stage.steps.iter().map(|step| (step.node.clone(), step.rows_out()))).collect()
    }

    /// Notes a source that ended. It counts as unread unless this run read something from it.
    pub(super) fn note_unread(&self, unread: UnreadSource) {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).push(unread);
    }

    /// Notes a source that ended and left data for a later run.
    pub(super) fn note_left(&self, left: UnfinishedSource) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(left);
    }

    /// Returns the sources that ended and left data for a later run.
    pub fn left(&self) -> Vec<UnfinishedSource> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the sources that ended without having read anything.
    pub fn unread(&self) -> Vec<UnreadSource> {
        let noted = self.unread.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lanes = self.lanes();
        let retired = self.retired.connectors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let read = |unread: &UnreadSource| {
            retired.contains(&unread.connector)
                || lanes.iter().any(|lane| lane.id.connector == unread.connector && lane.read > 0)
        };
        noted.into_iter().filter(|unread| !read(unread)).collect()
    }

    /// Returns the totals of the pipeline. During a run the counters are read one after another, so that sums may
    /// deviate by rows that move meanwhile.
    pub fn totals(&self) -> Totals {
        let lanes = self.lanes();
        let letters = self.letters.count();
        let mut totals = Totals {
            read: lanes.iter().map(|lane| lane.read).sum::<u64>() + self.retired.read.load(Ordering::Relaxed),
            settled: lanes.iter().map(|lane| lane.settled).sum::<u64>() + self.retired.settled.load(Ordering::Relaxed),
            born: self.born.load(Ordering::Relaxed),
            delivered: self.delivered().iter().map(|(_, rows)| rows).sum(),
            filtered: self.filtered.load(Ordering::Relaxed),
            failed: letters.rows_in,
            dead_lettered: letters.rows_out,
            letters_evicted: self.letters_evicted.load(Ordering::Relaxed),
            in_flight: 0,
        };
        let ended = totals.delivered + totals.filtered + totals.dead_lettered;
        totals.in_flight = (totals.read + totals.born).saturating_sub(ended);
        totals
    }
}

impl Totals {
    /// Returns `true` if every copy of every row is accounted for, provided that no rows are in flight.
    pub fn balance(&self) -> bool {
        self.read == self.settled && self.read + self.born == self.delivered + self.filtered + self.dead_lettered
    }
}
