//! The queue between two stages: bounded in rows and in bytes, and fair to its senders.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use super::Interrupt;
use super::idle::Idle;
use super::progress::QueueCount;
use crate::batch::{Batch, STRIP_ROWS};
use anabranch_config::limits::MemoryLimits;

#[derive(Debug)]
struct Space {
    rows: Semaphore,
    bytes: Semaphore,
    all_rows: u32,
    all_bytes: u32,
}

impl Space {
    /// Returns the space that a batch needs. A batch larger than the queue needs all of it and passes alone.
    fn need(&self, batch: &Batch) -> (u32, u32) {
        let at_most = |n: usize, all: u32| u32::try_from(n).unwrap_or(u32::MAX).min(all);
        (at_most(batch.rows(), self.all_rows), at_most(batch.bytes(), self.all_bytes))
    }
}

/// Measures the fill level of a queue, without cost for the queue.
#[derive(Debug)]
pub(super) struct Gauge(Arc<Space>);

impl Gauge {
    pub(super) fn count(&self) -> QueueCount {
        let Space { rows, bytes, all_rows, all_bytes } = &*self.0;
        // A waiting sender takes all available permits, so none are left while a sender waits.
        let (free_rows, free_bytes) = (rows.available_permits(), bytes.available_permits());
        QueueCount {
            rows: (*all_rows as usize).saturating_sub(free_rows) as u64,
            bytes: (*all_bytes as usize).saturating_sub(free_bytes) as u64,
            bound_rows: u64::from(*all_rows),
            bound_bytes: u64::from(*all_bytes),
            full: free_rows == 0 || free_bytes == 0,
        }
    }
}

/// The sending end. Senders are served in the order in which they began to wait.
#[derive(Clone)]
pub(super) struct Sender {
    batches: mpsc::UnboundedSender<Batch>,
    space: Arc<Space>,
}

/// The receiving end. Dropping it wakes the senders.
pub(super) struct Receiver {
    batches: mpsc::UnboundedReceiver<Batch>,
    space: Arc<Space>,
    idle: Idle,
}

pub(super) fn queue(limits: &MemoryLimits) -> (Sender, Receiver) {
    let all_rows = u32::try_from(limits.queue_strips.max(1) * STRIP_ROWS).unwrap_or(u32::MAX >> 3);
    let all_bytes = u32::try_from(limits.queue_bytes.max(1)).unwrap_or(u32::MAX).min(u32::MAX >> 3);
    let space = Arc::new(Space {
        rows: Semaphore::new(all_rows as usize),
        bytes: Semaphore::new(all_bytes as usize),
        all_rows,
        all_bytes,
    });
    let (sender, receiver) = mpsc::unbounded_channel();
    (Sender { batches: sender, space: space.clone() }, Receiver { batches: receiver, space, idle: Idle::default() })
}

impl Sender {
    pub(super) fn gauge(&self) -> Gauge {
        Gauge(self.space.clone())
    }

    /// Waits for room and sends the batch.
    ///
    /// # Errors
    /// The receiver has been dropped. The batch is dropped.
    pub(super) async fn send(&self, batch: Batch) -> Result<(), Interrupt> {
        let (rows, bytes) = self.space.need(&batch);
        let (Ok(rows), Ok(bytes)) =
            (self.space.rows.acquire_many(rows).await, self.space.bytes.acquire_many(bytes).await)
        else {
            return Err(Interrupt::Gone);
        };
        rows.forget();
        bytes.forget();
        self.batches.send(batch).map_err(|_| Interrupt::Gone)
    }
}

impl Receiver {
    fn release(&self, batch: Batch) -> Batch {
        let (rows, bytes) = self.space.need(&batch);
        self.space.rows.add_permits(rows as usize);
        self.space.bytes.add_permits(bytes as usize);
        batch
    }

    /// Returns the idle flag of the stage that receives.
    pub(super) fn idle(&self) -> Idle {
        self.idle.clone()
    }

    /// Like [`Receiver::recv`], for a stage that has no other work.
    pub(super) async fn recv_idle(&mut self) -> Option<Batch> {
        let idle = self.idle.clone();
        idle.wait(self.recv()).await
    }

    /// Returns the next batch; `None` when all senders are dropped and the queue is empty. Cancel-safe.
    pub(super) async fn recv(&mut self) -> Option<Batch> {
        let batch = self.batches.recv().await?;
        Some(self.release(batch))
    }

    /// Returns the next batch if it is already available.
    pub(super) fn try_recv(&mut self) -> Option<Batch> {
        let batch = self.batches.try_recv().ok()?;
        Some(self.release(batch))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.space.rows.close();
        self.space.bytes.close();
    }
}
