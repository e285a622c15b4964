//! Measurements of a run of a plan.

use std::time::Duration;

/// Counters of a node: a processor, a source or a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCount {
    /// Records that reached the node.
    pub rows_in: u64,
    /// Records that the node was applied to: all, or those that satisfy its condition.
    pub selected: u64,
    /// Records that left the node; for a destination, records delivered.
    pub rows_out: u64,
    /// Records dropped by the node.
    pub filtered: u64,
    /// Records that failed in the node.
    pub failed: u64,
    /// Records in the node at present: in a running call, or accepted by a destination and not durable yet.
    pub held: u64,
    /// Time spent in calls of the node, conditions included, summed over all workers. Includes the time that a source
    /// waits for records and that a call waits for a service.
    pub busy: Duration,
}

/// Measurements of a run of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Counters by stage and, within the stage, by step.
    pub stages: Vec<Vec<StepCount>>,
    /// Time from opening to the end.
    pub elapsed: Duration,
    /// Records read.
    pub read: u64,
    /// Copies delivered.
    pub delivered: u64,
    /// Records that failed.
    pub failed: u64,
    /// True if destinations were written. Otherwise records were discarded instead of written.
    pub written: bool,
    /// Reason why the run ended early: a failure, or a time limit.
    pub cut_short: Option<String>,
    /// True if the run failed.
    pub broken: bool,
}
