//! The handshake of the commit loop with a writer: flush what you accepted, and say when.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, AtomicU64, Notify};

/// How the commit loop asks a writer to flush.
#[derive(Default)]
pub(in crate::exec) struct FlushGate {
    /// Whether rows were accepted that are not durable yet.
    dirty: AtomicBool,
    wanted: AtomicU64,
    done: AtomicU64,
    wake: Notify,
    finished: Notify,
}

impl FlushGate {
    /// Asks for a flush, where there is something to flush; says whether there is.
    pub(in crate::exec) fn request(&self) -> bool {
        if !self.dirty.load(Ordering::Acquire) {
            return false;
        }
        self.wanted.fetch_add(1, Ordering::AcqRel);
        self.wake.notify_one();
        true
    }

    /// Waits until every flush that was asked for is done.
    pub(in crate::exec) async fn finished(&self) {
        while self.is_wanted() {
            self.finished.notified().await;
        }
    }

    /// Whether a flush was asked for that is not done.
    pub(in crate::exec) fn is_wanted(&self) -> bool {
        self.done.load(Ordering::Acquire) < self.wanted.load(Ordering::Acquire)
    }

    /// The writer waits to be asked. Cancel-safe.
    pub(in crate::exec) async fn asked(&self) {
        self.wake.notified().await;
    }

    /// The writer has accepted rows that are not durable yet.
    pub(in crate::exec) fn accepted(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// The writer begins a flush: number of the last request that it answers.
    pub(in crate::exec) fn begin(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    /// Everything accepted is durable.
    pub(in crate::exec) fn flushed(&self) {
        self.dirty.store(false, Ordering::Release);
    }

    /// What was durable when `request` was answered is settled.
    pub(in crate::exec) fn done(&self, request: u64) {
        self.done.store(request, Ordering::Release);
        self.finished.notify_one();
    }
}

/// The writer's end. A writer that ended will not flush again: nobody waits for it.
pub(in crate::exec) struct Open(Arc<FlushGate>);

impl Open {
    pub(in crate::exec) fn new(gate: Arc<FlushGate>) -> Self {
        Open(gate)
    }
}

impl Deref for Open {
    type Target = FlushGate;

    fn deref(&self) -> &FlushGate {
        &self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.flushed();
        self.done(u64::MAX);
    }
}
