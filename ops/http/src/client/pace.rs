//! A bound on the attempts per minute.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Hands out moments, evenly spread.
pub(super) struct Pace {
    gap: Option<Duration>,
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// So many moments per minute.
    pub(super) fn new(per_minute: Option<f64>) -> Pace {
        let gap = per_minute.and_then(|most| Duration::try_from_secs_f64(60.0 / most).ok());
        Pace { gap, next: Mutex::new(None) }
    }

    /// Waits for the next moment that nobody else has.
    pub(super) async fn keep(&self) {
        if let Some(gap) = self.gap {
            tokio::time::sleep_until(self.take(gap)).await;
        }
    }

    fn take(&self, gap: Duration) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mine = next.map_or(now, |next| next.max(now));
        *next = mine.checked_add(gap);
        mine
    }
}
