//! What of a run still lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicUsize, Notify};

/// Number of tasks and threads that have not ended.
#[derive(Default)]
pub(super) struct Live {
    count: AtomicUsize,
    changed: Notify,
}

/// Held by a task or thread as long as it lives.
pub(super) struct Alive(Arc<Live>);

impl Live {
    /// Counts one more.
    pub(super) fn enter(live: &Arc<Live>) -> Alive {
        live.count.fetch_add(1, Ordering::AcqRel);
        Alive(live.clone())
    }

    /// Waits until none is left. What they did before they ended is seen by whoever waited.
    pub(super) async fn all_ended(&self) {
        while self.count.load(Ordering::Acquire) > 0 {
            self.changed.notified().await;
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.changed.notify_one();
    }
}
