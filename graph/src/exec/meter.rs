//! Counters and times of every node of a run, updated once per strip.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use tokio::time::Instant;

use super::backlog::LatestBacklog;
use super::progress::Progress;
use super::tap::NodeRole;
use crate::batch::Leftover;
use crate::plan::StepCount;

/// The counters of a node, shared by its workers: a step, a source, a destination or the dead-letter queue.
#[derive(Debug)]
pub(super) struct Meter {
    /// Id of the connector or processor.
    pub(super) node: Str,
    /// Kind of the node. A connector and a processor may have the same id.
    pub(super) role: NodeRole,
    /// Time that rows may stay in the node before it counts as stalled.
    pub(super) patience: Duration,
    rows_in: AtomicU64,
    /// Entered rows that do not satisfy the condition of the node.
    skipped: AtomicU64,
    rows_out: AtomicU64,
    filtered: AtomicU64,
    /// Rows added by splitting.
    born: AtomicU64,
    failed: AtomicU64,
    nanos: AtomicU64,
    /// Time when rows last left the node, by the clock of the run; 0 = never.
    moved: AtomicU64,
    /// True while stored positions are being acknowledged to the source.
    acknowledging: AtomicBool,
    last_fault: Mutex<Option<(u64, Fault)>>,
}

/// Outcome of the rows in a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowOutcomes {
    pub(super) out: usize,
    pub(super) filtered: usize,
    pub(super) born: usize,
    pub(super) failed: usize,
}

/// State of a strip before a step, to compute the outcome of the step.
#[derive(Clone, Copy)]
pub(super) struct StripBefore {
    rows: usize,
    born: usize,
    failed: usize,
}

impl StripBefore {
    pub(super) fn of(rows: usize, left: &Leftover) -> Self {
        StripBefore { rows, born: left.born, failed: left.failed.faults.len() }
    }

    /// Returns the outcome of the rows, of which `out` are left.
    pub(super) fn passed(self, out: usize, left: &Leftover) -> RowOutcomes {
        let (born, failed) = (left.born - self.born, left.failed.faults.len() - self.failed);
        RowOutcomes { out, filtered: (self.rows + born).saturating_sub(out + failed), born, failed }
    }
}

fn add(counter: &AtomicU64, rows: usize) {
    if rows > 0 {
        counter.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

impl Meter {
    pub(super) fn new(role: NodeRole, node: Str, patience: Duration) -> Self {
        Meter {
            node,
            role,
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

    /// Counts rows that entered.
    pub(super) fn enter(&self, rows: usize) {
        add(&self.rows_in, rows);
    }

    /// Counts entered rows that do not satisfy the condition.
    pub(super) fn skip(&self, rows: usize) {
        add(&self.skipped, rows);
    }

    /// Counts rows that left at time `now`.
    pub(super) fn leave(&self, passed: RowOutcomes, now: u64) {
        add(&self.rows_out, passed.out);
        add(&self.filtered, passed.filtered);
        add(&self.born, passed.born);
        add(&self.failed, passed.failed);
        self.moved.store(now, Ordering::Relaxed);
    }

    /// Adds time spent in the node.
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
        // Counters of leaving rows are read before those of entering rows, so that concurrent movement never makes the
        // difference too small.
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

/// The meters of a stage.
#[derive(Clone)]
pub(super) struct StageMeters {
    progress: Arc<Progress>,
    stage: usize,
}

impl StageMeters {
    pub(super) fn new(progress: Arc<Progress>, stage: usize) -> Self {
        StageMeters { progress, stage }
    }

    /// Returns the meter of a step. Sources and destinations have a single step.
    pub(super) fn step(&self, step: usize) -> &Meter {
        &self.progress.stages[self.stage].steps[step]
    }

    /// Returns the latest backlog of the source that the stage reads.
    pub(super) fn backlog(&self) -> &LatestBacklog {
        &self.progress.stages[self.stage].backlog
    }

    /// Returns the current time by the clock of the run.
    pub(super) fn now(&self) -> u64 {
        self.progress.clock.now()
    }

    /// Converts an instant to the clock of the run.
    pub(super) fn at(&self, instant: Instant) -> u64 {
        self.progress.clock.at(instant)
    }
}

/// Awaits a call of the only step of a stage and counts its time, unless it is dropped.
pub(super) async fn timed<T>(call: impl Future<Output = T>, meters: &StageMeters) -> T {
    let since = Instant::now();
    let made = call.await;
    meters.step(0).took(since.elapsed());
    made
}
