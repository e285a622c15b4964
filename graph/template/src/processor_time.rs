//! The processor time of a thread, for budgets that do not count the time in which the thread waits for a processor.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns the processor time that this thread has used, or zero if the system does not have such a clock.
pub fn taken_by_thread() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
