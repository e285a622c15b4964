//! Copies of an embedded store.
//!
//! A copy is made while nobody commits, so that it is what a crash at this moment would leave, and the store is one that
//! crashes do not harm. It is written under another name, opened, checked and synced before it gets its own.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{OpenError, Place, Store};
use crate::files::system;

/// A copy cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is a file of this name.
    #[error("{} exists already: nothing was written", .0.display())]
    Exists(PathBuf),
    /// The system refuses.
    #[error("{}: {what}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system's message.
        what: String,
    },
    /// The copy is not a store.
    #[error("the copy is not sound, and was removed: {0}")]
    Unsound(OpenError),
}

/// A copy that is being written. Dropping it removes what was written.
pub struct Backup {
    draft: PathBuf,
    to: PathBuf,
}

impl Backup {
    /// Prepares a copy that is to have this name.
    ///
    /// # Errors
    /// There is such a file, or none can be written there.
    pub fn begin(to: &Path) -> Result<Backup, BackupError> {
        if fs::symlink_metadata(to).is_ok() {
            return Err(BackupError::Exists(to.into()));
        }
        let name = to.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let draft = to.with_file_name(format!(".{name}.{}", std::process::id()));
        // A process that was killed left it: this one has its number now.
        let _ = fs::remove_file(&draft);
        // The draft is named nowhere: the user knows only the name that the copy is to have.
        super::open::private(&draft).map_err(|error| failed(to, &error))?;
        Ok(Backup { draft, to: to.into() })
    }

    /// Where to write the copy.
    pub fn path(&self) -> &Path {
        &self.draft
    }

    /// Checks the copy and gives it its name; durable when it returns. Gives its size in bytes.
    ///
    /// # Errors
    /// The copy is not sound, or cannot be named.
    pub fn finish(self) -> Result<u64, BackupError> {
        drop(super::open::open_file(&self.draft).map_err(BackupError::Unsound)?);
        let draft = File::open(&self.draft).map_err(|error| failed(&self.to, &error))?;
        draft.sync_all().map_err(|error| failed(&self.to, &error))?;
        let bytes = draft.metadata().map_err(|error| failed(&self.to, &error))?.len();
        match fs::hard_link(&self.draft, &self.to) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(BackupError::Exists(self.to.clone())),
            // A file system without links: the name is taken without a check.
            Err(_) => fs::rename(&self.draft, &self.to).map_err(|error| failed(&self.to, &error))?,
        }
        let parent = self.to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| failed(parent, &error))?;
        Ok(bytes)
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        // After it got its name, the draft is a second name of it, or not there.
        let _ = fs::remove_file(&self.draft);
    }
}

fn failed(path: &Path, error: &std::io::Error) -> BackupError {
    BackupError::System { path: path.into(), what: system(error) }
}

impl Store {
    /// Copies an embedded store into a file. Blocks, and writes wait as long as the copy takes; pipelines go on reading.
    ///
    /// # Errors
    /// The store is not a file, or the copy cannot be written.
    pub fn copy_to(&self, draft: &Path) -> Result<(), BackupError> {
        match &self.place {
            Place::Embedded(embedded) => {
                embedded.copy_to(draft).map_err(|what| BackupError::System { path: draft.into(), what })
            }
            #[cfg(feature = "postgres")]
            Place::Postgres(_) => Err(BackupError::System {
                path: draft.into(),
                what: "the store is in PostgreSQL, not in a file".to_owned(),
            }),
        }
    }
}
