//! The store in one file of `redb`, used by one process, or in memory. Everything that touches the file runs in
//! `spawn_blocking`.

use std::sync::{Arc, Mutex, PoisonError};

use anabranch_graph::state::{Epoch, StoreError};
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, WriteTransaction};
use tokio::sync::oneshot;

use super::letters::{Change, Which};
use super::{Found, Read, Write, Written, compare, fence, tables, unavailable};
use crate::panics::caught;

mod letters;
mod memo;
mod schemas;

/// A handle; clones share it.
#[derive(Clone)]
pub(super) struct Embedded {
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

impl Embedded {
    pub(super) fn new(database: Database) -> Self {
        Embedded { shared: Arc::new(Shared { database, queue: Mutex::default() }) }
    }

    pub(super) async fn read(&self, read: Read) -> Result<Found, StoreError> {
        let shared = self.shared.clone();
        let damaged = || StoreError::Damaged("its pages contradict each other".to_owned());
        tokio::task::spawn_blocking(move || caught(|| shared.read(read)).unwrap_or_else(|| Err(damaged())))
            .await
            .map_err(unavailable)?
    }

    pub(super) async fn write(&self, write: Write) -> Result<Written, StoreError> {
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
    fn read(&self, read: Read) -> Result<Found, StoreError> {
        let transaction = self.database.begin_read().map_err(unavailable)?;
        match read {
            Read::Pipelines => tables::pipelines(&transaction).map(Found::Pipelines),
            Read::Marks(epoch) => {
                fence(&epoch, tables::epoch(&transaction, &epoch.pipeline)?)?;
                tables::marks(&transaction, tables::MARKS, &epoch.pipeline).map(Found::Marks)
            }
            Read::Positions(pipeline) => tables::marks(&transaction, tables::MARKS, &pipeline).map(Found::Marks),
            Read::DetachedMarks(pipeline) => {
                tables::marks(&transaction, tables::DETACHED_MARKS, &pipeline).map(Found::Marks)
            }
            Read::Recall { space, keys } => memo::recall(&transaction, &space, &keys).map(Found::Recalled),
            Read::Active { pipeline, connector } => {
                tables::active(&transaction, &pipeline, &connector).map(|found| Found::Recalled(vec![found]))
            }
            Read::Letters { pipeline, question } => {
                letters::answer(&transaction, &pipeline, &question).map(Found::Letters)
            }
            Read::Schemas(question) => schemas::answer(&transaction, &question).map(Found::Schemas),
        }
    }

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
        let mut transaction = self.database.begin_write()?;
        // What is remembered may be lost: it need not wait for the disk.
        if writes.iter().all(|write| matches!(write, Write::Keep { .. })) {
            transaction.set_durability(Durability::None)?;
        }
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
pub(super) enum Failed {
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
        Write::Provision(provision) => {
            let found = compare::provision(tables::take_pipelines(transaction)?, &provision);
            tables::apply(transaction, found).map(Written::Changes)
        }
        Write::Replace { pipeline, at } => {
            let stored = tables::take_pipelines(transaction)?;
            let found = compare::replace(stored.get(&pipeline.id), &pipeline, at);
            tables::apply(transaction, found).map(Written::Changes)
        }
        Write::Delete { pipeline } => {
            tables::delete(transaction, &pipeline)?;
            letters::change(transaction, &pipeline, Change::Remove(Which::All))?;
            Ok(Written::Nothing)
        }
        Write::Keep { space, entries } => {
            memo::keep(transaction, &space, &entries, memo::BOUND)?;
            Ok(Written::Nothing)
        }
        Write::Active { pipeline, connector, settings } => {
            let mut active = transaction.open_table(tables::ACTIVE)?;
            active.insert((pipeline.as_str(), connector.as_str()), &settings[..])?;
            Ok(Written::Nothing)
        }
        Write::Forget { pipeline, connector } => {
            tables::forget(transaction, &pipeline, &connector)?;
            Ok(Written::Nothing)
        }
        Write::Letters { pipeline, change } => letters::change(transaction, &pipeline, change).map(Written::Letters),
        Write::Schema { subject, text } => schemas::create(transaction, &subject, &text).map(Written::Schema),
        Write::DeleteSchemas { subject, versions, how } => {
            schemas::delete(transaction, &subject, &versions, how)?;
            Ok(Written::Nothing)
        }
        Write::Level { subject, level } => {
            schemas::set_level(transaction, subject.as_ref(), level.as_ref())?;
            Ok(Written::Nothing)
        }
    }
}
