//! Counts of refused requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of requests that a source has refused, by reason. They grow without a read, so clones share them. A source that
/// receives no requests has no reasons.
#[derive(Clone, Debug, Default)]
pub struct RefusedRequests(Arc<BTreeMap<&'static str, AtomicU64>>);

impl RefusedRequests {
    /// Creates numbers that are zero, for these reasons: words such as `authentication`.
    pub fn new(reasons: &[&'static str]) -> Self {
        RefusedRequests(Arc::new(reasons.iter().map(|reason| (*reason, AtomicU64::new(0))).collect()))
    }

    /// Counts a request. A reason that was not declared is not counted.
    pub fn count(&self, reason: &str) {
        if let Some(number) = self.0.get(reason) {
            number.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the reasons and their numbers.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(reason, number)| (*reason, number.load(Ordering::Relaxed)))
    }
}

impl PartialEq for RefusedRequests {
    fn eq(&self, other: &Self) -> bool {
        self.numbers().eq(other.numbers())
    }
}

impl Eq for RefusedRequests {}
