//! Read times of positions that are not stored yet.

use std::collections::VecDeque;

/// Reads within this many nanoseconds count as one: ages need no finer resolution, and slow lanes stay small.
const TOGETHER: u64 = 10_000_000;

/// The positions of a lane that are not stored, with their read times. O(1) per read, with at most one entry per read
/// and 10 ms.
#[derive(Debug, Default)]
pub(super) struct Unstored {
    read: u64,
    stored: u64,
    /// Number of positions up to the end of each group of reads, and the time of its first read.
    reads: VecDeque<(u64, u64)>,
}

impl Unstored {
    /// Registers positions that were read at `now`.
    pub(super) fn add(&mut self, positions: u64, now: u64) {
        self.read += positions;
        match self.reads.back_mut() {
            Some((upto, at)) if now.saturating_sub(*at) < TOGETHER => *upto = self.read,
            _ => self.reads.push_back((self.read, now)),
        }
    }

    /// Registers that `positions` more are stored. Calls `each` with a number of positions and their read time.
    /// O(groups of reads covered).
    pub(super) fn store(&mut self, positions: u64, mut each: impl FnMut(u64, u64)) {
        let mut from = self.stored;
        self.stored += positions;
        while let Some((upto, at)) = self.reads.front().copied() {
            let end = upto.min(self.stored);
            if end > from {
                each(end - from, at);
                from = end;
            }
            if upto > self.stored {
                return;
            }
            self.reads.pop_front();
        }
    }

    /// Returns the read time of the oldest position; 0 = none.
    pub(super) fn since(&self) -> u64 {
        self.reads.front().map_or(0, |(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_read_that_is_not_stored_counts() {
        let mut unstored = Unstored::default();
        assert_eq!(unstored.since(), 0);
        unstored.add(3, 1);
        unstored.add(2, TOGETHER);
        unstored.add(4, 2 * TOGETHER);
        let mut stored = Vec::new();
        unstored.store(4, |positions, at| stored.push((positions, at)));
        assert_eq!(unstored.since(), 1, "one of the first five is not stored");
        unstored.store(1, |positions, at| stored.push((positions, at)));
        assert_eq!(unstored.since(), 2 * TOGETHER);
        unstored.store(4, |positions, at| stored.push((positions, at)));
        assert_eq!(unstored.since(), 0);
        assert_eq!(stored, [(4, 1), (1, 1), (4, 2 * TOGETHER)]);
        assert!(unstored.reads.is_empty());
    }
}
