//! Limit on the attempts per minute.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::pause::Pause;

/// Assigns evenly spaced times, in order of arrival.
pub(super) struct Pace {
    gap: Option<Duration>,
    /// The next time. The waiter for it holds the lock until the time has come.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// Creates a pace of `per_minute` times per minute.
    pub(super) fn new(per_minute: Option<f64>) -> Pace {
        let gap = per_minute.and_then(|most| Duration::try_from_secs_f64(60.0 / most).ok());
        Pace { gap, next: Mutex::new(None) }
    }

    /// Waits for the next free time outside of a pause.
    pub(super) async fn keep(&self, pause: &Pause) {
        let Some(gap) = self.gap else { return pause.over().await };
        // Take the time before the lock: otherwise delays of timers would add up.
        let mut earliest = Instant::now();
        let mut next = self.next.lock().await;
        loop {
            let mine = next.map_or(earliest, |next| next.max(earliest));
            tokio::time::sleep_until(mine).await;
            if pause.until().is_none() {
                // Only used start times count: those in a pause, or of a dropped future, become free.
                *next = mine.checked_add(gap);
                return;
            }
            pause.over().await;
            earliest = Instant::now();
        }
    }
}
