//! Batches of records: the origin of each row, the selected rows, and the decisions on them.

mod lineage;
mod strips;
mod unfold;

use std::sync::Arc;

use smallvec::SmallVec;

pub use lineage::{Alarm, Lineage};
pub use strips::Strips;
pub(crate) use unfold::{BatchPart, Unfolding};

use anabranch_plugin::operator::{Decision, arrange};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mask::Mask;

use crate::ack::{Overdrawn, Run};

/// Maximum number of rows of a strip.
pub const STRIP_ROWS: usize = 128;
/// Maximum size of a strip in bytes, unless a single record is larger.
pub const STRIP_BYTES: usize = 256 << 10;

/// Function that tops up the credit of a run that is too small to divide.
pub type TopUp<'a> = &'a mut dyn FnMut(&mut Run) -> Result<(), Overdrawn>;

/// Records in flight, together with the obligation to settle them.
#[derive(Debug)]
pub struct Batch {
    records: Vec<Record>,
    lineage: Lineage,
    bytes: usize,
    /// The part of `bytes` that counts towards the bytes held by the pipeline. Divided with the rows, like credit.
    counted: usize,
}

/// Rows that failed, each with its reason.
#[derive(Debug)]
pub struct FailedRows {
    /// The records as they were before the failed processor.
    pub batch: Batch,
    /// One fault per row.
    pub faults: Vec<Fault>,
}

/// Rows removed from a batch by decisions.
#[derive(Debug)]
pub struct Leftover {
    /// Filtered rows.
    pub filtered: Lineage,
    /// Failed rows.
    pub failed: FailedRows,
    /// Number of rows added by splitting.
    pub born: usize,
}

impl Leftover {
    /// Creates an empty value.
    pub fn new(alarm: &Arc<Alarm>) -> Self {
        let batch = Batch { records: Vec::new(), lineage: Lineage::none(alarm), bytes: 0, counted: 0 };
        Leftover { filtered: Lineage::none(alarm), failed: FailedRows { batch, faults: Vec::new() }, born: 0 }
    }

    /// Returns `true` if no rows were removed or added.
    pub fn is_empty(&self) -> bool {
        self.filtered.is_empty() && self.failed.faults.is_empty() && self.born == 0
    }
}

impl Batch {
    /// Creates a batch of records with their lineage. `bytes` is their approximate weight; all of it counts towards the
    /// bytes held.
    pub fn new(records: Vec<Record>, lineage: Lineage, bytes: usize) -> Self {
        debug_assert_eq!(records.len(), lineage.rows());
        Batch { records, lineage, bytes, counted: bytes }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.records.len()
    }

    /// Returns the approximate weight. It is measured when records are read and by [`Batch::weigh`], then carried along
    /// and divided evenly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the records.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the records, for changes in place.
    pub fn records_mut(&mut self) -> &mut [Record] {
        &mut self.records
    }

    /// Returns the lineage of the rows.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Measures the weight again, for stages that change records. O(fields).
    pub fn weigh(&mut self) {
        self.bytes = self.records.iter().map(Record::weight).sum();
    }

    /// Counts the whole weight towards the bytes held by the pipeline and returns the increase. If the records became
    /// smaller, the counted bytes stay the same. O(1).
    #[must_use]
    pub fn count(&mut self) -> usize {
        let grown = self.bytes.saturating_sub(self.counted);
        self.counted += grown;
        grown
    }

    /// Moves all rows out and leaves an empty batch.
    pub(crate) fn take(&mut self) -> Batch {
        let (bytes, counted) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.counted));
        Batch { records: std::mem::take(&mut self.records), lineage: self.lineage.take(), bytes, counted }
    }

    /// Returns the records and their lineage.
    pub fn into_parts(self) -> (Vec<Record>, Lineage) {
        (self.records, self.lineage)
    }

    /// Appends the rows of another batch. O(its rows).
    pub fn merge(&mut self, mut other: Batch) {
        self.bytes += other.bytes;
        self.counted += other.counted;
        if self.records.is_empty() {
            self.records = other.records;
        } else {
            self.records.append(&mut other.records);
        }
        self.lineage.append(other.lineage);
    }

    /// Removes and returns the given rows, in the given order, each at most once. The other rows keep their order.
    /// O(rows); if `rows` are the first rows in order, the lineage costs O(runs) only.
    #[must_use]
    pub fn pick(&mut self, rows: &[usize]) -> Batch {
        let all = self.rows();
        let bytes = self.bytes / all.max(1) * rows.len();
        let counted = self.counted / all.max(1) * rows.len();
        self.counted = self.counted.saturating_sub(counted);
        if rows.iter().copied().eq(0..rows.len()) {
            let rest = self.records.split_off(rows.len());
            let records = std::mem::replace(&mut self.records, rest);
            let (lineage, rest) = self.lineage.take().cut(rows.len());
            self.lineage = rest;
            self.bytes = self.bytes.saturating_sub(bytes);
            return Batch { records, lineage, bytes, counted };
        }
        let mut feed = self.lineage.take().feed();
        let mut each: Vec<Option<(Record, Lineage)>> =
            std::mem::take(&mut self.records).into_iter().map(|record| Some((record, feed.next(1)))).collect();
        let lineage = self.lineage.sibling();
        let mut picked = Batch { records: Vec::with_capacity(rows.len()), lineage, bytes, counted };
        for (record, lineage) in rows.iter().filter_map(|row| each.get_mut(*row)?.take()) {
            picked.records.push(record);
            picked.lineage.append(lineage);
        }
        for (record, lineage) in each.into_iter().flatten() {
            self.records.push(record);
            self.lineage.append(lineage);
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        picked
    }

    /// Splits the batch into strips, in order. O(rows) in total.
    pub fn strips(self) -> Strips {
        Strips::new(self, STRIP_ROWS, STRIP_BYTES)
    }

    /// Splits the batch into pieces of at most `rows` rows and, by the mean weight, `bytes` bytes. O(rows) in total.
    pub fn chunks(self, rows: usize, bytes: usize) -> Strips {
        Strips::new(self, rows, bytes)
    }

    /// Returns `true` if the batch is not larger than a strip.
    pub fn is_strip(&self) -> bool {
        self.rows() <= 1 || self.rows() <= STRIP_ROWS && self.bytes <= STRIP_BYTES
    }

    /// Copies the batch for `n` branches and divides the credit of every row. Payloads are shared until a branch
    /// changes one. Therefore only the bytes of the first copy count towards the bytes held; those of another copy
    /// count once a stage may have changed it. O(n × rows); payloads are not copied.
    ///
    /// # Errors
    /// Credit could not be lent.
    pub fn fan_out(mut self, n: usize, lend: TopUp<'_>) -> Result<SmallVec<[Batch; 2]>, Overdrawn> {
        let others = self.lineage.divide(n, lend)?;
        let mut copies: SmallVec<[Batch; 2]> = others
            .into_iter()
            .map(|lineage| Batch { records: self.records.clone(), lineage, bytes: self.bytes, counted: 0 })
            .collect();
        copies.insert(0, self);
        Ok(copies)
    }

    /// Gives every row to each way that has its bit, in order. `ways` has one mask per way, with one bit per row, and
    /// every row has at least one bit. Like [`Batch::fan_out`], the bytes of the first copy of a row count. O(ways ×
    /// rows).
    ///
    /// # Errors
    /// Credit could not be lent.
    pub fn route(self, ways: &[Mask], lend: TopUp<'_>) -> Result<Vec<Batch>, Overdrawn> {
        let rows = self.rows();
        let (each, each_counted) = (self.bytes / rows.max(1), self.counted / rows.max(1));
        let Batch { records, lineage, .. } = self;
        let empty = || Batch { records: Vec::new(), lineage: lineage.sibling(), bytes: 0, counted: 0 };
        let mut out: Vec<Batch> = ways.iter().map(|_| empty()).collect();
        let mut feed = lineage.feed();
        for (row, record) in records.into_iter().enumerate() {
            let taken = || (0..ways.len()).filter(|way| ways[*way].get(row));
            let mut first = feed.next(1);
            let others = first.divide(taken().count().max(1), &mut *lend)?;
            let mut record = Some(record);
            let mut counted = each_counted;
            let last = taken().next_back();
            for (way, lineage) in taken().zip(std::iter::once(first).chain(others)) {
                let copy = if Some(way) == last { record.take() } else { record.clone() };
                out[way].records.extend(copy);
                out[way].lineage.append(lineage);
                out[way].bytes += each;
                out[way].counted += std::mem::take(&mut counted);
            }
        }
        Ok(out)
    }

    /// Applies decisions and keeps the order of the remaining rows. If a row has two decisions, they are combined
    /// ([`Decision::combine`]). Pieces are made immediately. O(1) without decisions, else O(rows + new records).
    ///
    /// # Errors
    /// Credit could not be lent.
    pub fn apply(
        &mut self,
        decisions: &mut Vec<(usize, Decision)>,
        left: &mut Leftover,
        lend: TopUp<'_>,
    ) -> Result<(), Overdrawn> {
        if decisions.is_empty() {
            return Ok(());
        }
        arrange(decisions);
        let rows = self.rows();
        let each = self.bytes / rows.max(1);
        let each_counted = self.counted / rows.max(1);
        let new: usize = decisions.iter().filter_map(|(_, decision)| decision.split()).sum();
        let mut kept = Vec::with_capacity(rows + new - decisions.len().min(rows));
        let mut lineage = self.lineage.take();
        let mut feed = lineage.take().feed();
        let mut records = std::mem::take(&mut self.records).into_iter();
        let mut next = 0;
        for (row, decision) in decisions.drain(..).filter(|(row, _)| *row < rows) {
            kept.extend(records.by_ref().take(row - next));
            feed.move_to(row - next, &mut lineage);
            next = row + 1;
            let Some(record) = records.next() else { break };
            match decision {
                Decision::Keep => {
                    kept.push(record);
                    feed.move_to(1, &mut lineage);
                }
                Decision::Filter => {
                    self.bytes = self.bytes.saturating_sub(each);
                    self.counted = self.counted.saturating_sub(each_counted);
                    feed.move_to(1, &mut left.filtered);
                }
                decision if decision.split() == Some(0) => {
                    self.bytes = self.bytes.saturating_sub(each);
                    self.counted = self.counted.saturating_sub(each_counted);
                    if mutant!(EmptySplitForgotten) {
                        feed.move_to(1, &mut self.lineage);
                        continue;
                    }
                    feed.move_to(1, &mut left.filtered);
                }
                decision @ (Decision::Split(_) | Decision::Pieces(_)) => {
                    let new = decision.into_records();
                    left.born += new.len() - 1;
                    self.bytes = self.bytes.saturating_sub(each) + new.iter().map(Record::weight).sum::<usize>();
                    feed.split_to(new.len(), &mut lineage, lend)?;
                    // Every piece keeps the position of its row, regardless of the position that the operator set.
                    let position = record.position();
                    kept.extend(new.into_iter().map(|piece| {
                        match piece.position() == position || mutant!(PiecesGoAstray) {
                            true => piece,
                            false => piece.with_position(position.clone()),
                        }
                    }));
                }
                Decision::Fail(fault) => {
                    self.bytes = self.bytes.saturating_sub(each);
                    self.counted = self.counted.saturating_sub(each_counted);
                    left.failed.batch.records.push(record);
                    left.failed.batch.bytes += each;
                    left.failed.batch.counted += each_counted;
                    left.failed.faults.push(fault);
                    feed.move_to(1, &mut left.failed.batch.lineage);
                }
            }
        }
        kept.extend(records);
        feed.move_to(rows - next, &mut lineage);
        self.records = kept;
        self.lineage = lineage;
        debug_assert_eq!(self.records.len(), self.lineage.rows());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
