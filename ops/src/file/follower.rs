//! The file behind a path over its life: waited for, grown, rotated, truncated. Everything here blocks.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::backlog::Survey;
use super::generations::{Generations, Missed, Next};
use super::position::{Ends, Place, Resume, identity};
use super::rotation::{siblings, successor};
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
    /// The file that was rotated away after the one that was left.
    next: Option<File>,
    left: Left,
    /// The files that appear at the path, where the system tells of them.
    arrivals: Option<Arrivals>,
    survey: Survey,
    missed: Missed,
}

/// The file that was left last, and those left before it that were last written to at the same time.
#[derive(Debug, Default)]
struct Left {
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
            left: Left::default(),
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
        let waiting = generations.map_or(0, |generations| generations.waiting(Some(current.identity)));
        let (replaced, next) = match fs::metadata(&self.path) {
            _ if waiting > 0 => (true, None),
            Ok(metadata) => (identity(&metadata) != current.identity, None),
            // Its successor was moved away too, and the next one is not there yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let next = successor(&self.path, &current.file, &self.left.identities, &[])?;
                (next.is_some(), next)
            }
            Err(e) => return Err(e),
        };
        if !replaced {
            return Ok(Step::AtEnd);
        }
        // A restart may find many files that were moved away: it does not wait at each.
        let is_at_rest = current.replaced.is_none() && current.was_moved && is_at_rest(&metadata);
        // The more files wait, the longer ago its writer was told.
        let grace = GRACE / u32::try_from(waiting).unwrap_or(u32::MAX).max(1);
        let has_grace = current.replaced.get_or_insert_with(Instant::now).elapsed() < grace;
        let next = match next {
            // Another one was moved away since: its writer was told twice.
            None if is_at_rest => self.successor()?,
            next => next,
        };
        if has_grace && !(is_at_rest && next.is_some()) {
            return Ok(Step::Leaving);
        }
        self.next = match next {
            Some(next) => Some(next),
            None => match self.following()? {
                Next::File(file) => Some(file),
                Next::Later => return Ok(Step::Leaving),
                Next::None => None,
            },
        };
        let Some(current) = &self.current else { return Ok(Step::AtEnd) };
        let written = metadata.modified().ok();
        if self.left.written != written {
            self.left = Left { identities: Vec::new(), written };
        }
        self.left.identities.push(current.identity);
        self.current = None;
        Ok(Step::Replaced)
    }

    fn generations(&self) -> Option<&Generations> {
        self.arrivals.as_ref().map(Arrivals::generations)
    }

    /// The file after the current one, of those that were moved away from the path as well. First come those that were
    /// there before the system was asked to tell.
    fn following(&self) -> io::Result<Next> {
        let Some(current) = &self.current else { return Ok(Next::None) };
        Ok(match self.successor()? {
            Some(file) => Next::File(file),
            None => self.generations().map_or(Next::None, |generations| generations.take(Some(current.identity))),
        })
    }

    /// The same of those that were there before the system was asked to tell.
    fn successor(&self) -> io::Result<Option<File>> {
        let Some(current) = &self.current else { return Ok(None) };
        let told = self.generations().into_iter().flat_map(|them| them.lengths(None)).map(|(it, ..)| it);
        successor(&self.path, &current.file, &self.left.identities, &told.collect::<Vec<_>>())
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
        if self.arrivals.is_none() {
            self.arrivals = Arrivals::at(&self.path);
        }
        if let Some(file) = self.next.take() {
            return Ok(Step::Opened(self.start(file, None, None)?));
        }
        // Files may have come and gone since the first look.
        if self.resume.is_none()
            && let Some(generations) = self.generations()
            && let Next::File(file) = generations.take(None)
        {
            return Ok(Step::Opened(self.start(file, None, None)?));
        }
        let file = match open_regular(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.path.parent().is_some_and(Path::exists) => {
                match self.rotated_away()? {
                    Some((file, place)) => return Ok(Step::Opened(self.start(file, Some(place), None)?)),
                    None => return Ok(Step::Missing),
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Step::Missing),
            Err(e) => return Err(e),
        };
        let Some(resume) = self.resume else { return Ok(Step::Opened(self.start(file, None, None)?)) };
        let same = identity(&file.metadata()?) == resume.identity;
        if !same && let Some((old, place)) = self.rotated_away()? {
            let warning = format!("{} was replaced; its old content is read to the end first", self.path.display());
            return Ok(Step::Opened(self.start(old, Some(place), Some(warning))?));
        }
        if let Some(place) = resume.matches(&file)? {
            return Ok(Step::Opened(self.start(file, Some(place), None)?));
        }
        self.resume = None;
        if !same {
            self.missed.files += 1;
        }
        let what = if same { "was truncated or rewritten" } else { "was replaced" };
        let warning = format!(
            "{} {what} since it was read: reading it from its start; what the old content held after byte {} is lost",
            self.path.display(),
            resume.offset
        );
        Ok(Step::Opened(self.start(file, None, Some(warning))?))
    }

    /// Whether what was read last is still there, under its name or another one.
    pub(super) fn finds(&self) -> io::Result<bool> {
        let Some(resume) = self.resume else { return Ok(true) };
        let is_here = match open_regular(&self.path) {
            Ok(file) => resume.matches(&file)?.is_some(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => return Err(e),
        };
        Ok(is_here || self.path.parent().is_some_and(Path::exists) && self.rotated_away()?.is_some())
    }

    /// The file that was read last under another name in the same directory, and the place in it. The name must hold the
    /// stem of ours (`app.log.1`, `app-2.log`, `old-app.log`): a path that was changed to that of another file is no
    /// rotation.
    fn rotated_away(&self) -> io::Result<Option<(File, Place)>> {
        let Some(resume) = self.resume else { return Ok(None) };
        for sibling in siblings(&self.path)?.into_iter().filter(|sibling| sibling.identity == resume.identity) {
            let Ok(file) = File::open(&sibling.path) else { continue };
            if let Some(place) = resume.matches(&file)? {
                return Ok(Some((file, place)));
            }
        }
        Ok(None)
    }

    /// Reads on where a position says, or from the start.
    fn start(&mut self, file: File, place: Option<Place>, warning: Option<String>) -> io::Result<Opened> {
        self.resume = None;
        let identity = identity(&file.metadata()?);
        let place = place.unwrap_or_else(|| Place::start(identity));
        let ends = Ends::read(&file, place.offset)?;
        let was_moved = fs::metadata(&self.path).map_or(true, |metadata| self::identity(&metadata) != identity);
        self.current = Some(Current { file, identity, ends, compared: None, replaced: None, was_moved });
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
