//! Lock-free distributions of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in milliseconds. One more bucket holds values above the last bound.
const BOUNDS: [u64; 16] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000];

/// Counts of durations by bucket. Adding one takes three relaxed atomic operations.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// Snapshot of the counts of a [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    counts: [u64; BOUNDS.len() + 1],
    /// Sum of all durations.
    pub sum: Duration,
}

impl Histogram {
    /// Counts a duration `times` times.
    pub fn add(&self, time: Duration, times: u64) {
        let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < millis);
        self.counts[bucket].fetch_add(times, Ordering::Relaxed);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(times);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns a snapshot of the counts.
    pub fn distribution(&self) -> Distribution {
        let mut counts = [0; BOUNDS.len() + 1];
        for (count, counted) in counts.iter_mut().zip(&self.counts) {
            *count = counted.load(Ordering::Relaxed);
        }
        Distribution { counts, sum: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)) }
    }
}

impl Distribution {
    /// Returns the number of durations counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Yields each upper bound, ascending, with the number of durations that do not exceed it. `None` is the unbounded
    /// one.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = BOUNDS.iter().map(|millis| Some(Duration::from_millis(*millis))).chain([None]);
        bounds.zip(self.counts).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }

    /// Adds the counts of another distribution.
    pub fn join(&mut self, other: &Distribution) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_below_their_bounds() {
        let histogram = Histogram::default();
        for (millis, times) in [(0, 1), (1, 2), (2, 10), (70, 3), (400_000, 4)] {
            histogram.add(Duration::from_millis(millis), times);
        }
        histogram.add(Duration::from_micros(1001), 5);
        let mut counted = histogram.distribution();
        let at = |counted: &Distribution, millis: Option<u64>| {
            counted.cumulative().find(|(bound, _)| *bound == millis.map(Duration::from_millis)).unwrap().1
        };
        assert_eq!(
            [Some(1), Some(2), Some(50), Some(100), Some(300_000), None].map(|m| at(&counted, m)),
            [3, 18, 18, 21, 21, 25]
        );
        assert_eq!(counted.count(), 25);
        // 2 + 20 + 210 + 1,600,000 ms, and 5,005 µs.
        assert_eq!(counted.sum, Duration::from_micros(1_600_232_000 + 5005));
        counted.join(&histogram.distribution());
        assert_eq!((counted.count(), at(&counted, Some(1))), (50, 6));
    }
}
