//! Failures of the store that are reported several times: to every write of the same transaction, and to probes until a
//! write succeeds again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anabranch_plugin::state::StoreError;

use crate::error::OpenError;

/// A [`StoreError`] that can be cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Unavailable(String),
    Gone(String),
    Damaged(String),
}

impl Failure {
    /// Returns `None` if the writer failed and not the store.
    fn of(error: &StoreError) -> Option<Failure> {
        match error {
            StoreError::Fenced { .. } | StoreError::Elsewhere { .. } => None,
            StoreError::Unavailable(cause) => Some(Failure::Unavailable(cause.to_string())),
            StoreError::Gone(what) => Some(Failure::Gone(what.clone())),
            StoreError::Damaged(what) => Some(Failure::Damaged(what.clone())),
        }
    }

    pub(super) fn error(&self) -> StoreError {
        match self {
            Failure::Unavailable(cause) => StoreError::Unavailable(cause.clone().into()),
            Failure::Gone(what) => StoreError::Gone(what.clone()),
            Failure::Damaged(what) => StoreError::Damaged(what.clone()),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            gone @ (OpenError::Gone { .. } | OpenError::Overwritten { .. }) => Failure::Gone(gone.to_string()),
            OpenError::Damaged { path, what } => Failure::Damaged(format!("{}: {what}", path.display())),
            other => Failure::Unavailable(other.to_string()),
        }
    }
}

/// How long a failure is reported before a trial write checks whether it is over: frequent probes must not keep the
/// store busy.
const TOLD: Duration = Duration::from_secs(1);
/// Minimum bytes of a trial: on a full disk a small write may succeed in place of old data.
const TRIAL_BYTES: usize = 64 << 10;
/// Maximum bytes of a trial. A trial is as large as the write that failed: if a smaller one found space, that write
/// might still fail, and probes would alternate between healthy and unhealthy.
const MOST_TRIAL_BYTES: usize = 64 << 20;

/// The result of the last write; clones share it.
#[derive(Clone, Default)]
pub(super) struct LastWrite {
    failed: Arc<Mutex<Option<FailedWrite>>>,
}

/// A write that failed.
struct FailedWrite {
    at: Instant,
    why: Failure,
    /// Its size in bytes, or the size of a larger write that failed before it.
    bytes: usize,
}

/// Whether writes succeed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteHealth {
    /// The last write succeeded, or there was none.
    Works,
    /// The last write failed less than [`TOLD`] ago.
    Fails(Failure),
    /// The last write failed more than [`TOLD`] ago. A trial of this many bytes shows whether the store works again.
    Unknown(usize),
}

impl LastWrite {
    /// Records that a write of this size succeeded. It says nothing about larger ones.
    pub(super) fn succeeded(&self, bytes: usize) {
        let mut failed = self.lock();
        if failed.as_ref().is_some_and(|failed| bytes >= failed.bytes.min(MOST_TRIAL_BYTES)) {
            *failed = None;
            drop(failed);
            tracing::info!("the state store can be written again");
        }
    }

    pub(super) fn failed(&self, error: &StoreError, bytes: usize) {
        let Some(why) = Failure::of(error) else { return };
        let mut failed = self.lock();
        let bytes = failed.as_ref().map_or(bytes, |before| before.bytes.max(bytes));
        // Logged once: writes are repeated, and each caller reports its own failure.
        if failed.replace(FailedWrite { at: Instant::now(), why, bytes: bytes.max(TRIAL_BYTES) }).is_none() {
            tracing::warn!(%error, "a write of the state store failed");
        }
    }

    pub(super) fn health(&self) -> WriteHealth {
        match &*self.lock() {
            None => WriteHealth::Works,
            Some(failed) if failed.at.elapsed() < TOLD => WriteHealth::Fails(failed.why.clone()),
            Some(failed) => WriteHealth::Unknown(failed.bytes.min(MOST_TRIAL_BYTES)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<FailedWrite>> {
        // The value is replaced as a whole: a panic elsewhere leaves it usable.
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::state::Unit;

    use super::*;

    #[test]
    fn what_failed_is_known_until_a_write_succeeds() {
        let last = LastWrite::default();
        assert_eq!(last.health(), WriteHealth::Works);
        last.failed(&StoreError::Fenced { unit: Unit::whole("p"), ours: 1, theirs: 2 }, 10);
        assert_eq!(last.health(), WriteHealth::Works, "the store did what it is there for");
        last.failed(&StoreError::Unavailable("full".into()), 1 << 20);
        assert_eq!(last.clone().health(), WriteHealth::Fails(Failure::Unavailable("full".to_owned())));
        // A small write may succeed on a full disk, in place of something old.
        last.succeeded(1000);
        assert_eq!(last.health(), WriteHealth::Fails(Failure::Unavailable("full".to_owned())));
        last.succeeded(1 << 20);
        assert_eq!(last.health(), WriteHealth::Works);
        last.failed(&StoreError::Unavailable("full".into()), 10);
        last.succeeded(TRIAL_BYTES - 1);
        assert_ne!(last.health(), WriteHealth::Works);
        last.failed(&StoreError::Unavailable("full".into()), 1 << 30);
        last.succeeded(MOST_TRIAL_BYTES);
        assert_eq!(last.health(), WriteHealth::Works, "a trial is never larger");
    }
}
