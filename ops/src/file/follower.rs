//! Follows the file at a path while it is created, grows, is rotated or truncated. Everything here blocks.

mod current;
mod opening;

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::backlog::Survey;
use super::gap::{RotationGap, unread};
use super::generations::{Generations, Next, UnreadFiles};
use super::position::{CheckedContent, FilePosition, Resume, identity};
use super::rotation::{Directory, FinishedFile, NamePattern, successor};
use super::watch::Arrivals;
use current::Current;
pub(super) use opening::{misled, open_regular};

/// Idle time after which a renamed file is left: its writer may continue to write to it until it reopens the path. If
/// the file was already renamed when it was opened, the time counts from its last change, except for the newest of such
/// files.
const GRACE: Duration = Duration::from_secs(1);

/// Interval between checks of the waiting files while there is something to read.
const LOOK: Duration = Duration::from_millis(100);

/// Result of a step.
#[derive(Debug)]
pub(super) enum StepResult {
    /// No file exists at the path.
    Missing,
    /// A file was opened; reading starts at this place.
    Opened(ReadStart),
    /// Bytes were appended to the buffer.
    Grown,
    /// The end of the file is reached.
    AtEnd,
    /// The file was replaced or removed. It is left after a grace period for its writer.
    Leaving,
    /// The file was replaced, and the directory cannot be listed, so it is unknown whether other files came after it.
    Unlisted,
    /// The file was replaced and read to its end. The next step opens the next file.
    Replaced,
    /// The file's content was replaced. The next step reads it from its start.
    Truncated,
    /// Only the backlog was measured.
    Surveyed,
}

/// Start of reading in a file.
#[derive(Debug)]
pub(super) struct ReadStart {
    pub(super) place: FilePosition,
    /// A warning for the user.
    pub(super) warning: Option<String>,
}

/// Reads the successive files at a path.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    resume: Option<Resume>,
    current: Option<Current>,
    /// The next file, which was rotated away after the last one, and whether the system reported it.
    next: Option<(File, bool)>,
    left: PreviousFiles,
    /// The directory of the files, and the forms of the name that the current file had there last.
    directory: Option<Directory>,
    forms: Vec<NamePattern>,
    /// Files whose content differs from the one that was read last: length and time of the last write, by identity.
    others: HashMap<u32, (u64, SystemTime)>,
    /// Files that appear at the path, if the system reports them.
    arrivals: Option<Arrivals>,
    /// Time of the last check of the waiting files.
    looked: Option<Instant>,
    survey: Survey,
    missed: UnreadFiles,
    /// Reports about earlier files that could not be read.
    lost: Option<String>,
}

/// The file after the current one.
#[derive(Debug)]
enum NextFile {
    File(File),
    /// No file exists except the one at the path and those that the system reports.
    None {
        is_certain: bool,
    },
    /// The directory cannot be listed.
    Unlisted,
}

/// The file that was left last, and those left before it with the same time of the last write.
#[derive(Debug, Default)]
struct PreviousFiles {
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
            left: PreviousFiles::default(),
            directory: None,
            forms: Vec::new(),
            others: HashMap::new(),
            arrivals: None,
            looked: None,
            survey: Survey::default(),
            missed: UnreadFiles::default(),
            lost: None,
        }
    }

    /// Returns the file that is read.
    pub(super) fn file(&self) -> Option<io::Result<File>> {
        Some(self.current.as_ref()?.file.try_clone())
    }

    /// Returns the path that is followed.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the next bytes into `buffer`. Of a line longer than [`CHUNK`], reads at most `most` bytes.
    pub(super) fn step(&mut self, buffer: &mut Vec<u8>, most: usize) -> io::Result<StepResult> {
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
            // The successor was moved away too, and the next file does not exist yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound => match self.successor()? {
                NextFile::File(next) => (true, Some(next)),
                NextFile::None { .. } | NextFile::Unlisted => (false, None),
            },
            Err(e) => return Err(e),
        };
        let Some(current) = self.current.as_mut().filter(|_| replaced) else { return Ok(StepResult::AtEnd) };
        // After a restart many files may be moved away already: do not wait at each of them.
        let is_at_rest = current.replaced.is_none() && was_moved && is_at_rest(&metadata);
        // With more waiting files, the writer reopened the path longer ago.
        let grace = GRACE / u32::try_from(waiting).unwrap_or(u32::MAX).max(1);
        let has_grace = current.replaced.get_or_insert_with(Instant::now).elapsed() < grace;
        let next = match next {
            // Another file was moved away after this one, so the writer has reopened the path twice.
            None if is_at_rest => match self.successor()? {
                NextFile::File(next) => Some(next),
                NextFile::None { .. } | NextFile::Unlisted => None,
            },
            next => next,
        };
        if has_grace && !(is_at_rest && next.is_some()) {
            return Ok(StepResult::Leaving);
        }
        let next = match next {
            Some(next) => NextFile::File(next),
            None => self.successor()?,
        };
        let unread = self.unread_before(&next);
        if let Some(current) = self.current.as_mut().filter(|_| unread > 0)
            // A rotation that is under way renames one file after the other.
            && current.gap.get_or_insert_with(Instant::now).elapsed() < GRACE
        {
            return Ok(StepResult::Leaving);
        }
        self.next = match next {
            NextFile::File(file) => Some((file, false)),
            NextFile::Unlisted => return Ok(StepResult::Unlisted),
            NextFile::None { is_certain } => {
                // The last check of the next file before it is read.
                self.keep_what_is_cut()?;
                let next = match self.generations().map_or(Next::None, |them| them.take(Some(identity))) {
                    Next::File(file) => Some((file, true)),
                    Next::Later => return Ok(StepResult::Leaving),
                    Next::None => None,
                };
                self.missed.unknown += u64::from(!is_certain);
                next
            }
        };
        self.note_unread(unread);
        let Some(current) = &self.current else { return Ok(StepResult::AtEnd) };
        let written = metadata.modified().ok();
        if self.left.written != written {
            self.left = PreviousFiles { identities: Vec::new(), written };
        }
        self.left.identities.push(current.identity);
        self.current = None;
        Ok(StepResult::Replaced)
    }

    fn generations(&self) -> Option<&Generations> {
        self.arrivals.as_ref().map(Arrivals::generations)
    }

    /// Finds the next file among those that were moved away and were there before the system's reports began. If the
    /// directory was moved, searches it at its new place, then the one that replaced it.
    fn successor(&mut self) -> io::Result<NextFile> {
        let Some(current) = &self.current else { return Ok(NextFile::None { is_certain: true }) };
        let reported: Vec<u32> =
            self.generations().into_iter().flat_map(|them| them.lengths(None)).map(|(it, ..)| it).collect();
        let elsewhere = self.directory.as_ref().is_none_or(|directory| !directory.is_of(&self.path));
        let here = elsewhere.then(|| Directory::of(&self.path));
        let (mut listed, mut denied) = (false, false);
        for directory in self.directory.iter().map(Ok).chain(here.as_ref().map(Result::as_ref)) {
            let left = FinishedFile {
                file: &current.file,
                ends: &current.ends,
                forms: &self.forms,
                read: &self.left.identities,
            };
            let found = match directory {
                Ok(directory) => successor(directory, &self.path, left, &reported),
                Err(error) => Err(error.kind().into()),
            };
            match found {
                Ok(found) => {
                    listed = true;
                    if !found.forms.is_empty() {
                        self.forms = found.forms;
                    }
                    if let Some(file) = found.file {
                        return Ok(NextFile::File(file));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => denied = true,
                Err(e) => return Err(e),
            }
        }
        // The system reports nothing about a directory that could never be listed. Do not wait for it unless something
        // indicates more files.
        let is_closed = denied && self.arrivals.is_none() && !current.was_moved;
        Ok(match current.is_told || is_closed || listed && !denied {
            true => NextFile::None { is_certain: !is_closed },
            false => NextFile::Unlisted,
        })
    }

    /// Returns the number of files between the current one and the next that cannot be read, if the system did not
    /// report them.
    fn unread_before(&self, next: &NextFile) -> u64 {
        let Some(current) = self.current.as_ref().filter(|current| !current.is_told) else { return 0 };
        let next = match next {
            NextFile::File(file) => file.metadata().ok().map(|metadata| identity(&metadata)),
            NextFile::None { .. } => None,
            NextFile::Unlisted => return 0,
        };
        let told = self.generations().map(|them| them.lengths(Some(current.identity))).unwrap_or_default();
        let reported_written: Vec<SystemTime> = told.into_iter().filter_map(|(.., written)| written).collect();
        let waiting = self.generations().map_or(0, |them| them.waiting(Some(current.identity)));
        let at_path = usize::from(fs::metadata(&self.path).is_ok());
        let files = RotationGap {
            left: current.identity,
            next,
            reported: waiting.saturating_sub(at_path),
            reported_written: &reported_written,
        };
        let here = Directory::of(&self.path).ok();
        let directory = self.directory.as_ref().or(here.as_ref());
        directory.and_then(|directory| unread(directory, &self.path, &files).ok()).unwrap_or(0)
    }

    /// Notes files that were rotated away and cannot be read; the next file that is opened says so.
    fn note_unread(&mut self, files: u64) {
        if files > 0 {
            self.missed.files += files;
            self.lost = Some(format!(
                "{} rotated away after the file that was read, and {} missing or only compressed: {} data is lost",
                if files == 1 { "1 file was".to_owned() } else { format!("{files} files were") },
                if files == 1 { "is" } else { "are" },
                if files == 1 { "its" } else { "their" },
            ));
        }
    }

    /// Finds files that were truncated or rewritten in place before all their seen content was read, among the current
    /// and the waiting ones. If a copy of the content is next to the path, it is read instead; otherwise the content
    /// counts as missed.
    fn keep_what_is_cut(&mut self) -> io::Result<()> {
        self.looked = Some(Instant::now());
        self.keep_what_is_cut_of_current()?;
        let current = self.current.as_ref().map(|current| current.identity);
        for (identity, lost) in self.generations().map(|them| them.look(current)).unwrap_or_default() {
            let next = self.next.as_ref().map(|(file, _)| file);
            let read = self.current.iter().map(|current| &current.file).chain(next);
            // The file that is being read may itself be the copy.
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

    /// Returns a file next to the path that contains the lost content. Skips files that were last written before it.
    fn copy_of(&self, lost: &CheckedContent) -> Option<(File, u32)> {
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

    /// Measures the backlog without reading.
    pub(super) fn survey(&mut self) {
        // The next read reports the same error.
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

    /// Returns the result of the last survey.
    pub(super) fn surveyed(&self) -> &Survey {
        &self.survey
    }

    /// Returns the number of bytes read from the current file.
    pub(super) fn read(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.ends.len)
    }

    /// Returns the counts of missed files since the first file was opened.
    pub(super) fn missed(&self) -> UnreadFiles {
        let told = self.generations().map(Generations::missed).unwrap_or_default();
        UnreadFiles {
            files: self.missed.files + told.files,
            last: told.last.or(self.missed.last),
            unknown: self.missed.unknown + told.unknown,
            cut: self.missed.cut + told.cut,
            copied: self.missed.copied + told.copied,
        }
    }
}

/// Returns `true` if the file was neither written nor renamed during the grace period.
fn is_at_rest(metadata: &Metadata) -> bool {
    let changed = u64::try_from(metadata.ctime()).ok().and_then(|seconds| {
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, u32::try_from(metadata.ctime_nsec()).ok()?))
    });
    [metadata.modified().ok(), changed].into_iter().all(|at| {
        // A time in the future, as after a clock was set back, proves nothing.
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
            assert!(matches!(step, StepResult::Opened(_) | StepResult::Grown), "{step:?}");
        }
        assert_eq!((buffer.len(), buffer.capacity()), (5_000_001, 5_000_001));
        // At most up to the limit.
        let mut follower = Follower::new(directory.path().join("lines"), None);
        buffer.clear();
        for _ in 0..3 {
            follower.step(&mut buffer, 1000).unwrap();
        }
        assert_eq!(buffer.len(), CHUNK + 1000);
    }
}
