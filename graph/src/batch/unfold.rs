//! Rows with very many pieces, which are made one strip at a time.

use anabranch_plugin::operator::{Decision, Pieces, arrange};
use anabranch_record::Position;

use super::{Batch, Leftover, Lineage, STRIP_BYTES, STRIP_ROWS, TopUp};
use crate::ack::Overdrawn;

/// BatchPart of a batch after a processor, in row order.
#[derive(Debug)]
pub(crate) enum BatchPart {
    /// Existing rows.
    Rows(Batch),
    /// The pieces of one row.
    Pieces(Unfolding),
}

impl BatchPart {
    /// Returns the number of rows, including pieces that are not made yet.
    pub(crate) fn rows(&self) -> usize {
        match self {
            BatchPart::Rows(batch) => batch.rows(),
            BatchPart::Pieces(unfolding) => unfolding.lineage.rows(),
        }
    }
}

/// The remaining pieces of one row, with the obligation to settle them.
#[derive(Debug)]
pub(crate) struct Unfolding {
    pieces: Pieces,
    next: usize,
    lineage: Lineage,
    position: Position,
    /// Bytes of the row that count towards the bytes held. The pieces are made from the row, so the bytes count until
    /// the last piece is made.
    counted: usize,
}

impl Unfolding {
    /// Returns `true` when all pieces are made.
    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.pieces.len()
    }

    /// Makes the next strip of pieces. The last piece may exceed the maximum bytes of a strip. O(pieces · fields).
    pub(crate) fn strip(&mut self) -> Batch {
        let mut records = Vec::with_capacity(STRIP_ROWS.min(self.pieces.len() - self.next));
        let mut bytes = 0;
        while records.len() < STRIP_ROWS && bytes < STRIP_BYTES && !self.is_done() {
            let mut piece = self.pieces.make(self.next);
            self.next += 1;
            // Every piece keeps the position of its row, regardless of the position that the operator set.
            if *piece.position() != self.position && !mutant!(PiecesGoAstray) {
                piece = piece.with_position(self.position.clone());
            }
            bytes += piece.weight();
            records.push(piece);
        }
        let (lineage, rest) = self.lineage.take().cut(records.len());
        self.lineage = rest;
        let counted = if self.is_done() { std::mem::take(&mut self.counted) } else { 0 };
        Batch { records, lineage, bytes, counted }
    }
}

impl Batch {
    /// Applies decisions like [`Batch::apply`], but defers making pieces. O(rows + new records).
    ///
    /// # Errors
    /// Credit could not be lent.
    pub(crate) fn unfold(
        self,
        decisions: &mut Vec<(usize, Decision)>,
        left: &mut Leftover,
        lend: TopUp<'_>,
    ) -> Result<Vec<BatchPart>, Overdrawn> {
        arrange(decisions);
        let rows = self.rows();
        let Batch { records, lineage, bytes, counted } = self;
        let (each, each_counted) = (bytes / rows.max(1), counted / rows.max(1));
        let (mut records, mut feed) = (records.into_iter(), lineage.feed());
        let mut take = |rows: usize| Batch {
            records: records.by_ref().take(rows).collect(),
            lineage: feed.next(rows),
            bytes: each * rows,
            counted: each_counted * rows,
        };
        let mut parts = Vec::new();
        let mut others = Vec::new();
        let mut from = 0;
        for (row, decision) in decisions.drain(..).filter(|(row, _)| *row < rows) {
            match decision {
                Decision::Pieces(pieces) if !pieces.is_empty() => {
                    let mut before = take(row - from);
                    before.apply(&mut others, left, &mut *lend)?;
                    parts.push(BatchPart::Rows(before));
                    from = row + 1;
                    let Batch { records, lineage, counted, .. } = take(1);
                    let mut all = lineage.sibling();
                    lineage.feed().split_to(pieces.len(), &mut all, &mut *lend)?;
                    left.born += pieces.len() - 1;
                    let position = records.first().map(|record| record.position().clone()).unwrap_or_default();
                    parts.push(BatchPart::Pieces(Unfolding { pieces, next: 0, lineage: all, position, counted }));
                }
                decision => others.push((row - from, decision)),
            }
        }
        let mut after = take(rows - from);
        after.apply(&mut others, left, lend)?;
        parts.push(BatchPart::Rows(after));
        parts.retain(|part| part.rows() > 0);
        Ok(parts)
    }
}
