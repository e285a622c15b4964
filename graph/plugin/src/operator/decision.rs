//! Decisions on rows, and which of two applies.

use anabranch_record::Record;
use anabranch_record::fault::Fault;

use super::Pieces;

/// The decision of an operator of any class on one row; an [`Operator`](super::Operator) keeps rows without one.
///
/// The engine, layers around operators and inspection must handle every decision, so the enum is exhaustive. Operators
/// only create decisions: a further variant does not break them.
#[derive(Clone, Debug)]
pub enum Decision {
    /// The row stays, with any changes made in place.
    Keep,
    /// These records replace the row; an empty list filters the row.
    Split(Vec<Record>),
    /// These records replace the row. They are created when there is room for them. For rows that may become more than
    /// [`Pieces::FEW`] records.
    Pieces(Pieces),
    /// The row is filtered and settled.
    Filter,
    /// The row goes to the dead-letter queue.
    Fail(Fault),
}

impl Decision {
    /// Returns the number of records that replace the row, if it is replaced.
    pub fn split(&self) -> Option<usize> {
        match self {
            Decision::Split(records) => Some(records.len()),
            Decision::Pieces(pieces) => Some(pieces.len()),
            Decision::Keep | Decision::Filter | Decision::Fail(_) => None,
        }
    }

    /// Returns the records that replace the row; empty if it stays, is filtered or fails. Creates all of them.
    pub fn into_records(self) -> Vec<Record> {
        match self {
            Decision::Split(records) => records,
            Decision::Pieces(pieces) => pieces.iter().collect(),
            Decision::Keep | Decision::Filter | Decision::Fail(_) => Vec::new(),
        }
    }

    /// Combines two decisions on one row: the more severe one applies (fail, filter, split, keep), and of equal ones the
    /// first.
    pub fn combine(&mut self, later: Decision) {
        if self.severity() < later.severity() {
            *self = later;
        }
    }

    fn severity(&self) -> u8 {
        match self {
            Decision::Keep => 0,
            Decision::Split(_) | Decision::Pieces(_) => 1,
            Decision::Filter => 2,
            Decision::Fail(_) => 3,
        }
    }
}

/// Sorts decisions by row, and combines those on the same row. O(decisions) if they are sorted already.
pub fn arrange(decisions: &mut Vec<(usize, Decision)>) {
    if decisions.is_sorted_by(|a, b| a.0 < b.0) {
        return;
    }
    // Stable: of two equally severe decisions, the first one applies.
    decisions.sort_by_key(|(row, _)| *row);
    decisions.dedup_by(|(later_row, later), (row, decision)| {
        let same = later_row == row;
        if same {
            decision.combine(std::mem::replace(later, Decision::Keep));
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::codes;

    fn all() -> Vec<Decision> {
        let fault = Fault::record(codes::BAD, "bad");
        vec![Decision::Keep, Decision::Split(Vec::new()), Decision::Filter, Decision::Fail(fault)]
    }

    #[test]
    fn the_more_severe_decision_applies_in_either_order() {
        for (low, lower) in all().into_iter().enumerate() {
            for higher in all().into_iter().skip(low) {
                for decisions in [[lower.clone(), higher.clone()], [higher.clone(), lower.clone()]] {
                    let mut decisions: Vec<_> = decisions.into_iter().map(|decision| (3, decision)).collect();
                    arrange(&mut decisions);
                    assert_eq!(decisions.len(), 1);
                    assert_eq!(decisions[0].1.severity(), higher.severity(), "{lower:?} and {higher:?}");
                }
            }
        }
    }

    #[test]
    fn the_first_of_equal_decisions_applies_and_rows_are_sorted() {
        let fail = |what: &'static str| Decision::Fail(Fault::record(codes::BAD, what));
        let mut decisions = vec![(4, fail("first")), (1, Decision::Filter), (4, fail("second")), (4, Decision::Filter)];
        arrange(&mut decisions);
        let shown: Vec<(usize, String)> =
            decisions.into_iter().map(|(row, decision)| (row, format!("{decision:?}"))).collect();
        assert_eq!(shown.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1, 4]);
        assert!(shown[1].1.contains("first"), "{shown:?}");
    }
}
