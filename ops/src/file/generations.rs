//! Queue of the files that appear at a path, each opened as soon as it appears.
//!
//! Log rotation may rename, compress and delete a file before the reader comes to it. An open file stays readable
//! whatever happens to its names. So the files are opened when the system reports them, not when they are needed.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::follower::{misled, open_regular};
use super::position::{CheckedContent, identity};
use super::rotation::Directory;

/// Maximum number of files that are held open for a late reader. Later ones are opened after these are read.
const MOST_OPEN: usize = 128;

/// Time to wait for a file that cannot be found: the report about its new name may still be on the way.
const PATIENCE: Duration = Duration::from_secs(2);

/// A change in the directory of the path.
#[derive(Clone, Copy, Debug)]
pub(super) enum DirectoryChange {
    /// An entry was created.
    Created,
    /// An entry lost its name; the entry of the `MovedTo` with the same number receives it.
    MovedFrom(u32),
    /// An entry received a name.
    MovedTo(u32),
    /// An entry was deleted.
    Deleted,
}

/// Files that appeared at a path and that the reader has not taken.
#[derive(Debug)]
pub(super) struct Generations {
    /// The directory, kept open so that files are found even if it is moved.
    directory: Directory,
    name: OsString,
    queue: Mutex<FileQueue>,
}

#[derive(Debug, Default)]
struct FileQueue {
    files: VecDeque<Generation>,
    /// True if reported changes are not fully processed.
    unsettled: bool,
    missed: UnreadFiles,
}

/// Counts of files that could not be read completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UnreadFiles {
    /// Files that were gone before they could be opened.
    pub(super) files: u64,
    /// Time at which the last of them appeared.
    pub(super) last: Option<SystemTime>,
    /// Number of times that the system lost reports, so that more files may be missing.
    pub(super) unknown: u64,
    /// Files that were truncated or rewritten in place before all their content was read.
    pub(super) cut: u64,
    /// Such files whose content was read from a copy instead.
    pub(super) copied: u64,
}

#[derive(Debug)]
struct Generation {
    appeared: (SystemTime, Instant),
    called: GenerationName,
    opened: Option<(File, u32)>,
    /// Content at the last check.
    seen: CheckedContent,
    /// True if the name led to something other than a file, so that no lines can be missed.
    is_no_file: bool,
}

/// Name of a file in the directory, as far as known.
#[derive(Debug)]
enum GenerationName {
    Name(OsString),
    /// The file is being renamed; the number is that of the rename.
    Moving(u32),
    /// The file is gone, or in another directory.
    Gone,
}

/// The next file to read.
#[derive(Debug)]
pub(super) enum Next {
    File(File),
    /// A file is expected, or its existence is not known yet.
    Later,
    None,
}

impl Generations {
    /// Creates a queue for the entry `name` in `directory`.
    pub(super) fn new(directory: Directory, name: OsString) -> Self {
        let queue = FileQueue::default();
        Generations { directory, name, queue: Mutex::new(queue) }
    }

    /// Returns the directory in which the files appear.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    fn lock(&self) -> MutexGuard<'_, FileQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the file that is at the path as a new one.
    pub(super) fn begin(&self) {
        let mut queue = self.lock();
        queue.appear(&self.name);
        self.open(&mut queue);
        // The path may have no file.
        queue.files.retain(|file| file.opened.is_some());
    }

    /// Records a change of an entry.
    pub(super) fn see(&self, name: &OsStr, change: DirectoryChange) {
        let mut queue = self.lock();
        let is_ours = *name == *self.name;
        let concerns = |file: &Generation| match (&file.called, change) {
            (GenerationName::Name(called), _) => *called == *name,
            (GenerationName::Moving(moved), DirectoryChange::MovedTo(number)) => *moved == number,
            _ => false,
        };
        if !is_ours && !queue.files.iter().any(concerns) {
            return;
        }
        queue.unsettled = true;
        match change {
            DirectoryChange::Created | DirectoryChange::MovedTo(_) => {
                queue.called(name).for_each(|file| file.called = GenerationName::Gone);
                let moving = |file: &&mut Generation| match (&file.called, change) {
                    (GenerationName::Moving(moved), DirectoryChange::MovedTo(number)) => *moved == number,
                    _ => false,
                };
                match queue.files.iter_mut().find(moving) {
                    Some(file) => file.called = GenerationName::Name(name.to_owned()),
                    None if is_ours => queue.appear(name),
                    None => {}
                }
            }
            DirectoryChange::MovedFrom(number) => {
                queue.called(name).for_each(|file| file.called = GenerationName::Moving(number));
            }
            DirectoryChange::Deleted => queue.called(name).for_each(|file| file.called = GenerationName::Gone),
        }
    }

    /// Records that the system lost reports.
    pub(super) fn see_nothing(&self) {
        self.lock().missed.unknown += 1;
    }

    /// Opens the files that appeared. `told` is true if no more reports are pending. Blocks.
    pub(super) fn settle(&self, told: bool) {
        let mut queue = self.lock();
        self.open(&mut queue);
        queue.unsettled &= !told;
    }

    /// Removes and returns the next file, unless it is the `current` one. Blocks.
    pub(super) fn take(&self, current: Option<u32>) -> Next {
        let mut queue = self.lock();
        if queue.unsettled && queue.files.iter().any(|file| file.appeared.1.elapsed() < PATIENCE) {
            return Next::Later;
        }
        self.open(&mut queue);
        loop {
            let Some(first) = queue.files.pop_front() else { return Next::None };
            match first.opened {
                Some((_, identity)) if Some(identity) == current => {}
                Some((file, _)) => return Next::File(file),
                None if first.is_missing() => queue.miss(&first),
                None => {
                    queue.files.push_front(first);
                    return Next::Later;
                }
            }
        }
    }

    /// Returns the number of waiting files, without the `current` one.
    pub(super) fn waiting(&self, current: Option<u32>) -> usize {
        let is_current = |file: &&Generation| file.opened.as_ref().is_some_and(|(_, it)| Some(*it) == current);
        let queue = self.lock();
        queue.files.len() - queue.files.iter().filter(is_current).count()
    }

    /// Returns the identities, lengths and last write times of the waiting files, without the `current` one. Blocks.
    pub(super) fn lengths(&self, current: Option<u32>) -> Vec<(u32, u64, Option<SystemTime>)> {
        let queue = self.lock();
        let opened = queue.files.iter().filter_map(|file| file.opened.as_ref());
        let others = opened.filter(|(_, identity)| Some(*identity) != current);
        let length = |(file, identity): &(File, u32)| {
            let metadata = file.metadata().ok()?;
            Some((*identity, metadata.len(), metadata.modified().ok()))
        };
        others.filter_map(length).collect()
    }

    /// Checks the waiting files, without the `current` one. Returns those that were truncated or rewritten since the
    /// last check, with their previous content. Blocks.
    pub(super) fn look(&self, current: Option<u32>) -> Vec<(u32, CheckedContent)> {
        let mut queue = self.lock();
        let looked = queue.files.iter_mut().filter_map(|Generation { opened, seen, .. }| {
            let (file, identity) = opened.as_ref().filter(|(_, identity)| Some(*identity) != current)?;
            // An unreadable file is reported when it is next in the queue.
            Some((*identity, seen.look(file).ok()??))
        });
        looked.collect()
    }

    /// Inserts a file before another waiting one, or at the front if `before` does not wait. Does nothing if the file
    /// waits already.
    pub(super) fn insert(&self, before: Option<u32>, file: File, identity: u32) {
        let mut queue = self.lock();
        let is = |file: &Generation, wanted| file.opened.as_ref().is_some_and(|(_, it)| *it == wanted);
        if queue.files.iter().any(|file| is(file, identity)) {
            return;
        }
        let at = queue.files.iter().position(|file| before.is_some_and(|before| is(file, before))).unwrap_or(0);
        queue.files.insert(
            at,
            Generation {
                appeared: (SystemTime::now(), Instant::now()),
                // The file is open, so its name does not matter.
                called: GenerationName::Gone,
                opened: Some((file, identity)),
                seen: CheckedContent::default(),
                is_no_file: false,
            },
        );
    }

    /// Returns the counts of missed files so far.
    pub(super) fn missed(&self) -> UnreadFiles {
        self.lock().missed
    }

    /// Opens the files that have a name, and counts those that are gone.
    fn open(&self, queue: &mut FileQueue) {
        let mut at = 0;
        while at < queue.files.len() {
            let opened = queue.files.iter().filter(|file| file.opened.is_some()).count();
            let Generation { called, opened: None, .. } = &queue.files[at] else {
                at += 1;
                continue;
            };
            let found = match called {
                GenerationName::Name(name) if opened < MOST_OPEN => open_regular(&self.directory.at().join(name)),
                GenerationName::Name(_) | GenerationName::Moving(_) => Err(io::ErrorKind::WouldBlock.into()),
                GenerationName::Gone => {
                    if let Some(file) = queue.files.remove(at) {
                        queue.miss(&file);
                    }
                    continue;
                }
            };
            let found = found.and_then(|file| Ok((identity(&file.metadata()?), file)));
            let (identity, file) = match found {
                Ok(found) => found,
                Err(error) => {
                    queue.files[at].is_no_file |= tells_of_no_file(&error);
                    at += 1;
                    continue;
                }
            };
            let same = |other: &Generation| other.opened.as_ref().is_some_and(|(_, it)| *it == identity);
            match queue.files.iter().position(same) {
                // The earlier file was renamed before it was opened, and this one was opened in its place.
                Some(other) if other < at => {
                    queue.files[at].opened = queue.files[other].opened.take();
                    queue.files[at].seen = std::mem::take(&mut queue.files[other].seen);
                    at = other;
                }
                Some(_) => at += 1,
                None => queue.files[at].opened = Some((file, identity)),
            }
        }
    }
}

impl FileQueue {
    fn appear(&mut self, name: &OsStr) {
        let appeared = (SystemTime::now(), Instant::now());
        self.files.push_back(Generation {
            appeared,
            called: GenerationName::Name(name.to_owned()),
            opened: None,
            seen: CheckedContent::default(),
            is_no_file: false,
        });
    }

    fn called<'q>(&'q mut self, name: &'q OsStr) -> impl Iterator<Item = &'q mut Generation> {
        let is_called = move |file: &&mut Generation| matches!(&file.called, GenerationName::Name(it) if *it == *name);
        self.files.iter_mut().filter(is_called)
    }

    fn miss(&mut self, file: &Generation) {
        if file.is_no_file {
            return;
        }
        self.missed.files += 1;
        self.missed.last = Some(file.appeared.0);
    }
}

/// Returns `true` if the name leads to something other than a file: a directory, a pipe, a socket, a device, or a link
/// to itself.
fn tells_of_no_file(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput) || misled(error).is_some()
}

impl Generation {
    /// Returns `true` if the file can no longer be found.
    fn is_missing(&self) -> bool {
        matches!(self.called, GenerationName::Gone) || self.appeared.1.elapsed() >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;

    use super::*;

    fn generations() -> (tempfile::TempDir, Generations) {
        let directory = tempfile::tempdir().unwrap();
        let generations = Generations::new(Directory::of(&directory.path().join("log")).unwrap(), "log".into());
        (directory, generations)
    }

    fn all(generations: &Generations) -> Vec<String> {
        let mut texts = Vec::new();
        while let Next::File(mut file) = generations.take(None) {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            texts.push(text);
        }
        texts
    }

    #[test]
    fn files_that_were_renamed_before_they_were_opened_are_found_in_order() {
        let (directory, generations) = generations();
        let path = |name: &str| directory.path().join(name);
        // All of this happens before the first change is told.
        for n in 0..3 {
            for at in (1..n).rev() {
                fs::rename(path(&format!("log.{at}")), path(&format!("log.{}", at + 1))).unwrap();
            }
            if n > 0 {
                fs::rename(path("log"), path("log.1")).unwrap();
            }
            fs::write(path("log"), n.to_string()).unwrap();
        }
        let see = |name: &str, change| generations.see(OsStr::new(name), change);
        see("log", DirectoryChange::Created);
        generations.settle(false);
        assert!(matches!(generations.take(None), Next::Later), "not all is told");
        see("log", DirectoryChange::MovedFrom(1));
        see("log.1", DirectoryChange::MovedTo(1));
        see("log", DirectoryChange::Created);
        generations.settle(false);
        see("log.1", DirectoryChange::MovedFrom(2));
        generations.settle(false);
        see("log.2", DirectoryChange::MovedTo(2));
        see("log", DirectoryChange::MovedFrom(3));
        see("log.1", DirectoryChange::MovedTo(3));
        see("log", DirectoryChange::Created);
        generations.settle(true);
        assert_eq!(all(&generations), ["0", "1", "2"]);
        assert_eq!(generations.missed(), UnreadFiles::default());
    }

    #[test]
    fn what_is_no_file_is_not_counted_as_one_that_was_missed() {
        type Put = fn(&std::path::Path);
        let all: [(&str, Put); 4] = [
            ("a directory", |path| std::fs::create_dir(path).unwrap()),
            ("a loop", |path| std::os::unix::fs::symlink(path, path).unwrap()),
            ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
            ("a pipe", |path| {
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            }),
        ];
        for (what, put) in all {
            let (directory, generations) = generations();
            let path = directory.path().join("log");
            put(&path);
            generations.see(OsStr::new("log"), DirectoryChange::Created);
            generations.settle(true);
            std::fs::rename(&path, directory.path().join("away")).unwrap();
            generations.see(OsStr::new("log"), DirectoryChange::Deleted);
            generations.settle(true);
            assert!(matches!(generations.take(None), Next::None), "{what}");
            assert_eq!(generations.missed().files, 0, "{what}");
        }
    }

    #[test]
    fn a_file_that_is_gone_before_it_is_opened_is_counted() {
        let (directory, generations) = generations();
        fs::write(directory.path().join("log"), "last").unwrap();
        for change in [DirectoryChange::Created, DirectoryChange::MovedFrom(1)] {
            generations.see(OsStr::new("log"), change);
        }
        generations.see(OsStr::new("old"), DirectoryChange::MovedTo(1));
        generations.see(OsStr::new("old"), DirectoryChange::Deleted);
        generations.see(OsStr::new("log"), DirectoryChange::Created);
        generations.settle(true);
        assert_eq!(all(&generations), ["last"]);
        assert_eq!(generations.missed().files, 1);
        // An open file stays readable after it is removed.
        fs::write(directory.path().join("log"), "again").unwrap();
        generations.see(OsStr::new("log"), DirectoryChange::Created);
        generations.settle(true);
        fs::remove_file(directory.path().join("log")).unwrap();
        generations.see(OsStr::new("log"), DirectoryChange::Deleted);
        generations.settle(true);
        assert_eq!((all(&generations), generations.missed().files), (vec!["again".to_owned()], 1));
    }
}
