//! An event that happens once and that many tasks can wait for.

use std::pin::pin;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, Notify};

#[derive(Debug, Default)]
pub(super) struct Signal {
    on: AtomicBool,
    changed: Notify,
}

impl Signal {
    pub(super) fn set(&self) {
        self.on.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(super) fn is_set(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    pub(super) async fn wait(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.is_set() {
                return;
            }
            changed.await;
        }
    }
}
