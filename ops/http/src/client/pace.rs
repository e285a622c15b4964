//! A bound on the attempts per minute.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::pause::Pause;

/// Hands out moments, evenly spread; first come, first served.
pub(super) struct Pace {
    gap: Option<Duration>,
    /// The next moment. Whoever is to have it holds the lock until it has come.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// So many moments per minute.
    pub(super) fn new(per_minute: Option<f64>) -> Pace {
        let gap = per_minute.and_then(|most| Duration::try_from_secs_f64(60.0 / most).ok());
        Pace { gap, next: Mutex::new(None) }
    }

    /// Waits for the next moment that nobody else has and that is in no pause.
    pub(super) async fn keep(&self, pause: &Pause) {
        let Some(gap) = self.gap else { return pause.over().await };
        // Not the time at which the lock is had: what timers are late by would add up.
        let mut earliest = Instant::now();
        let mut next = self.next.lock().await;
        loop {
            let mine = next.map_or(earliest, |next| next.max(earliest));
            tokio::time::sleep_until(mine).await;
            if pause.until().is_none() {
                // Only a moment that is used is taken: those in a pause, and of who gave up, are nobody's.
                *next = mine.checked_add(gap);
                return;
            }
            pause.over().await;
            earliest = Instant::now();
        }
    }
}
