//! Writing new files: all of them, or none.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anabranch_process::files::{parent_directory, system};

use crate::cli::{Exit, Report};
use crate::codes;

/// The content of a new file.
pub(super) enum NewContent {
    /// This text.
    Text(String),
    /// The content of another file, with its permissions.
    CopyOf(PathBuf),
}

/// A file to write.
pub(super) struct NewFile {
    pub(super) path: PathBuf,
    pub(super) content: NewContent,
}

/// Writes new files. If one of them exists, or cannot be written, none is left.
pub(super) fn write(command: &'static str, files: &[NewFile]) -> Result<(), Box<Report>> {
    if let Some(taken) = files.iter().find(|file| file.path.symlink_metadata().is_ok()) {
        return Err(exists(command, &taken.path));
    }
    for (index, file) in files.iter().enumerate() {
        let Err(error) = write_one(file) else { continue };
        let is_taken = error.kind() == ErrorKind::AlreadyExists;
        // A file that another program has created in the meantime stays.
        let own = if is_taken { &files[..index] } else { &files[..=index] };
        for written in own {
            let _ = std::fs::remove_file(&written.path);
        }
        return Err(match is_taken {
            true => exists(command, &file.path),
            false => {
                let message = format!("cannot write {}: {}", file.path.display(), system(&error));
                Box::new(Report::new(command).fail(Exit::Environment, codes::CLI_CANNOT_WRITE, message))
            }
        });
    }
    Ok(())
}

fn write_one(file: &NewFile) -> std::io::Result<()> {
    std::fs::create_dir_all(parent_directory(&file.path))?;
    let new = |mode: u32| OpenOptions::new().write(true).create_new(true).mode(mode).open(&file.path);
    match &file.content {
        NewContent::Text(text) => new(0o644)?.write_all(text.as_bytes()),
        NewContent::CopyOf(path) => {
            let mut from = File::open(path)?;
            let mode = from.metadata()?.permissions().mode();
            std::io::copy(&mut from, &mut new(mode & 0o777)?).map(drop)
        }
    }
}

fn exists(command: &'static str, path: &Path) -> Box<Report> {
    let message = format!("{} already exists; nothing was written", path.display());
    Box::new(
        Report::new(command)
            .fail(Exit::Invalid, codes::MIGRATE_FILE_EXISTS, message)
            .suggest("remove it, choose another directory, or print the files with --dry-run"),
    )
}
