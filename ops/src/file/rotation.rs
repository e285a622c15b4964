//! Files that were moved away from a path, as log rotation does: `app.log` becomes `app.log.1`, then `app.log.2`.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags};

use super::position::{EndBytes, born, identity};

/// Number of attempts to list a directory in which files are being renamed.
const LOOKS: usize = 10;

/// A regular file in the directory of a path whose name contains the path's stem as a separate word.
pub(super) struct Sibling {
    pub(super) path: PathBuf,
    pub(super) identity: u32,
    pub(super) len: u64,
    pub(super) written: SystemTime,
    /// Creation time, see [`born`].
    pub(super) born: u64,
    pub(super) form: NamePattern,
    pub(super) numbers: Vec<String>,
}

/// Parts of a name before and after the stem, with each number replaced by `0`. All files of one rotation scheme have
/// the same form.
pub(super) type NamePattern = (String, String);

/// Number of digits from which a name contains a date or a time.
const DATE_DIGITS: usize = 6;

/// An open directory, which can be listed even after it is moved. On systems other than Linux, it is identified by its
/// path.
#[derive(Debug)]
pub(super) struct Directory {
    at: PathBuf,
    identity: u32,
    _held: Option<OwnedFd>,
}

impl Directory {
    /// Opens the directory that contains the entry of a path.
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

    /// Returns a path of the directory that is valid while it is open.
    pub(super) fn at(&self) -> &Path {
        &self.at
    }

    /// Returns `true` if the entry of a path is in this directory.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        Directory::of(path).is_ok_and(|other| other.identity == self.identity)
    }

    /// Returns `true` if the entry of a path is in another directory.
    pub(super) fn is_replaced(&self, path: &Path) -> bool {
        Directory::of(path).is_ok_and(|other| other.identity != self.identity)
    }

    /// Lists the files that may have been at the path.
    ///
    /// # Errors
    /// Fails if the directory cannot be listed or is gone.
    pub(super) fn siblings(&self, path: &Path) -> io::Result<Vec<Sibling>> {
        let Some(stem) = path.file_stem() else { return Ok(Vec::new()) };
        let mut siblings = Vec::new();
        // A removed directory has no entries, which proves nothing.
        if fs::metadata(&self.at)?.nlink() == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        for entry in fs::read_dir(&self.at)? {
            let entry = entry?;
            let Some((form, numbers)) = form(&entry.file_name(), stem) else { continue };
            // The file may be gone already.
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
    /// Returns `true` if the name consists of the path's name and numbers: `app.log.1`, `app-20260102.log`. A name with
    /// other words may be another log or a compressed file.
    pub(super) fn is_numbered(&self, path: &Path) -> bool {
        is_numbered(&self.form, path)
    }

    /// Opens the file; returns `None` if it has another name.
    pub(super) fn open(&self) -> io::Result<Option<File>> {
        match File::open(&self.path) {
            Ok(file) if identity(&file.metadata()?) == self.identity => Ok(Some(file)),
            Ok(_) => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Returns `true` if names of a form are that of a path and numbers.
pub(super) fn is_numbered((before, after): &NamePattern, path: &Path) -> bool {
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    let rest = extension.map_or_else(|| after.clone(), |extension| after.replacen(&extension, "", 1));
    before.is_empty() && rest.contains('0') && !rest.contains(char::is_alphabetic)
}

/// Maximum number of pairs of files that are compared to find the one that was read. Above that, a file may be read
/// twice.
const MOST_PAIRS: usize = 4096;

/// Returns the oldest file with content that is neither in a longer one nor in the file at the path. All files in
/// `alike` start with the same `after` bytes.
///
/// # Errors
/// Fails if a file cannot be read.
pub(super) fn original(mut alike: Vec<Sibling>, here: Option<&File>, after: u64) -> io::Result<Option<Sibling>> {
    alike.sort_by_key(|sibling| sibling.written);
    let mut pairs = 0;
    for at in 0..alike.len() {
        let sibling = &alike[at];
        let Some(file) = sibling.open()? else { continue };
        let mut is_held = here.map(|here| begins(here, &file, after)).transpose()?.unwrap_or(false);
        // Of two files with the same content, prefer the one that may have successors.
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

/// Returns `true` if `whole` probably begins with the content of `part`. Bytes before `after` are known to match;
/// compares a piece after them and the last bytes.
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

/// The file that was at the path and was read to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct FinishedFile<'l> {
    pub(super) file: &'l File,
    /// First and last bytes that were read.
    pub(super) ends: &'l EndBytes,
    /// Forms of its name when it was last seen.
    pub(super) forms: &'l [NamePattern],
    /// Identities of files that were read, with the same time of the last write.
    pub(super) read: &'l [u32],
}

/// The file after the one that was left.
#[derive(Debug)]
pub(super) struct Successor {
    /// The file; `None` if the next one is at the path.
    pub(super) file: Option<File>,
    /// Forms of its name or, if there is none, of the file that was left. Empty if that file is not in the directory.
    pub(super) forms: Vec<NamePattern>,
}

/// Finds the file that was at `path` after `left` and was moved away as well. It is the next by time of the last write
/// among the files whose names have the same form as that of `left`.
///
/// If several have the same time of the last write, their numbers decide. If it is unknown whether a larger number
/// means a newer file, all files except those in `read` count as newer. Leaves out the `others`. If `left` is not in
/// the directory, a copy of it takes its place.
///
/// # Errors
/// Fails if the directory cannot be listed or is gone.
pub(super) fn successor(
    directory: &Directory,
    path: &Path,
    left: FinishedFile<'_>,
    others: &[u32],
) -> io::Result<Successor> {
    let metadata = left.file.metadata()?;
    let (identity_of_left, written) = (identity(&metadata), metadata.modified()?);
    let present = fs::metadata(path).ok().map(|metadata| identity(&metadata));
    // Files may be renamed during the search: check that the opened file is the one that was found.
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
        let forms: Vec<NamePattern> = names.iter().map(|name| name.form.clone()).collect();
        let known = if forms.is_empty() { left.forms } else { &forms };
        let is_new = |sibling: &Sibling| known.contains(&sibling.form) && !others.contains(&sibling.identity);
        siblings.retain(is_new);
        let newer = known.iter().map(|form| {
            let alike = names.iter().chain(&siblings).filter(|sibling| sibling.form == *form);
            (form, newer(&alike.collect::<Vec<_>>()))
        });
        let newer: Vec<_> = newer.collect();
        let newer = |form: &NamePattern| newer.iter().find(|(known, _)| *known == form).and_then(|(_, newer)| *newer);
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
    Err(io::Error::other("the files beside it are renamed too often to determine their order"))
}

/// Returns how the numbers of a newer file compare with those of an older one of the same form. Decides by the files
/// with different write times, otherwise by the form. Returns `None` if neither decides.
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
        // The scheme of logrotate: `app.log.1`, then `app.log.2`.
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

/// Returns the form and the numbers of a name that contains `stem` as a separate word.
fn form(name: &OsStr, stem: &OsStr) -> Option<(NamePattern, Vec<String>)> {
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
