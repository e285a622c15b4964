//! Counters of a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anabranch_plugin::secret::mask;
use anabranch_record::fault::Fault;
use anabranch_record::mark::LaneId;
use anabranch_record::text::Str;
use tokio::time::Instant;

use super::backlog::Answer;
use super::meter::{Meter, Passed};
use super::queue::Gauge;
use super::tap::Station;
use crate::histogram::{Distribution, Histogram};
use crate::plan::StepCount;
use crate::plan::stage::{DeadLetterSpec, StageKind, StagePlan, StageSpec, StepSpec, WriteSpec};

/// Counters of a run, readable while it runs and after. Relaxed atomics, written once per strip: nothing is done for
/// who reads them, and nothing waits for who does.
#[derive(Debug)]
pub struct Progress {
    pub(super) clock: Clock,
    /// When everything was open; 0 = not yet.
    opened: AtomicU64,
    lanes: RwLock<Vec<Arc<LaneProgress>>>,
    pub(super) stages: Box<[StageProgress]>,
    /// What waits in front of each stage, once there are queues.
    queues: OnceLock<Box<[Gauge]>>,
    pub(super) letters: Meter,
    born: AtomicU64,
    filtered: AtomicU64,
    letters_evicted: AtomicU64,
    /// From the read of a position until it is stored.
    pub(super) latency: Histogram,
    /// When positions were stored last; 0 = never.
    stored: AtomicU64,
    /// Since when positions are being stored; 0 = they are not.
    pub(super) storing: AtomicU64,
    /// Sources that came to their end and may have read nothing.
    unread: Mutex<Vec<Unread>>,
    left: Mutex<Vec<Left>>,
    mask: Arc<[Str]>,
}

/// A source that came to its end with nothing read: in this run nor, as far as its marks tell, in earlier ones; or
/// what it reads does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The connector.
    pub connector: Str,
    /// Why, where what it reads does not exist.
    pub missing: Option<String>,
}

/// A source that came to its end and left something to a later run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The connector.
    pub connector: Str,
    /// What it left, and why.
    pub what: String,
}

/// The time of a run: nanoseconds since it began, from 1, since 0 stands for never.
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

    /// What a wall clock showed.
    pub(super) fn wall(&self, at: u64) -> SystemTime {
        self.began + Duration::from_nanos(at.saturating_sub(1))
    }

    /// How long ago it was; zero for what never was.
    fn age(&self, at: u64) -> Duration {
        if at == 0 { Duration::ZERO } else { Duration::from_nanos(self.now().saturating_sub(at)) }
    }
}

/// What was read of a lane, and how far it came.
#[derive(Debug)]
pub(super) struct LaneProgress {
    pub(super) id: LaneId,
    /// Rows before the first one of this run.
    before: u64,
    pub(super) read: AtomicU64,
    pub(super) settled: AtomicU64,
    pub(super) persisted: AtomicU64,
    /// When the oldest position was read that is not stored; 0 = all are.
    pub(super) unstored_since: AtomicU64,
}

/// The meters of one stage, by step; reading and writing are one step.
#[derive(Debug)]
pub(super) struct StageProgress {
    name: Str,
    pub(super) kind: Role,
    pub(super) steps: Box<[Meter]>,
    /// What the source of a [`Role::Read`] has not read yet.
    pub(super) backlog: Answer,
}

/// What a stage is to the rows in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Read,
    Process,
    Write {
        /// It holds rows until others have come as far.
        transactional: bool,
    },
}

/// The counters of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneCount {
    /// The lane.
    pub id: LaneId,
    /// Rows that earlier runs had delivered when this one began.
    pub before: u64,
    /// Rows read.
    pub read: u64,
    /// Rows of which every copy is settled.
    pub settled: u64,
    /// Positions stored.
    pub persisted: u64,
    /// Age of the oldest row that may still be on its way: it is not stored. Zero when everything read is settled.
    pub lag: Duration,
    /// How far the stored position is behind what was read: age of the first position after it. Zero when there is none.
    pub unstored: Duration,
}

/// The counters of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageCount {
    /// Name of the stage.
    pub name: Str,
    /// Its nodes.
    pub nodes: Vec<NodeCount>,
    /// What waits in front of it. Always empty for sources.
    pub queue: QueueCount,
}

/// The counters of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCount {
    /// Id of the connector or processor.
    pub node: Str,
    /// The kind of the node.
    pub station: Station,
    /// What it did and took.
    pub count: StepCount,
    /// The latest failure of a record in it, or of a call that is tried again.
    pub last_error: Option<LastError>,
}

/// A failure, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When.
    pub at: SystemTime,
    /// The stable code.
    pub code: &'static str,
    /// What went wrong, with secrets masked.
    pub message: String,
}

/// What is in a queue between stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCount {
    /// Rows in it.
    pub rows: u64,
    /// Their rough weight.
    pub bytes: u64,
    /// Most rows it holds.
    pub bound_rows: u64,
    /// Most bytes it holds.
    pub bound_bytes: u64,
    /// Whether who feeds it waits for room.
    pub full: bool,
}

/// What became of all copies of all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rows read.
    pub read: u64,
    /// Rows settled.
    pub settled: u64,
    /// Copies made in addition: by split, clone and fan-out.
    pub born: u64,
    /// Copies delivered.
    pub delivered: u64,
    /// Copies filtered.
    pub filtered: u64,
    /// Copies that failed, dead-lettered or not yet.
    pub failed: u64,
    /// Copies whose dead letter is durable.
    pub dead_lettered: u64,
    /// Dead letters, of this run or earlier ones, that the bounds of the queue removed in this run.
    pub letters_evicted: u64,
    /// Copies still on their way: read + born − delivered − filtered − dead-lettered.
    pub in_flight: u64,
}

/// How long rows may rest before that counts as a stall, beyond what their node is known to take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl StageProgress {
    fn of(stage: &StageSpec) -> Self {
        let step = |step: &StepSpec| {
            Meter::new(
                Station::Processor,
                step.node.clone(),
                PATIENCE + step.operator.patience().unwrap_or(Duration::ZERO),
            )
        };
        let (kind, steps) = match &stage.kind {
            StageKind::Read(read) => {
                (Role::Read, [Meter::new(Station::Source, read.connector.clone(), PATIENCE)].into())
            }
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                (Role::Process, steps.iter().map(step).collect())
            }
            StageKind::Async { step: only, .. } => (Role::Process, [step(only)].into()),
            StageKind::Write(write) => {
                let meter = Meter::new(Station::Destination, write.connector.clone(), PATIENCE + holds(write));
                (Role::Write { transactional: stage.is_transactional() }, [meter].into())
            }
        };
        StageProgress { name: stage.name.clone(), kind, steps, backlog: Answer::default() }
    }
}

/// How long a destination holds rows because it was told to.
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
            stages: plan.stages.iter().map(StageProgress::of).collect(),
            queues: OnceLock::new(),
            letters: Meter::new(Station::DeadLetters, Str::from_static(DeadLetterSpec::NODE), PATIENCE),
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

    /// `before`: rows before the first one that is read of it.
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

    /// Notes the queues in front of the stages, by stage.
    pub(super) fn set_queues(&self, queues: Box<[Gauge]>) {
        // A run is wired once.
        let _ = self.queues.set(queues);
    }

    /// Notes that positions are being stored and acknowledged, or are not any more.
    pub(super) fn set_storing(&self, storing: bool) {
        self.storing.store(if storing { self.clock.now() } else { 0 }, Ordering::Relaxed);
    }

    /// Notes that everything is open.
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

    /// Notes what went wrong in the only step of a stage; `None` = at the dead-letter queue.
    pub(super) fn note_fault(&self, stage: Option<usize>, fault: &Fault) {
        let meter = stage.map_or(Some(&self.letters), |stage| self.stages[stage].steps.first());
        if let Some(meter) = meter {
            meter.note_fault(self.clock.now(), fault);
        }
    }

    /// Copies failed in a stage, and go to the dead letters.
    pub(super) fn add_failed(&self, stage: usize, faults: &[Fault]) {
        self.letters.enter(faults.len());
        let (steps, now) = (&self.stages[stage].steps, self.clock.now());
        // Faults of one step stand together, and the last of them is the one to show.
        for run in faults.chunk_by(|one, next| one.node() == next.node()) {
            let Some(last) = run.last() else { continue };
            let step = last.node().and_then(|node| steps.iter().find(|step| step.node == *node)).or(steps.first());
            if let Some(step) = step {
                step.note_fault(now, last);
            }
        }
    }

    pub(super) fn add_dead_lettered(&self, copies: usize) {
        self.letters.leave(Passed { out: copies, ..Passed::default() }, self.clock.now());
    }

    /// Letters were removed from the dead-letter queue because of its bounds.
    pub(super) fn add_letters_evicted(&self, letters: u64) {
        self.letters_evicted.fetch_add(letters, Ordering::Relaxed);
    }

    /// Notes that positions were stored.
    pub(super) fn note_stored(&self, now: u64) {
        self.stored.store(now, Ordering::Relaxed);
    }

    /// When positions were stored last: everything before them is delivered, filtered or dead-lettered, and is
    /// acknowledged to the source. `None` = not in this run.
    pub fn stored_at(&self) -> Option<SystemTime> {
        let at = self.stored.load(Ordering::Relaxed);
        (at > 0).then(|| self.clock.wall(at))
    }

    /// How long records took from being read until they were delivered and their positions stored, to 10 ms; positions
    /// that moved without a record count as one.
    pub fn latency(&self) -> Distribution {
        self.latency.distribution()
    }

    /// Whether sources, operators, destinations and the dead-letter queue are open.
    pub fn is_open(&self) -> bool {
        self.opened_at() > 0
    }

    /// When the run began.
    pub fn began(&self) -> SystemTime {
        self.clock.wall(0)
    }

    /// Per lane, in the order in which they appeared.
    pub fn lanes(&self) -> Vec<LaneCount> {
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        lanes
            .iter()
            .map(|lane| {
                // Settled before read: what moves meanwhile makes no row settled before it is read.
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

    /// Per stage, in the order of the plan.
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
        NodeCount { node: meter.node.clone(), station: meter.station, count: meter.count(), last_error }
    }

    pub(super) fn queue(&self, stage: usize) -> QueueCount {
        self.queues.get().and_then(|queues| queues.get(stage)).map(Gauge::count).unwrap_or_default()
    }

    /// The dead-letter queue: copies that failed come in, and go out when their letter is durable.
    pub fn dead_letters(&self) -> NodeCount {
        self.node(&self.letters)
    }

    /// Copies delivered per destination connector, in the order of the plan.
    pub fn delivered(&self) -> Vec<(Str, u64)> {
        let writes = self.stages.iter().filter(|stage| matches!(stage.kind, Role::Write { .. }));
        writes.flat_map(|stage| stage.steps.iter().map(|step| (step.node.clone(), step.rows_out()))).collect()
    }

    /// Notes that a source came to its end, and that it has nothing to show unless this run read something.
    pub(super) fn note_unread(&self, unread: Unread) {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).push(unread);
    }

    /// Notes that a source came to its end and left something to a later run.
    pub(super) fn note_left(&self, left: Left) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(left);
    }

    /// Sources that came to their end and left something to a later run.
    pub fn left(&self) -> Vec<Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sources that came to their end with nothing read.
    pub fn unread(&self) -> Vec<Unread> {
        let noted = self.unread.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lanes = self.lanes();
        let read = |unread: &Unread| lanes.iter().any(|lane| lane.id.connector == unread.connector && lane.read > 0);
        noted.into_iter().filter(|unread| !read(unread)).collect()
    }

    /// Over the whole pipeline. While it runs the counters are read one after the other, so that sums may be off
    /// by what moved meanwhile.
    pub fn totals(&self) -> Totals {
        let lanes = self.lanes();
        let letters = self.letters.count();
        let mut totals = Totals {
            read: lanes.iter().map(|lane| lane.read).sum(),
            settled: lanes.iter().map(|lane| lane.settled).sum(),
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
    /// Whether every copy of every row is accounted for once nothing is on its way.
    pub fn balance(&self) -> bool {
        self.read == self.settled && self.read + self.born == self.delivered + self.filtered + self.dead_lettered
    }
}
