//! Rate limits that consist of a single number: the time when all usage is compensated.

use std::sync::atomic::{AtomicU64, Ordering};

/// A rate limit that many threads use without a lock. Times are in nanoseconds from an origin chosen by the owner.
#[derive(Debug)]
pub(super) struct Pace {
    /// Time when all usage is compensated.
    even: AtomicU64,
    /// Maximum distance of `even` from the current time at which more may be taken.
    ahead: u64,
    /// Maximum distance of `even` from the current time, whatever was used.
    most: u64,
}

impl Pace {
    pub(super) fn new(ahead: u64, most: u64) -> Self {
        Pace { even: AtomicU64::new(0), ahead, most }
    }

    /// Returns `true` if something can be taken.
    pub(super) fn has_room(&self, now: u64) -> bool {
        self.even.load(Ordering::Relaxed) <= now.saturating_add(self.ahead)
    }

    /// Takes something that needs the time `cost` to compensate, if there is room. Returns `true` if taken.
    pub(super) fn take(&self, now: u64, cost: u64) -> bool {
        let next = |even: u64| (even <= now.saturating_add(self.ahead)).then(|| self.after(even, now, cost));
        self.even.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Takes unconditionally, for costs that are known only afterwards.
    pub(super) fn spend(&self, now: u64, cost: u64) {
        let next = |even: u64| Some(self.after(even, now, cost));
        let _ = self.even.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn after(&self, even: u64, now: u64, cost: u64) -> u64 {
        even.max(now).saturating_add(cost).min(now.saturating_add(self.most).max(even))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn it_gives_so_many_at_once_and_then_so_many_a_second() {
        let pace = Pace::new(SECOND - SECOND / 10, u64::MAX);
        assert_eq!((0..100).filter(|_| pace.take(0, SECOND / 10)).count(), 10);
        // Unused permits of a second remain at its end, and no more than those.
        assert_eq!((0..100).filter(|_| pace.take(5 * SECOND, SECOND / 10)).count(), 10);
        let later = (1..=1000).map(|ms| 5 * SECOND + ms * SECOND / 1000);
        assert_eq!(later.filter(|now| pace.take(*now, SECOND / 10)).count(), 10);
        assert!(!pace.has_room(6 * SECOND) && pace.has_room(7 * SECOND));
    }

    #[test]
    fn a_debt_has_an_end() {
        let pace = Pace::new(0, 5 * SECOND);
        pace.spend(SECOND, u64::MAX);
        assert!(!pace.has_room(6 * SECOND - 1) && pace.has_room(6 * SECOND));
        pace.spend(2 * SECOND, 3 * SECOND);
        assert!(!pace.has_room(7 * SECOND - 1) && pace.has_room(7 * SECOND));
    }
}
