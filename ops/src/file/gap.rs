//! Detects rotated files that a restart cannot read because they are compressed or gone, by the names of other files.

use std::cmp::Ordering;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::rotation::{Directory, NamePattern, Sibling, compare, is_numbered, newer};

/// Endings that compressors append to names, with digits as in a [`NamePattern`].
const COMPRESSED: [&str; 11] = [".gz", ".bz0", ".xz", ".zst", ".lz0", ".Z", ".zip", ".lzma", ".br", ".lz", ".lzo"];

/// Largest number of digits in the number of a rotated file. A longer number is something else, such as a process id.
const COUNTED: usize = 3;

/// Known facts about files that were rotated away without a notification of the system.
pub(super) struct RotationGap<'u> {
    /// The finished file, and the rotated file that is read next: `None` if it is at the path, or the system
    /// reported it.
    pub(super) left: u32,
    pub(super) next: Option<u32>,
    /// Number of rotated files that the system reported, and the time of the last write to each.
    pub(super) reported: usize,
    pub(super) reported_written: &'u [SystemTime],
}

/// Returns the number of files between two others that cannot be read, judged by their names: files whose numbers are
/// missing in a numbered sequence, and compressed files. Returns 0 if the finished file has another name.
///
/// # Errors
/// The directory may not be listed, or is gone.
pub(super) fn unread(directory: &Directory, path: &Path, files: &RotationGap<'_>) -> io::Result<u64> {
    let siblings = directory.siblings(path)?;
    let find = |identity| siblings.iter().find(|sibling| sibling.identity == identity && sibling.is_numbered(path));
    let Some(left) = find(files.left) else { return Ok(0) };
    let next = match files.next.map(find) {
        Some(Some(next)) if next.form == left.form => Some(next),
        Some(_) => return Ok(0),
        None => None,
    };
    let alike: Vec<&Sibling> = siblings.iter().filter(|sibling| sibling.form == left.form).collect();
    let is_there = |number: usize| alike.iter().any(|sibling| count(sibling) == Some(number));
    let absent = match (newer(&alike), count(left), next.map(count)) {
        // The file with the next smaller existing number is read.
        (Some(Ordering::Less), Some(number), _) => {
            (files.reported + 1..number).rev().take_while(|number| !is_there(*number)).count()
        }
        (Some(Ordering::Greater), Some(number), Some(Some(next))) => (number + 1..next).count(),
        (Some(Ordering::Greater), ..) => {
            let is_between = |sibling: &&Sibling| {
                let Some((form, numbers)) = sibling.uncompressed() else { return false };
                form == left.form
                    && compare(numbers, &left.numbers).is_gt()
                    && next.is_none_or(|next| compare(numbers, &next.numbers).is_lt())
                    && !files.reported_written.iter().any(|written| seconds(*written) == seconds(sibling.written))
            };
            siblings.iter().filter(is_between).count()
        }
        _ => 0,
    };
    Ok(absent as u64)
}

/// Returns the number of compressed files next to a path that were written after a time, but not after `until`.
///
/// # Errors
/// The directory may not be listed, or is gone.
pub(super) fn compressed(
    directory: &Directory,
    path: &Path,
    after: SystemTime,
    until: Option<SystemTime>,
) -> io::Result<u64> {
    let siblings = directory.siblings(path)?;
    let is_one = |sibling: &&Sibling| {
        sibling.uncompressed().is_some_and(|(form, _)| is_numbered(&form, path))
            && sibling.written > after
            && until.is_none_or(|until| sibling.written <= until)
    };
    Ok(siblings.iter().filter(is_one).count() as u64)
}

/// Returns the sequence number of a rotated file.
fn count(sibling: &Sibling) -> Option<usize> {
    match sibling.numbers.as_slice() {
        [number] if number.len() <= COUNTED => number.parse().ok(),
        _ => None,
    }
}

/// Compressors keep the time of a file, some of them in seconds.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).as_ref().map_or(0, Duration::as_secs)
}

impl Sibling {
    /// Form and numbers of its name before compression; `None` if it is not compressed.
    fn uncompressed(&self) -> Option<(NamePattern, &[String])> {
        let (before, after) = &self.form;
        let (suffix, after) = COMPRESSED.iter().find_map(|suffix| Some((suffix, after.strip_suffix(suffix)?)))?;
        let own = self.numbers.len() - usize::from(suffix.ends_with('0'));
        Some(((before.clone(), after.to_owned()), &self.numbers[..own]))
    }
}
