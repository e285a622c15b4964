//! The file behind a path over its life: waited for, grown, rotated, truncated. Everything here blocks.

mod current;
mod opening;

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::backlog::Survey;
use super::gap::{Untold, unread};
use super::generations::{Generations, Missed, Next};
use super::position::{Place, Resume, Seen, identity};
use super::rotation::{Directory, Form, Left, successor};
use super::watch::Arrivals;
use current::Current;
pub(super) use opening::{misled, open_regular};

/// A file that was renamed is left only when nothing was added to it for so long: its writer may go on with it
/// until it is told. When it is opened only after it was moved away, this counts from its last change, unless it is the
/// newest of such files.
const GRACE: Duration = Duration::from_secs(1);

/// How often the files that wait are looked at while there is something to read.
const LOOK: Duration = Duration::from_millis(100);

/// What a look at the file brought.
#[derive(Debug)]
pub(super) enum Step {
    /// There is no file of that name.
    Missing,
    /// A file was opened; read from here on.
    Opened(Opened),
    /// Bytes were appended to the buffer.
    Grown,
    /// There is nothing more now.
    AtEnd,
    /// The file was replaced by another, or is gone, and its writer gets a moment before it is left.
    Leaving,
    /// The file was replaced by another, and the directory cannot be listed: other files may have come between.
    Unlisted,
    /// The file was replaced by another, and all of it was read. The next look opens the other one.
    Replaced,
    /// The file holds other content than what was read. The next look reads it from its start.
    Truncated,
    /// It was only asked what is left to read.
    Surveyed,
}

/// Where reading starts in a file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) place: Place,
    /// Something the user should know.
    pub(super) warning: Option<String>,
}

/// Reads the file behind a path, whichever it is.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    resume: Option<Resume>,
    current: Option<Current>,
    /// The file that was rotated away after the one that was left, and whether the system told of it.
    next: Option<(File, bool)>,
    left: Before,
    /// The directory of the files that are read, and how the current one was named there last.
    directory: Option<Directory>,
    forms: Vec<Form>,
    /// Files that hold other content than what was read last: their length and when they were written.
    others: HashMap<u32, (u64, SystemTime)>,
    /// The files that appear at the path, where the system tells of them.
    arrivals: Option<Arrivals>,
    /// When the files that wait were looked at last.
    looked: Option<Instant>,
    survey: Survey,
    missed: Missed,
    /// What to say of files before the next one that could not be read.
    lost: Option<String>,
}

/// The file after the current one.
#[derive(Debug)]
enum Found {
    File(File),
    /// There is none but that at the path, and those that the system tells of.
    None {
        is_certain: bool,
    },
    /// The directory cannot be listed now.
    Unlisted,
}

/// The file that was left last, and those left before it that were last written to at the same time.
#[derive(Debug, Default)]
struct Before {
    identities: Vec<u32>,
    written: Option<SystemTime>,
}

impl Follower {
    pub(super) fn new(path: PathBuf, resume: Option<Resume>) -> Self {
        Follower {
            path,
            resume,
            current: None,
            next: None,
            left: Before::default(),
            directory: None,
            forms: Vec::new(),
            others: HashMap::new(),
            arrivals: None,
            looked: None,
            survey: Survey::default(),
            missed: Missed::default(),
            lost: None,
        }
    }

    /// The path that is followed.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file: appends what is next to `buffer`, of a line that is longer than [`CHUNK`] at most `most` bytes.
    pub(super) fn step(&mut self, buffer: &mut Vec<u8>, most: usize) -> io::Result<Step> {
        if self.current.is_some() && self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.keep_what_is_cut()?;
        } else {
            self.keep_what_is_cut_of_current()?;
        }
        let generations = self.arrivals.as_ref().map(Arrivals::generations);
        let Some(current) = &mut self.current else { return self.open() };
        let metadata = current.file.metadata()?;
        if metadata.len() > current.ends.len {
            current.replaced = None;
            return current.grow(buffer, metadata.len(), most);
        }
        if metadata.len() < current.ends.len || current.is_changed(&metadata) && current.is_rewritten()? {
            return Ok(current.restart());
        }
        let (identity, was_moved) = (current.identity, current.was_moved);
        let waiting = generations.map_or(0, |generations| generations.waiting(Some(identity)));
        let (replaced, next) = match fs::metadata(&self.path) {
            _ if waiting > 0 => (true, None),
            Ok(metadata) => (self::identity(&metadata) != identity, None),
            // Its successor was moved away too, and the next one is not there yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound => match self.successor()? {
                Found::File(next) => (true, Some(next)),
                Found::None { .. } | Found::Unlisted => (false, None),
            },
            Err(e) => return Err(e),
        };
        let Some(current) = self.current.as_mut().filter(|_| replaced) else { return Ok(Step::AtEnd) };
        // A restart may find many files that were moved away: it does not wait at each.
        let is_at_rest = current.replaced.is_none() && was_moved && is_at_rest(&metadata);
        // The more files wait, the longer ago its writer was told.
        let grace = GRACE / u32::try_from(waiting).unwrap_or(u32::MAX).max(1);
        let has_grace = current.replaced.get_or_insert_with(Instant::now).elapsed() < grace;
        let next = match next {
            // Another one was moved away since: its writer was told twice.
            None if is_at_rest => match self.successor()? {
                Found::File(next) => Some(next),
                Found::None { .. } | Found::Unlisted => None,
            },
            next => next,
        };
        if has_grace && !(is_at_rest && next.is_some()) {
            return Ok(Step::Leaving);
        }
        let next = match next {
            Some(next) => Found::File(next),
            None => self.successor()?,
        };
        let unread = self.unread_before(&next);
        if let Some(current) = self.current.as_mut().filter(|_| unread > 0)
            // A rotation that is under way renames one file after the other.
            && current.gap.get_or_insert_with(Instant::now).elapsed() < GRACE
        {
            return Ok(Step::Leaving);
        }
        self.next = match next {
            Found::File(file) => Some((file, false)),
            Found::Unlisted => return Ok(Step::Unlisted),
            Found::None { is_certain } => {
                // The last look at the next one, before it is read.
                self.keep_what_is_cut()?;
                let next = match self.generations().map_or(Next::None, |them| them.take(Some(identity))) {
                    Next::File(file) => Some((file, true)),
                    Next::Later => return Ok(Step::Leaving),
                    Next::None => None,
                };
                self.missed.unknown += u64::from(!is_certain);
                next
            }
        };
        self.note_unread(unread);
        let Some(current) = &self.current else { return Ok(Step::AtEnd) };
        let written = metadata.modified().ok();
        if self.left.written != written {
            self.left = Before { identities: Vec::new(), written };
        }
        self.left.identities.push(current.identity);
        self.current = None;
        Ok(Step::Replaced)
    }

    fn generations(&self) -> Option<&Generations> {
        self.arrivals.as_ref().map(Arrivals::generations)
    }

    /// The file after the current one, of those that were moved away from the path as well and were there before the
    /// system was asked to tell. Where the directory was moved, it is searched where it is now, and then that in its place.
    fn successor(&mut self) -> io::Result<Found> {
        let Some(current) = &self.current else { return Ok(Found::None { is_certain: true }) };
        let told: Vec<u32> =
            self.generations().into_iter().flat_map(|them| them.lengths(None)).map(|(it, ..)| it).collect();
        let elsewhere = self.directory.as_ref().is_none_or(|directory| !directory.is_of(&self.path));
        let here = elsewhere.then(|| Directory::of(&self.path));
        let (mut listed, mut denied) = (false, false);
        for directory in self.directory.iter().map(Ok).chain(here.as_ref().map(Result::as_ref)) {
            let left =
                Left { file: &current.file, ends: &current.ends, forms: &self.forms, read: &self.left.identities };
            let found = match directory {
                Ok(directory) => successor(directory, &self.path, left, &told),
                Err(error) => Err(error.kind().into()),
            };
            match found {
                Ok(found) => {
                    listed = true;
                    if !found.forms.is_empty() {
                        self.forms = found.forms;
                    }
                    if let Some(file) = found.file {
                        return Ok(Found::File(file));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => denied = true,
                Err(e) => return Err(e),
            }
        }
        // Nobody tells of a directory that could never be listed. It is not waited for where nothing points to more files.
        let is_closed = denied && self.arrivals.is_none() && !current.was_moved;
        Ok(match current.is_told || is_closed || listed && !denied {
            true => Found::None { is_certain: !is_closed },
            false => Found::Unlisted,
        })
    }

    /// How many files between the current one and the next cannot be read, where the system told nothing of them.
    fn unread_before(&self, next: &Found) -> u64 {
        let Some(current) = self.current.as_ref().filter(|current| !current.is_told) else { return 0 };
        let next = match next {
            Found::File(file) => file.metadata().ok().map(|metadata| identity(&metadata)),
            Found::None { .. } => None,
            Found::Unlisted => return 0,
        };
        let told = self.generations().map(|them| them.lengths(Some(current.identity))).unwrap_or_default();
        let told_written: Vec<SystemTime> = told.into_iter().filter_map(|(.., written)| written).collect();
        let waiting = self.generations().map_or(0, |them| them.waiting(Some(current.identity)));
        let at_path = usize::from(fs::metadata(&self.path).is_ok());
        let files =
            Untold { left: current.identity, next, told: waiting.saturating_sub(at_path), told_written: &told_written };
        let here = Directory::of(&self.path).ok();
        let directory = self.directory.as_ref().or(here.as_ref());
        directory.and_then(|directory| unread(directory, &self.path, &files).ok()).unwrap_or(0)
    }

    /// Notes files that were rotated away and cannot be read; the next file that is opened says so.
    fn note_unread(&mut self, files: u64) {
        if files > 0 {
            self.missed.files += files;
            self.lost = Some(format!(
                "{} rotated away after the file that was read, and {} not there or only compressed: what {} is lost",
                if files == 1 { "1 file was".to_owned() } else { format!("{files} files were") },
                if files == 1 { "is" } else { "are" },
                if files == 1 { "it held" } else { "they held" },
            ));
        }
    }

    /// Finds the files, the current one and those that wait, that were truncated or rewritten in place before all that
    /// they were seen to hold was read. A copy of that is read, where one is beside the path; else it is noted as missed.
    fn keep_what_is_cut(&mut self) -> io::Result<()> {
        self.looked = Some(Instant::now());
        self.keep_what_is_cut_of_current()?;
        let current = self.current.as_ref().map(|current| current.identity);
        for (identity, lost) in self.generations().map(|them| them.look(current)).unwrap_or_default() {
            let next = self.next.as_ref().map(|(file, _)| file);
            let read = self.current.iter().map(|current| &current.file).chain(next);
            // It may be a copy that is read already.
            if read.map(|file| lost.ends.are_in(file)).any(|has| has.unwrap_or(false)) {
                continue;
            }
            match (self.copy_of(&lost), self.generations()) {
                (Some((copy, its)), Some(generations)) => {
                    generations.insert(Some(identity), copy, its);
                    self.missed.copied += 1;
                }
                _ => self.note_cut(),
            }
        }
        Ok(())
    }

    fn keep_what_is_cut_of_current(&mut self) -> io::Result<()> {
        let Some(lost) = self.current.as_mut().map(Current::look).transpose()?.flatten() else { return Ok(()) };
        match self.copy_of(&lost) {
            Some((copy, identity)) => {
                let Some(current) = &mut self.current else { return Ok(()) };
                let (file, its) = current.go_on_in(copy, identity);
                if let Some(generations) = self.generations() {
                    generations.insert(None, file, its);
                }
                self.missed.copied += 1;
            }
            None => self.note_cut(),
        }
        Ok(())
    }

    fn note_cut(&mut self) {
        self.missed.cut += 1;
        self.missed.last = Some(SystemTime::now());
    }

    /// A file beside the path that holds what another one held. An older one that begins alike was written earlier.
    fn copy_of(&self, lost: &Seen) -> Option<(File, u32)> {
        let directory = Directory::of(&self.path).ok()?;
        let present = fs::metadata(&self.path).ok().map(|metadata| identity(&metadata));
        let mut siblings = directory.siblings(&self.path).ok()?;
        siblings.retain(|sibling| {
            Some(sibling.identity) != present && sibling.len >= lost.ends.len && Some(sibling.written) >= lost.written
        });
        siblings.sort_by_key(|sibling| std::cmp::Reverse(sibling.len));
        siblings.into_iter().find_map(|sibling| {
            let file = sibling.open().ok()??;
            lost.ends.are_in(&file).ok()?.then_some((file, sibling.identity))
        })
    }

    /// Looks at what is left to read, and reads nothing.
    pub(super) fn survey(&mut self) {
        // What that fails of, the next read meets again.
        let _ = self.keep_what_is_cut();
        let metadata = self.current.as_ref().and_then(|current| current.file.metadata().ok());
        let current = self.current.as_ref().map(|current| current.identity);
        let mut survey = Survey {
            length: metadata.as_ref().map_or(0, Metadata::len),
            modified: metadata.and_then(|metadata| metadata.modified().ok()),
            ..Survey::default()
        };
        let mut add = |length, modified: Option<SystemTime>| {
            survey.later += length;
            if length > 0 && survey.later_since.is_none() {
                survey.later_since = modified;
            }
        };
        match self.generations() {
            Some(generations) => generations.lengths(current).into_iter().for_each(|(_, len, at)| add(len, at)),
            None => {
                let path = fs::metadata(&self.path).ok().filter(|metadata| Some(identity(metadata)) != current);
                path.into_iter().for_each(|metadata| add(metadata.len(), metadata.modified().ok()));
            }
        }
        self.survey = survey;
    }

    /// Result of the last survey.
    pub(super) fn surveyed(&self) -> &Survey {
        &self.survey
    }

    /// Bytes of the current file that were read.
    pub(super) fn read(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.ends.len)
    }

    /// Generations missed since the file was first opened.
    pub(super) fn missed(&self) -> Missed {
        let told = self.generations().map(Generations::missed).unwrap_or_default();
        Missed {
            files: self.missed.files + told.files,
            last: told.last.or(self.missed.last),
            unknown: self.missed.unknown + told.unknown,
            cut: self.missed.cut + told.cut,
            copied: self.missed.copied + told.copied,
        }
    }
}

/// Whether a file was neither written nor renamed for as long as its writer may go on with it.
fn is_at_rest(metadata: &Metadata) -> bool {
    let changed = u64::try_from(metadata.ctime()).ok().and_then(|seconds| {
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, u32::try_from(metadata.ctime_nsec()).ok()?))
    });
    [metadata.modified().ok(), changed].into_iter().all(|at| {
        // A time to come, as of a clock that was set back, tells nothing.
        at.and_then(|at| at.elapsed().ok()).is_some_and(|ago| ago >= GRACE)
    })
}

#[cfg(test)]
mod tests {
    use super::current::CHUNK;
    use super::*;

    #[test]
    fn a_long_line_is_read_into_memory_of_its_size() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        let line = [vec![b'x'; 5_000_000], b"\nmore\n".to_vec()].concat();
        fs::write(&path, &line).unwrap();
        let (mut follower, mut buffer) = (Follower::new(path, None), Vec::new());
        while memchr::memchr(b'\n', &buffer).is_none() {
            let step = follower.step(&mut buffer, usize::MAX).unwrap();
            assert!(matches!(step, Step::Opened(_) | Step::Grown), "{step:?}");
        }
        assert_eq!((buffer.len(), buffer.capacity()), (5_000_001, 5_000_001));
        // Not further than the limit, whatever comes then.
        let mut follower = Follower::new(directory.path().join("lines"), None);
        buffer.clear();
        for _ in 0..3 {
            follower.step(&mut buffer, 1000).unwrap();
        }
        assert_eq!(buffer.len(), CHUNK + 1000);
    }
}
