//! The open database. After the first I/O error `redb` refuses every operation until the file is closed and opened
//! again; this module does that before the next operation.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use anabranch_plugin::state::StoreError;
use anabranch_process::panics::caught;
use redb::{Database, StorageError, TableError, TransactionError};
use tokio::sync::watch;

use crate::failure::Failure;
use crate::file::{FileHeader, StoreFile};
use crate::owner::StoreOwnership;

/// The cause if `redb` only knows that an earlier operation failed.
const EARLIER: &str = "an earlier error of its file";
/// The cause of a panic in `redb`.
pub(super) const CONTRADICTION: &str = "its pages contradict each other";

/// The database, and how to open it again.
pub(super) struct ReopenableDatabase {
    /// `None` for a store in memory, which cannot be opened again.
    file: Option<StoreFile>,
    /// `None` if the database was closed after an error and could not be opened since.
    open: RwLock<Option<Open>>,
    /// Whether the file still has its name and its content.
    holding: watch::Sender<StoreOwnership>,
    written: Mutex<FileState>,
}

/// The state in which this process left the file.
#[derive(Default)]
struct FileState {
    /// Number of active writers.
    writers: usize,
    /// `None` while a writer is active, or before the first write.
    header: Option<FileHeader>,
}

/// An open database, and the reason why it must be closed, if any.
pub(super) struct Open {
    database: Closing,
    broken: OnceLock<String>,
}

/// A database that closes without a panic. `redb` commits when it closes, and panics if it finds a damaged page then.
/// That commit holds nothing that was reported as written.
struct Closing(Option<Database>);

impl Closing {
    #[expect(clippy::expect_used, reason = "the database is taken only when this is dropped")]
    fn get(&self) -> &Database {
        self.0.as_ref().expect("the database is taken only when this is dropped")
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let database = self.0.take();
        if caught(|| drop(database)).is_none() {
            tracing::warn!(
                "the state store could not be closed: {CONTRADICTION}; it is verified when it is opened again"
            );
        }
    }
}

impl ReopenableDatabase {
    pub(super) fn new(database: Database, file: Option<StoreFile>) -> Self {
        let holding = watch::Sender::new(StoreOwnership::Held);
        ReopenableDatabase { file, open: RwLock::new(Some(Open::new(database))), holding, written: Mutex::default() }
    }

    pub(super) fn holding(&self) -> watch::Receiver<StoreOwnership> {
        self.holding.subscribe()
    }

    /// Checks whether the file still has its name and the content that was written to it, and publishes the result in
    /// `holding`.
    pub(super) fn look(&self) -> Result<(), Failure> {
        let found = self.file.as_ref().map_or(Ok(()), |file| {
            file.look()?;
            self.file_state().header.as_ref().map_or(Ok(()), |header| file.compare(header))
        });
        let found = found.map_err(Failure::from);
        let now = match &found {
            Err(Failure::Gone(why)) => StoreOwnership::Gone(why.clone()),
            _ => StoreOwnership::Held,
        };
        self.holding.send_if_modified(|before| {
            let differs = *before != now;
            match &now {
                StoreOwnership::Held if differs => tracing::info!("the file of the state store is back"),
                now if differs => tracing::error!("{}", now.refusal().unwrap_or_default()),
                _ => {}
            }
            *before = now;
            differs
        });
        match found {
            Err(gone @ Failure::Gone(_)) => Err(gone),
            // The operation itself reports this error.
            _ => Ok(()),
        }
    }

    fn file_state(&self) -> MutexGuard<'_, FileState> {
        // A panic elsewhere leaves the counter and the file header usable.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs work that writes to the file, and records the state of the file after it.
    pub(super) fn write<T>(&self, open: &Open, work: impl FnOnce() -> T) -> T {
        {
            let mut state = self.file_state();
            (state.writers, state.header) = (state.writers + 1, None);
        }
        let done = work();
        let mut state = self.file_state();
        state.writers -= 1;
        // After an error `redb` has more to write.
        if state.writers == 0 && open.broken.get().is_none() {
            state.header = self.file.as_ref().and_then(|file| file.header().ok());
        }
        drop(state);
        done
    }

    /// Runs work on a database that has not failed; opens the database again if it has. Blocks. Transactions end within
    /// `work`, so that closing the database never interrupts one.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Open) -> T) -> Result<T, Failure> {
        loop {
            // A panic while the database is replaced leaves it closed or open: both are valid.
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(open) = open.as_ref().filter(|open| self.file.is_none() || open.broken.get().is_none()) {
                return Ok(work(open));
            }
            drop(open);
            self.open_again()?;
        }
    }

    /// Copies the file while no transaction commits. Blocks.
    pub(super) fn copy_to(&self, draft: &Path) -> Result<(), Failure> {
        let Some(file) = &self.file else { return Err(Failure::Unavailable("the store is in memory".to_owned())) };
        self.look()?;
        self.with(|open| {
            // Commits wait for this transaction, which changes nothing.
            let copy = || {
                let held = open.database().begin_write().map_err(|error| Failure::Unavailable(error.to_string()))?;
                let copied = std::fs::copy(file.path(), draft);
                let _ = held.abort();
                copied.map(drop).map_err(|error| Failure::Unavailable(anabranch_process::files::system(&error)))
            };
            let copied = self.write(open, || caught(copy));
            copied.unwrap_or_else(|| Err(Failure::Unavailable(open.fail(CONTRADICTION).to_owned())))
        })?
    }

    fn open_again(&self) -> Result<(), Failure> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|open| open.broken.get().is_none()) {
            return Ok(());
        }
        let Some(file) = &self.file else { return Err(Failure::Unavailable(EARLIER.to_owned())) };
        self.file_state().header = None;
        // Closed first, because it holds the lock of the file.
        let cause = open.take().and_then(|Open { database, broken }| {
            drop(database);
            broken.into_inner()
        });
        // A write that was reported as failed may have succeeded. Repeating it is harmless: marks refer to delivered
        // records, claims only rise, and dead letters and schemas are found by their names.
        *open = Some(Open::new(file.open()?));
        tracing::debug!(cause, "the state store was closed and opened again after an error");
        Ok(())
    }
}

impl Open {
    fn new(database: Database) -> Self {
        Open { database: Closing(Some(database)), broken: OnceLock::new() }
    }

    pub(super) fn database(&self) -> &Database {
        self.database.get()
    }

    /// Marks the database to be closed. Returns the first cause.
    pub(super) fn fail(&self, cause: &str) -> &str {
        self.broken.get_or_init(|| cause.to_owned())
    }

    /// Returns the failure for a write that failed, and marks the database to be closed: `redb` and the file may differ
    /// after this.
    pub(super) fn failed_write(&self, error: &redb::Error) -> Failure {
        let cause = match error {
            redb::Error::PreviousIo => self.fail(EARLIER).to_owned(),
            error => {
                let cause = error.to_string();
                self.fail(&cause);
                cause
            }
        };
        Failure::Unavailable(cause)
    }

    /// Examines why a read failed. Returns `true` if the cause is an error of another operation.
    pub(super) fn failed_read(&self, error: &StoreError) -> bool {
        let StoreError::Unavailable(cause) = error else { return false };
        match storage(&**cause) {
            Some(StorageError::PreviousIo) => {
                self.fail(EARLIER);
                true
            }
            Some(error @ (StorageError::Io(_) | StorageError::LockPoisoned(_) | StorageError::DatabaseClosed)) => {
                self.fail(&error.to_string());
                false
            }
            _ => false,
        }
    }
}

/// Returns the storage error within a read error of `redb`.
fn storage<'e>(error: &'e (dyn std::error::Error + Send + Sync + 'static)) -> Option<&'e StorageError> {
    if let Some(TransactionError::Storage(error)) = error.downcast_ref() {
        return Some(error);
    }
    if let Some(TableError::Storage(error)) = error.downcast_ref() {
        return Some(error);
    }
    error.downcast_ref()
}

/// Returns the error of a read whose attempts all failed because of other operations.
pub(super) fn earlier() -> StoreError {
    StoreError::Unavailable(EARLIER.into())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use redb::backends::InMemoryBackend;
    use redb::{ReadableDatabase as _, StorageBackend, TableDefinition};

    use super::*;
    use crate::store::Store;

    const KEPT: TableDefinition<'_, u64, u64> = TableDefinition::new("kept");

    struct Kept {
        directory: tempfile::TempDir,
        path: PathBuf,
        held: ReopenableDatabase,
    }

    /// A store with the number one in it.
    fn kept() -> Kept {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        drop(Store::open(&anabranch_settings::Database::Embedded(path.clone())).unwrap());
        let file = StoreFile::of(&path).unwrap();
        let held = ReopenableDatabase::new(file.open().unwrap(), Some(file));
        held.with(|open| put(open.database(), 1)).unwrap();
        Kept { directory, path, held }
    }

    fn put(database: &Database, number: u64) {
        let transaction = database.begin_write().unwrap();
        transaction.open_table(KEPT).unwrap().insert(number, number).unwrap();
        transaction.commit().unwrap();
    }

    fn holds(database: &Database, number: u64) -> bool {
        let transaction = database.begin_read().unwrap();
        transaction.open_table(KEPT).unwrap().get(number).unwrap().is_some()
    }

    impl Kept {
        fn fail(&self) {
            assert_eq!(self.held.with(|open| open.fail("full").to_owned()).unwrap(), "full");
        }

        fn refused(&self) -> Failure {
            self.held.with(|_| panic!("it was opened")).unwrap_err()
        }
    }

    #[test]
    fn what_failed_is_opened_again_and_holds_what_it_held() {
        let kept = kept();
        kept.fail();
        assert!(kept.held.with(|open| holds(open.database(), 1)).unwrap());
        kept.held.with(|open| put(open.database(), 2)).unwrap();
        kept.fail();
        assert!(kept.held.with(|open| holds(open.database(), 1) && holds(open.database(), 2)).unwrap());
    }

    #[test]
    fn it_is_closed_when_nobody_reads_any_more() {
        let kept = kept();
        let (begun, read) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let found = kept.held.with(|open| {
                    let transaction = open.database().begin_read().unwrap();
                    open.fail("full");
                    begun.wait();
                    read.wait();
                    transaction.open_table(KEPT).unwrap().get(1).unwrap().is_some()
                });
                assert_eq!(found, Ok(true));
            });
            begun.wait();
            let other = scope.spawn(|| kept.held.with(|open| open.broken.get().is_none()));
            assert!(!other.is_finished());
            read.wait();
            assert_eq!(other.join().unwrap(), Ok(true));
        });
    }

    #[test]
    fn only_the_file_that_it_was_is_opened_again_and_none_is_made() {
        let kept = kept();
        let aside = kept.directory.path().join("aside.db");
        let is_gone = |failure: Failure| matches!(&failure, Failure::Gone(text) if text.contains("a.db") && text.contains("gone"));
        kept.fail();
        std::fs::rename(&kept.path, &aside).unwrap();
        for _ in 0..2 {
            assert!(is_gone(kept.refused()));
            assert!(!kept.path.exists());
        }
        std::fs::copy(&aside, &kept.path).unwrap();
        assert!(is_gone(kept.refused()));
        std::fs::rename(&aside, &kept.path).unwrap();
        assert!(kept.held.with(|open| holds(open.database(), 1)).unwrap());
    }

    #[test]
    fn a_file_that_was_damaged_meanwhile_is_refused_and_left() {
        let kept = kept();
        kept.fail();
        let aside = kept.directory.path().join("aside.db");
        std::fs::rename(&kept.path, &aside).unwrap();
        kept.refused();
        std::fs::rename(&aside, &kept.path).unwrap();
        std::fs::OpenOptions::new().write(true).open(&kept.path).unwrap().set_len(5000).unwrap();
        let before = std::fs::read(&kept.path).unwrap();
        assert!(matches!(kept.refused(), Failure::Damaged(text) if text.contains("a.db")));
        assert!(matches!(kept.refused().error(), StoreError::Damaged(_)));
        assert!(std::fs::read(&kept.path).unwrap() == before);
    }

    #[test]
    fn a_file_that_was_emptied_while_it_was_written_is_noticed() {
        let kept = kept();
        kept.held.with(|open| kept.held.write(open, || drop(std::fs::File::create(&kept.path).unwrap()))).unwrap();
        assert!(matches!(kept.held.look(), Err(Failure::Gone(text)) if text.contains("overwrote")));
    }

    #[test]
    fn a_file_that_another_process_took_is_tried_again() {
        let kept = kept();
        let other = StoreFile::of(&kept.path).unwrap();
        kept.fail();
        let cause = kept.held.open.write().unwrap().take().and_then(|open| open.broken.into_inner());
        assert_eq!(cause.as_deref(), Some("full"));
        let theirs = other.open().unwrap();
        assert!(matches!(kept.refused(), Failure::Unavailable(text) if text.contains("in use")));
        drop(theirs);
        assert!(kept.held.with(|open| holds(open.database(), 1)).unwrap());
    }

    #[test]
    fn the_first_cause_is_told_and_not_what_the_library_advises() {
        let kept = kept();
        let full = || std::io::Error::other("No space left on device");
        let told = |error: redb::Error| kept.held.with(|open| open.failed_write(&error)).unwrap().error().to_string();
        assert!(told(redb::Error::Io(full())).contains("No space left on device"));
        let told = kept.held.with(|open| {
            let _ = open.failed_write(&redb::Error::Io(full()));
            open.failed_write(&redb::Error::PreviousIo).error().to_string()
        });
        assert!(told.unwrap().contains("No space left on device"));
    }

    #[test]
    fn a_read_is_repeated_for_the_error_of_another_and_not_for_its_own() {
        let kept = kept();
        let seen = |error: StorageError, wrapped: fn(StorageError) -> StoreError| {
            let error = wrapped(error);
            kept.held.with(|open| (open.failed_read(&error), open.broken.get().is_some())).unwrap()
        };
        let plain: fn(StorageError) -> StoreError = |error| StoreError::Unavailable(Box::new(error));
        let begun: fn(StorageError) -> StoreError =
            |error| StoreError::Unavailable(Box::new(TransactionError::Storage(error)));
        let opened: fn(StorageError) -> StoreError =
            |error| StoreError::Unavailable(Box::new(TableError::Storage(error)));
        for wrapped in [plain, begun, opened] {
            assert_eq!(seen(StorageError::PreviousIo, wrapped), (true, true));
            assert_eq!(seen(StorageError::Io(std::io::Error::other("bad sector")), wrapped), (false, true));
            assert_eq!(seen(StorageError::ValueTooLarge(1), wrapped), (false, false));
        }
    }

    /// A file in memory; the library panics when it writes it, once that is wanted, as it does on a damaged page.
    #[derive(Debug)]
    struct Panics {
        file: InMemoryBackend,
        wanted: Arc<AtomicBool>,
    }

    impl StorageBackend for Panics {
        fn len(&self) -> std::io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, len: u64) -> std::io::Result<()> {
            self.file.set_len(len)
        }

        fn sync_data(&self) -> std::io::Result<()> {
            self.file.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
            assert!(!self.wanted.load(Ordering::SeqCst), "a damaged page");
            self.file.write(offset, data)
        }
    }

    /// A database with the number one in it, and what makes it panic.
    fn panicking() -> (Database, Arc<AtomicBool>) {
        let wanted = Arc::new(AtomicBool::new(false));
        let backend = Panics { file: InMemoryBackend::new(), wanted: wanted.clone() };
        let database = Database::builder().create_with_backend(backend).unwrap();
        put(&database, 1);
        (database, wanted)
    }

    #[test]
    fn a_panic_while_it_is_closed_ends_nothing() {
        let (database, wanted) = panicking();
        wanted.store(true, Ordering::SeqCst);
        assert_eq!(caught(|| drop(database)), None, "the library writes when it closes");
        let (database, wanted) = panicking();
        let held = ReopenableDatabase::new(database, None);
        wanted.store(true, Ordering::SeqCst);
        drop(held);
    }

    #[tokio::test]
    async fn a_panic_while_it_is_written_is_an_error_of_the_store() {
        let (database, wanted) = panicking();
        let database = crate::file::initialized(database, std::path::Path::new("memory")).unwrap();
        let store = super::super::Embedded::new(database, None);
        let write = || crate::request::Write::Trial(1000);
        store.write(write()).await.unwrap();
        wanted.store(true, Ordering::SeqCst);
        let error = store.write(write()).await.unwrap_err();
        assert!(matches!(&error, StoreError::Unavailable(cause) if cause.to_string() == CONTRADICTION), "{error}");
        // In memory there is nothing to open again: what follows fails too, and nothing hangs or ends.
        for _ in 0..2 {
            assert!(matches!(store.write(write()).await, Err(StoreError::Unavailable(_))));
        }
        drop(store);
    }
}
