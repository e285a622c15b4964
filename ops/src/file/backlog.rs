//! Backlog of a file: unread bytes and their age.

use std::collections::VecDeque;
use std::time::SystemTime;

/// Most lengths that are remembered of a file.
const MOST: usize = 128;

/// What is known of files that are not read to their end.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// Length of the current file.
    pub(super) length: u64,
    /// When it was last written to.
    pub(super) modified: Option<SystemTime>,
    /// Bytes of the files after it, and when the first of them that has any was last written to.
    pub(super) later: u64,
    pub(super) later_since: Option<SystemTime>,
}

/// When a file had which length: what stood there then has been there at least since.
#[derive(Debug, Default)]
pub(super) struct Lengths(VecDeque<(u64, SystemTime)>);

impl Lengths {
    /// Notes that the file has this length, and that it was last written to at this time.
    pub(super) fn note(&mut self, length: u64, modified: SystemTime) {
        if self.0.back().is_some_and(|(known, _)| *known >= length) {
            return;
        }
        if self.0.len() == MOST {
            // Bytes between two lengths count as younger than they are; the first, which are read next, do not.
            let mut at = 0;
            self.0.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.0.push_back((length, modified.min(SystemTime::now())));
    }

    /// Since when the byte at this offset has been there, at the latest; what is before it is forgotten.
    pub(super) fn since(&mut self, offset: u64) -> Option<SystemTime> {
        while self.0.front().is_some_and(|(length, _)| *length <= offset) {
            self.0.pop_front();
        }
        self.0.front().map(|(_, since)| *since)
    }

    /// Another file, or another content.
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
