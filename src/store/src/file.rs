//! The file of an embedded store. A store is created atomically, and refused if it is in use, foreign, newer or damaged. A store
//! that cannot be read is never replaced: every source would start from its beginning.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anabranch_ops_tls::open_regular;
use anabranch_process::files::system;
use anabranch_process::panics::caught;
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, DatabaseError, ReadableDatabase as _, StorageBackend as _, StorageError, TableError};

use crate::error::OpenError;
use crate::owner::Owner;
use crate::tables::{DETACHED_MARKS, EPOCHS, MARKS, META, PIPELINES, SCHEMA};

/// The first bytes of every redb file.
const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";

/// Number of attempts, and the wait between them, to open a file that this process has closed and that is still locked.
/// A child process that another thread spawns holds copies of all open files, with their locks, until it executes its
/// program.
const FORKS: u32 = 20;
const FORK: Duration = Duration::from_millis(5);

/// Memory for cached pages. Marks are few and small; the default of 1 GiB is meant for databases.
const CACHE_BYTES: usize = 4 << 20;

/// Returns the error for a file in use, with its owner.
fn in_use(path: &Path) -> OpenError {
    OpenError::InUse { place: path.display().to_string(), owner: Owner::of_file(path), is_file: true }
}

pub(crate) fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Opens a file with the given first bytes.
pub(crate) fn open_existing(path: &Path, head: &[u8]) -> Result<Database, OpenError> {
    if head.is_empty() {
        return Err(OpenError::Damaged { path: path.into(), what: "the file is empty".into() });
    }
    if head != MAGIC {
        return Err(OpenError::Foreign { path: path.into() });
    }
    verify(path)?;
    // `redb` trusts its pages; an error in pages that were not verified shows as a panic.
    let opened = caught(|| {
        let database = builder().open(path).map_err(|error| refused(path, error))?;
        check(&database, path)?;
        Ok(database)
    });
    opened.unwrap_or_else(|| {
        Err(OpenError::Damaged { path: path.into(), what: "its pages contradict each other".into() })
    })
}

/// The file of an open store, to be opened again after an error.
pub(crate) struct StoreFile {
    path: PathBuf,
    /// Device and inode: another file with this name holds other positions.
    identity: (u64, u64),
}

impl StoreFile {
    pub(crate) fn of(path: &Path) -> Result<StoreFile, OpenError> {
        let identity = identity(path).map_err(|error| io(path, &error))?;
        Ok(StoreFile { path: path.into(), identity })
    }

    /// Checks whether the file still has its name. Costs one system call.
    pub(crate) fn look(&self) -> Result<(), OpenError> {
        match identity(&self.path) {
            Ok(found) if found == self.identity => Ok(()),
            Ok(_) => Err(OpenError::Gone { path: self.path.clone() }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(OpenError::Gone { path: self.path.clone() }),
            Err(error) => Err(io(&self.path, &error)),
        }
    }

    /// Returns the header and length, which show whether another program wrote to the file. Reads a few hundred bytes.
    pub(crate) fn header(&self) -> std::io::Result<FileHeader> {
        let mut file = open_regular(&self.path)?;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        file.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        Ok(FileHeader { len: file.metadata()?.len(), head })
    }

    /// Checks whether the file still has the content that was written to it.
    pub(crate) fn compare(&self, before: &FileHeader) -> Result<(), OpenError> {
        match self.header() {
            // The header from before may have been read after another program wrote to the file.
            Ok(now) if now.len >= before.len && now.head == before.head && now.head.starts_with(MAGIC) => Ok(()),
            Ok(_) => Err(OpenError::Overwritten { path: self.path.clone() }),
            Err(error) => Err(io(&self.path, &error)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file as at the start, but does not create it. It must not be open elsewhere in this process.
    pub(crate) fn open(&self) -> Result<Database, OpenError> {
        let path = &self.path;
        let gone = || OpenError::Gone { path: path.clone() };
        self.look()?;
        let head = head(path).map_err(|error| io(path, &error))?.ok_or_else(gone)?;
        for _ in 0..FORKS {
            match open_existing(path, &head) {
                Err(OpenError::InUse { .. }) => sleep(FORK),
                opened => return opened,
            }
        }
        open_existing(path, &head)
    }
}

/// Bytes at the start of the file that change with every transaction: they identify the last one, with its checksum.
const HEAD_BYTES: usize = 320;

/// The start of a file and its length.
#[derive(Debug)]
pub(crate) struct FileHeader {
    len: u64,
    head: Vec<u8>,
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Maximum size of a store whose pages are all verified when it is opened.
const VERIFIED_BYTES: u64 = 64 << 20;

/// Verifies the checksum of every page in a copy in memory. The check of `redb` repairs the file by reverting to an
/// older state, and this store must be left unchanged.
fn verify(path: &Path) -> Result<(), OpenError> {
    let refuse = |error: &std::io::Error| io(path, error);
    let mut file = File::open(path).map_err(|e| refuse(&e))?;
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(in_use(path)),
        Err(TryLockError::Error(error)) => return Err(refuse(&error)),
    }
    let length = file.metadata().map_err(|e| refuse(&e))?.len();
    if length > VERIFIED_BYTES {
        return Ok(());
    }
    let mut content = Vec::with_capacity(length as usize);
    file.read_to_end(&mut content).map_err(|e| refuse(&e))?;
    drop(file);
    let copy = InMemoryBackend::new();
    copy.set_len(content.len() as u64).and_then(|()| copy.write(0, &content)).map_err(|e| refuse(&e))?;
    let sound = caught(|| {
        let mut database = builder().create_with_backend(copy)?;
        database.check_integrity()
    });
    let what = match sound {
        Some(Ok(true)) => return Ok(()),
        Some(Ok(false)) => "a page does not have its checksum".to_owned(),
        Some(Err(error)) => error.to_string(),
        None => "its pages contradict each other".to_owned(),
    };
    Err(OpenError::Damaged { path: path.into(), what })
}

/// Returns the first bytes of the file; `None` if the file does not exist.
pub(crate) fn head(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut head = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    Ok(Some(head))
}

/// Creates a store under a temporary name and links it to its final one, so that an incomplete store never has that
/// name. Returns `None` if another process created the file first.
pub(crate) fn create(path: &Path) -> Result<Option<Database>, OpenError> {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let draft = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let made = (|| {
        private(&draft).map_err(|error| io(path, &error))?;
        let database = builder().create(&draft).map_err(|error| refused(path, error))?;
        let database = initialized(database, path)?;
        match std::fs::hard_link(&draft, path) {
            Ok(()) => Ok(Some(database)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            // On a file system without links, the rename does not check for an existing file.
            Err(_) => std::fs::rename(&draft, path).map(|()| Some(database)).map_err(|error| io(path, &error)),
        }
    })();
    let _ = std::fs::remove_file(&draft);
    if let (Ok(Some(_)), Some(parent)) = (&made, path.parent()) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        // The directory entry must survive a power failure, like the positions in the file.
        File::open(parent).and_then(|directory| directory.sync_all()).map_err(|error| io(path, &error))?;
    }
    made
}

/// Creates an empty file that only its owner can read: a store contains dead letters and settings.
pub(crate) fn private(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).map(drop)
}

pub(crate) fn initialized(database: Database, path: &Path) -> Result<Database, OpenError> {
    let made = (|| -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        transaction.open_table(META)?.insert("schema", SCHEMA)?;
        transaction.open_table(EPOCHS)?;
        transaction.open_table(PIPELINES)?;
        transaction.open_table(MARKS)?;
        transaction.open_table(DETACHED_MARKS)?;
        transaction.commit()?;
        Ok(())
    })();
    match made {
        Ok(()) => Ok(database),
        Err(redb::Error::Io(error)) => Err(io(path, &error)),
        Err(error) => Err(OpenError::System { path: path.into(), what: error.to_string() }),
    }
}

fn check(database: &Database, path: &Path) -> Result<(), OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.into(), what };
    let transaction = database.begin_read().map_err(|e| damaged(e.to_string()))?;
    let found = match transaction.open_table(META) {
        Ok(table) => table.get("schema").map_err(|e| damaged(e.to_string()))?.map(|v| v.value()),
        Err(TableError::TableDoesNotExist(_) | TableError::TableTypeMismatch { .. }) => None,
        Err(error) => return Err(damaged(error.to_string())),
    };
    match found {
        None => Err(OpenError::Foreign { path: path.into() }),
        Some(found) if found > SCHEMA => Err(OpenError::Newer { path: path.into(), found }),
        Some(_) => Ok(()),
    }
}

pub(crate) fn refused(path: &Path, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => in_use(path),
        DatabaseError::Storage(StorageError::Io(error))
            if !matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            io(path, &error)
        }
        other => OpenError::Damaged { path: path.into(), what: other.to_string() },
    }
}

pub(crate) fn io(path: &Path, error: &std::io::Error) -> OpenError {
    let what = match error.kind() {
        ErrorKind::NotFound => "its directory does not exist; create it, or set another --db.path".to_owned(),
        _ => system(error),
    };
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => OpenError::Full { path: path.into(), what },
        _ => OpenError::System { path: path.into(), what },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start waits for room as it waits for a server that is away.
    #[test]
    fn a_full_disk_passes_and_a_missing_right_does_not() {
        let opened = |kind: ErrorKind| io(Path::new("a.db"), &kind.into());
        assert!(opened(ErrorKind::StorageFull).is_passing() && opened(ErrorKind::QuotaExceeded).is_passing());
        assert!(!opened(ErrorKind::PermissionDenied).is_passing());
    }
}
