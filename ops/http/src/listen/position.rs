//! Positions of received records.
//!
//! A record that was received once cannot be read again, so a position only identifies it: the random id of the run, and
//! the number of the record in the run. So no two records of a connector have the same position, also if a crash forgets
//! some of them: a record that arrives after a crash never has the idempotency key of one that arrived before.
//!
//! After a restart, the lane continues its generation after the stored mark, with the records that arrive then. Records that
//! were read and not acknowledged are repeated by their clients as new records, so the source does not replay exactly.

use anabranch_record::Position;
use anabranch_record::fault::Fault;

use crate::codes;

/// Number of characters of the id of a run.
const ID: usize = 16;

/// Assigns the positions of a run.
pub(super) struct Numbering {
    run: u64,
    last: u64,
}

impl Numbering {
    /// Begins a run with a new id.
    pub(super) fn begin() -> Numbering {
        Numbering { run: fastrand::u64(..), last: 0 }
    }

    /// Returns the next position.
    pub(super) fn next(&mut self) -> Position {
        self.last += 1;
        Position(format!("{:016x}-{}", self.run, self.last).into())
    }
}

/// Checks that a position is one of this source.
///
/// # Errors
/// `position_unknown` if it is another text.
pub(super) fn check(position: &Position) -> Result<(), Fault> {
    let text = std::str::from_utf8(&position.0).unwrap_or_default();
    let is_ours = text.split_once('-').is_some_and(|(run, number)| {
        run.len() == ID && u64::from_str_radix(run, 16).is_ok() && number.parse::<u64>().is_ok()
    });
    if is_ours {
        return Ok(());
    }
    let text = "the position is not that of a source http; run `anabranch positions reset` to remove it";
    Err(Fault::fatal(codes::POSITION_UNKNOWN, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_two_runs_differ() {
        let (mut a, mut b) = (Numbering::begin(), Numbering::begin());
        let positions = [a.next(), a.next(), b.next(), b.next()];
        for (i, position) in positions.iter().enumerate() {
            check(position).unwrap();
            assert!(!positions[..i].contains(position));
        }
        for other in ["", "7", "0000-7", "000000000000000x-1", "0123456789abcdef-", "0123456789abcdef-1.5"] {
            let fault = check(&Position::copy_from(other.as_bytes())).unwrap_err();
            assert_eq!(fault.code(), codes::POSITION_UNKNOWN, "{other}");
        }
    }
}
