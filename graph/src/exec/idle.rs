//! Whether a stage waits for rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// True while a stage has no rows and waits for more, so that a stop need not wait for it.
#[derive(Clone, Default)]
pub(super) struct Idle(Arc<AtomicBool>);

impl Idle {
    /// Waits for `next` as idle. A stage that is ended meanwhile was idle.
    pub(super) async fn wait<T>(&self, next: impl Future<Output = T>) -> T {
        self.0.store(true, Ordering::Relaxed);
        let next = next.await;
        self.busy();
        next
    }

    /// Marks the stage as busy.
    pub(super) fn busy(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
