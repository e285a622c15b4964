//! What every node of a run does and takes, counted per strip.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use tokio::time::Instant;

use super::backlog::Answer;
use super::progress::Progress;
use super::tap::Station;
use crate::batch::Leftover;
use crate::plan::StepCount;

/// The counters of one node, shared by its workers: a step, reading, writing, or the dead-letter queue.
#[derive(Debug)]
pub(super) struct Meter {
    /// Id of the connector or processor.
    pub(super) node: Str,
    /// The kind of the node: a connector and a processor may have the same id.
    pub(super) station: Station,
    /// How long rows may rest in it before it counts as stalled.
    pub(super) patience: Duration,
    rows_in: AtomicU64,
    /// Of those, the ones that its condition does not hold for.
    skipped: AtomicU64,
    rows_out: AtomicU64,
    filtered: AtomicU64,
    /// Made in addition.
    born: AtomicU64,
    failed: AtomicU64,
    nanos: AtomicU64,
    /// When rows left it last, by the clock of the run; 0 = never.
    moved: AtomicU64,
    /// A source that is being told what is stored.
    acknowledging: AtomicBool,
    last_fault: Mutex<Option<(u64, Fault)>>,
}

/// What became of rows that were in a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    pub(super) out: usize,
    pub(super) filtered: usize,
    pub(super) born: usize,
    pub(super) failed: usize,
}

/// What had left a strip before a step, to tell what the step makes leave it.
#[derive(Clone, Copy)]
pub(super) struct Before {
    rows: usize,
    born: usize,
    failed: usize,
}

impl Before {
    pub(super) fn of(rows: usize, left: &Leftover) -> Self {
        Before { rows, born: left.born, failed: left.failed.faults.len() }
    }

    /// What became of its rows, of which `out` are there still.
    pub(super) fn passed(self, out: usize, left: &Leftover) -> Passed {
        let (born, failed) = (left.born - self.born, left.failed.faults.len() - self.failed);
        Passed { out, filtered: (self.rows + born).saturating_sub(out + failed), born, failed }
    }
}

fn add(counter: &AtomicU64, rows: usize) {
    if rows > 0 {
        counter.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

impl Meter {
    pub(super) fn new(station: Station, node: Str, patience: Duration) -> Self {
        Meter {
            node,
            station,
            patience,
            rows_in: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            rows_out: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
            born: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            acknowledging: AtomicBool::new(false),
            last_fault: Mutex::default(),
        }
    }

    /// Rows came in.
    pub(super) fn enter(&self, rows: usize) {
        add(&self.rows_in, rows);
    }

    /// Of the rows that came in, the condition does not hold for these.
    pub(super) fn skip(&self, rows: usize) {
        add(&self.skipped, rows);
    }

    /// Rows left, now.
    pub(super) fn leave(&self, passed: Passed, now: u64) {
        add(&self.rows_out, passed.out);
        add(&self.filtered, passed.filtered);
        add(&self.born, passed.born);
        add(&self.failed, passed.failed);
        self.moved.store(now, Ordering::Relaxed);
    }

    /// Time was spent in it.
    pub(super) fn took(&self, time: Duration) {
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn note_fault(&self, now: u64, fault: &Fault) {
        *self.last_fault.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, fault.clone()));
    }

    pub(super) fn last_fault(&self) -> Option<(u64, Fault)> {
        self.last_fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_acknowledging(&self, acknowledging: bool) {
        self.acknowledging.store(acknowledging, Ordering::Relaxed);
    }

    pub(super) fn is_acknowledging(&self) -> bool {
        self.acknowledging.load(Ordering::Relaxed)
    }

    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub(super) fn rows_out(&self) -> u64 {
        self.rows_out.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self) -> StepCount {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // What leaves is read before what enters: a difference is never too small by what moves meanwhile.
        let (rows_out, filtered, failed) = (read(&self.rows_out), read(&self.filtered), read(&self.failed));
        let (born, skipped, rows_in) = (read(&self.born), read(&self.skipped), read(&self.rows_in));
        StepCount {
            rows_in,
            selected: rows_in.saturating_sub(skipped),
            rows_out,
            filtered,
            failed,
            held: (rows_in + born).saturating_sub(rows_out + filtered + failed),
            busy: Duration::from_nanos(read(&self.nanos)),
        }
    }
}

/// The meters of one stage.
#[derive(Clone)]
pub(super) struct StageMeters {
    progress: Arc<Progress>,
    stage: usize,
}

impl StageMeters {
    pub(super) fn new(progress: Arc<Progress>, stage: usize) -> Self {
        StageMeters { progress, stage }
    }

    /// The meter of a step; reading and writing are one step.
    pub(super) fn step(&self, step: usize) -> &Meter {
        &self.progress.stages[self.stage].steps[step]
    }

    /// The latest backlog of the source that the stage reads.
    pub(super) fn backlog(&self) -> &Answer {
        &self.progress.stages[self.stage].backlog
    }

    /// The time by the clock of the run.
    pub(super) fn now(&self) -> u64 {
        self.progress.clock.now()
    }

    /// The same, of a time that was read already.
    pub(super) fn at(&self, instant: Instant) -> u64 {
        self.progress.clock.at(instant)
    }
}

/// A call of a stage's only step; its time is counted, unless it is dropped.
pub(super) async fn timed<T>(call: impl Future<Output = T>, meters: &StageMeters) -> T {
    let since = Instant::now();
    let made = call.await;
    meters.step(0).took(since.elapsed());
    made
}
