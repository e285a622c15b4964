//! Positions of received records.
//!
//! A record that was received once cannot be requested again, so a position only identifies it: the random id of a numbering,
//! and the number of the record in it. So no two records of a connector have the same position, also if a crash forgets some
//! of them: a record that arrives after a crash never has the idempotency key of one that arrived before.
//!
//! After a restart, the lane continues its generation after the stored mark, with the records that arrive then. Records that
//! were read and not acknowledged are repeated by their clients as new records, so the source does not replay exactly.
//! Records that were confirmed early keep their positions for the next run of the process.

use std::sync::atomic::{AtomicU64, Ordering};

use anabranch_record::Position;
use anabranch_record::fault::Fault;

use crate::codes;

/// Number of characters of the id of a numbering.
const ID: usize = 16;

/// Assigns the positions of the records that a connector receives in this process.
#[derive(Debug)]
pub(super) struct Numbering {
    id: u64,
    last: AtomicU64,
}

impl Numbering {
    /// Begins with a new id.
    pub(super) fn begin() -> Numbering {
        Numbering { id: fastrand::u64(..), last: AtomicU64::new(0) }
    }

    /// Reserves the next numbers, and returns the first.
    pub(super) fn reserve(&self, records: usize) -> u64 {
        self.last.fetch_add(records as u64, Ordering::Relaxed) + 1
    }

    /// Returns the position of a number.
    pub(super) fn position(&self, number: u64) -> Position {
        Position(format!("{:016x}-{number}", self.id).into())
    }

    /// Returns the number of a position; `None` if it is of another process.
    pub(super) fn number(&self, position: &Position) -> Option<u64> {
        let (id, number) = parts(position)?;
        (id == self.id).then_some(number)
    }
}

/// Returns the id and the number of a position.
fn parts(position: &Position) -> Option<(u64, u64)> {
    let (id, number) = std::str::from_utf8(&position.0).ok()?.split_once('-')?;
    let id = (id.len() == ID).then(|| u64::from_str_radix(id, 16).ok())??;
    Some((id, number.parse().ok()?))
}

/// Checks that a position is one of this source.
///
/// # Errors
/// `position_unknown` if it is another text.
pub(super) fn check(position: &Position) -> Result<(), Fault> {
    if parts(position).is_some() {
        return Ok(());
    }
    let text = "the position is not that of a source http; run `anabranch positions reset` to remove it";
    Err(Fault::fatal(codes::POSITION_UNKNOWN, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_two_processes_differ() {
        let (a, b) = (Numbering::begin(), Numbering::begin());
        assert_eq!((a.reserve(2), a.reserve(1)), (1, 3));
        let positions = [a.position(1), a.position(2), b.position(1)];
        for (i, position) in positions.iter().enumerate() {
            check(position).unwrap();
            assert!(!positions[..i].contains(position));
        }
        assert_eq!((a.number(&positions[1]), b.number(&positions[1])), (Some(2), None));
        for other in ["", "7", "0000-7", "000000000000000x-1", "0123456789abcdef-", "0123456789abcdef-1.5"] {
            let fault = check(&Position::copy_from(other.as_bytes())).unwrap_err();
            assert_eq!(fault.code(), codes::POSITION_UNKNOWN, "{other}");
        }
    }
}
