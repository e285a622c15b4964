//! Memory limit of a guest, over all its memories and tables together.
//!
//! The limits of Wasmtime apply to each memory and each table, and a module may have a hundred of both. Globals and
//! segments do not count: their number is fixed by the file, at most a million of 16 bytes. The engine is built without
//! a garbage-collected heap and without shared memories.

use wasmtime::{ResourceLimiter, Result};

/// Bytes of a table element: two pointers, because a growing table is copied.
const ELEMENT: usize = 2 * size_of::<usize>();

/// Counts the memory of a guest.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    /// Granted bytes. Growth that fails after it was granted still counts.
    taken: usize,
    /// True if growth was refused since the last command began.
    refused: bool,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Budget { limit, taken: 0, refused: false }
    }

    /// Resets the refusal at the start of a command.
    pub(crate) fn forget(&mut self) {
        self.refused = false;
    }

    /// Returns the addition to the reason why the guest ended.
    pub(crate) fn reason(&self) -> Option<String> {
        let mebibytes = self.limit as f64 / f64::from(1 << 20);
        self.refused.then(|| format!("it requested more memory than `processors.max-memory` allows, {mebibytes} MiB"))
    }

    fn grow(&mut self, from: usize, to: usize, maximum: Option<usize>, unit: usize) -> bool {
        // Growth beyond the object's own maximum fails anyway and takes no memory.
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
