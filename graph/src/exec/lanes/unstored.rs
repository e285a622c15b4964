//! When what is not stored was read.

use std::collections::VecDeque;

/// Reads so close to each other count as one: an age need not be finer, and a lane that trickles stays small.
const TOGETHER: u64 = 10_000_000;

/// The positions of a lane that are not stored, with the time at which they were read. O(1) per read, at most one
/// entry per read and 10 ms.
#[derive(Debug, Default)]
pub(super) struct Unstored {
    read: u64,
    stored: u64,
    /// Number of positions read up to here, and when the first of them was.
    reads: VecDeque<(u64, u64)>,
}

impl Unstored {
    /// Notes positions that were read `now`.
    pub(super) fn add(&mut self, positions: u64, now: u64) {
        self.read += positions;
        match self.reads.back_mut() {
            Some((upto, at)) if now.saturating_sub(*at) < TOGETHER => *upto = self.read,
            _ => self.reads.push_back((self.read, now)),
        }
    }

    /// Notes that so many more are stored; `each` is given how many of them were read at which time. O(reads that
    /// they came in).
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

    /// When the oldest was read; 0 = there is none.
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
