//! Files that were at a path and were moved away, as log rotation does: `app.log` becomes `app.log.1`, then `app.log.2`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::position::identity;

/// So often a directory is looked at in which files are being renamed.
const LOOKS: usize = 10;

/// A regular file in the directory of a path whose name holds the stem of the path as a word of its own.
pub(super) struct Sibling {
    pub(super) path: PathBuf,
    pub(super) identity: u32,
    written: SystemTime,
    form: Form,
}

/// What stands before and after the stem in a name, each number as `0`: the same for all files that are rotated alike.
type Form = (String, String);

/// None where the directory may not be listed, or is gone.
pub(super) fn siblings(path: &Path) -> io::Result<Vec<Sibling>> {
    let Some(stem) = path.file_stem() else { return Ok(Vec::new()) };
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut siblings = Vec::new();
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => return Ok(siblings),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = entry?;
        let Some(form) = form(&entry.file_name(), stem) else { continue };
        // It may be gone by now.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            let (identity, written) = (identity(&metadata), metadata.modified()?);
            siblings.push(Sibling { path: entry.path(), identity, written, form });
        }
    }
    Ok(siblings)
}

/// The file that was at `path` after `left`, which was moved away, and was moved away as well: of those that are named as
/// `left` is now, numbers apart, the one that was last written to next.
pub(super) fn successor(path: &Path, left: &File) -> io::Result<Option<File>> {
    let left = left.metadata()?;
    let (left, written) = (identity(&left), left.modified()?);
    let present = fs::metadata(path).ok().map(|metadata| identity(&metadata));
    // Files may be renamed meanwhile: what is opened must be what was found.
    for _ in 0..LOOKS {
        let mut siblings = siblings(path)?;
        let Some(at) = siblings.iter().position(|sibling| sibling.identity == left) else {
            return Ok(None);
        };
        let form = siblings.swap_remove(at).form;
        let is_later =
            |sibling: &Sibling| sibling.form == form && sibling.written > written && Some(sibling.identity) != present;
        let Some(next) = siblings.into_iter().filter(is_later).min_by_key(|sibling| sibling.written) else {
            return Ok(None);
        };
        match File::open(&next.path) {
            Ok(file) if identity(&file.metadata()?) == next.identity => return Ok(Some(file)),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("the files beside it are renamed all the time"))
}

/// The form of a name in which `stem` stands as a word of its own.
fn form(name: &OsStr, stem: &OsStr) -> Option<Form> {
    let (name, stem) = (name.to_string_lossy(), stem.to_string_lossy());
    name.match_indices(&*stem).find_map(|(at, _)| {
        let (before, after) = (&name[..at], &name[at + stem.len()..]);
        let neighbours = [before.chars().next_back(), after.chars().next()];
        (!neighbours.into_iter().flatten().any(char::is_alphanumeric)).then(|| (numberless(before), numberless(after)))
    })
}

fn numberless(text: &str) -> String {
    let mut form = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '0'..='9' if form.ends_with('0') => {}
            '0'..='9' => form.push('0'),
            c => form.push(c),
        }
    }
    form
}
