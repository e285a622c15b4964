//! Time that work took of a processor.

use std::time::{Duration, Instant};

/// Measures what this thread is given of a processor: a machine whose cores are taken makes a test wait, and not slow.
/// Where the system does not say, the time of day.
pub struct Spent {
    began: Instant,
    before: Option<Duration>,
}

impl Spent {
    /// From now on.
    pub fn begin() -> Self {
        Spent { began: Instant::now(), before: given() }
    }

    /// Since the beginning.
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
