//! Credit, and runs of rows that hold it.

use smallvec::SmallVec;

/// Index of a lane in a run of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneIndex(pub u16);

/// A share of the credit of a row. Not `Copy` or `Clone`: only a ledger and division make it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Credit(pub(super) u32);

impl Credit {
    /// Returns the credit that a row owes when it is read. Small in simulations, so that it runs out.
    pub(super) fn full() -> u32 {
        if crate::mutant::CHECKED { crate::mutant::credit() } else { 1 << 31 }
    }

    /// Divides the credit into `n` parts: `self` keeps one part and the remainder; the result is the size of each other
    /// part. Returns `None` if there is too little credit to divide.
    fn divide(&mut self, n: u32) -> Option<u32> {
        let part = self.0 / n;
        (part > 0).then(|| {
            self.0 -= part * (n - 1);
            self.0 = if mutant!(RemainderLost) { part } else { self.0 };
            part
        })
    }
}

/// Mapping from the rows of a run to the rows of the segment that they are copies of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowMapping {
    /// Row `i` of the run is row `first + i` of the segment.
    Rows,
    /// Every row of the run is a piece of row `first`.
    Pieces,
}

/// Consecutive rows of a batch that come from one segment and have equal credit.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    pub(super) lane: LaneIndex,
    pub(super) segment: u32,
    pub(super) first: u32,
    rows: u32,
    shape: RowMapping,
    pub(super) credit: Credit,
    traced: bool,
}

impl Run {
    pub(super) fn whole(lane: LaneIndex, segment: u32, rows: u32) -> Run {
        Run { lane, segment, first: 0, rows, shape: RowMapping::Rows, credit: Credit(Credit::full()), traced: false }
    }

    /// Returns the lane that the rows were read from.
    pub fn lane(&self) -> LaneIndex {
        self.lane
    }

    /// Returns the number of the segment whose credit the run holds. Numbers wrap.
    pub(crate) fn segment(&self) -> u32 {
        self.segment
    }

    /// Returns the rows of the segment that the rows of the run are copies of.
    pub(crate) fn source_rows_in_segment(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.source_rows()
    }

    /// Returns `true` if a row of the segment is traced.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.traced
    }

    /// Marks a row of the segment as traced. Runs derived from this one inherit the mark.
    pub(crate) fn set_traced(&mut self) {
        self.traced = true;
    }

    /// Returns the number of rows of the batch that belong to the run.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Returns the number of rows of the segment whose credit the run holds.
    pub(super) fn source_rows(&self) -> u32 {
        match self.shape {
            RowMapping::Rows => self.rows,
            RowMapping::Pieces => 1,
        }
    }

    /// Returns the distance from the first source row of the run to the source row of row `row`.
    pub(super) fn source_offset(&self, row: usize) -> u64 {
        match self.shape {
            RowMapping::Rows => row as u64,
            RowMapping::Pieces => 0,
        }
    }

    /// Returns `true` if all rows are pieces of one row of the segment.
    pub fn is_pieces(&self) -> bool {
        self.shape == RowMapping::Pieces
    }

    /// Returns the credit that the run holds for each of its source rows.
    pub(super) fn credit_per_source_row(&self) -> u64 {
        match self.shape {
            RowMapping::Rows => u64::from(self.credit.0),
            RowMapping::Pieces => u64::from(self.credit.0) * u64::from(self.rows),
        }
    }

    /// Consumes the credit. Returns the segment, its first row, the number of its rows, and the credit of each.
    pub(super) fn spend(self) -> (u32, usize, u32, u64) {
        (self.segment, self.first as usize, self.source_rows(), self.credit_per_source_row())
    }

    /// Removes and returns the first `rows` rows, which must be fewer than all. O(1).
    pub fn cut(&mut self, rows: usize) -> Run {
        debug_assert!(rows < self.rows());
        let rows = (rows as u32).min(self.rows);
        let head = Run { rows, credit: Credit(self.credit.0), ..*self };
        self.rows -= rows;
        if self.shape == RowMapping::Rows {
            self.first += rows;
        }
        head
    }

    /// Appends the rows of `next` if they directly follow these with equal credit. O(1).
    ///
    /// # Errors
    /// Returns `next` if they do not.
    pub fn join(&mut self, next: Run) -> Result<(), Run> {
        if (self.lane, self.segment) != (next.lane, next.segment) || self.credit != next.credit {
            return Err(next);
        }
        let pieces = |run: &Run| run.shape == RowMapping::Pieces || run.rows == 1;
        let shape = if self.first == next.first && pieces(self) && pieces(&next) {
            RowMapping::Pieces
        } else if self.shape_is_rows() && next.shape_is_rows() && self.first.checked_add(self.rows) == Some(next.first)
        {
            RowMapping::Rows
        } else {
            return Err(next);
        };
        match self.rows.checked_add(next.rows) {
            Some(rows) => {
                self.rows = rows;
                self.shape = shape;
                Ok(())
            }
            None => Err(next),
        }
    }

    fn shape_is_rows(&self) -> bool {
        self.shape == RowMapping::Rows || self.rows == 1
    }

    /// Divides the credit of every row among `n` copies of the rows: `self` becomes one copy, the others are returned.
    /// Returns `None` and changes nothing if there is too little credit; call [`super::Ledger::lend`] first. O(n).
    pub fn divide(&mut self, n: u32) -> Option<SmallVec<[Run; 3]>> {
        let all = self.credit.0;
        let mut part = self.credit.divide(n.max(1))?;
        if mutant!(FirstDestinationSettles) {
            (self.credit.0, part) = (all, 0);
        }
        Some((1..n).map(|_| Run { credit: Credit(part), ..*self }).collect())
    }

    /// Divides a run of one row among `n` pieces of the row, in order; the first gets the remainder. O(1).
    ///
    /// # Errors
    /// Returns the run if there is too little credit ([`super::Ledger::lend`] first), if it has several rows, or if `n`
    /// is 0.
    pub fn pieces(mut self, n: u32) -> Result<(Run, Option<Run>), Run> {
        if self.rows != 1 || n == 0 {
            return Err(self);
        }
        let all = self.credit.0;
        let Some(mut part) = self.credit.divide(n) else { return Err(self) };
        if mutant!(SplitHeadSettles) && n > 1 {
            (self.credit.0, part) = (all, 0);
        }
        self.shape = RowMapping::Pieces;
        if self.credit.0 == part {
            self.rows = n;
            return Ok((self, None));
        }
        let rest = Run { rows: n - 1, credit: Credit(part), ..self };
        Ok((self, (n > 1).then_some(rest)))
    }
}
