//! Limits on the time of a script.

use std::time::Duration;

/// Limits on the time of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time limit of one call of `process`.
    pub(crate) time: Duration,
}

/// Time that a worker may wait for a processor, in addition to the time limit of a record: a busy machine is not the
/// script's fault.
pub(crate) const UNSCHEDULED: Duration = Duration::from_secs(20);
