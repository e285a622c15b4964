//! The rate limit of a destination.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A token bucket that counts rows.
pub(super) struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Creates a bucket that is full: `rate` rows per second, and at most `burst` at once; 0 stands for one second's.
    pub(super) fn new(rate: f64, burst: usize) -> Self {
        let burst = if burst == 0 { rate.ceil().max(1.0) } else { burst as f64 };
        Bucket { rate, burst, tokens: burst, at: Instant::now() }
    }

    /// Returns the most rows that pass at once, at least 1.
    pub(super) fn burst(&self) -> usize {
        (self.burst as usize).max(1)
    }

    /// Waits until `rows` rows may pass. If there are more rows than the burst, they pass in several steps.
    pub(super) async fn take(&mut self, rows: usize) {
        let burst = self.burst();
        for from in (0..rows).step_by(burst) {
            self.turn((rows - from).min(burst)).await;
        }
    }

    /// Waits until `rows` rows, at most the burst, may pass.
    async fn turn(&mut self, rows: usize) {
        loop {
            let now = Instant::now();
            self.tokens = (self.tokens + (now - self.at).as_secs_f64() * self.rate).min(self.burst);
            self.at = now;
            let missing = rows as f64 - self.tokens;
            if missing <= 1e-9 {
                self.tokens -= rows as f64;
                return;
            }
            // One nanosecond more, so that rounding does not wake it slightly too early.
            let wait = Duration::try_from_secs_f64(missing / self.rate).unwrap_or(Duration::from_secs(3600));
            sleep_until(now + wait + Duration::from_nanos(1)).await;
        }
    }
}
