//! The wall-clock time of records and templates.
//!
//! All code that writes the time of day into a record uses [`now`], so that a test of a pipeline can freeze it. Timers
//! and time-outs use tokio's clock instead.

use std::cell::Cell;
use std::time::SystemTime;

thread_local! {
    static HELD: Cell<Option<SystemTime>> = const { Cell::new(None) };
}

/// Returns the time of day, or the frozen time of this thread.
pub fn now() -> SystemTime {
    HELD.get().unwrap_or_else(SystemTime::now)
}

/// Returns the frozen time of this thread, so that it can be passed to a thread that works on its behalf.
pub fn held() -> Option<SystemTime> {
    HELD.get()
}

/// Freezes the time of day of this thread; `None` unfreezes it. Other threads are not affected.
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
