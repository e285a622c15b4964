//! A wait that all requests of a client share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Until when no request is to be sent.
#[derive(Default)]
pub(super) struct Pause(Mutex<Option<Instant>>);

impl Pause {
    /// No request for so long, from here on.
    pub(super) fn extend(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut pause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *pause = Some(pause.map_or(until, |earlier| earlier.max(until)));
    }

    /// Waits until it is over.
    pub(super) async fn over(&self) {
        while let Some(until) = self.until() {
            tokio::time::sleep_until(until).await;
        }
    }

    /// When it is over; `None` where there is none.
    pub(super) fn until(&self) -> Option<Instant> {
        let mut pause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *pause = pause.filter(|until| *until > Instant::now());
        *pause
    }
}
