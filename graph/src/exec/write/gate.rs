//! Handshake between the commit loop and a writer: the loop requests a flush, and the writer reports its end.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, AtomicU64, Notify};

/// Requests of the commit loop to a writer for a flush.
#[derive(Default)]
pub(in crate::exec) struct FlushGate {
    /// True if accepted rows are not durable yet.
    dirty: AtomicBool,
    wanted: AtomicU64,
    done: AtomicU64,
    wake: Notify,
    finished: Notify,
}

impl FlushGate {
    /// Requests a flush if there are rows to flush. Returns `true` if it was requested.
    pub(in crate::exec) fn request(&self) -> bool {
        if !self.dirty.load(Ordering::Acquire) {
            return false;
        }
        self.wanted.fetch_add(1, Ordering::AcqRel);
        self.wake.notify_one();
        true
    }

    /// Wakes the writer, so that it looks for other requests than flushes.
    pub(in crate::exec) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until every requested flush is done.
    pub(in crate::exec) async fn finished(&self) {
        while self.is_wanted() {
            self.finished.notified().await;
        }
    }

    /// Returns `true` if a requested flush is not done.
    pub(in crate::exec) fn is_wanted(&self) -> bool {
        self.done.load(Ordering::Acquire) < self.wanted.load(Ordering::Acquire)
    }

    /// Waits, in the writer, for a request. Cancel-safe.
    pub(in crate::exec) async fn asked(&self) {
        self.wake.notified().await;
    }

    /// Notes that the writer has accepted rows that are not durable yet.
    pub(in crate::exec) fn accepted(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// Starts a flush in the writer. Returns the number of the last request that it answers.
    pub(in crate::exec) fn begin(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    /// Notes that all accepted rows are durable.
    pub(in crate::exec) fn flushed(&self) {
        self.dirty.store(false, Ordering::Release);
    }

    /// Notes that the flush for `request` is done and its rows are settled.
    pub(in crate::exec) fn done(&self, request: u64) {
        self.done.store(request, Ordering::Release);
        self.finished.notify_one();
    }
}

/// The writer's end. When the writer ends, all requests count as done, since it will not flush again.
pub(in crate::exec) struct GateWriter(Arc<FlushGate>);

impl GateWriter {
    pub(in crate::exec) fn new(gate: Arc<FlushGate>) -> Self {
        GateWriter(gate)
    }
}

impl Deref for GateWriter {
    type Target = FlushGate;

    fn deref(&self) -> &FlushGate {
        &self.0
    }
}

impl Drop for GateWriter {
    fn drop(&mut self) {
        self.flushed();
        self.done(u64::MAX);
    }
}
