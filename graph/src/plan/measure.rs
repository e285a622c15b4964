//! What a run of a plan measured.

use std::time::Duration;

/// The counters of one node: of a step, of reading, or of writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCount {
    /// Records that came to the node.
    pub rows_in: u64,
    /// Those it was applied to: all, or those its condition holds for.
    pub selected: u64,
    /// Records that went on; for a destination, those delivered.
    pub rows_out: u64,
    /// Records that were dropped here.
    pub filtered: u64,
    /// Records that failed here.
    pub failed: u64,
    /// Records in it now: of a call that is under way, or accepted by a destination and not durable yet.
    pub held: u64,
    /// Time in calls of the node, conditions included, over all of its workers. Time in which a source waits for
    /// records or a service for an answer counts.
    pub busy: Duration,
}

/// A run of a plan, measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// By stage and, inside the stage, by step.
    pub stages: Vec<Vec<StepCount>>,
    /// From opening to the end.
    pub elapsed: Duration,
    /// Records read.
    pub read: u64,
    /// Copies delivered.
    pub delivered: u64,
    /// Records that failed.
    pub failed: u64,
    /// Whether destinations were written; otherwise records were thrown away where they would have been.
    pub written: bool,
    /// Why there may be less than was asked for: a failure, or that time was up.
    pub cut_short: Option<String>,
    /// Whether the run failed.
    pub broken: bool,
}
