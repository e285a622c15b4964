//! The file behind a path over its life: waited for, grown, rotated, truncated. Everything here blocks.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::backlog::Survey;
use super::generations::{Generations, Missed, Next};
use super::position::{Ends, Place, Resume, born, identity};
use super::rotation::{Directory, Form, Left, Sibling, original, successor};
use super::watch::Arrivals;

/// Bytes of one read, unless a line is longer.
const CHUNK: usize = 256 << 10;

/// A file that was renamed is left only when nothing was added to it for so long: its writer may go on with it
/// until it is told. When it is opened only after it was moved away, this counts from its last change, unless it is the
/// newest of such files.
const GRACE: Duration = Duration::from_secs(1);

/// Changes that are less apart may have the same time: some file systems keep no more than even seconds.
const TICK: Duration = Duration::from_secs(2);

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
    /// The file was replaced by another, and its writer gets a moment to add to it before it is left.
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
    survey: Survey,
    missed: Missed,
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

#[derive(Debug)]
struct Current {
    file: File,
    identity: u32,
    /// What was read.
    ends: Ends,
    compared: Option<Compared>,
    /// Since when the path is another file's and nothing was added to this one.
    replaced: Option<Instant>,
    /// It was moved away from the path before it was opened.
    was_moved: bool,
    /// The system tells of all files that come after it.
    is_told: bool,
}

/// The file's last change as it was when its content was compared with what was read.
#[derive(Debug)]
struct Compared {
    changed: (i64, i64),
    /// When this change was found.
    found: Instant,
    /// A later change has another time for sure.
    settled: bool,
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
            survey: Survey::default(),
            missed: Missed::default(),
        }
    }

    /// The path that is followed.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file: appends what is next to `buffer`, of a line that is longer than [`CHUNK`] at most `most` bytes.
    pub(super) fn step(&mut self, buffer: &mut Vec<u8>, most: usize) -> io::Result<Step> {
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
        self.next = match next {
            Some(next) => Some((next, false)),
            None => match self.successor()? {
                Found::File(file) => Some((file, false)),
                Found::Unlisted => return Ok(Step::Unlisted),
                Found::None { is_certain } => {
                    self.missed.unknown += u64::from(!is_certain);
                    match self.generations().map_or(Next::None, |them| them.take(Some(identity))) {
                        Next::File(file) => Some((file, true)),
                        Next::Later => return Ok(Step::Leaving),
                        Next::None => None,
                    }
                }
            },
        };
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

    /// Looks at what is left to read, and reads nothing.
    pub(super) fn survey(&mut self) {
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
        }
    }

    fn open(&mut self) -> io::Result<Step> {
        if let Some((file, is_told)) = self.next.take() {
            return Ok(Step::Opened(self.start(file, None, None, is_told)?));
        }
        self.ask_to_be_told();
        let is_told = self.arrivals.is_some();
        // Files may have come and gone since the first look.
        if self.resume.is_none()
            && let Some(generations) = self.generations()
            && let Next::File(file) = generations.take(None)
        {
            return Ok(Step::Opened(self.start(file, None, None, true)?));
        }
        let file = match open_regular(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(match self.rotated_away(None) {
                    Ok(Some((file, place))) => Step::Opened(self.start(file, Some(place), None, false)?),
                    // Nothing is known of a directory that is gone, or that cannot be listed.
                    Ok(None) => Step::Missing,
                    Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                        Step::Missing
                    }
                    Err(e) => return Err(e),
                });
            }
            Err(e) => return Err(e),
        };
        self.directory = Directory::of(&self.path).ok();
        self.forms.clear();
        let Some(resume) = self.resume else { return Ok(Step::Opened(self.start(file, None, None, is_told)?)) };
        let metadata = file.metadata()?;
        let same = resume.is_of(identity(&metadata), born(&metadata));
        let place = resume.matches(&file)?;
        if same && place.is_some() {
            return Ok(Step::Opened(self.start(file, place, None, is_told)?));
        }
        match self.rotated_away(Some((&file, place.is_some()))) {
            Ok(None) => {}
            Ok(Some((old, place))) => {
                let what = if same { "was truncated or rewritten" } else { "was replaced" };
                let warning = format!("{} {what}; its old content is read to the end first", self.path.display());
                return Ok(Step::Opened(self.start(old, Some(place), Some(warning), false)?));
            }
            // It went away just now.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Step::Missing),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let what = "it is not the file that was read, and its directory cannot be searched for that one";
                return Err(io::Error::new(e.kind(), format!("{what}: {e}")));
            }
            Err(e) => return Err(e),
        }
        if let Some(place) = place {
            return Ok(Step::Opened(self.start(file, Some(place), None, is_told)?));
        }
        self.resume = None;
        if !same {
            self.missed.files += 1;
            if let Some(next) = self.made_since(&resume, &file)? {
                let warning = format!(
                    "{} was replaced since it was read, and the file that was read is gone: what it held after byte {} \
                     is lost; the files that were made after it are read",
                    self.path.display(),
                    resume.offset
                );
                return Ok(Step::Opened(self.start(next, None, Some(warning), false)?));
            }
        }
        let what = if same { "was truncated or rewritten" } else { "was replaced" };
        let warning = format!(
            "{} {what} since it was read: reading it from its start; what the old content held after byte {} is lost",
            self.path.display(),
            resume.offset
        );
        Ok(Step::Opened(self.start(file, None, Some(warning), is_told)?))
    }

    /// Has the system tell of the files that appear in the directory, also if it is another one by now.
    fn ask_to_be_told(&mut self) {
        let is_told = |arrivals: &Arrivals| {
            arrivals.generations().waiting(None) > 0 || !arrivals.generations().directory().is_replaced(&self.path)
        };
        if !self.arrivals.as_ref().is_some_and(is_told) {
            // What was missed until now stays counted.
            self.missed = self.missed();
            self.arrivals = Arrivals::at(&self.path);
        }
    }

    /// Whether what was read last is still there, under its name or another one.
    pub(super) fn finds(&mut self) -> io::Result<bool> {
        let Some(resume) = self.resume else { return Ok(true) };
        match open_regular(&self.path) {
            Ok(file) if resume.matches(&file)?.is_some() => return Ok(true),
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(_) | Err(_) => {}
        }
        match self.rotated_away(None) {
            Ok(found) => Ok(found.is_some()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The file that was read last under another name in the same directory, and the place in it. The name must hold the
    /// stem of ours (`app.log.1`, `app-2.log`, `old-app.log`): a path that was changed to that of another file is no
    /// rotation. With the file at the path, and whether that holds what was read.
    ///
    /// Where the file itself is not there, it is one of the same content, as after a backup was restored; see
    /// [`original`]. Costs a few kilobytes of reading for each file of such a name that is as long as what was read; those
    /// of other content are not read again until they change.
    fn rotated_away(&mut self, here: Option<(&File, bool)>) -> io::Result<Option<(File, Place)>> {
        let Some(resume) = self.resume else { return Ok(None) };
        let directory = Directory::of(&self.path)?;
        let present = here.map(|(file, _)| file.metadata()).transpose()?.map(|metadata| identity(&metadata));
        let mut alike: Vec<Sibling> = Vec::new();
        let mut siblings = directory.siblings(&self.path)?;
        siblings.retain(|sibling| Some(sibling.identity) != present && sibling.len >= resume.delivered());
        siblings.sort_by_key(|sibling| sibling.identity != resume.identity);
        for sibling in siblings {
            let same = resume.is_of(sibling.identity, sibling.born);
            let seen = (sibling.len, sibling.written);
            if !same && self.others.get(&sibling.identity) == Some(&seen) {
                continue;
            }
            let file = match sibling.open() {
                Ok(Some(file)) => file,
                // It may be the one that was read, and the right to read it may be given.
                Err(e) if same && e.kind() == io::ErrorKind::PermissionDenied => return Err(e),
                Ok(None) | Err(_) => continue,
            };
            match resume.matches(&file) {
                Ok(Some(place)) if same => {
                    self.forms = vec![sibling.form];
                    self.directory = Some(directory);
                    return Ok(Some((file, place)));
                }
                Ok(Some(_)) => alike.push(sibling),
                Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => return Err(e),
                Ok(None) | Err(_) => drop(self.others.insert(sibling.identity, seen)),
            }
        }
        let here = here.and_then(|(file, holds)| holds.then_some(file));
        let Some(found) = original(alike, here, resume.delivered())? else { return Ok(None) };
        // If it changes just now, the next look finds it.
        let changed = || io::Error::from(io::ErrorKind::NotFound);
        let file = found.open()?.ok_or_else(changed)?;
        let place = resume.matches(&file)?.ok_or_else(changed)?;
        self.forms = vec![found.form];
        self.directory = Some(directory);
        Ok(Some((file, place)))
    }

    /// Where the file that was read is gone: the first of those that were made after it, and were rotated away as well.
    /// `here`: the file at the path.
    fn made_since(&mut self, resume: &Resume, here: &File) -> io::Result<Option<File>> {
        let present = identity(&here.metadata()?);
        let Ok(directory) = Directory::of(&self.path) else { return Ok(None) };
        let mut siblings = match directory.siblings(&self.path) {
            Ok(siblings) if resume.born > 0 => siblings,
            _ => return Ok(None),
        };
        siblings.retain(|sibling| {
            sibling.identity != present && sibling.born > resume.born && sibling.is_numbered(&self.path)
        });
        siblings.sort_by_key(|sibling| (sibling.written, sibling.born));
        for sibling in siblings {
            if let Some(file) = sibling.open()? {
                self.forms = vec![sibling.form];
                self.directory = Some(directory);
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// Reads on where a position says, or from the start.
    fn start(
        &mut self,
        file: File,
        place: Option<Place>,
        warning: Option<String>,
        is_told: bool,
    ) -> io::Result<Opened> {
        self.resume = None;
        self.others = HashMap::new();
        let metadata = file.metadata()?;
        let identity = identity(&metadata);
        let place = place.unwrap_or_else(|| Place::start(identity, born(&metadata)));
        let ends = Ends::read(&file, place.offset)?;
        let was_moved = fs::metadata(&self.path).map_or(true, |metadata| self::identity(&metadata) != identity);
        self.current = Some(Current { file, identity, ends, compared: None, replaced: None, was_moved, is_told });
        Ok(Opened { place, warning })
    }
}

impl Current {
    /// Appends what comes next in a file of so many bytes.
    fn grow(&mut self, buffer: &mut Vec<u8>, size: u64, most: usize) -> io::Result<Step> {
        let before = buffer.len();
        let left = usize::try_from(size - self.ends.len).unwrap_or(usize::MAX);
        let line = if before < CHUNK { Some(left.min(CHUNK)) } else { self.to_line_end(left.min(most))? };
        match line {
            Some(want) => buffer.reserve_exact(want),
            // It may go on growing, a little each time.
            None => buffer.reserve(left.min(most)),
        }
        self.read(buffer, line.unwrap_or(left.min(most)))?;
        // After the read, so that nothing is read of a file that was rewritten just before.
        match self.is_rewritten() {
            Ok(false) => {}
            other => {
                buffer.truncate(before);
                return other.map(|_| self.restart());
            }
        }
        self.ends.feed(&buffer[before..]);
        Ok(if buffer.len() == before { Step::AtEnd } else { Step::Grown })
    }

    /// How far it is to the end of the line, if it ends within `most` bytes: a long line is read into memory of its own
    /// size, at the cost of reading it twice.
    fn to_line_end(&self, most: usize) -> io::Result<Option<usize>> {
        let mut piece = vec![0; CHUNK];
        let mut passed = 0;
        while passed < most {
            let want = (most - passed).min(CHUNK);
            let got = self.read_at(&mut piece[..want], passed as u64)?;
            if let Some(end) = memchr::memchr(b'\n', &piece[..got]) {
                return Ok(Some(passed + end + 1));
            }
            if got < want {
                break;
            }
            passed += got;
        }
        Ok(None)
    }

    /// Appends up to `want` bytes to the buffer.
    fn read(&self, buffer: &mut Vec<u8>, want: usize) -> io::Result<()> {
        let before = buffer.len();
        buffer.resize(before + want, 0);
        let got = self.read_at(&mut buffer[before..], 0);
        buffer.truncate(before + *got.as_ref().unwrap_or(&0));
        got.map(drop)
    }

    /// As many bytes as there are, from so far after what was read.
    fn read_at(&self, bytes: &mut [u8], after: u64) -> io::Result<usize> {
        let mut got = 0;
        while got < bytes.len() {
            match self.file.read_at(&mut bytes[got..], self.ends.len + after + got as u64) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(got)
    }

    /// Whether it was changed since its content was last compared, or may have been; it is to be compared then.
    fn is_changed(&mut self, metadata: &Metadata) -> bool {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        match &mut self.compared {
            Some(compared) if compared.changed == changed => {
                let was_settled = compared.settled;
                compared.settled |= compared.found.elapsed() > TICK;
                !was_settled
            }
            compared => {
                *compared = Some(Compared { changed, found: Instant::now(), settled: false });
                true
            }
        }
    }

    fn is_rewritten(&self) -> io::Result<bool> {
        Ok(!self.ends.are_in(&self.file)?)
    }

    /// From the start of the same file, even if it is being replaced: it is kept open.
    fn restart(&mut self) -> Step {
        self.ends = Ends::default();
        Step::Truncated
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

/// Why a path leads to no file, where only another path helps.
pub(super) fn misled(error: &io::Error) -> Option<&'static str> {
    if error.kind() == io::ErrorKind::InvalidFilename {
        return Some("it, or a name in it, is too long for the file system");
    }
    // `ErrorKind::FilesystemLoop` is unstable.
    let is_loop = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    is_loop.then_some("it is, or goes through, symbolic links that lead in a circle")
}

/// Opens a file that can be read again from any place. Never blocks on a pipe without a writer.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file: it cannot be read twice"));
    }
    File::open(path)
}

#[cfg(test)]
mod tests {
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
