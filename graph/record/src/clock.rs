//! The time of day, as records and templates see it.
//!
//! Everything that writes the time of day into a record asks here, so that a test of a pipeline can hold it still.
//! Waiting goes by tokio's clock and by none other.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};

thread_local! {
    static HELD: Cell<Option<SystemTime>> = const { Cell::new(None) };
}

/// The time of day, or the time at which it is held on this thread.
pub fn now() -> SystemTime {
    HELD.get().unwrap_or_else(SystemTime::now)
}

/// Processor time that this thread has taken. Every system has this clock; one that lacks it counts no time.
pub fn taken_by_thread() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// The time at which it is held on this thread, for a thread that works for this one.
pub fn held() -> Option<SystemTime> {
    HELD.get()
}

/// Holds the time of day on this thread from here on; `None` lets it go on. Other threads are not affected.
pub fn hold(at: Option<SystemTime>) {
    HELD.set(at);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn time_is_held_on_this_thread_alone() {
        let then = UNIX_EPOCH + Duration::from_secs(1);
        hold(Some(then));
        assert_eq!(now(), then);
        assert!(std::thread::spawn(now).join().unwrap() > then);
        hold(None);
        assert!(now() > then);
    }
}
