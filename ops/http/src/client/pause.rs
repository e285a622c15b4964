//! A pause for all requests of a client.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A pause is logged again only if it ends this much later than the last logged one. So a server that slows down every
/// request does not fill the log.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// Time until which no request is sent.
#[derive(Default)]
pub(super) struct Pause(Mutex<Until>);

#[derive(Default)]
struct Until {
    now: Option<Instant>,
    told: Option<Instant>,
}

impl Pause {
    /// Pauses requests for `wait` from now on. Returns `true` if that should be logged.
    pub(super) fn extend(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut pause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pause.now = Some(pause.now.map_or(until, |earlier| earlier.max(until)));
        let news = !wait.is_zero() && pause.told.is_none_or(|told| until >= told + TOLD_AGAIN);
        if news {
            pause.told = Some(until);
        }
        news
    }

    /// Waits until the pause is over.
    pub(super) async fn over(&self) {
        while let Some(until) = self.until() {
            tokio::time::sleep_until(until).await;
        }
    }

    /// Returns the end of the pause; `None` if there is none.
    pub(super) fn until(&self) -> Option<Instant> {
        let mut pause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pause.now = pause.now.filter(|until| *until > Instant::now());
        pause.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_told_once() {
        let pause = Pause::default();
        let seconds = Duration::from_secs;
        assert!(!pause.extend(Duration::ZERO));
        assert!(pause.extend(seconds(60)));
        // The others that were in flight.
        tokio::time::advance(seconds(1)).await;
        assert!(!pause.extend(seconds(60)));
        // The next attempts, after it.
        pause.over().await;
        assert!(pause.extend(seconds(60)));
        assert!(pause.extend(seconds(300)), "it is much longer");
    }

    #[tokio::test(start_paused = true)]
    async fn short_pauses_are_told_once_a_minute() {
        let pause = Pause::default();
        let mut told = 0;
        for _ in 0..120 {
            told += usize::from(pause.extend(Duration::from_secs(1)));
            pause.over().await;
        }
        assert_eq!(told, 2);
    }
}
