//! Credit, and the runs of rows that hold it.

use smallvec::SmallVec;

/// Index of a lane among the lanes of a run of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneIndex(pub u16);

/// A share of a row's credit. Neither copied nor cloned: it is made by a ledger and by division only.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Credit(pub(super) u32);

impl Credit {
    /// What a row owes when it is read.
    #[cfg(not(feature = "mutants"))]
    pub(super) const fn full() -> u32 {
        1 << 31
    }

    /// What a row owes when it is read: in a simulation so little that it runs out.
    #[cfg(feature = "mutants")]
    pub(super) fn full() -> u32 {
        crate::mutant::credit()
    }

    /// Divides in `n`: `self` keeps one part and the remainder, every other part is the returned amount.
    /// `None` when there is too little to divide.
    fn divide(&mut self, n: u32) -> Option<u32> {
        let part = self.0 / n;
        (part > 0).then(|| {
            self.0 -= part * (n - 1);
            self.0 = if mutant!(RemainderLost) { part } else { self.0 };
            part
        })
    }
}

/// Which rows of the segment the rows of a run are copies of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Row `i` of the run is row `first + i` of the segment.
    Rows,
    /// Every row of the run is a piece of row `first`.
    Pieces,
}

/// Consecutive rows of a batch that come from one segment with equal credit.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    pub(super) lane: LaneIndex,
    pub(super) segment: u32,
    pub(super) first: u32,
    rows: u32,
    shape: Shape,
    pub(super) credit: Credit,
    traced: bool,
}

impl Run {
    pub(super) fn whole(lane: LaneIndex, segment: u32, rows: u32) -> Run {
        Run { lane, segment, first: 0, rows, shape: Shape::Rows, credit: Credit(Credit::full()), traced: false }
    }

    /// The lane its rows were read from.
    pub fn lane(&self) -> LaneIndex {
        self.lane
    }

    /// The segment it holds credit of; numbers wrap.
    pub(crate) fn segment(&self) -> u32 {
        self.segment
    }

    /// The rows of the segment that its rows are copies of.
    pub(crate) fn source_rows_in_segment(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.source_rows()
    }

    /// Whether a row of its segment is traced.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.traced
    }

    /// A row of its segment is traced: so say all runs that are made of this one.
    pub(crate) fn set_traced(&mut self) {
        self.traced = true;
    }

    /// Number of rows of the batch it stands for.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Number of rows of the segment it holds credit of.
    pub(super) fn source_rows(&self) -> u32 {
        match self.shape {
            Shape::Rows => self.rows,
            Shape::Pieces => 1,
        }
    }

    /// How many rows after the first one of the segment row `row` of the run is a copy of.
    pub(super) fn source_offset(&self, row: usize) -> u64 {
        match self.shape {
            Shape::Rows => row as u64,
            Shape::Pieces => 0,
        }
    }

    /// Whether all its rows are pieces of one row of the segment.
    pub fn is_pieces(&self) -> bool {
        self.shape == Shape::Pieces
    }

    /// The credit it holds of each of those rows.
    pub(super) fn credit_per_source_row(&self) -> u64 {
        match self.shape {
            Shape::Rows => u64::from(self.credit.0),
            Shape::Pieces => u64::from(self.credit.0) * u64::from(self.rows),
        }
    }

    /// Gives up its credit: segment, first row of it, number of rows of it, and the credit of each.
    pub(super) fn spend(self) -> (u32, usize, u32, u64) {
        (self.segment, self.first as usize, self.source_rows(), self.credit_per_source_row())
    }

    /// Takes the first `rows` rows out, fewer than there are. O(1).
    pub fn cut(&mut self, rows: usize) -> Run {
        debug_assert!(rows < self.rows());
        let rows = (rows as u32).min(self.rows);
        let head = Run { rows, credit: Credit(self.credit.0), ..*self };
        self.rows -= rows;
        if self.shape == Shape::Rows {
            self.first += rows;
        }
        head
    }

    /// Appends the rows of `next` if they follow on these with equal credit. O(1).
    ///
    /// # Errors
    /// Gives `next` back if they do not.
    pub fn join(&mut self, next: Run) -> Result<(), Run> {
        if (self.lane, self.segment) != (next.lane, next.segment) || self.credit != next.credit {
            return Err(next);
        }
        let pieces = |run: &Run| run.shape == Shape::Pieces || run.rows == 1;
        let shape = if self.first == next.first && pieces(self) && pieces(&next) {
            Shape::Pieces
        } else if self.shape_is_rows() && next.shape_is_rows() && self.first.checked_add(self.rows) == Some(next.first)
        {
            Shape::Rows
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
        self.shape == Shape::Rows || self.rows == 1
    }

    /// Divides the credit of every row among `n` copies of the rows: `self` stays one of them, the others are
    /// returned. `None`, and nothing changed, when there is too little credit: [`super::Ledger::lend`] first. O(n).
    pub fn divide(&mut self, n: u32) -> Option<SmallVec<[Run; 3]>> {
        let all = self.credit.0;
        let mut part = self.credit.divide(n.max(1))?;
        if mutant!(FirstDestinationSettles) {
            (self.credit.0, part) = (all, 0);
        }
        Some((1..n).map(|_| Run { credit: Credit(part), ..*self }).collect())
    }

    /// Divides a run of one row among `n` pieces of it, in order; the remainder goes to the first. O(1).
    ///
    /// # Errors
    /// Gives the run back when there is too little credit ([`super::Ledger::lend`] first), when it has several
    /// rows, or when `n` is 0.
    pub fn pieces(mut self, n: u32) -> Result<(Run, Option<Run>), Run> {
        if self.rows != 1 || n == 0 {
            return Err(self);
        }
        let all = self.credit.0;
        let Some(mut part) = self.credit.divide(n) else { return Err(self) };
        if mutant!(SplitHeadSettles) && n > 1 {
            (self.credit.0, part) = (all, 0);
        }
        self.shape = Shape::Pieces;
        if self.credit.0 == part {
            self.rows = n;
            return Ok((self, None));
        }
        let rest = Run { rows: n - 1, credit: Credit(part), ..self };
        Ok((self, (n > 1).then_some(rest)))
    }
}
