//! Records that replace a row and are created a few at a time.

use std::fmt;
use std::sync::Arc;

use anabranch_record::Record;

/// The records that replace a row: their number and a function that creates them. The engine creates a strip of them
/// when there is room for one, so they are never all in memory at once. Cloning is O(1).
///
/// All of them have the same metadata except for the entry with their index.
#[derive(Clone)]
pub struct Pieces {
    count: usize,
    make: Arc<dyn Fn(usize) -> Record + Send + Sync>,
}

impl Pieces {
    /// Number of records up to which it is cheaper to create them at once.
    pub const FEW: usize = 16;

    /// Creates `count` records. `make` receives their index, from 0; it must return the same record for the same index,
    /// and neither fail nor panic.
    pub fn new(count: usize, make: impl Fn(usize) -> Record + Send + Sync + 'static) -> Self {
        Pieces { count, make: Arc::new(make) }
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns `true` if there are none: the row is filtered.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Creates a record; `i` is below [`Pieces::len`].
    pub fn make(&self, i: usize) -> Record {
        (self.make)(i)
    }

    /// Creates all of them, one after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record> + '_ {
        (0..self.count).map(|i| self.make(i))
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("count", &self.count).finish_non_exhaustive()
    }
}
