//! Durations and errors of store operations.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anabranch_plugin::histogram::{Distribution, Histogram};
use anabranch_plugin::state::StoreError;
use tokio::time::Instant;

/// Counts reads and writes; clones share the counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    reads: Operation,
    writes: Operation,
    /// Directory of the file, if the store is a file.
    directory: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Operation {
    times: Histogram,
    errors: AtomicU64,
}

/// Measurements of one kind of operation.
#[derive(Clone, Copy, Debug)]
pub struct OperationNumbers {
    /// `read` or `write`.
    pub kind: &'static str,
    /// Durations of the answered operations, failed ones included.
    pub times: Distribution,
    /// Number of failed operations.
    pub errors: u64,
}

/// Measurements of a store.
#[derive(Clone, Debug)]
pub struct StoreNumbers {
    /// Measurements by kind of operation.
    pub operations: [OperationNumbers; 2],
    /// True if [`Store::check`](crate::Store::check) succeeds.
    pub works: bool,
    /// Free bytes and total bytes of the file system with the file.
    pub disk: Option<(u64, u64)>,
}

impl Meter {
    /// Creates a meter of a store whose file is in this directory.
    pub(super) fn of_file(directory: PathBuf) -> Self {
        Meter(Arc::new(Counted { directory: Some(directory), ..Counted::default() }))
    }

    pub(super) fn note_read<T>(&self, since: Instant, outcome: &Result<T, StoreError>) {
        self.0.reads.note(since, outcome);
    }

    pub(super) fn note_write<T>(&self, since: Instant, outcome: &Result<T, StoreError>) {
        self.0.writes.note(since, outcome);
    }

    /// Returns the numbers so far of a store that works or not. Blocks, because it queries the file system.
    pub(super) fn numbers(&self, works: bool) -> StoreNumbers {
        let Counted { reads, writes, directory } = &*self.0;
        let disk = directory.as_ref().and_then(|directory| rustix::fs::statvfs(directory).ok());
        StoreNumbers {
            operations: [reads.numbers("read"), writes.numbers("write")],
            works,
            disk: disk.map(|disk| {
                let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
                (bytes(disk.f_bavail), bytes(disk.f_blocks))
            }),
        }
    }
}

impl Operation {
    fn note<T>(&self, since: Instant, outcome: &Result<T, StoreError>) {
        self.times.add(since.elapsed(), 1);
        // A fenced operation is not a failure of the store.
        let fails = matches!(outcome, Err(StoreError::Unavailable(_) | StoreError::Gone(_) | StoreError::Damaged(_)));
        self.errors.fetch_add(u64::from(fails), Ordering::Relaxed);
    }

    fn numbers(&self, kind: &'static str) -> OperationNumbers {
        let errors = self.errors.load(Ordering::Relaxed);
        OperationNumbers { kind, times: self.times.distribution(), errors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_failures_are_counted() {
        let meter = Meter::of_file(std::env::temp_dir());
        let failed: Result<(), StoreError> = Err(StoreError::Unavailable("full".into()));
        meter.note_write(Instant::now(), &failed);
        meter.note_read(Instant::now(), &Ok(()));
        let numbers = meter.numbers(true);
        assert_eq!(numbers.operations.map(|it| (it.times.count(), it.errors)), [(1, 0), (1, 1)]);
        let (free, all) = numbers.disk.unwrap();
        assert!(free > 0 && free <= all);
    }
}
