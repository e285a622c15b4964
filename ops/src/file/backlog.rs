//! Backlog of a file: unread bytes and their age.

use std::collections::VecDeque;
use std::time::SystemTime;

/// Maximum number of lengths kept per file.
const MOST: usize = 128;

/// State of the files that are not read to their end.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// Length of the current file in bytes.
    pub(super) length: u64,
    /// Time of the last write to the current file.
    pub(super) modified: Option<SystemTime>,
    /// Bytes in later files, and the time of the last write to the first non-empty one.
    pub(super) later: u64,
    pub(super) later_since: Option<SystemTime>,
}

/// Lengths of a file and the times at which it had them. Bytes below a length are at least as old as its time.
#[derive(Debug, Default)]
pub(super) struct Lengths(VecDeque<(u64, SystemTime)>);

impl Lengths {
    /// Records that the file had this length at the time of its last write.
    pub(super) fn note(&mut self, length: u64, modified: SystemTime) {
        if self.0.back().is_some_and(|(known, _)| *known >= length) {
            return;
        }
        if self.0.len() == MOST {
            // Drop every other length but keep the first. Bytes between two lengths then look younger; the next bytes
            // to be read keep their age.
            let mut at = 0;
            self.0.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.0.push_back((length, modified.min(SystemTime::now())));
    }

    /// Returns the latest time at which the byte at `offset` was already there. Drops the lengths before it.
    pub(super) fn since(&mut self, offset: u64) -> Option<SystemTime> {
        while self.0.front().is_some_and(|(length, _)| *length <= offset) {
            self.0.pop_front();
        }
        self.0.front().map(|(_, since)| *since)
    }

    /// Forgets all lengths: the file or its content changed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bytes_are_as_old_as_the_length_that_held_them_first() {
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let mut lengths = Lengths::default();
        for second in 1..=1000 {
            lengths.note(second * 10, at(second));
            assert!(lengths.0.len() <= MOST);
        }
        assert_eq!(lengths.since(5), Some(at(1)));
        // Never older than it is.
        let since = lengths.since(5000).unwrap();
        assert!((at(501)..=at(900)).contains(&since), "{since:?}");
        assert_eq!(lengths.since(9995), Some(at(1000)));
        assert_eq!(lengths.since(10_000), None);
    }
}
