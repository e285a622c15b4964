//! Opens the next file, or after a restart the one that was read last, under its own or another name.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::current::Current;
use super::{Follower, GRACE, ReadStart, StepResult};
use crate::file::gap::compressed;
use crate::file::generations::Next;
use crate::file::position::{FilePosition, PathSum, Resume, born, identity};
use crate::file::rotation::{Directory, Sibling, original};
use crate::file::watch::Arrivals;

impl Follower {
    pub(super) fn open(&mut self) -> io::Result<StepResult> {
        if let Some((file, is_told)) = self.next.take() {
            return Ok(StepResult::Opened(self.start(file, None, None, is_told)?));
        }
        self.ask_to_be_told();
        let is_told = self.arrivals.is_some();
        // Files may have come and gone since the first check.
        if self.resume.is_none()
            && let Some(generations) = self.generations()
            && let Next::File(file) = generations.take(None)
        {
            return Ok(StepResult::Opened(self.start(file, None, None, true)?));
        }
        let file = match open_regular(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(match self.rotated_away(None) {
                    Ok(Some((file, place))) => StepResult::Opened(self.start(file, Some(place), None, false)?),
                    Ok(None) => self.open_later()?,
                    // The state of a directory that is gone or cannot be listed is unknown.
                    Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                        StepResult::Missing
                    }
                    Err(e) => return Err(e),
                });
            }
            Err(e) => return Err(e),
        };
        self.directory = Directory::of(&self.path).ok();
        self.forms.clear();
        let Some(resume) = self.resume else { return Ok(StepResult::Opened(self.start(file, None, None, is_told)?)) };
        let metadata = file.metadata()?;
        let same = resume.is_of(identity(&metadata), born(&metadata));
        let place = resume.matches(&file)?;
        if same && place.is_some() {
            return Ok(StepResult::Opened(self.start(file, place, None, is_told)?));
        }
        match self.rotated_away(Some((&file, place.is_some()))) {
            Ok(None) => {}
            Ok(Some((old, place))) => {
                let what = if same { "was truncated or rewritten" } else { "was replaced" };
                let warning = format!("{} {what}; its old content is read to the end first", self.path.display());
                return Ok(StepResult::Opened(self.start(old, Some(place), Some(warning), false)?));
            }
            // The file disappeared just now.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(StepResult::Missing),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let what = "it is not the file that was read, and its directory cannot be searched for that file";
                return Err(io::Error::new(e.kind(), format!("{what}: {e}")));
            }
            Err(e) => return Err(e),
        }
        if let Some(place) = place {
            return Ok(StepResult::Opened(self.start(file, Some(place), None, is_told)?));
        }
        if !same && resume.is_of_other_path(PathSum::of(&self.path)) {
            let warning = format!(
                "the path of the source was changed: the stored position belongs to another file, and {} does not \
                 begin with the data that was read from that file; reading it from its start",
                self.path.display()
            );
            return Ok(StepResult::Opened(self.start(file, None, Some(warning), is_told)?));
        }
        let mut compressed = String::new();
        if !same {
            let next = self.made_since(&resume, Some(identity(&metadata)))?;
            compressed = self.note_gone(&resume, next.as_ref().map(|(file, _)| file));
            if let Some(next) = next {
                let warning = format!(
                    "{} was replaced since it was read, and the file that was read is gone: its data after byte {} \
                     is lost; the files that were created after it are read{compressed}",
                    self.path.display(),
                    resume.offset
                );
                return Ok(StepResult::Opened(self.start(next.0, None, Some(warning), false)?));
            }
        }
        let what = if same { "was truncated or rewritten" } else { "was replaced" };
        let warning = format!(
            "{} {what} since it was read: reading it from its start; the old data after byte {} is lost{compressed}",
            self.path.display(),
            resume.offset
        );
        Ok(StepResult::Opened(self.start(file, None, Some(warning), is_told)?))
    }

    /// Watches the directory for new files. Renews the watch if the directory was replaced.
    fn ask_to_be_told(&mut self) {
        let is_told = |arrivals: &Arrivals| {
            arrivals.generations().waiting(None) > 0 || !arrivals.generations().directory().is_replaced(&self.path)
        };
        if !self.arrivals.as_ref().is_some_and(is_told) {
            // Keep the counts of the old watch.
            self.missed = self.missed();
            self.arrivals = Arrivals::at(&self.path);
        }
    }

    /// Returns `true` if the file that was read last still exists, under its own or another name.
    pub(in crate::file) fn finds(&mut self) -> io::Result<bool> {
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

    /// Finds the file that was read last under another name in the same directory, and the place in it. The name must
    /// contain the stem of the path (`app.log.1`, `app-2.log`, `old-app.log`): a path that was changed to another file
    /// is not a rotation. `here` is the file at the path, and whether it holds the content that was read.
    ///
    /// If the file itself is gone, a file with the same content is accepted, such as a restored backup; see
    /// [`original`]. Costs a few kilobytes of reading for each file with such a name that is long enough. Files with
    /// other content are not read again until they change.
    fn rotated_away(&mut self, here: Option<(&File, bool)>) -> io::Result<Option<(File, FilePosition)>> {
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
                // It may be the file that was read, and read permission may be granted later.
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
        // If it changes just now, the next step finds it.
        let changed = || io::Error::from(io::ErrorKind::NotFound);
        let file = found.open()?.ok_or_else(changed)?;
        let place = resume.matches(&file)?.ok_or_else(changed)?;
        self.forms = vec![found.form];
        self.directory = Some(directory);
        Ok(Some((file, place)))
    }

    /// Handles a path without a file, after the file that was read is gone. Opens the first file created after it, once
    /// that file has existed for a moment. Until then the old file may still reappear renamed or copied.
    fn open_later(&mut self) -> io::Result<StepResult> {
        let Some(resume) = self.resume else { return Ok(StepResult::Missing) };
        if resume.is_of_other_path(PathSum::of(&self.path)) {
            return Ok(StepResult::Missing);
        }
        let Some((next, made)) = self.made_since(&resume, None)? else { return Ok(StepResult::Missing) };
        let made = SystemTime::UNIX_EPOCH + Duration::from_millis(made);
        if made.elapsed().is_ok_and(|ago| ago < GRACE) {
            return Ok(StepResult::Leaving);
        }
        let compressed = self.note_gone(&resume, Some(&next));
        let warning = format!(
            "the file that was read at {} is gone: its data after byte {} is lost; the files that were created \
             after it are read{compressed}",
            self.path.display(),
            resume.offset
        );
        Ok(StepResult::Opened(self.start(next, None, Some(warning), false)?))
    }

    /// Counts the file that was read, which is gone, and those before `next` that are there only compressed; it may be
    /// one of these. Returns the report about them.
    fn note_gone(&mut self, resume: &Resume, next: Option<&File>) -> String {
        // A writer may still write to a file for a moment after it was replaced.
        let after = SystemTime::UNIX_EPOCH + Duration::from_millis(resume.born) + GRACE;
        let until = next.and_then(|next| next.metadata().ok()?.modified().ok());
        let found = Directory::of(&self.path).and_then(|directory| compressed(&directory, &self.path, after, until));
        let files = if resume.born > 0 { found.unwrap_or(0) } else { 0 };
        self.missed.files += files.max(1);
        match files {
            0 | 1 => String::new(),
            files => format!(
                "; of the files that replaced it, {} or more exist only in compressed form and are not read",
                files - 1
            ),
        }
    }

    /// Finds the first file that was created after the one that was read and was rotated away too, and its creation
    /// time. `present` is the file at the path.
    fn made_since(&mut self, resume: &Resume, present: Option<u32>) -> io::Result<Option<(File, u64)>> {
        let Ok(directory) = Directory::of(&self.path) else { return Ok(None) };
        let mut siblings = match directory.siblings(&self.path) {
            Ok(siblings) if resume.born > 0 => siblings,
            _ => return Ok(None),
        };
        siblings.retain(|sibling| {
            Some(sibling.identity) != present && sibling.born > resume.born && sibling.is_numbered(&self.path)
        });
        siblings.sort_by_key(|sibling| (sibling.written, sibling.born));
        for sibling in siblings {
            let named = |e: io::Error| {
                let name = sibling.path.file_name().unwrap_or_default().to_string_lossy();
                io::Error::new(e.kind(), format!("{name}, which was created after the file that was read: {e}"))
            };
            if let Some(file) = sibling.open().map_err(named)? {
                self.forms = vec![sibling.form];
                self.directory = Some(directory);
                return Ok(Some((file, sibling.born)));
            }
        }
        Ok(None)
    }

    /// Starts reading at a place, or at the beginning.
    fn start(
        &mut self,
        file: File,
        place: Option<FilePosition>,
        warning: Option<String>,
        is_told: bool,
    ) -> io::Result<ReadStart> {
        self.resume = None;
        self.others = HashMap::new();
        let metadata = file.metadata()?;
        let identity = identity(&metadata);
        let mut place = place.unwrap_or_else(|| FilePosition::start(identity, born(&metadata)));
        place.path = PathSum::of(&self.path);
        let was_moved = fs::metadata(&self.path).map_or(true, |metadata| self::identity(&metadata) != identity);
        self.current = Some(Current::new(file, identity, place.offset, was_moved, is_told)?);
        Ok(ReadStart { place, warning: warning.or_else(|| self.lost.take()) })
    }
}

/// Returns why a path leads to no file, for errors that only another path can fix.
pub(in crate::file) fn misled(error: &io::Error) -> Option<&'static str> {
    if error.kind() == io::ErrorKind::InvalidFilename {
        return Some("the path, or a name in it, is too long for the file system");
    }
    // The variant `ErrorKind::FilesystemLoop` is unstable.
    let is_loop = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    is_loop.then_some("the path contains symbolic links that form a loop")
}

/// Opens a regular file. Never blocks on a pipe without a writer.
pub(in crate::file) fn open_regular(path: &Path) -> io::Result<File> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file: it cannot be read twice"));
    }
    File::open(path)
}
