//! Opening the store. A store is created atomically, and refused if it is in use, foreign, newer or damaged. A store
//! that cannot be read is never replaced: every source would start from its beginning.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
#[cfg(feature = "postgres")]
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use anabranch_ops_tls::open_regular;
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, DatabaseError, ReadableDatabase as _, StorageBackend as _, StorageError, TableError};
#[cfg(feature = "postgres")]
use tokio::sync::watch;

use super::embedded::Embedded;
use super::failure::LastWrite;
use super::letters::Evictions;
use super::meter::Meter;
use super::tables::{DETACHED_MARKS, EPOCHS, MARKS, META, PIPELINES, SCHEMA};
use super::{Holding, Owner, Place, Store};
use crate::files::{parent_directory, system};
use crate::panics::caught;
use crate::settings;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process owns the store.
    #[error(
        "the store {place} is in use by {}: stop that process, wait for it with --db.wait, or use another store with \
         {}",
        owner.as_ref().map_or_else(|| "another process".to_owned(), ToString::to_string),
        if *.is_file { "--db.path" } else { "--db.postgres.table" }
    )]
    InUse {
        /// The file, or the table and its server.
        place: String,
        /// The process, if known.
        owner: Option<Owner>,
        /// True if the store is a file.
        is_file: bool,
    },
    /// The file of an open store is missing, or another file is in its place.
    #[error(
        "the file of the state store, {}, is gone or another file is in its place: put it back before you start the \
         service again; with an empty store every source starts from its beginning",
        .path.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// Another program wrote to the file of an open store.
    #[error(
        "another program truncated or overwrote the file of the state store, {}: stop the service, put a copy of the \
         store in its place, and start it again; with an empty store every source starts from its beginning",
        .path.display()
    )]
    Overwritten {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a store.
    #[error(
        "{} is not a store of Anabranch: it was not changed; set another --db.path",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version wrote the store.
    #[error(
        "the store {} has version {found}, but this program supports versions up to {SCHEMA}: use the program that \
         wrote it",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// The store is damaged.
    #[error(
        "the store {} is damaged ({what}): it was not changed. Restore it from a backup; if you move it away, every \
         source starts from its beginning",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// The store in PostgreSQL cannot be opened.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] super::postgres::Refused),
    /// This build does not support PostgreSQL.
    #[cfg(not(feature = "postgres"))]
    #[error("db.type postgres: this program was built without the feature `postgres`")]
    LeftOut,
    /// The disk does not have the space that opening the store needs.
    #[error(
        "the store {} cannot be opened: {what}: free disk space, and start again; with --db.wait, the start waits for \
         free space",
        .path.display()
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        what: String,
    },
    /// An operation of the file system failed.
    #[error("the store {} cannot be opened: {what}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        what: String,
    },
}

/// The first bytes of every redb file.
const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";

/// Number of attempts, and the wait between them, to open a file that this process has closed and that is still locked.
/// A child process that another thread spawns holds copies of all open files, with their locks, until it executes its
/// program.
const FORKS: u32 = 20;
const FORK: Duration = Duration::from_millis(5);

/// Memory for cached pages. Marks are few and small; the default of 1 GiB is meant for databases.
const CACHE_BYTES: usize = 4 << 20;

impl OpenError {
    /// Returns `true` if the store may become usable without a change: another process ends, or the server answers
    /// again.
    pub fn is_passing(&self) -> bool {
        match self {
            OpenError::InUse { .. } | OpenError::Full { .. } => true,
            #[cfg(feature = "postgres")]
            OpenError::Postgres(refused) => refused.is_passing(),
            #[cfg(not(feature = "postgres"))]
            OpenError::LeftOut => false,
            OpenError::Gone { .. }
            | OpenError::Overwritten { .. }
            | OpenError::Foreign { .. }
            | OpenError::Newer { .. }
            | OpenError::Damaged { .. }
            | OpenError::System { .. } => false,
        }
    }
}

/// Returns the error for a file in use, with its owner.
fn in_use(path: &Path) -> OpenError {
    OpenError::InUse { place: path.display().to_string(), owner: Owner::of_file(path), is_file: true }
}

impl Store {
    pub(super) fn at(place: Place) -> Store {
        let holding = match &place {
            Place::Embedded(embedded) => embedded.holding(),
            #[cfg(feature = "postgres")]
            Place::Postgres(_) => watch::channel(Holding::Held).1,
        };
        Store {
            place,
            last_write: LastWrite::default(),
            meter: Meter::default(),
            evictions: Evictions::default(),
            holding,
            #[cfg(feature = "postgres")]
            ownership: None,
        }
    }

    /// Opens the store for a service that runs pipelines with it, or for a command that changes it. No other process
    /// can own it meanwhile. For a store in PostgreSQL this waits up to 10 s for the lease of an owner that did not
    /// release it.
    ///
    /// # Errors
    /// The errors of [`Store::open`], or another process owns the store.
    pub fn own(database: &settings::Database) -> Result<Store, OpenError> {
        let store = Store::open(database)?;
        #[cfg(feature = "postgres")]
        if let settings::Database::Postgres(address) = database {
            let owned = super::postgres::own(address, &Owner::here());
            let ownership = owned.map_err(|error| match error {
                super::postgres::Taking::Refused(refused) => OpenError::Postgres(refused),
                super::postgres::Taking::InUse(owner) => {
                    OpenError::InUse { place: super::postgres::place(address), owner, is_file: false }
                }
            })?;
            let holding = ownership.holding();
            if let Place::Postgres(postgres) = &store.place {
                postgres.held(holding.clone());
            }
            return Ok(Store { holding, ownership: Some(Arc::new(ownership)), ..store });
        }
        Ok(store)
    }

    /// Opens the store that the settings name, and creates it if it does not exist.
    ///
    /// # Errors
    /// The store is in use, foreign, newer or damaged, or a system call failed.
    pub fn open(database: &settings::Database) -> Result<Store, OpenError> {
        match database {
            settings::Database::InMemory => {
                let path = PathBuf::from("(in memory)");
                let database =
                    builder().create_with_backend(InMemoryBackend::new()).map_err(|error| refused(&path, error))?;
                Ok(embedded(initialized(database, &path)?, None))
            }
            settings::Database::Embedded(path) => open_file(path),
            #[cfg(feature = "postgres")]
            settings::Database::Postgres(address) => {
                let place = Place::Postgres(super::postgres::Postgres::open(address)?);
                Ok(Store::at(place))
            }
            #[cfg(not(feature = "postgres"))]
            settings::Database::Postgres(_) => Err(OpenError::LeftOut),
        }
    }

    /// Opens a store for commands that only read. Does not create a file.
    ///
    /// # Errors
    /// The errors of [`Store::open`]. A missing file is not an error: it returns `Ok(None)`.
    pub fn open_existing(database: &settings::Database) -> Result<Option<Store>, OpenError> {
        match database {
            settings::Database::Embedded(path) if !path.exists() => Ok(None),
            other => Store::open(other).map(Some),
        }
    }
}

fn embedded(database: Database, site: Option<Site>) -> Store {
    Store::at(Place::Embedded(Embedded::new(database, site)))
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

pub(super) fn open_file(path: &Path) -> Result<Store, OpenError> {
    let database = match head(path) {
        Ok(Some(head)) => open_existing(path, &head)?,
        Ok(None) => match create(path)? {
            Some(database) => database,
            None => return open_file(path),
        },
        Err(error) => return Err(io(path, &error)),
    };
    Ok(Store { meter: Meter::of_file(parent_directory(path).into()), ..embedded(database, Some(Site::of(path)?)) })
}

/// Opens a file with the given first bytes.
fn open_existing(path: &Path, head: &[u8]) -> Result<Database, OpenError> {
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
pub(super) struct Site {
    path: PathBuf,
    /// Device and inode: another file with this name holds other positions.
    identity: (u64, u64),
}

impl Site {
    pub(super) fn of(path: &Path) -> Result<Site, OpenError> {
        let identity = identity(path).map_err(|error| io(path, &error))?;
        Ok(Site { path: path.into(), identity })
    }

    /// Checks whether the file still has its name. Costs one system call.
    pub(super) fn look(&self) -> Result<(), OpenError> {
        match identity(&self.path) {
            Ok(found) if found == self.identity => Ok(()),
            Ok(_) => Err(OpenError::Gone { path: self.path.clone() }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(OpenError::Gone { path: self.path.clone() }),
            Err(error) => Err(io(&self.path, &error)),
        }
    }

    /// Returns the header and length, which show whether another program wrote to the file. Reads a few hundred bytes.
    pub(super) fn face(&self) -> std::io::Result<Face> {
        let mut file = open_regular(&self.path)?;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        file.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        Ok(Face { len: file.metadata()?.len(), head })
    }

    /// Checks whether the file still has the content that was written to it.
    pub(super) fn compare(&self, before: &Face) -> Result<(), OpenError> {
        match self.face() {
            Ok(now) if now.len >= before.len && now.head == before.head => Ok(()),
            Ok(_) => Err(OpenError::Overwritten { path: self.path.clone() }),
            Err(error) => Err(io(&self.path, &error)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file as at the start, but does not create it. It must not be open elsewhere in this process.
    pub(super) fn open(&self) -> Result<Database, OpenError> {
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
pub(super) struct Face {
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
fn head(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
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
fn create(path: &Path) -> Result<Option<Database>, OpenError> {
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
pub(super) fn private(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).map(drop)
}

fn initialized(database: Database, path: &Path) -> Result<Database, OpenError> {
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

fn refused(path: &Path, error: DatabaseError) -> OpenError {
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

fn io(path: &Path, error: &std::io::Error) -> OpenError {
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

    #[test]
    fn a_pipe_in_the_place_of_a_store_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let Err(error) = open_file(&path) else { panic!("a store was opened") };
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}
