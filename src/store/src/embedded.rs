//! The store in one `redb` file used by one process, or in memory. Every access to the file runs in `spawn_blocking`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_plugin::state::StoreError;
use anabranch_process::panics::caught;
use redb::{Database, Durability, ReadableDatabase as _, WriteTransaction};
use tokio::sync::{oneshot, watch};

use crate::compare::Import;
use crate::failure::Failure;
use crate::file::StoreFile;
use crate::letters::{LetterChange, LetterSelection};
use crate::owner::StoreOwnership;
use crate::request::{ImportedSet, Read, ReadResult, Write, WriteResult, fence, unavailable};
use crate::tables::WriteFailure;
use crate::{compare, tables};
use reopenable::{CONTRADICTION, Open, ReopenableDatabase};

mod contents;
pub(crate) mod earlier;
mod letters;
mod memo;
mod reopenable;
mod schemas;

/// A handle; clones share it.
#[derive(Clone)]
pub(super) struct Embedded {
    shared: Arc<Shared>,
}

struct Shared {
    database: ReopenableDatabase,
    /// True once the store is known to have the present form.
    is_current: AtomicBool,
    queue: Mutex<LetterQueue>,
}

#[derive(Default)]
struct LetterQueue {
    waiting: Vec<Pending>,
    /// True while a writer is active; it takes the writes that are added meanwhile.
    busy: bool,
}

struct Pending {
    write: Write,
    done: oneshot::Sender<Result<WriteResult, StoreError>>,
}

impl Embedded {
    /// `file` is opened again after an error; `None` for a store in memory.
    pub(super) fn new(database: Database, file: Option<StoreFile>) -> Self {
        Embedded {
            shared: Arc::new(Shared {
                database: ReopenableDatabase::new(database, file),
                is_current: AtomicBool::new(false),
                queue: Mutex::default(),
            }),
        }
    }

    /// Returns a receiver of whether the file is the one that was opened.
    pub(super) fn holding(&self) -> watch::Receiver<StoreOwnership> {
        self.shared.database.holding()
    }

    /// Checks whether the file is the one that was opened.
    pub(super) async fn look(&self) {
        let shared = self.shared.clone();
        // A disk may take long.
        let _ = tokio::task::spawn_blocking(move || shared.database.look()).await;
    }

    /// Copies the file while no transaction commits. Returns the reason if that fails.
    pub(super) fn copy_to(&self, draft: &Path) -> Result<(), String> {
        self.shared.database.copy_to(draft).map_err(|failure| failure.error().to_string())
    }

    pub(super) async fn read(&self, read: Read) -> Result<ReadResult, StoreError> {
        let shared = self.shared.clone();
        let damaged = || StoreError::Damaged(CONTRADICTION.to_owned());
        tokio::task::spawn_blocking(move || caught(|| shared.read(&read)).unwrap_or_else(|| Err(damaged())))
            .await
            .map_err(unavailable)?
    }

    pub(super) async fn write(&self, write: Write) -> Result<WriteResult, StoreError> {
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
    fn read(&self, read: &Read) -> Result<ReadResult, StoreError> {
        for _ in 0..READS {
            let (found, repeat) = self
                .database
                .with(|open| {
                    let found = find(open, read);
                    let repeat = found.as_ref().is_err_and(|error| open.failed_read(error));
                    (found, repeat)
                })
                .map_err(|failure| failure.error())?;
            if !repeat {
                return found;
            }
        }
        Err(reopenable::earlier())
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, LetterQueue> {
        // The queue is a list and a flag: a panic elsewhere leaves both usable.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes everything that waits or arrives meanwhile, one transaction per round.
    fn drain(self: Arc<Self>) {
        let mut round = std::mem::take(&mut self.queue().waiting);
        loop {
            let (writes, done): (Vec<_>, Vec<_>) = round.into_iter().map(|p| (p.write, p.done)).unzip();
            let outcomes = self.commit(writes);
            let answer = || match outcomes {
                Ok(outcomes) => done.into_iter().zip(outcomes).for_each(|(done, outcome)| drop(done.send(outcome))),
                Err(failure) => done.into_iter().for_each(|done| drop(done.send(Err(failure.error())))),
            };
            round = {
                let mut queue = self.queue();
                queue.busy = !queue.waiting.is_empty();
                std::mem::take(&mut queue.waiting)
            };
            if round.is_empty() {
                // Released before the last answer: a caller that drops the store after its answer has closed the file.
                drop(self);
                answer();
                return;
            }
            answer();
        }
    }

    fn commit(&self, writes: Vec<Write>) -> Result<Vec<Result<WriteResult, StoreError>>, Failure> {
        // A write to a file without a name would be lost, and another service may begin with another file.
        self.database.look()?;
        self.database.with(|open| {
            self.database.write(open, || {
                // A panic here means a damaged page; it must not leave other requests waiting forever.
                match caught(|| {
                    if !self.is_current.load(Ordering::Relaxed) {
                        earlier::upgrade(open.database())?;
                        self.is_current.store(true, Ordering::Relaxed);
                    }
                    commit(open.database(), writes)
                }) {
                    Some(outcomes) => outcomes.map_err(|error| open.failed_write(&error)),
                    None => Err(Failure::Unavailable(open.fail(CONTRADICTION).to_owned())),
                }
            })
        })?
    }
}

/// Maximum number of attempts of a read if the database fails for another operation meanwhile.
const READS: u32 = 3;

fn find(open: &Open, read: &Read) -> Result<ReadResult, StoreError> {
    let transaction = open.database().begin_read().map_err(unavailable)?;
    match read {
        Read::Pipelines => tables::pipelines(&transaction).map(ReadResult::Pipelines),
        Read::Marks(epoch) => {
            fence(epoch, tables::epoch(&transaction, &epoch.unit)?)?;
            tables::marks(&transaction, tables::MARKS, &epoch.unit.pipeline, Some(epoch.unit.slot))
                .map(ReadResult::Marks)
        }
        Read::Receipts(epoch) => {
            fence(epoch, tables::epoch(&transaction, &epoch.unit)?)?;
            tables::receipts(&transaction, &epoch.unit).map(ReadResult::Receipts)
        }
        Read::Slots(pipeline) => tables::slots(&transaction, pipeline).map(ReadResult::Slots),
        Read::Positions(pipeline) => match earlier::is_first(&transaction).map_err(unavailable)? {
            true => earlier::marks(&transaction, earlier::MARKS, pipeline).map(ReadResult::Marks),
            false => tables::marks(&transaction, tables::MARKS, pipeline, None).map(ReadResult::Marks),
        },
        Read::DetachedMarks(pipeline) => match earlier::is_first(&transaction).map_err(unavailable)? {
            true => earlier::marks(&transaction, earlier::DETACHED_MARKS, pipeline).map(ReadResult::Marks),
            false => tables::marks(&transaction, tables::DETACHED_MARKS, pipeline, None).map(ReadResult::Marks),
        },
        Read::Recall { space, keys } => memo::recall(&transaction, space, keys).map(ReadResult::Recalled),
        Read::Active { pipeline, connector } => {
            tables::active(&transaction, pipeline, connector).map(|found| ReadResult::Recalled(vec![found]))
        }
        Read::Letters { pipeline, question } => {
            letters::answer(&transaction, pipeline, question).map(ReadResult::Letters)
        }
        Read::Revision => Ok(ReadResult::Revision(0)),
        Read::Contents => contents::read(&transaction).map(|contents| ReadResult::Contents(Box::new(contents))),
        Read::Schemas(question) => schemas::answer(&transaction, question).map(ReadResult::Schemas),
    }
}

/// Runs several writes in one transaction. A fenced write changes nothing and does not affect the others.
fn commit(database: &Database, writes: Vec<Write>) -> Result<Vec<Result<WriteResult, StoreError>>, redb::Error> {
    let mut transaction = database.begin_write()?;
    // Cached results may be lost, so they do not have to wait for the disk. What is copied waits with the end of the copy.
    if writes.iter().all(|write| matches!(write, Write::Keep { .. } | Write::CopiedLetters { .. })) {
        transaction.set_durability(Durability::None)?;
    }
    let is_trial = writes.iter().any(|write| matches!(write, Write::Trial(_)));
    let mut outcomes = Vec::with_capacity(writes.len());
    for write in writes {
        match apply(&transaction, write) {
            Ok(written) => outcomes.push(Ok(written)),
            Err(WriteFailure::Alone(error)) => outcomes.push(Err(error)),
            Err(WriteFailure::Storage(error)) => {
                // The abort may fail for the same reason, and its error says less.
                let _ = transaction.abort();
                return Err(error);
            }
        }
    }
    transaction.commit()?;
    if is_trial {
        // The trial has served its purpose; if this fails, the next trial replaces its data.
        let transaction = database.begin_write()?;
        transaction.delete_table(tables::TRIAL)?;
        transaction.commit()?;
    }
    Ok(outcomes)
}

fn apply(transaction: &WriteTransaction, write: Write) -> Result<WriteResult, WriteFailure> {
    match write {
        Write::Claim { unit, by: _ } => tables::claim(transaction, unit).map(WriteResult::Epoch),
        // One process owns the file: it runs what it wants to run.
        Write::Want { .. } | Write::Reshape { .. } | Write::Labels(_) | Write::End { .. } | Write::Unwant { .. } => {
            Ok(WriteResult::Units(0))
        }
        Write::Marks { epoch, moves, receipts, drops } => {
            tables::check(transaction, &epoch)?;
            tables::commit(transaction, &epoch.unit, &moves, &receipts, &drops)?;
            Ok(WriteResult::Nothing)
        }
        Write::Status { pipeline, status } => {
            tables::set_status(transaction, &pipeline, status)?;
            Ok(WriteResult::Nothing)
        }
        Write::Provision(provision) => {
            let found = compare::provision(tables::take_pipelines(transaction)?, &provision);
            tables::apply(transaction, found).map(WriteResult::Changes)
        }
        Write::Import(ImportedSet { provision, .. }) => {
            let found = compare::import(tables::take_pipelines(transaction)?, &provision);
            tables::apply(transaction, found).map(|changes| WriteResult::Imported(Import::Stored(changes)))
        }
        Write::Replace { pipeline, at } => {
            let stored = tables::take_pipelines(transaction)?;
            let found = compare::replace(stored.get(&pipeline.id), &pipeline, at);
            tables::apply(transaction, found).map(WriteResult::Changes)
        }
        Write::Delete { pipeline } => {
            tables::delete(transaction, &pipeline)?;
            letters::change(transaction, &pipeline, LetterChange::Remove(LetterSelection::All))?;
            Ok(WriteResult::Nothing)
        }
        Write::Keep { space, entries } => {
            memo::keep(transaction, &space, &entries, memo::BOUND)?;
            Ok(WriteResult::Nothing)
        }
        Write::Active { pipeline, connector, settings } => {
            let mut active = transaction.open_table(tables::ACTIVE)?;
            active.insert((pipeline.as_str(), connector.as_str()), &settings[..])?;
            Ok(WriteResult::Nothing)
        }
        Write::Forget { pipeline, connector } => {
            tables::forget(transaction, &pipeline, &connector)?;
            Ok(WriteResult::Nothing)
        }
        Write::Letters { pipeline, epoch, change } => {
            if let Some(epoch) = epoch {
                tables::check(transaction, &epoch)?;
            }
            letters::change(transaction, &pipeline, change).map(WriteResult::Letters)
        }
        Write::Schema { subject, text } => schemas::create(transaction, &subject, &text).map(WriteResult::Schema),
        Write::DeleteSchemas { subject, versions, how } => {
            schemas::delete(transaction, &subject, &versions, how)?;
            Ok(WriteResult::Nothing)
        }
        Write::Level { subject, level } => {
            schemas::set_level(transaction, subject.as_ref(), level.as_ref())?;
            Ok(WriteResult::Nothing)
        }
        // A file is copied under another name until it is complete.
        // The file has no name before the copy is complete.
        Write::BeginCopy | Write::AbandonCopy => Ok(WriteResult::Nothing),
        Write::CopiedLetters { pipeline, letters } => {
            letters::put_copies(transaction, &pipeline, &letters)?;
            Ok(WriteResult::Nothing)
        }
        Write::Contents(contents) => {
            contents::write(transaction, &contents)?;
            Ok(WriteResult::Nothing)
        }
        Write::Trial(bytes) => {
            // Replaces the data of an earlier trial, so that there is at most one. Zeros would take no space on some
            // file systems.
            let mut trial = transaction.open_table(tables::TRIAL)?;
            trial.insert_reserve((), bytes)?.as_mut().fill(0xa5);
            Ok(WriteResult::Nothing)
        }
    }
}
