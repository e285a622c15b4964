//! What every node of a run does and takes, counted per strip.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::plan::StepCount;
use crate::plan::stage::{StageKind, StagePlan};

/// The meters of a run, by stage and step; reading and writing are one step. Readable while it runs.
#[derive(Debug)]
pub struct Meters(Box<[Box<[Meter]>]>);

/// The meter of one step, shared by its workers.
#[derive(Debug, Default)]
pub(super) struct Meter {
    rows_in: AtomicU64,
    selected: AtomicU64,
    rows_out: AtomicU64,
    failed: AtomicU64,
    nanos: AtomicU64,
}

/// The meters of one stage.
#[derive(Clone)]
pub(super) struct StageMeters {
    meters: Arc<Meters>,
    stage: usize,
}

impl Meters {
    /// Meters for a plan, all at zero.
    pub fn new(plan: &StagePlan) -> Self {
        let steps = |kind: &StageKind| match kind {
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                steps.len()
            }
            StageKind::Read(_) | StageKind::Async { .. } | StageKind::Write(_) => 1,
        };
        let meters = |steps: usize| (0..steps).map(|_| Meter::default()).collect();
        Meters(plan.stages.iter().map(|stage| meters(steps(&stage.kind))).collect())
    }

    /// What they show.
    pub fn counts(&self) -> Vec<Vec<StepCount>> {
        self.0.iter().map(|stage| stage.iter().map(Meter::count).collect()).collect()
    }

    pub(super) fn of(self: &Arc<Self>, stage: usize) -> StageMeters {
        StageMeters { meters: self.clone(), stage }
    }
}

impl StageMeters {
    pub(super) fn step(&self, step: usize) -> &Meter {
        &self.meters.0[self.stage][step]
    }
}

impl Meter {
    /// Counts the time from `since`.
    pub(super) fn took(&self, since: Instant) {
        self.nanos.fetch_add(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn count_in(&self, rows: usize, selected: usize) {
        self.rows_in.fetch_add(rows as u64, Ordering::Relaxed);
        self.selected.fetch_add(selected as u64, Ordering::Relaxed);
    }

    pub(super) fn count_out(&self, rows: usize) {
        self.rows_out.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(super) fn count_failed(&self, rows: usize) {
        self.failed.fetch_add(rows as u64, Ordering::Relaxed);
    }

    fn count(&self) -> StepCount {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StepCount {
            rows_in: read(&self.rows_in),
            selected: read(&self.selected),
            rows_out: read(&self.rows_out),
            failed: read(&self.failed),
            busy: Duration::from_nanos(read(&self.nanos)),
        }
    }
}

/// A call of a stage's only step; its time is counted where there are meters, unless it is dropped.
pub(super) async fn timed<T>(call: impl Future<Output = T>, meters: Option<&StageMeters>) -> T {
    let since = meters.map(|_| Instant::now());
    let made = call.await;
    if let Some((meters, since)) = meters.zip(since) {
        meters.step(0).took(since);
    }
    made
}
