//! The rate limit of a destination.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::plan::stage::WriteSpec;

/// The bucket of a destination, which its writers share in the order in which they ask.
#[derive(Clone)]
pub(super) struct SharedBucket {
    bucket: Arc<Mutex<Bucket>>,
    burst: usize,
}

impl SharedBucket {
    /// Creates the bucket of a destination; `None` if its rate is unlimited.
    pub(super) fn of(spec: &WriteSpec) -> Option<SharedBucket> {
        let rate = spec.rate.filter(|rate| *rate > 0.0)?;
        let bucket = Bucket::new(rate, spec.burst);
        let burst = bucket.burst();
        Some(SharedBucket { bucket: Arc::new(Mutex::new(bucket)), burst })
    }

    /// Returns the most rows that pass at once, at least 1.
    pub(super) fn burst(&self) -> usize {
        self.burst
    }

    /// Waits until `rows` rows may pass, after those that asked before.
    pub(super) async fn take(&self, rows: usize) {
        self.bucket.lock().await.take(rows).await;
    }
}

/// A token bucket that counts rows.
struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Creates a bucket that is full: `rate` rows per second, and at most `burst` at once; 0 stands for one second's.
    fn new(rate: f64, burst: usize) -> Self {
        let burst = if burst == 0 { rate.ceil().max(1.0) } else { burst as f64 };
        Bucket { rate, burst, tokens: burst, at: Instant::now() }
    }

    /// Returns the most rows that pass at once, at least 1.
    fn burst(&self) -> usize {
        (self.burst as usize).max(1)
    }

    /// Waits until `rows` rows may pass. If there are more rows than the burst, they pass in several steps.
    async fn take(&mut self, rows: usize) {
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
