//! Batches of records: where each row came from, which rows are selected, and what was decided on them.

mod lineage;
mod strips;
mod unfold;

use std::sync::Arc;

use smallvec::SmallVec;

pub use lineage::{Alarm, Lineage};
pub use strips::Strips;
pub(crate) use unfold::{Part, Unfolding};

use anabranch_plugin::operator::Decision;
use anabranch_record::Record;
use anabranch_record::fault::Fault;

use crate::ack::{Overdrawn, Run};

/// Most rows of a strip.
pub const STRIP_ROWS: usize = 128;
/// Most bytes of a strip, unless a single record is larger.
pub const STRIP_BYTES: usize = 256 << 10;

/// Tops up the credit of a run that cannot be divided any more.
pub type Lend<'a> = &'a mut dyn FnMut(&mut Run) -> Result<(), Overdrawn>;

/// Rows on their way, together with the duty to settle them.
#[derive(Debug)]
pub struct Batch {
    records: Vec<Record>,
    lineage: Lineage,
    bytes: usize,
    /// How many of its bytes count among those that the pipeline holds: divided with the rows, like credit.
    counted: usize,
}

/// Rows that failed, each with its reason.
#[derive(Debug)]
pub struct Failed {
    /// The records as they entered the step that failed.
    pub batch: Batch,
    /// One for each row.
    pub faults: Vec<Fault>,
}

/// What left a batch when decisions were applied to it.
#[derive(Debug)]
pub struct Leftover {
    /// Rows that were filtered.
    pub filtered: Lineage,
    /// Rows that failed.
    pub failed: Failed,
    /// Copies that were made in addition to the rows there were.
    pub born: usize,
}

impl Leftover {
    /// Nothing yet.
    pub fn new(alarm: &Arc<Alarm>) -> Self {
        let batch = Batch { records: Vec::new(), lineage: Lineage::none(alarm), bytes: 0, counted: 0 };
        Leftover { filtered: Lineage::none(alarm), failed: Failed { batch, faults: Vec::new() }, born: 0 }
    }

    /// Whether nothing left.
    pub fn is_empty(&self) -> bool {
        self.filtered.is_empty() && self.failed.faults.is_empty() && self.born == 0
    }
}

impl Batch {
    /// Records with their lineage; `bytes` is their weight, and may be rough. All of it counts among the bytes held.
    pub fn new(records: Vec<Record>, lineage: Lineage, bytes: usize) -> Self {
        debug_assert_eq!(records.len(), lineage.rows());
        Batch { records, lineage, bytes, counted: bytes }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.records.len()
    }

    /// Rough weight: measured when records are read and by [`Batch::weigh`], then carried along and divided evenly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its records.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Its records, to be changed in place.
    pub fn records_mut(&mut self) -> &mut [Record] {
        &mut self.records
    }

    /// Where its rows came from.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Measures the weight again, for stages that change records. O(fields).
    pub fn weigh(&mut self) {
        self.bytes = self.records.iter().map(Record::weight).sum();
    }

    /// From now on its whole weight counts among the bytes that the pipeline holds. Returns how many did not; what
    /// counts and was taken out of the records goes on to count. O(1).
    #[must_use]
    pub fn count(&mut self) -> usize {
        let grown = self.bytes.saturating_sub(self.counted);
        self.counted += grown;
        grown
    }

    /// Moves everything out.
    pub(crate) fn take(&mut self) -> Batch {
        let (bytes, counted) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.counted));
        Batch { records: std::mem::take(&mut self.records), lineage: self.lineage.take(), bytes, counted }
    }

    /// Records and lineage.
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

    /// Takes rows out, in the order given, each at most once; the others stay as they are. O(rows), and O(runs) besides
    /// the records where the rows are the first ones in their order.
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

    /// Cuts it in pieces no larger than a strip, in order. O(rows) in all.
    pub fn strips(self) -> Strips {
        Strips::new(self, STRIP_ROWS, STRIP_BYTES)
    }

    /// Cuts it in pieces of at most so many rows and, going by their mean weight, bytes. O(rows) in all.
    pub fn chunks(self, rows: usize, bytes: usize) -> Strips {
        Strips::new(self, rows, bytes)
    }

    /// Whether it is no larger than a strip already.
    pub fn is_strip(&self) -> bool {
        self.rows() <= 1 || self.rows() <= STRIP_ROWS && self.bytes <= STRIP_BYTES
    }

    /// Copies for `n` ways, by dividing the credit of every row; payloads are shared until one is changed. So only the
    /// bytes of the first count among those held: those of another one do when a stage may have changed it.
    /// O(n × rows), no payload is copied.
    ///
    /// # Errors
    /// Credit could not be lent.
    pub fn fan_out(mut self, n: usize, lend: Lend<'_>) -> Result<SmallVec<[Batch; 2]>, Overdrawn> {
        let others = self.lineage.divide(n, lend)?;
        let mut copies: SmallVec<[Batch; 2]> = others
            .into_iter()
            .map(|lineage| Batch { records: self.records.clone(), lineage, bytes: self.bytes, counted: 0 })
            .collect();
        copies.insert(0, self);
        Ok(copies)
    }

    /// Applies decisions, keeping the order of the rows that stay. Of two on one row the worse counts. Pieces are made
    /// at once.
    /// O(1) when there is none, else O(rows + new records).
    ///
    /// # Errors
    /// Credit could not be lent.
    pub fn apply(
        &mut self,
        decisions: &mut Vec<(usize, Decision)>,
        left: &mut Leftover,
        lend: Lend<'_>,
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
                    // Every piece keeps the position of its row, whatever the operator made of it.
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

/// Brings decisions in the order of their rows; of two on one row the worse stays.
pub(crate) fn arrange(decisions: &mut Vec<(usize, Decision)>) {
    if !decisions.is_sorted_by(|a, b| a.0 < b.0) {
        decisions.sort_by_key(|(row, decision)| (*row, std::cmp::Reverse(decision.rank())));
        decisions.dedup_by_key(|(row, _)| *row);
    }
}

#[cfg(test)]
mod tests;
