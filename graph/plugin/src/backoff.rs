//! Waits between attempts.

use std::time::Duration;

/// Waits that grow with the number of consecutive failures: `first · factorⁿ⁻¹` after `n` of them, at most `longest`.
///
/// The waits are the same each time. A caller that shares a server with others adds a random part, so that clients that
/// failed together do not retry together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// Growth factor of the wait.
    pub factor: f64,
}

impl Backoff {
    /// Creates waits that double.
    pub const fn doubling(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, factor: 2.0 }
    }

    /// Returns the wait after `failures` consecutive failures; 0 counts as 1.
    pub fn after(&self, failures: u32) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.first.as_secs_f64() * self.factor.powi(exponent);
        // NaN, from a first wait of zero that grows without bounds, is no wait either.
        if seconds.is_nan() {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(seconds.clamp(0.0, self.longest.as_secs_f64()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waits_grow_up_to_the_longest() {
        let backoff = Backoff::doubling(100 * MS, 5000 * MS);
        let waits: Vec<Duration> = (1..=8).map(|failures| backoff.after(failures)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000].map(|ms| ms * MS));
        assert_eq!([0, 1, u32::MAX].map(|failures| backoff.after(failures)), [100 * MS, 100 * MS, 5000 * MS]);
    }

    #[test]
    fn any_factor_gives_a_wait() {
        for factor in [0.0, 0.5, 1.0, f64::MAX, f64::INFINITY, f64::NAN] {
            for first in [Duration::ZERO, MS] {
                let backoff = Backoff { first, longest: 10 * MS, factor };
                assert!((0..100).all(|failures| backoff.after(failures) <= 10 * MS), "{backoff:?}");
            }
        }
    }
}
