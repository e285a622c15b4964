//! Positions of the lanes: numbers.

use anabranch_record::Position;
use anabranch_record::mark::Partition;
use anabranch_record::text::Str;

/// The lane of the changes.
pub(super) const CHANGES: Partition = Partition::ONLY;
/// The lane of the plan of a snapshot.
pub(super) const PLAN: Partition = Partition(Str::from_static("snapshot"));
/// The lane of the rows that are to be read beside the changes.
pub(super) const BACKFILL: Partition = Partition(Str::from_static("backfill"));

/// Encodes numbers.
pub(super) fn encode(numbers: &[u64]) -> Position {
    Position::copy_from(&numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>())
}

/// Decodes numbers.
pub(super) fn decode(position: &Position) -> Vec<u64> {
    let (numbers, _) = position.0.as_chunks::<8>();
    numbers.iter().map(|number| u64::from_be_bytes(*number)).collect()
}

/// How far a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The slot is about to be created.
    Intent,
    /// The slot exists, and rows of the snapshot are left.
    Snapshot,
    /// Only changes are read.
    Changes,
}

/// A position in the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChangePosition {
    pub(super) stage: Stage,
    /// The changes of all transactions that were committed before this place are read.
    pub(super) end: u64,
    /// The place of the commit of a transaction of which a part is read; 0 if there is none.
    pub(super) commit: u64,
    /// The number of its changes that are read.
    pub(super) ordinal: u64,
}

impl ChangePosition {
    /// Creates a position before which all transactions are read.
    pub(super) fn at(stage: Stage, end: u64) -> ChangePosition {
        ChangePosition { stage, end, commit: 0, ordinal: 0 }
    }

    pub(super) fn encode(self) -> Position {
        encode(&[self.stage as u64, self.end, self.commit, self.ordinal])
    }

    /// Decodes a position; `None` if it is not one of this source.
    pub(super) fn decode(position: &Position) -> Option<ChangePosition> {
        let [stage, end, commit, ordinal] = decode(position)[..] else { return None };
        let stage = [Stage::Intent, Stage::Snapshot, Stage::Changes].into_iter().find(|at| *at as u64 == stage)?;
        Some(ChangePosition { stage, end, commit, ordinal })
    }
}

/// Encodes the position of a row of a range; `is_complete` after the last one.
pub(super) fn range(attempt: u64, row: u64, is_complete: bool) -> Position {
    encode(&[attempt, row, u64::from(is_complete)])
}

/// Returns `true` if a range is read to its end.
pub(super) fn is_complete(position: &Position) -> bool {
    matches!(decode(position)[..], [_, _, 1])
}
