//! Tracks the running tasks and threads of a run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicUsize, Notify};

/// Number of tasks and threads that have not ended.
#[derive(Default)]
pub(super) struct Live {
    count: AtomicUsize,
    changed: Notify,
}

/// Guard that a task or thread holds until it ends.
pub(super) struct Alive(Arc<Live>);

impl Live {
    /// Registers a task or thread.
    pub(super) fn enter(live: &Arc<Live>) -> Alive {
        live.count.fetch_add(1, Ordering::AcqRel);
        Alive(live.clone())
    }

    /// Waits until all have ended. The caller sees the effects of everything that they did.
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
