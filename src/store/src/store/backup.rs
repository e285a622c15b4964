//! Copies of an embedded store.
//!
//! A copy is made while no transaction commits, so that it equals what a crash at this moment would leave; crashes do
//! not damage the store. The copy is written under another name, then opened, checked and synced before it gets its
//! final name.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use anabranch_process::files::{parent_directory, system};
use rustix::fs::{AtFlags, CWD};

use super::open::open_file;
use super::{Backend, Store};
use crate::embedded::Embedded;
use crate::error::OpenError;
use crate::file::{builder, initialized, private, refused};

/// Why a copy cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file with this name exists.
    #[error("{} already exists: nothing was written", .0.display())]
    Exists(PathBuf),
    /// An operation of the file system failed.
    #[error("{}: {what}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        what: String,
    },
    /// The copy is not a valid store.
    #[error("the copy is damaged and was removed: {0}")]
    Unsound(OpenError),
}

/// A copy that is being written. Dropping it removes what was written.
pub struct Backup {
    draft: DraftFile,
    to: PathBuf,
}

/// The file that a copy is written to before it gets its name.
enum DraftFile {
    /// A file without a name: it disappears when this process ends for any reason.
    Unnamed(File),
    /// A file with a temporary name, for file systems without unnamed files.
    Named(PathBuf),
}

impl DraftFile {
    fn in_place_of(to: &Path) -> std::io::Result<DraftFile> {
        match unnamed(parent_directory(to)) {
            Ok(file) => return Ok(DraftFile::Unnamed(file)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                return Err(error);
            }
            // The file system does not support unnamed files, or the system has no paths for them.
            Err(_) => {}
        }
        let name = to.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let draft = to.with_file_name(format!(".{name}.{}", std::process::id()));
        // A killed process with the same process id may have left it.
        let _ = fs::remove_file(&draft);
        private(&draft)?;
        Ok(DraftFile::Named(draft))
    }

    fn path(&self) -> PathBuf {
        match self {
            DraftFile::Unnamed(file) => path_of(file),
            DraftFile::Named(path) => path.clone(),
        }
    }

    /// Links the draft to its final name, which must not exist.
    fn link(&self, to: &Path) -> std::io::Result<()> {
        match self {
            DraftFile::Unnamed(file) => Ok(rustix::fs::linkat(CWD, path_of(file), CWD, to, AtFlags::SYMLINK_FOLLOW)?),
            DraftFile::Named(draft) => match fs::hard_link(draft, to) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => fs::rename(draft, to),
                linked => linked,
            },
        }
    }
}

/// Returns a path to an open file.
pub fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Opens an unnamed file that can be linked into this directory. It has a path while it is open.
#[cfg(target_os = "linux")]
fn unnamed(directory: &Path) -> std::io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?);
    fs::metadata(path_of(&file))?;
    Ok(file)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path) -> std::io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}

impl Backup {
    /// Prepares a copy with the final name `to`.
    ///
    /// # Errors
    /// The file exists, or no file can be written there.
    pub fn begin(to: &Path) -> Result<Backup, BackupError> {
        if fs::symlink_metadata(to).is_ok() {
            return Err(BackupError::Exists(to.into()));
        }
        // Error messages name the final path, which is the only one that the user knows.
        let draft = DraftFile::in_place_of(to).map_err(|error| failed(to, &error))?;
        Ok(Backup { draft, to: to.into() })
    }

    /// Returns the path to write the copy to.
    pub fn path(&self) -> PathBuf {
        self.draft.path()
    }

    /// Creates an empty store at this path, for a copy that does not begin with a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create_store(&self) -> Result<Store, OpenError> {
        let database = builder().create(self.path()).map_err(|error| refused(&self.to, error))?;
        Ok(Store::at(Backend::Embedded(Embedded::new(initialized(database, &self.to)?, None))))
    }

    /// Checks the copy and gives it its final name. The copy is durable when this returns. Returns its size in bytes.
    ///
    /// # Errors
    /// The copy is not valid, or cannot be linked.
    pub fn finish(self) -> Result<u64, BackupError> {
        drop(open_file(&self.path()).map_err(BackupError::Unsound)?);
        let draft = File::open(self.path()).map_err(|error| failed(&self.to, &error))?;
        draft.sync_all().map_err(|error| failed(&self.to, &error))?;
        let bytes = draft.metadata().map_err(|error| failed(&self.to, &error))?.len();
        self.draft.link(&self.to).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => BackupError::Exists(self.to.clone()),
            _ => failed(&self.to, &error),
        })?;
        let parent = self.to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| failed(parent, &error))?;
        Ok(bytes)
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        // After the copy got its final name, a named draft is a second name of it or does not exist.
        if let DraftFile::Named(draft) = &self.draft {
            let _ = fs::remove_file(draft);
        }
    }
}

fn failed(path: &Path, error: &std::io::Error) -> BackupError {
    BackupError::System { path: path.into(), what: system(error) }
}

impl Store {
    /// Copies an embedded store into a file. Blocks; writes wait until the copy is done, while pipelines still read.
    ///
    /// # Errors
    /// The store is not a file, or the copy cannot be written.
    pub fn copy_to(&self, draft: &Path) -> Result<(), BackupError> {
        match &self.backend {
            Backend::Embedded(embedded) => {
                embedded.copy_to(draft).map_err(|what| BackupError::System { path: draft.into(), what })
            }
            #[cfg(feature = "postgres")]
            Backend::Postgres(_) => Err(BackupError::System {
                path: draft.into(),
                what: "the store is in PostgreSQL, not in a file".to_owned(),
            }),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A process that is killed while it copies leaves nothing behind.
    #[test]
    fn a_copy_has_no_name_before_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (store, to) = (directory.path().join("a.db"), directory.path().join("copies/b.db"));
        drop(open_file(&store).unwrap());
        fs::create_dir(to.parent().unwrap()).unwrap();
        let names = || fs::read_dir(to.parent().unwrap()).unwrap().count();
        let backup = Backup::begin(&to).unwrap();
        fs::copy(&store, backup.path()).unwrap();
        assert_eq!(names(), 0);
        let bytes = backup.finish().unwrap();
        assert_eq!((names(), fs::metadata(&to).unwrap().len()), (1, bytes));
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
        drop(open_file(&to).unwrap());

        // Another one was faster.
        let other = directory.path().join("copies/c.db");
        let backup = Backup::begin(&other).unwrap();
        fs::copy(&store, backup.path()).unwrap();
        fs::write(&other, "mine").unwrap();
        assert!(matches!(backup.finish(), Err(BackupError::Exists(_))));
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
    }
}
