//! Opening of the file: at its path, under another name, or at the place of an earlier run.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anabranch_record::metadata::key;
use anabranch_record::text::Str;

use super::{Begin, FilePartition, GRACE, PartitionStep, changed, is_of};
use crate::csv::BYTE_ORDER_MARK;
use crate::file::content::{Content, ContentError};
use crate::file::content_position::ContentPosition;
use crate::file::follower::open_regular;
use crate::file::framing::Framer;
use crate::file::position::{born, identity};

/// Maximum number of bytes that are read at a restart to find the names of the columns.
const LONGEST_HEADER: usize = 1 << 20;

impl FilePartition {
    /// Opens the file. Returns `None` if its content is ready.
    pub(super) fn open(&mut self, now: Instant) -> Result<Option<PartitionStep>, ContentError> {
        let file = match self.file.clone() {
            Some(file) => file,
            None => match self.find(now)? {
                Some(file) => file,
                None => return Ok(Some(PartitionStep::Gone)),
            },
        };
        let metadata = file.metadata()?;
        self.file = Some(file.clone());
        let of = (identity(&metadata), born(&metadata));
        // A file that was read to its end and closed continues at its place.
        let resume = self.resume().filter(|resume| !(resume.is_at_start() && resume.is_of(of.0, of.1)));
        if let Some(resume) = resume {
            let kept = if self.format.has_header { LONGEST_HEADER.min(self.format.limit) } else { 0 };
            // Any content begins like nothing.
            let opened = match resume.is_at_start() {
                true => None,
                false => Content::resume(file.clone(), self.format.compression, &resume, kept)?,
            };
            if let Some(opened) = opened {
                self.resume = None;
                self.place = opened.place;
                self.framer = Framer::new(self.format.framing.clone());
                if self.place.offset > 0 {
                    self.framer.resume(self.place.in_array);
                    self.take_header(&opened.start);
                }
                (self.content, self.buffer, self.at) = (Some(opened.content), opened.around, opened.at);
                self.compared = Some(changed(&metadata));
                return Ok(None);
            }
            // A copy of a compressed file may be in the middle of being written.
            let rested = self.quiet_since(metadata.len(), now) + self.format.settling;
            let is_compressed =
                || Content::open(file.clone(), self.format.compression, true).map(|it| it.and_then(|it| it.codec()));
            if rested > now && (metadata.len() == 0 || is_compressed()?.is_some()) {
                return Ok(Some(PartitionStep::Waiting(rested)));
            }
            if resume.is_of(of.0, of.1) {
                self.warn_once("cut", "was truncated or rewritten since it was read: reading it from its start");
            } else {
                self.missed += 1;
                self.warnings.push(format!(
                    "{} was replaced since it was read, and the file that was read is gone: if it had data after byte {}, \
                     that is lost; reading the new file from its start",
                    self.shown, resume.offset
                ));
            }
            self.start_over();
            self.file = Some(file.clone());
        }
        self.resume = None;
        self.place = ContentPosition::start(of.0, of.1);
        if self.begin == Begin::Beginning && self.announced != Some(of) {
            // A restart looks for this file, also if it was renamed before one of its records was stored.
            self.announced = Some(of);
            let position = self.place.position();
            self.delivered = Some(position.clone());
            return Ok(Some(PartitionStep::Moved(position)));
        }
        let is_settled = self.quiet_since(metadata.len(), now).elapsed() >= self.format.settling;
        let is_whole = is_settled && metadata.len() > 0;
        let Some(content) = Content::open(file, self.format.compression, is_whole)? else {
            return Ok(Some(match (self.replaced, metadata.len()) {
                (Some(replaced), _) if now.duration_since(replaced) >= GRACE => self.leave(),
                (Some(replaced), _) => PartitionStep::Waiting(replaced + GRACE),
                (None, 0) => PartitionStep::AtEnd,
                (None, _) => PartitionStep::Waiting(now + self.format.settling),
            }));
        };
        (self.content, self.at) = (Some(content), 0);
        self.buffer.clear();
        (self.framer, self.header_due) = (Framer::new(self.format.framing.clone()), self.format.has_header);
        self.compared = Some(changed(&metadata));
        if self.begin == Begin::End {
            self.begin = Begin::Beginning;
            return self.pass().map(Some);
        }
        Ok(None)
    }

    /// Finds the file to read: the one that an earlier run has read, whatever its name is, or else the one at the path.
    pub(super) fn find(&mut self, now: Instant) -> io::Result<Option<Arc<File>>> {
        let here = match open_regular(&self.path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some((identity, born)) = self.file() else { return Ok(here.map(Arc::new)) };
        if let Some(file) = &here {
            let metadata = file.metadata()?;
            let holds = || -> Result<bool, ContentError> {
                let Some(resume) = self.resume().filter(|resume| !resume.is_at_start()) else { return Ok(false) };
                let Ok(copy) = file.try_clone() else { return Ok(false) };
                Ok(Content::resume(Arc::new(copy), self.format.compression, &resume, 0)?.is_some())
            };
            // A copy of the file, such as a restored backup, continues where the file ended.
            if is_of(&metadata, identity, born) || holds().unwrap_or(false) {
                return Ok(here.map(Arc::new));
            }
        }
        if let Some(moved) = moved(&self.path, identity, born)? {
            self.replaced = Some(now);
            return Ok(Some(Arc::new(moved)));
        }
        Ok(here.map(Arc::new))
    }

    /// Passes all complete records of a file that is read from its end on.
    pub(super) fn pass(&mut self) -> Result<PartitionStep, ContentError> {
        loop {
            while let Some(frame) = self.framer.next(&self.buffer[self.at..]) {
                if let Some(payload) = frame.payload.clone().filter(|_| std::mem::take(&mut self.header_due)) {
                    self.metadata.insert(key::FILE_HEADER, header(&self.buffer[self.at..][payload]));
                    self.advance(frame.len, false);
                    continue;
                }
                self.advance(frame.len, frame.payload.is_some());
            }
            self.compact();
            let Some(content) = &mut self.content else { break };
            if content.read(&mut self.buffer)? == 0 {
                break;
            }
        }
        // The rest is left out, too, unless it grows.
        let rest = self.buffer.len() - self.at;
        if rest > 0 && !self.header_due {
            self.place = self.place.with_rest(&self.buffer, rest);
        }
        let position = self.place.position();
        self.delivered = Some(position.clone());
        Ok(PartitionStep::Moved(position))
    }

    /// Takes the names of the columns from the start of the content.
    pub(super) fn take_header(&mut self, start: &[u8]) {
        let mut framer = Framer::new(self.format.framing.clone());
        let mut at = 0;
        while std::mem::take(&mut self.header_due) {
            let Some(frame) = framer.next(&start[at..]) else { break };
            match frame.payload {
                Some(payload) => {
                    self.metadata.insert(key::FILE_HEADER, header(&start[at..][payload]));
                }
                None => (self.header_due, at) = (true, at + frame.len),
            }
        }
    }
}

/// Returns the text of the row that names the columns, without the byte order mark of the file.
pub(in crate::file::source) fn header(row: &[u8]) -> Str {
    let row = row.strip_prefix(BYTE_ORDER_MARK).unwrap_or(row);
    Str::from(String::from_utf8_lossy(row).as_ref())
}

/// Finds a file that was moved to another name in the same directory.
fn moved(path: &Path, of: u32, created: u64) -> io::Result<Option<File>> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.is_file() && is_of(&metadata, of, created) {
            return Ok(Some(File::open(path)?));
        }
    }
    Ok(None)
}
