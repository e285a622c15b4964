//! Measurement of the processor time that work takes.

use std::time::{Duration, Instant};

/// Measures the processor time of this thread, so that a busy machine does not affect the result of a test. If the
/// system does not report it, measures the elapsed time.
pub struct Spent {
    began: Instant,
    before: Option<Duration>,
}

impl Spent {
    /// Starts a measurement.
    pub fn begin() -> Self {
        Spent { began: Instant::now(), before: given() }
    }

    /// Returns the time since the start.
    pub fn so_far(&self) -> Duration {
        match (self.before, given()) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            _ => self.began.elapsed(),
        }
    }
}

fn given() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
