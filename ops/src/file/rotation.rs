//! Files that were at a path and were moved away, as log rotation does: `app.log` becomes `app.log.1`, then `app.log.2`.

use std::cmp::Ordering;
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
    numbers: Vec<String>,
}

/// What stands before and after the stem in a name, each number as `0`: the same for all files that are rotated alike.
type Form = (String, String);

/// A name with so many digits holds a date or a time.
const DATE_DIGITS: usize = 6;

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
        let Some((form, numbers)) = form(&entry.file_name(), stem) else { continue };
        // It may be gone by now.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            let (identity, written) = (identity(&metadata), metadata.modified()?);
            siblings.push(Sibling { path: entry.path(), identity, written, form, numbers });
        }
    }
    Ok(siblings)
}

/// The file that was at `path` after `left`, which was moved away, and was moved away as well: of those that are named as
/// `left` is now, numbers apart, the one that was last written to next.
///
/// Where several were written to at the same time, as the file system keeps it, their numbers tell. Where it is unknown
/// whether a larger number is a newer file, all that are not among those `read` are taken for newer. The `others` are
/// left out.
pub(super) fn successor(path: &Path, left: &File, read: &[u32], others: &[u32]) -> io::Result<Option<File>> {
    let metadata = left.metadata()?;
    let (left, written) = (identity(&metadata), metadata.modified()?);
    let present = fs::metadata(path).ok().map(|metadata| identity(&metadata));
    // Files may be renamed meanwhile: what is opened must be what was found.
    for _ in 0..LOOKS {
        let mut siblings = siblings(path)?;
        let Some(at) = siblings.iter().position(|sibling| sibling.identity == left) else {
            return Ok(None);
        };
        siblings.swap(0, at);
        let form = siblings[0].form.clone();
        siblings.retain(|sibling| {
            sibling.form == form && (sibling.identity == left || !others.contains(&sibling.identity))
        });
        let newer = newer(&siblings);
        let left = siblings.swap_remove(0);
        let is_newer = |sibling: &Sibling| match sibling.written.cmp(&written) {
            Ordering::Equal => {
                !read.contains(&sibling.identity)
                    && newer.is_none_or(|newer| sibling.compare_numbers(&left) != newer.reverse())
            }
            order => order.is_gt(),
        };
        let in_order = |a: &Sibling, b: &Sibling| {
            a.written.cmp(&b.written).then_with(|| match newer {
                Some(Ordering::Less) => b.compare_numbers(a),
                _ => a.compare_numbers(b),
            })
        };
        let later = siblings.into_iter().filter(|sibling| Some(sibling.identity) != present);
        let Some(next) = later.filter(is_newer).min_by(in_order) else { return Ok(None) };
        match File::open(&next.path) {
            Ok(file) if identity(&file.metadata()?) == next.identity => return Ok(Some(file)),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("the files beside it are renamed all the time"))
}

/// How the numbers of a newer file compare with those of an older one, among files of one form: as most of those tell
/// that were written at different times, or else as the form does. `None` where neither does.
fn newer(alike: &[Sibling]) -> Option<Ordering> {
    let mut by_time: Vec<&Sibling> = alike.iter().collect();
    by_time.sort_by_key(|sibling| sibling.written);
    let pairs = by_time.windows(2).filter(|pair| pair[0].written < pair[1].written);
    let larger: i64 = pairs.map(|pair| pair[1].compare_numbers(pair[0]) as i64).sum();
    let told = larger.cmp(&0);
    if told.is_ne() {
        return Some(told);
    }
    let Sibling { form: (before, after), numbers, .. } = alike.first()?;
    match numbers.iter().map(String::len).sum() {
        DATE_DIGITS.. => Some(Ordering::Greater),
        // As logrotate does: `app.log.1`, then `app.log.2`.
        _ if before.is_empty() && after.ends_with(".0") && numbers.len() == 1 => Some(Ordering::Less),
        _ => None,
    }
}

impl Sibling {
    fn compare_numbers(&self, other: &Sibling) -> Ordering {
        fn values(sibling: &Sibling) -> impl Iterator<Item = (usize, &str)> {
            let significant = sibling.numbers.iter().map(|number| number.trim_start_matches('0'));
            significant.map(|number| (number.len(), number))
        }
        values(self).cmp(values(other))
    }
}

/// The form of a name in which `stem` stands as a word of its own, and its numbers.
fn form(name: &OsStr, stem: &OsStr) -> Option<(Form, Vec<String>)> {
    let (name, stem) = (name.to_string_lossy(), stem.to_string_lossy());
    name.match_indices(&*stem).find_map(|(at, _)| {
        let (before, after) = (&name[..at], &name[at + stem.len()..]);
        let neighbours = [before.chars().next_back(), after.chars().next()];
        if neighbours.into_iter().flatten().any(char::is_alphanumeric) {
            return None;
        }
        let numbers = [before, after].map(|text| text.split(|c: char| !c.is_ascii_digit())).into_iter().flatten();
        let numbers = numbers.filter(|number| !number.is_empty()).map(str::to_owned).collect();
        Some(((numberless(before), numberless(after)), numbers))
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
