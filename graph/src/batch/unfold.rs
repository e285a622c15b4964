//! Rows that become very many: their pieces are made a strip at a time.

use anabranch_plugin::operator::{Decision, Pieces};
use anabranch_record::Position;

use super::{Batch, Leftover, Lend, Lineage, STRIP_BYTES, STRIP_ROWS, arrange};
use crate::ack::Overdrawn;

/// A part of a batch after a step, in the order of its rows.
#[derive(Debug)]
pub(crate) enum Part {
    /// Rows that are there.
    Rows(Batch),
    /// The pieces of one row.
    Pieces(Unfolding),
}

impl Part {
    /// Number of rows that it is or becomes.
    pub(crate) fn rows(&self) -> usize {
        match self {
            Part::Rows(batch) => batch.rows(),
            Part::Pieces(unfolding) => unfolding.lineage.rows(),
        }
    }
}

/// The pieces of one row that are still to be made, with the duty to settle them.
#[derive(Debug)]
pub(crate) struct Unfolding {
    pieces: Pieces,
    next: usize,
    lineage: Lineage,
    position: Position,
    /// The bytes of the row that count among those held. The pieces are made of the row: they count until the last one is.
    counted: usize,
}

impl Unfolding {
    /// True once all pieces are made.
    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.pieces.len()
    }

    /// Makes the next pieces: a strip, of which the last one may exceed the bytes of a strip. O(pieces · fields).
    pub(crate) fn strip(&mut self) -> Batch {
        let mut records = Vec::with_capacity(STRIP_ROWS.min(self.pieces.len() - self.next));
        let mut bytes = 0;
        while records.len() < STRIP_ROWS && bytes < STRIP_BYTES && !self.is_done() {
            let mut piece = self.pieces.make(self.next);
            self.next += 1;
            // Every piece keeps the position of its row, whatever the operator made of it.
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
    /// Applies decisions like [`Batch::apply`], but leaves pieces to be made later. O(rows + new records).
    ///
    /// # Errors
    /// Credit could not be lent.
    pub(crate) fn unfold(
        self,
        decisions: &mut Vec<(usize, Decision)>,
        left: &mut Leftover,
        lend: Lend<'_>,
    ) -> Result<Vec<Part>, Overdrawn> {
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
                    parts.push(Part::Rows(before));
                    from = row + 1;
                    let Batch { records, lineage, counted, .. } = take(1);
                    let mut all = lineage.sibling();
                    lineage.feed().split_to(pieces.len(), &mut all, &mut *lend)?;
                    left.born += pieces.len() - 1;
                    let position = records.first().map(|record| record.position().clone()).unwrap_or_default();
                    parts.push(Part::Pieces(Unfolding { pieces, next: 0, lineage: all, position, counted }));
                }
                decision => others.push((row - from, decision)),
            }
        }
        let mut after = take(rows - from);
        after.apply(&mut others, left, lend)?;
        parts.push(Part::Rows(after));
        parts.retain(|part| part.rows() > 0);
        Ok(parts)
    }
}
