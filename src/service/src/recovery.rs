//! Decides when a failed pipeline is restarted, and when it has failed permanently.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_plugin::backoff::Backoff;
use tokio::time::Instant;

use anabranch_settings::RecoveryPolicy;

/// The recovery attempts of one pipeline.
#[derive(Debug)]
pub struct Recovery {
    policy: RecoveryPolicy,
    /// When each attempt that still counts expires, in order.
    forgotten_at: VecDeque<Instant>,
}

impl Recovery {
    /// Creates a recovery without attempts.
    pub fn new(policy: RecoveryPolicy) -> Self {
        Recovery { policy, forgotten_at: VecDeque::new() }
    }

    /// Returns the wait before the next attempt, or `None` if there were too many. An attempt counts for its own wait
    /// plus the window of the policy.
    pub fn next(&mut self, now: Instant) -> Option<Duration> {
        while self.forgotten_at.front().is_some_and(|at| *at <= now) {
            self.forgotten_at.pop_front();
        }
        let made = u32::try_from(self.forgotten_at.len()).unwrap_or(u32::MAX);
        if self.policy.max_retries.is_some_and(|most| made >= most) {
            return None;
        }
        let wait = self.wait(made + 1, fastrand::f64());
        let at = now + wait + self.policy.max_retries_window;
        // Waits grow, so later attempts expire later; because of the jitter each is inserted in order.
        let place = self.forgotten_at.partition_point(|other| *other <= at);
        self.forgotten_at.insert(place, at);
        Some(wait)
    }

    /// Returns the number of attempts that count.
    pub fn attempts(&self) -> usize {
        self.forgotten_at.len()
    }

    /// Returns a random wait between the minimum and `min · factorⁿ`, at most the maximum: pipelines that failed
    /// together do not restart together.
    fn wait(&self, attempt: u32, chance: f64) -> Duration {
        let RecoveryPolicy { min_delay, max_delay, backoff_factor, .. } = self.policy;
        let backoff = Backoff { first: min_delay, longest: max_delay, factor: f64::from(backoff_factor.max(1)) };
        let (least, most) = (backoff.after(1), backoff.after(attempt.saturating_add(1)));
        least + (most - least).mul_f64(chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovery(max_retries: Option<u32>) -> Recovery {
        Recovery::new(RecoveryPolicy { max_retries, ..RecoveryPolicy::default() })
    }

    #[test]
    fn waits_grow_up_to_the_longest() {
        let recovery = recovery(None);
        let most: Vec<f64> = [1, 2, 3, 9, 10, 1000, u32::MAX].map(|n| recovery.wait(n, 1.0).as_secs_f64()).to_vec();
        assert_eq!(most, [2.0, 4.0, 8.0, 512.0, 600.0, 600.0, 600.0]);
        assert_eq!(recovery.wait(5, 0.0), Duration::from_secs(1));
        assert_eq!(recovery.wait(5, 0.5), Duration::from_secs_f64(16.5));
    }

    #[test]
    fn attempts_run_out_and_are_forgotten() {
        let mut recovery = recovery(Some(2));
        let start = Instant::now();
        assert!(recovery.next(start).is_some());
        assert!(recovery.next(start).is_some());
        assert_eq!(recovery.next(start), None);
        assert_eq!(recovery.attempts(), 2);
        // Both waits are at most 4 s, the window is 5 minutes.
        let later = start + Duration::from_secs(305);
        assert!(recovery.next(later).is_some());
        assert_eq!(
            super::Recovery::new(RecoveryPolicy { max_retries: Some(0), ..RecoveryPolicy::default() }).next(start),
            None
        );
    }
}
