//! The queue between two stages: bounded by rows and by bytes, fair to its senders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Semaphore, mpsc};

use super::Interrupt;
use super::progress::QueueCount;
use crate::batch::{Batch, STRIP_ROWS};
use crate::plan::stage::Limits;

#[derive(Debug)]
struct Space {
    rows: Semaphore,
    bytes: Semaphore,
    all_rows: u32,
    all_bytes: u32,
}

impl Space {
    /// What a batch takes of it. One that is larger than the queue takes all of it, and passes alone.
    fn need(&self, batch: &Batch) -> (u32, u32) {
        let at_most = |n: usize, all: u32| u32::try_from(n).unwrap_or(u32::MAX).min(all);
        (at_most(batch.rows(), self.all_rows), at_most(batch.bytes(), self.all_bytes))
    }
}

/// Tells how much is in a queue. A look at it costs the queue nothing.
#[derive(Debug)]
pub(super) struct Gauge(Arc<Space>);

impl Gauge {
    pub(super) fn count(&self) -> QueueCount {
        let Space { rows, bytes, all_rows, all_bytes } = &*self.0;
        // Who waits for room has taken what there was: nothing is left while somebody waits.
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

/// Whether a stage has nothing and waits for more: then it is not what a stop waits for.
#[derive(Clone, Default)]
pub(super) struct Idle(Arc<AtomicBool>);

impl Idle {
    /// Waits with empty hands. A stage that is ended while it waits was idle.
    pub(super) async fn wait<T>(&self, next: impl Future<Output = T>) -> T {
        self.0.store(true, Ordering::Relaxed);
        let next = next.await;
        self.busy();
        next
    }

    /// The stage does something else than wait.
    pub(super) fn busy(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The end that is fed. Senders take turns in the order in which they began to wait.
#[derive(Clone)]
pub(super) struct Sender {
    batches: mpsc::UnboundedSender<Batch>,
    space: Arc<Space>,
}

/// The end that is drained; dropping it wakes the senders.
pub(super) struct Receiver {
    batches: mpsc::UnboundedReceiver<Batch>,
    space: Arc<Space>,
    idle: Idle,
}

pub(super) fn queue(limits: &Limits) -> (Sender, Receiver) {
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

    /// Waits for room and hands the batch over.
    ///
    /// # Errors
    /// The other end is gone; the batch is dropped.
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

    /// Tells whether the stage that drains it has nothing and waits for more.
    pub(super) fn idle(&self) -> Idle {
        self.idle.clone()
    }

    /// The next batch, for a stage that has nothing else to do; as [`Receiver::recv`].
    pub(super) async fn recv_idle(&mut self) -> Option<Batch> {
        let idle = self.idle.clone();
        idle.wait(self.recv()).await
    }

    /// The next batch; `None` when all senders are gone and the queue is empty. Cancel-safe.
    pub(super) async fn recv(&mut self) -> Option<Batch> {
        let batch = self.batches.recv().await?;
        Some(self.release(batch))
    }

    /// The next batch, if it is there already.
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
