//! Counters of a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::plan::stage::{StageKind, StagePlan};
use crate::state::LaneId;
use crate::text::Str;

/// Counters of a run, readable while it runs. Relaxed atomics, written once per strip.
#[derive(Debug)]
pub struct Progress {
    lanes: RwLock<Vec<Arc<LaneProgress>>>,
    stages: Box<[StageProgress]>,
    born: AtomicU64,
    filtered: AtomicU64,
    failed: AtomicU64,
    dead_lettered: AtomicU64,
}

/// What was read of a lane, and how far it came.
#[derive(Debug)]
pub(super) struct LaneProgress {
    pub(super) id: LaneId,
    pub(super) read: AtomicU64,
    pub(super) settled: AtomicU64,
    pub(super) persisted: AtomicU64,
}

#[derive(Debug)]
struct StageProgress {
    name: Str,
    destination: Option<Str>,
    rows_in: AtomicU64,
    rows_out: AtomicU64,
}

/// The counters of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneCount {
    /// The lane.
    pub id: LaneId,
    /// Rows read.
    pub read: u64,
    /// Rows of which every copy is settled.
    pub settled: u64,
    /// Positions stored.
    pub persisted: u64,
}

/// The counters of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageCount {
    /// Name of the stage.
    pub name: Str,
    /// Rows that came in.
    pub rows_in: u64,
    /// Rows that went on; for a destination: rows delivered.
    pub rows_out: u64,
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
    /// Copies still on their way: read + born − delivered − filtered − dead-lettered.
    pub in_flight: u64,
}

impl Progress {
    pub(super) fn new(plan: &StagePlan) -> Self {
        let stages = plan.stages.iter().map(|stage| StageProgress {
            name: stage.name.clone(),
            destination: match &stage.kind {
                StageKind::Write(write) => Some(write.connector.clone()),
                _ => None,
            },
            rows_in: AtomicU64::new(0),
            rows_out: AtomicU64::new(0),
        });
        Progress {
            lanes: RwLock::default(),
            stages: stages.collect(),
            born: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            dead_lettered: AtomicU64::new(0),
        }
    }

    pub(super) fn add_lane(&self, id: LaneId) -> Arc<LaneProgress> {
        let lane = Arc::new(LaneProgress {
            id,
            read: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            persisted: AtomicU64::new(0),
        });
        self.lanes.write().unwrap_or_else(PoisonError::into_inner).push(lane.clone());
        lane
    }

    pub(super) fn stage_in(&self, stage: usize, rows: usize) {
        self.stages[stage].rows_in.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(super) fn stage_out(&self, stage: usize, rows: usize) {
        self.stages[stage].rows_out.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(super) fn add_born(&self, copies: usize) {
        self.born.fetch_add(copies as u64, Ordering::Relaxed);
    }

    pub(super) fn add_filtered(&self, copies: usize) {
        self.filtered.fetch_add(copies as u64, Ordering::Relaxed);
    }

    pub(super) fn add_failed(&self, copies: usize) {
        self.failed.fetch_add(copies as u64, Ordering::Relaxed);
    }

    pub(super) fn add_dead_lettered(&self, copies: usize) {
        self.dead_lettered.fetch_add(copies as u64, Ordering::Relaxed);
    }

    /// Per lane, in the order in which they appeared.
    pub fn lanes(&self) -> Vec<LaneCount> {
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        lanes
            .iter()
            .map(|lane| LaneCount {
                id: lane.id.clone(),
                read: lane.read.load(Ordering::Relaxed),
                settled: lane.settled.load(Ordering::Relaxed),
                persisted: lane.persisted.load(Ordering::Relaxed),
            })
            .collect()
    }

    /// Per stage, in the order of the plan.
    pub fn stages(&self) -> Vec<StageCount> {
        let count = |stage: &StageProgress| StageCount {
            name: stage.name.clone(),
            rows_in: stage.rows_in.load(Ordering::Relaxed),
            rows_out: stage.rows_out.load(Ordering::Relaxed),
        };
        self.stages.iter().map(count).collect()
    }

    /// Copies delivered per destination connector, in the order of the plan.
    pub fn delivered(&self) -> Vec<(Str, u64)> {
        let count = |stage: &StageProgress| Some((stage.destination.clone()?, stage.rows_out.load(Ordering::Relaxed)));
        self.stages.iter().filter_map(count).collect()
    }

    /// Over the whole pipeline. While it runs the counters are read one after the other, so that sums may be off
    /// by what moved meanwhile.
    pub fn totals(&self) -> Totals {
        let lanes = self.lanes();
        let mut totals = Totals {
            read: lanes.iter().map(|lane| lane.read).sum(),
            settled: lanes.iter().map(|lane| lane.settled).sum(),
            born: self.born.load(Ordering::Relaxed),
            delivered: self.delivered().iter().map(|(_, rows)| rows).sum(),
            filtered: self.filtered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            dead_lettered: self.dead_lettered.load(Ordering::Relaxed),
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
