//! Records that take the place of one, made a few at a time.

use std::fmt;
use std::sync::Arc;

use anabranch_record::Record;

use super::Decision;

/// The records that take the place of a row: how many they are, and how each is made. The engine makes a strip of them
/// when there is room for one, so what a row becomes is never in memory as a whole. Cloning is O(1).
///
/// They have the same metadata but for what numbers them.
#[derive(Clone)]
pub struct Pieces {
    count: usize,
    make: Arc<dyn Fn(usize) -> Record + Send + Sync>,
}

impl Pieces {
    /// As many as are made at once: they cost less than the means to make them later.
    pub const FEW: usize = 16;

    /// `count` records. `make` is given their numbers, from 0; it makes the same record of the same number, and neither
    /// fails nor panics.
    pub fn new(count: usize, make: impl Fn(usize) -> Record + Send + Sync + 'static) -> Self {
        Pieces { count, make: Arc::new(make) }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none: the row is filtered.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Makes a record; `i` is below [`Pieces::len`].
    pub fn make(&self, i: usize) -> Record {
        (self.make)(i)
    }

    /// Makes all of them, one after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record> + '_ {
        (0..self.count).map(|i| self.make(i))
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Decision {
    /// How many records take the place of the row, where others do.
    pub fn split(&self) -> Option<usize> {
        match self {
            Decision::Split(records) => Some(records.len()),
            Decision::Pieces(pieces) => Some(pieces.len()),
            Decision::Keep | Decision::Filter | Decision::Fail(_) => None,
        }
    }

    /// The records that take the place of the row; none where it stays, is filtered or fails. Makes all of them.
    pub fn into_records(self) -> Vec<Record> {
        match self {
            Decision::Split(records) => records,
            Decision::Pieces(pieces) => pieces.iter().collect(),
            Decision::Keep | Decision::Filter | Decision::Fail(_) => Vec::new(),
        }
    }
}
