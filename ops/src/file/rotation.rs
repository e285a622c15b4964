//! Files that were at a path and were moved away, as log rotation does: `app.log` becomes `app.log.1`, then `app.log.2`.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags};

use super::position::{Ends, born, identity};

/// So often a directory is looked at in which files are being renamed.
const LOOKS: usize = 10;

/// A regular file in the directory of a path whose name holds the stem of the path as a word of its own.
pub(super) struct Sibling {
    pub(super) path: PathBuf,
    pub(super) identity: u32,
    pub(super) len: u64,
    pub(super) written: SystemTime,
    /// When it was made, see [`born`].
    pub(super) born: u64,
    pub(super) form: Form,
    pub(super) numbers: Vec<String>,
}

/// What stands before and after the stem in a name, each number as `0`: the same for all files that are rotated alike.
pub(super) type Form = (String, String);

/// A name with so many digits holds a date or a time.
const DATE_DIGITS: usize = 6;

/// A directory that is held: it can be listed wherever it is moved to. Elsewhere than on Linux it is that of a path.
#[derive(Debug)]
pub(super) struct Directory {
    at: PathBuf,
    identity: u32,
    _held: Option<OwnedFd>,
}

impl Directory {
    /// The one that the entry of a path is in.
    pub(super) fn of(path: &Path) -> io::Result<Directory> {
        let at = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if cfg!(target_os = "linux") {
            let flags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
            #[cfg(target_os = "linux")]
            let flags = flags.union(OFlags::PATH);
            let held = rustix::fs::open(at, flags, Mode::empty())?;
            let own = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
            if let Ok(metadata) = fs::metadata(&own) {
                return Ok(Directory { at: own, identity: identity(&metadata), _held: Some(held) });
            }
        }
        let identity = identity(&fs::metadata(at)?);
        Ok(Directory { at: at.to_owned(), identity, _held: None })
    }

    /// Its path while it is held.
    pub(super) fn at(&self) -> &Path {
        &self.at
    }

    /// Whether the entry of a path is in it.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        Directory::of(path).is_ok_and(|other| other.identity == self.identity)
    }

    /// Whether the entry of a path is in another one.
    pub(super) fn is_replaced(&self, path: &Path) -> bool {
        Directory::of(path).is_ok_and(|other| other.identity != self.identity)
    }

    /// The files in it that may have been at the path.
    ///
    /// # Errors
    /// It may not be listed, or is gone.
    pub(super) fn siblings(&self, path: &Path) -> io::Result<Vec<Sibling>> {
        let Some(stem) = path.file_stem() else { return Ok(Vec::new()) };
        let mut siblings = Vec::new();
        // One that was removed has no entries: that is no answer.
        if fs::metadata(&self.at)?.nlink() == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        for entry in fs::read_dir(&self.at)? {
            let entry = entry?;
            let Some((form, numbers)) = form(&entry.file_name(), stem) else { continue };
            // It may be gone by now.
            let metadata = match entry.metadata() {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            if metadata.is_file() {
                let (identity, written, len) = (identity(&metadata), metadata.modified()?, metadata.len());
                let born = born(&metadata);
                siblings.push(Sibling { path: entry.path(), identity, written, born, len, form, numbers });
            }
        }
        Ok(siblings)
    }
}

impl Sibling {
    /// Whether its name is that of a path and numbers: `app.log.1`, `app-20260102.log`. One with other words may be
    /// another log, or be compressed.
    pub(super) fn is_numbered(&self, path: &Path) -> bool {
        is_numbered(&self.form, path)
    }

    /// The file, unless it has another name by now.
    pub(super) fn open(&self) -> io::Result<Option<File>> {
        match File::open(&self.path) {
            Ok(file) if identity(&file.metadata()?) == self.identity => Ok(Some(file)),
            Ok(_) => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Whether names of a form are that of a path and numbers.
pub(super) fn is_numbered((before, after): &Form, path: &Path) -> bool {
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    let rest = extension.map_or_else(|| after.clone(), |extension| after.replacen(&extension, "", 1));
    before.is_empty() && rest.contains('0') && !rest.contains(char::is_alphabetic)
}

/// Most pairs of files that are compared to find the one that was read; one more is read once too often.
const MOST_PAIRS: usize = 4096;

/// Of files that begin alike for so many bytes, the oldest that holds something which neither a longer one of them nor the
/// file at the path holds.
///
/// # Errors
/// A file cannot be read.
pub(super) fn original(mut alike: Vec<Sibling>, here: Option<&File>, after: u64) -> io::Result<Option<Sibling>> {
    alike.sort_by_key(|sibling| sibling.written);
    let mut pairs = 0;
    for at in 0..alike.len() {
        let sibling = &alike[at];
        let Some(file) = sibling.open()? else { continue };
        let mut is_held = here.map(|here| begins(here, &file, after)).transpose()?.unwrap_or(false);
        // Of two that hold the same, the one that others may come after.
        let rank = |at: usize| (alike[at].len, !alike[at].numbers.is_empty(), at);
        for other in (0..alike.len()).filter(|other| rank(*other) > rank(at)) {
            pairs += 1;
            if is_held || pairs > MOST_PAIRS {
                break;
            }
            is_held = alike[other].open()?.map(|other| begins(&other, &file, after)).transpose()?.unwrap_or(false);
        }
        if !is_held {
            return Ok(Some(alike.swap_remove(at)));
        }
    }
    Ok(None)
}

/// Whether a file begins with another one, as far as that is known of the bytes before `after`, of a piece after them and
/// of the last ones.
fn begins(whole: &File, part: &File, after: u64) -> io::Result<bool> {
    const PIECE: u64 = 64 << 10;
    let len = part.metadata()?.len();
    if whole.metadata()?.len() < len {
        return Ok(false);
    }
    for (from, to) in [(after, len.min(after + PIECE)), (len.saturating_sub(PIECE).max(after), len)] {
        let mut pieces = [vec![0; (to - from.min(to)) as usize], vec![0; (to - from.min(to)) as usize]];
        for (piece, file) in pieces.iter_mut().zip([whole, part]) {
            match file.read_exact_at(piece, from) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                read => read?,
            }
        }
        if pieces[0] != pieces[1] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The file that was at the path and is read to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left<'l> {
    pub(super) file: &'l File,
    /// What was read of it.
    pub(super) ends: &'l Ends,
    /// How it was named when it was seen last.
    pub(super) forms: &'l [Form],
    /// Files that were read and were last written to at the same time.
    pub(super) read: &'l [u32],
}

/// The file that came after one that was left.
#[derive(Debug)]
pub(super) struct Successor {
    /// `None`: the next one is at the path.
    pub(super) file: Option<File>,
    /// How it is named, or where there is none the one that was left; empty: that is not in the directory.
    pub(super) forms: Vec<Form>,
}

/// The file that was at `path` after `left`, which was moved away, and was moved away as well: of those that are named as
/// `left` is now, numbers apart, the one that was last written to next.
///
/// Where several were written to at the same time, as the file system keeps it, their numbers tell. Where it is unknown
/// whether a larger number is a newer file, all that are not among those `read` are taken for newer. The `others` are
/// left out. A copy of `left` stands for it where it is not there itself.
///
/// # Errors
/// The directory may not be listed, or is gone.
pub(super) fn successor(directory: &Directory, path: &Path, left: Left<'_>, others: &[u32]) -> io::Result<Successor> {
    let metadata = left.file.metadata()?;
    let (identity_of_left, written) = (identity(&metadata), metadata.modified()?);
    let present = fs::metadata(path).ok().map(|metadata| identity(&metadata));
    // Files may be renamed meanwhile: what is opened must be what was found.
    for _ in 0..LOOKS {
        let mut siblings = directory.siblings(path)?;
        let is_left = |sibling: &Sibling| sibling.identity == identity_of_left;
        let is_copy = |sibling: &Sibling| {
            Some(sibling.identity) != present
                && sibling.len == left.ends.len
                && sibling.written == written
                && File::open(&sibling.path).is_ok_and(|file| left.ends.are_in(&file).unwrap_or(false))
        };
        let mut names: Vec<Sibling> = siblings.extract_if(.., |sibling| is_left(sibling)).collect();
        if names.is_empty() {
            names = siblings.extract_if(.., |sibling| is_copy(sibling)).collect();
        }
        let forms: Vec<Form> = names.iter().map(|name| name.form.clone()).collect();
        let known = if forms.is_empty() { left.forms } else { &forms };
        let is_new = |sibling: &Sibling| known.contains(&sibling.form) && !others.contains(&sibling.identity);
        siblings.retain(is_new);
        let newer = known.iter().map(|form| {
            let alike = names.iter().chain(&siblings).filter(|sibling| sibling.form == *form);
            (form, newer(&alike.collect::<Vec<_>>()))
        });
        let newer: Vec<_> = newer.collect();
        let newer = |form: &Form| newer.iter().find(|(known, _)| *known == form).and_then(|(_, newer)| *newer);
        let is_newer = |sibling: &&Sibling| match sibling.written.cmp(&written) {
            Ordering::Equal => {
                let newer = newer(&sibling.form);
                let is_older = |name: &Sibling| newer.is_some_and(|it| sibling.compare_numbers(name) == it.reverse());
                !left.read.contains(&sibling.identity)
                    && !names.iter().any(|name| name.form == sibling.form && is_older(name))
            }
            order => order.is_gt(),
        };
        let in_order = |a: &&Sibling, b: &&Sibling| {
            a.written.cmp(&b.written).then_with(|| match newer(&a.form) {
                Some(Ordering::Less) => b.compare_numbers(a),
                _ => a.compare_numbers(b),
            })
        };
        let later = siblings.iter().filter(|sibling| Some(sibling.identity) != present);
        let Some(next) = later.filter(is_newer).min_by(in_order) else { return Ok(Successor { file: None, forms }) };
        if let Some(file) = next.open()? {
            return Ok(Successor { file: Some(file), forms: vec![next.form.clone()] });
        }
    }
    Err(io::Error::other("the files beside it are renamed all the time"))
}

/// How the numbers of a newer file compare with those of an older one, among files of one form: as most of those tell
/// that were written at different times, or else as the form does. `None` where neither does.
pub(super) fn newer(alike: &[&Sibling]) -> Option<Ordering> {
    let mut by_time = alike.to_vec();
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
        compare(&self.numbers, &other.numbers)
    }
}

/// Compares the numbers of two names, the first ones first.
pub(super) fn compare(one: &[String], other: &[String]) -> Ordering {
    fn values(numbers: &[String]) -> impl Iterator<Item = (usize, &str)> {
        let significant = numbers.iter().map(|number| number.trim_start_matches('0'));
        significant.map(|number| (number.len(), number))
    }
    values(one).cmp(values(other))
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
