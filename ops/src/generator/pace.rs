//! Pacing of records: a steady rate, and bursts with pauses.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum delay that a late reader catches up. Records missed beyond that are skipped. Otherwise, after the
/// destination pauses, records would flood in above the rate.
const CATCH_UP: Duration = Duration::from_millis(100);

/// The rate of a generator.
///
/// Due times are counted from a fixed instant, never from the last record, so that late timers do not add up.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Nanoseconds between two records; 0 = no limit.
    interval: f64,
    burst: Option<Burst>,
    /// Start of the schedule: record `given` is due at `base + given * interval`.
    base: Instant,
    given: u64,
}

#[derive(Clone, Debug)]
struct Burst {
    opened: Instant,
    generate: Duration,
    period: Duration,
    /// Number of the current burst.
    number: u128,
}

/// Number of records that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// This many records are due, at least one.
    Now(usize),
    /// No record is due before this instant.
    At(Instant),
}

impl Pace {
    /// Creates a pace of `rate` records per second (0 = no limit). `burst` is the time to generate and the time to
    /// sleep, in turns.
    pub(super) fn new(rate: f64, burst: Option<(Duration, Duration)>, now: Instant) -> Self {
        Pace {
            interval: if rate > 0.0 { 1e9 / rate } else { 0.0 },
            burst: burst.map(|(generate, sleep)| Burst { opened: now, generate, period: generate + sleep, number: 0 }),
            base: now,
            given: 0,
        }
    }

    /// Returns how many records are due at `now`.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if let Some(burst) = &mut self.burst {
            let elapsed = now.saturating_duration_since(burst.opened).as_nanos();
            let (number, within) = (elapsed / burst.period.as_nanos(), elapsed % burst.period.as_nanos());
            let until_next = Duration::from_nanos((burst.period.as_nanos() - within) as u64);
            if within >= burst.generate.as_nanos() {
                return Due::At(now + until_next);
            }
            if number != burst.number {
                burst.number = number;
                (self.base, self.given) = (now + until_next - burst.period, 0);
            }
        }
        if self.interval == 0.0 {
            return Due::Now(usize::MAX);
        }
        let next = self.base + Duration::from_nanos((self.given as f64 * self.interval) as u64);
        if now < next {
            return Due::At(next);
        }
        let mut late = now - next;
        if late > CATCH_UP {
            (self.base, self.given) = (now - CATCH_UP, 0);
            late = CATCH_UP;
        }
        Due::Now(((late.as_nanos() as f64 / self.interval) as usize).saturating_add(1))
    }

    /// Counts records that were generated.
    pub(super) fn gave(&mut self, records: usize) {
        self.given = self.given.saturating_add(records as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn take(pace: &mut Pace, now: Instant) -> usize {
        match pace.due(now) {
            Due::Now(n) => {
                pace.gave(n);
                n
            }
            Due::At(_) => 0,
        }
    }

    #[test]
    fn the_first_record_is_due_at_once_and_the_rate_does_not_drift() {
        let start = Instant::now();
        let mut pace = Pace::new(3.0, None, start);
        assert_eq!(take(&mut pace, start), 1);
        assert_eq!(pace.due(start), Due::At(start + Duration::from_nanos(333_333_333)));
        // Every look comes late by another amount; after a minute the count is exact all the same.
        let mut made = 1;
        for look in 1..=20_000u32 {
            made += take(&mut pace, start + look * 3 * MS + (look % 7) * MS / 3);
        }
        assert_eq!(made, 181);
    }

    #[test]
    fn many_records_are_due_at_once_under_a_high_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(1e6, None, start);
        assert_eq!(take(&mut pace, start), 1);
        let made = take(&mut pace, start + 5 * MS);
        assert!((4999..=5001).contains(&made), "{made}");
    }

    #[test]
    fn a_long_stall_is_not_made_up_for() {
        let start = Instant::now();
        let mut pace = Pace::new(100.0, None, start);
        take(&mut pace, start);
        assert_eq!(take(&mut pace, start + 60_000 * MS), 11);
        assert_eq!(take(&mut pace, start + 60_000 * MS), 0);
        let mut slow = Pace::new(1.0, None, start);
        take(&mut slow, start);
        assert_eq!(take(&mut slow, start + 5_000 * MS), 1);
        assert_eq!(slow.due(start + 5_000 * MS), Due::At(start + 5_900 * MS));
    }

    #[test]
    fn nothing_is_due_between_bursts() {
        let start = Instant::now();
        let mut pace = Pace::new(10.0, Some((1000 * MS, 4000 * MS)), start);
        let made: Vec<usize> =
            (0..10).map(|s| (0..1000).map(|ms| take(&mut pace, start + (s * 1000 + ms) * MS)).sum()).collect();
        assert_eq!(made, [10, 0, 0, 0, 0, 10, 0, 0, 0, 0]);
        assert_eq!(pace.due(start + 1500 * MS), Due::At(start + 5000 * MS));
        let mut unlimited = Pace::new(0.0, Some((MS, MS)), start);
        assert_eq!(unlimited.due(start), Due::Now(usize::MAX));
        assert_eq!(unlimited.due(start + MS), Due::At(start + 2 * MS));
    }

    #[test]
    fn an_enormous_rate_is_no_limit() {
        let start = Instant::now();
        let mut pace = Pace::new(f64::MAX, None, start);
        assert_eq!(pace.due(start + MS), Due::Now(usize::MAX));
    }

    #[test]
    fn a_tiny_rate_is_a_long_wait() {
        let start = Instant::now();
        let mut pace = Pace::new(1e-300, None, start);
        assert_eq!(take(&mut pace, start), 1);
        assert!(matches!(pace.due(start + 1000 * MS), Due::At(at) if at > start + 1_000_000 * MS));
    }
}
