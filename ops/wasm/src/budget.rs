//! The memory that one guest may take: all its memories and all its tables together.
//!
//! Wasmtime's own limits are for each memory and each table, and a module may have a hundred of both. Globals and
//! segments are not counted: a module has as many as its file says, a million of 16 bytes at most. There is no garbage
//! collected heap and there are no shared memories: the engine is built without them.

use wasmtime::{ResourceLimiter, Result};

/// Bytes of an element of a table: a pointer, twice, since a table that grows is copied to a larger place.
const ELEMENT: usize = 2 * size_of::<usize>();

/// Counts what a guest takes.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    /// Bytes that were granted. Growth that fails after it was granted stays counted.
    taken: usize,
    /// Something was refused since the last command began.
    refused: bool,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Budget { limit, taken: 0, refused: false }
    }

    /// A command begins.
    pub(crate) fn forget(&mut self) {
        self.refused = false;
    }

    /// Addition to the reason why the guest ended.
    pub(crate) fn reason(&self) -> Option<String> {
        let mebibytes = self.limit as f64 / f64::from(1 << 20);
        self.refused.then(|| format!("it wanted more memory than `processors.max-memory` allows, {mebibytes} MiB"))
    }

    fn grow(&mut self, from: usize, to: usize, maximum: Option<usize>, unit: usize) -> bool {
        // Growth beyond a maximum of its own fails anyway; it says nothing about the limit and takes nothing.
        if maximum.is_some_and(|maximum| to > maximum) {
            return false;
        }
        let taken = to.saturating_sub(from).checked_mul(unit).and_then(|more| self.taken.checked_add(more));
        match taken.filter(|taken| *taken <= self.limit) {
            Some(taken) => self.taken = taken,
            None => self.refused = true,
        }
        taken.is_some_and(|taken| taken <= self.limit)
    }
}

impl ResourceLimiter for Budget {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        Ok(self.grow(current, desired, maximum, 1))
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        Ok(self.grow(current, desired, maximum, ELEMENT))
    }
}
