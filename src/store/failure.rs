//! Failures of the store that several are told of: everyone whose write was part of the same transaction, and probes
//! until a write succeeds again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anabranch_graph::state::StoreError;

use super::OpenError;

/// A [`StoreError`] that can be told more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Unavailable(String),
    Damaged(String),
}

impl Failure {
    /// None where it is the writer that failed and not the store.
    fn of(error: &StoreError) -> Option<Failure> {
        match error {
            StoreError::Fenced { .. } => None,
            StoreError::Unavailable(cause) => Some(Failure::Unavailable(cause.to_string())),
            StoreError::Damaged(what) => Some(Failure::Damaged(what.clone())),
        }
    }

    pub(super) fn error(&self) -> StoreError {
        match self {
            Failure::Unavailable(cause) => StoreError::Unavailable(cause.clone().into()),
            Failure::Damaged(what) => StoreError::Damaged(what.clone()),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Damaged { path, what } => Failure::Damaged(format!("{}: {what}", path.display())),
            other => Failure::Unavailable(other.to_string()),
        }
    }
}

/// How long a failure is told before it is tried whether it is over: who asks often must not keep the store busy.
const TOLD: Duration = Duration::from_secs(1);

/// How the last write went; clones share it.
#[derive(Clone, Default)]
pub(super) struct LastWrite {
    failed: Arc<Mutex<Option<(Instant, Failure)>>>,
}

/// What is known of writing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The last write succeeded, or there was none.
    Works,
    /// It failed just now.
    Fails(Failure),
    /// It failed a while ago.
    Unknown,
}

impl LastWrite {
    pub(super) fn succeeded(&self) {
        if self.lock().take().is_some() {
            tracing::info!("the state store can be written again");
        }
    }

    pub(super) fn failed(&self, error: &StoreError) {
        if let Some(failure) = Failure::of(error) {
            // Said once: writes are repeated, and each says why it failed where it was asked for.
            if self.lock().replace((Instant::now(), failure)).is_none() {
                tracing::warn!(%error, "a write of the state store failed");
            }
        }
    }

    pub(super) fn known(&self) -> Known {
        match &*self.lock() {
            None => Known::Works,
            Some((at, failure)) if at.elapsed() < TOLD => Known::Fails(failure.clone()),
            Some(_) => Known::Unknown,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Failure)>> {
        // It is replaced as a whole: a panic elsewhere leaves it usable.
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_known_until_a_write_succeeds() {
        let last = LastWrite::default();
        assert_eq!(last.known(), Known::Works);
        last.failed(&StoreError::Fenced { pipeline: "p".into(), ours: 1, theirs: 2 });
        assert_eq!(last.known(), Known::Works, "the store did what it is there for");
        last.failed(&StoreError::Unavailable("full".into()));
        assert_eq!(last.clone().known(), Known::Fails(Failure::Unavailable("full".to_owned())));
        last.succeeded();
        assert_eq!(last.known(), Known::Works);
    }
}
