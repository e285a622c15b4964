//! The embedded store: marks of every lane, pipelines as they were last provisioned, and their statuses.
//!
//! One file of `redb`, used by one process. Writers queue up and one of them commits for all that came in
//! the meantime (group commit): a commit costs one `fsync`, however many pipelines wait for it. Everything
//! that touches the file runs in `spawn_blocking`.

mod compare;
mod entity;
mod open;
mod tables;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_graph::source::Mark;
use anabranch_graph::state::{Epoch, LaneId, StateStore, StoreError};
use anabranch_graph::text::Str;
use async_trait::async_trait;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, WriteTransaction};
use tokio::sync::oneshot;

pub use compare::{Action, Change, Entity};
pub use entity::{
    Status, StopReason, StoredConnector, StoredDeadLetter, StoredPipeline, StoredProcessor, StoredSetting,
};
pub use open::OpenError;

use crate::panics::caught;

/// What the files say, to be compared with what is stored.
#[derive(Clone, Debug, Default)]
pub struct Provision {
    /// Pipelines that compile.
    pub good: Vec<StoredPipeline>,
    /// Ids of pipelines that have errors: what is stored of them stays, and they are marked invalid.
    pub invalid: Vec<Str>,
    /// Whether every file was read and parsed. If not, no stored pipeline counts as vanished: it may stand in
    /// the file that was not understood.
    pub complete: bool,
}

/// A handle of the store; clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    database: Database,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Pending>,
    /// Whether a writer is at work; it takes what is added meanwhile.
    busy: bool,
}

struct Pending {
    write: Write,
    done: oneshot::Sender<Result<Written, StoreError>>,
}

enum Write {
    Claim(Str),
    Marks { epoch: Epoch, moves: Vec<(LaneId, Mark)> },
    Status { pipeline: Str, status: Status },
    Provision(Provision),
}

#[derive(Debug)]
enum Written {
    Nothing,
    Epoch(Epoch),
    Changes(Vec<Change>),
}

impl Store {
    fn new(database: Database) -> Self {
        Store { shared: Arc::new(Shared { database, queue: Mutex::default() }) }
    }

    /// Compares the files with what is stored and makes the store say what the files say, in one transaction.
    /// Settings, plugins, conditions, processors, their order and workers change in place and keep the
    /// position; a connector whose type or id changed starts anew and its old state is kept detached; a
    /// pipeline that vanished is detached. What was running when the process ended is now stopped by the
    /// system.
    ///
    /// # Errors
    /// The store cannot be written; nothing was changed.
    pub async fn provision(&self, provision: Provision) -> Result<Vec<Change>, StoreError> {
        match self.write(Write::Provision(provision)).await? {
            Written::Changes(changes) => Ok(changes),
            Written::Nothing | Written::Epoch(_) => Ok(Vec::new()),
        }
    }

    /// Stores the status of a pipeline; nothing happens if there is no such pipeline.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn set_status(&self, pipeline: &Str, status: Status) -> Result<(), StoreError> {
        self.write(Write::Status { pipeline: pipeline.clone(), status }).await.map(drop)
    }

    /// All stored pipelines, in the order of their ids, detached ones included.
    ///
    /// # Errors
    /// The store cannot be read, or holds what cannot be understood.
    pub async fn pipelines(&self) -> Result<Vec<StoredPipeline>, StoreError> {
        self.read(|shared| tables::pipelines(&shared.database.begin_read().map_err(unavailable)?)).await
    }

    /// The number of marks kept for connectors that were detached, per pipeline and connector.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn detached_marks(&self, pipeline: &Str) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        let pipeline = pipeline.clone();
        self.read(move |shared| {
            tables::marks(&shared.database.begin_read().map_err(unavailable)?, tables::DETACHED_MARKS, &pipeline)
        })
        .await
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = self.shared.clone();
        let damaged = || StoreError::Damaged("its pages contradict each other".to_owned());
        tokio::task::spawn_blocking(move || caught(|| read(&shared)).unwrap_or_else(|| Err(damaged())))
            .await
            .map_err(unavailable)?
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        let (done, outcome) = oneshot::channel();
        let idle = {
            let mut queue = self.shared.queue();
            queue.waiting.push(Pending { write, done });
            !std::mem::replace(&mut queue.busy, true)
        };
        if idle {
            let shared = self.shared.clone();
            tokio::task::spawn_blocking(move || shared.drain());
        }
        outcome.await.map_err(|_| StoreError::Unavailable("the writer of the state store failed".into()))?
    }
}

impl Shared {
    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        // The queue is a list and a flag: a panic elsewhere leaves both usable.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes all that waits and all that comes meanwhile, one transaction per round.
    fn drain(self: Arc<Self>) {
        let mut round = std::mem::take(&mut self.queue().waiting);
        loop {
            let (writes, done): (Vec<_>, Vec<_>) = round.into_iter().map(|p| (p.write, p.done)).unzip();
            // A panic here is a damaged page; it must not leave others waiting for ever.
            let outcomes = match caught(|| self.commit(writes)) {
                Some(Ok(outcomes)) => Ok(outcomes),
                Some(Err(error)) => Err(error.to_string()),
                None => Err("its pages contradict each other".to_owned()),
            };
            let answer = || match outcomes {
                Ok(outcomes) => done.into_iter().zip(outcomes).for_each(|(done, outcome)| drop(done.send(outcome))),
                Err(text) => {
                    let error = || StoreError::Unavailable(text.clone().into());
                    done.into_iter().for_each(|done| drop(done.send(Err(error()))));
                }
            };
            round = {
                let mut queue = self.queue();
                queue.busy = !queue.waiting.is_empty();
                std::mem::take(&mut queue.waiting)
            };
            if round.is_empty() {
                // Let go first: whoever drops the store after the last answer has closed it.
                drop(self);
                answer();
                return;
            }
            answer();
        }
    }

    /// One transaction for several writes. A fenced write changes nothing and does not disturb the others.
    fn commit(&self, writes: Vec<Write>) -> Result<Vec<Result<Written, StoreError>>, redb::Error> {
        let transaction = self.database.begin_write()?;
        let mut outcomes = Vec::with_capacity(writes.len());
        for write in writes {
            match apply(&transaction, write) {
                Ok(written) => outcomes.push(Ok(written)),
                Err(Failed::Alone(error)) => outcomes.push(Err(error)),
                Err(Failed::Storage(error)) => {
                    transaction.abort()?;
                    return Err(error);
                }
            }
        }
        transaction.commit()?;
        Ok(outcomes)
    }
}

/// Why a write failed: it alone and before it changed anything, or the store as a whole.
enum Failed {
    Alone(StoreError),
    Storage(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Failed::Storage(error.into())
    }
}

fn apply(transaction: &WriteTransaction, write: Write) -> Result<Written, Failed> {
    match write {
        Write::Claim(pipeline) => {
            let mut epochs = transaction.open_table(tables::EPOCHS)?;
            let number = epochs.get(pipeline.as_str())?.map_or(0, |e| e.value()) + 1;
            epochs.insert(pipeline.as_str(), number)?;
            Ok(Written::Epoch(Epoch { pipeline, number }))
        }
        Write::Marks { epoch, moves } => {
            {
                let epochs = transaction.open_table(tables::EPOCHS)?;
                let theirs = epochs.get(epoch.pipeline.as_str())?.map_or(0, |e| e.value());
                fence(&epoch, theirs).map_err(Failed::Alone)?;
            }
            let mut marks = transaction.open_table(tables::MARKS)?;
            for (lane, mark) in &moves {
                let key = (epoch.pipeline.as_str(), lane.connector.as_str(), lane.partition.0.as_str());
                marks.insert(key, tables::encode(mark).as_slice())?;
            }
            Ok(Written::Nothing)
        }
        Write::Status { pipeline, status } => {
            tables::set_status(transaction, &pipeline, status)?;
            Ok(Written::Nothing)
        }
        Write::Provision(provision) => Ok(Written::Changes(compare::provision(transaction, &provision)?)),
    }
}

fn fence(epoch: &Epoch, theirs: u64) -> Result<(), StoreError> {
    if epoch.number == theirs {
        return Ok(());
    }
    Err(StoreError::Fenced { pipeline: epoch.pipeline.clone(), ours: epoch.number, theirs })
}

fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}

#[async_trait]
impl StateStore for Store {
    async fn claim(&self, pipeline: &Str) -> Result<Epoch, StoreError> {
        match self.write(Write::Claim(pipeline.clone())).await? {
            Written::Epoch(epoch) => Ok(epoch),
            Written::Nothing | Written::Changes(_) => Err(StoreError::Damaged("a claim gave no epoch".into())),
        }
    }

    async fn load(&self, epoch: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        let epoch = epoch.clone();
        self.read(move |shared| {
            let transaction = shared.database.begin_read().map_err(unavailable)?;
            fence(&epoch, tables::epoch(&transaction, &epoch.pipeline)?)?;
            tables::marks(&transaction, tables::MARKS, &epoch.pipeline)
        })
        .await
    }

    async fn commit(&self, epoch: &Epoch, moves: &[(LaneId, Mark)]) -> Result<(), StoreError> {
        self.write(Write::Marks { epoch: epoch.clone(), moves: moves.to_vec() }).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
