//! One of the files of a source, which is a partition. Everything here blocks.

mod handover;
mod opening;
mod records;
mod rows;

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_plugin::source::Room;
use anabranch_record::code::Code;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use anabranch_record::metadata::{Metadata as RecordMetadata, key};
use anabranch_record::text::Str;
use anabranch_record::{Position, Record};

use rows::OpenTable;

use super::in_flight::InFlight;
use super::unreadable::unreadable;
use crate::arena::Arena;
use crate::codes;
use crate::file::compression::Compression;
use crate::file::content::{Content, ContentError};
use crate::file::content_position::{After, ContentPosition, ContentResume, TRAIL};
use crate::file::framing::{Framer, Framing};
use crate::file::position::{born, identity};
pub(super) use handover::Handover;
use handover::Hold;
pub(super) use opening::header;

/// Time without growth after which a file that was replaced is left: its writer may still have it open.
const GRACE: Duration = Duration::from_secs(1);

/// The format of all files of a source.
#[derive(Debug)]
pub(super) struct FileFormat {
    pub(super) framing: Framing,
    /// True if the first row of each file names the columns.
    pub(super) has_header: bool,
    pub(super) compression: Compression,
    /// Maximum size of a record.
    pub(super) limit: usize,
    /// Time without growth after which the rest of a file is a record.
    pub(super) settling: Duration,
}

/// Result of one step in a partition.
pub(super) enum PartitionStep {
    Records(Vec<Record>),
    /// The file cannot be read further until it changes or, if `is_temporary`, now.
    Unreadable {
        fault: Fault,
        is_temporary: bool,
    },
    /// The position moved without records.
    Moved(Position),
    /// Bytes were read; the next step may have records.
    Busy,
    /// Nothing more is there.
    AtEnd,
    /// Nothing more is there, and the file ends in the middle of a compressed member or of a table.
    Incomplete,
    /// The rest is a record at this time if the file does not grow.
    Waiting(Instant),
    /// The file is gone, and was read to its end.
    Gone,
}

/// Where reading begins in a file without a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    Beginning,
    End,
}

/// A file that is read.
pub(super) struct FilePartition {
    pub(super) name: Partition,
    path: PathBuf,
    shown: Str,
    format: Arc<FileFormat>,
    /// Metadata of all records of the file.
    metadata: RecordMetadata,
    begin: Begin,
    /// The position of an earlier run, until the file is opened.
    resume: Option<ContentResume>,
    place: ContentPosition,
    /// The position that was delivered last, in this run or an earlier one.
    delivered: Option<Position>,
    file: Option<Arc<File>>,
    content: Option<Content>,
    /// The rows of a file with the framing [`Framing::Parquet`].
    table: Option<OpenTable>,
    /// True if a file with this framing has no end yet.
    is_unfinished: bool,
    /// Number of bytes of the file that were read when the content was closed last.
    passed: u64,
    /// The error at the end of the buffer.
    damage: Option<ContentError>,
    /// Content around the place.
    buffer: Vec<u8>,
    /// Index of the place in `buffer`.
    at: usize,
    framer: Framer,
    /// True until the first row was skipped.
    header_due: bool,
    /// Length of the file and of the unread rest when they last changed, and the time of that.
    quiet: Option<(u64, Instant)>,
    /// Since when the path does not lead to the file that is read.
    replaced: Option<Instant>,
    /// True if there is a file at the path.
    is_there: bool,
    /// The file that was renamed to the path, once the replaced file is read.
    successor: Option<Handover>,
    /// Records of the file that its former partition has read and that are not acknowledged.
    hold: Option<Hold>,
    /// The file of which the last returned position is.
    announced: Option<(u32, u64)>,
    /// Change time of the file when its content was last compared.
    compared: Option<(i64, i64)>,
    warned: HashSet<&'static str>,
    /// Warnings for the user since they were last taken.
    pub(super) warnings: Vec<String>,
    /// Number of files of which data is lost.
    pub(super) missed: u64,
    arena: Arena,
}

impl FilePartition {
    /// Creates the partition of the file at a path. Opens nothing.
    pub(super) fn new(
        name: Partition,
        path: PathBuf,
        format: Arc<FileFormat>,
        stored: Option<(Position, ContentResume)>,
        begin: Begin,
    ) -> Self {
        let (stored, resume) = stored.unzip();
        let shown = Str::from(path.to_string_lossy().as_ref());
        let mut metadata = RecordMetadata::with_capacity(4);
        metadata.insert(key::FILE_PATH, shown.clone());
        FilePartition {
            name,
            path,
            shown,
            framer: Framer::new(format.framing.clone()),
            header_due: format.has_header,
            format,
            metadata,
            begin,
            resume,
            place: ContentPosition::default(),
            delivered: stored,
            file: None,
            content: None,
            table: None,
            is_unfinished: false,
            passed: 0,
            damage: None,
            buffer: Vec::new(),
            at: 0,
            quiet: None,
            replaced: None,
            is_there: true,
            successor: None,
            hold: None,
            announced: resume.map(|resume| (resume.identity, resume.born)),
            compared: None,
            warned: HashSet::new(),
            warnings: Vec::new(),
            missed: 0,
            arena: Arena::default(),
        }
    }

    /// Returns the identity and creation time of the file that is read, or that an earlier run has read.
    pub(super) fn file(&self) -> Option<(u32, u64)> {
        match &self.resume {
            Some(resume) => Some((resume.identity, resume.born)),
            None => (self.place.identity != 0).then_some((self.place.identity, self.place.born)),
        }
    }

    /// Returns the stored or delivered position in that file.
    pub(super) fn resume(&self) -> Option<ContentResume> {
        self.resume.or_else(|| ContentResume::decode(self.delivered.as_ref()?).ok())
    }

    /// Reads a file that is open already.
    pub(super) fn read_open(&mut self, file: File) {
        self.file = Some(Arc::new(file));
    }

    /// Notes what is at the path: a file or nothing.
    pub(super) fn note(&mut self, found: Option<&Metadata>, now: Instant) {
        self.is_there = found.is_some();
        let Some((identity, born)) = self.file().filter(|_| self.file.is_some()) else { return };
        let is_same = found.is_some_and(|found| is_of(found, identity, born));
        self.replaced = if is_same { None } else { self.replaced.or(Some(now)) };
    }

    /// Returns the number of unread bytes of a file of this length, as far as the file is open.
    pub(super) fn unread(&self, length: u64) -> u64 {
        let read = match &self.content {
            None => self.passed,
            Some(content) if content.codec().is_some() => content.raw(),
            Some(content) => content.raw() - (self.buffer.len() - self.at) as u64,
        };
        length.saturating_sub(read)
    }

    /// Closes the file if nothing of it is waiting. It is opened again when it changes.
    pub(super) fn close(&mut self) {
        if self.replaced.is_none() && !self.is_incomplete() {
            self.rest();
            self.file = None;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Returns `true` if the file ends in the middle of a compressed member, or a table has no end.
    pub(super) fn is_incomplete(&self) -> bool {
        self.is_unfinished || self.content.as_ref().is_some_and(Content::is_inside)
    }

    /// Reads further. Of the records, returns as many as there is room for.
    ///
    /// # Errors
    /// The file cannot be read, or a record is too long.
    pub(super) fn step(&mut self, room: Room, now: Instant, in_flight: &InFlight) -> Result<PartitionStep, Fault> {
        if let Some(step) = self.begin_successor().or_else(|| self.wait_for_former(in_flight, now)) {
            return Ok(step);
        }
        let shown = self.shown.clone();
        let failed = |error: io::Error| unreadable(&shown, &error);
        if matches!(self.format.framing, Framing::Parquet) {
            return Ok(self.step_rows(room, now).unwrap_or_else(|fault| {
                self.rest();
                self.file = None;
                PartitionStep::Unreadable { fault, is_temporary: true }
            }));
        }
        if self.content.is_none() {
            match self.open(now) {
                Ok(Some(step)) => return Ok(step),
                Ok(None) => {}
                Err(error) => return Ok(self.unreadable(error)),
            }
        }
        let records = self.records(room)?;
        if !records.is_empty() {
            self.quiet = None;
            return Ok(PartitionStep::Records(records));
        }
        if let Some(damage) = self.damage.take() {
            return Ok(self.unreadable(damage));
        }
        self.compact();
        let Some(content) = &mut self.content else { return Ok(PartitionStep::Busy) };
        let before = self.buffer.len();
        match content.read(&mut self.buffer) {
            Ok(0) => {}
            Ok(_) => {
                if let Err(error) = self.compare() {
                    // The bytes may belong to other content than those before them.
                    self.buffer.truncate(before);
                    return Err(failed(error));
                }
                return Ok(PartitionStep::Busy);
            }
            Err(error) if self.buffer.len() > before => {
                // First the records before the damage.
                self.damage = Some(error);
                return Ok(PartitionStep::Busy);
            }
            Err(error) => return Ok(self.unreadable(error)),
        }
        if self.is_cut().map_err(failed)? {
            self.warn_once("cut", "was truncated or rewritten: reading it from its start");
            self.start_over();
            return Ok(PartitionStep::Busy);
        }
        self.at_end(now)
    }

    /// Handles the end of the file.
    fn at_end(&mut self, now: Instant) -> Result<PartitionStep, Fault> {
        let rest = self.buffer.len() - self.at;
        let raw = self.content.as_ref().map_or(0, Content::raw);
        let since = self.quiet_since(raw + rest as u64, now);
        let is_left = self.replaced.is_some_and(|replaced| now.duration_since(replaced.max(since)) >= GRACE);
        if self.is_incomplete() {
            if is_left {
                self.missed += 1;
                self.warnings.push(format!(
                    "{} ended in the middle of a compressed member, after {} bytes of content, and was replaced: the \
                     rest is lost",
                    self.shown,
                    self.place.offset + rest as u64
                ));
                return Ok(self.leave());
            }
            return Ok(match since + self.format.settling > now {
                true => PartitionStep::Waiting(since + self.format.settling),
                false => {
                    self.warn_once(
                        "incomplete",
                        "ends in the middle of a compressed member: waiting for the rest of it",
                    );
                    PartitionStep::Incomplete
                }
            });
        }
        // Names of columns whose line has no end are not complete.
        let is_delivered = self.header_due || matches!(self.place.after, After::Rest(len) if len == rest as u64);
        if rest > 0 && !is_delivered {
            if since + self.format.settling > now && !is_left {
                return Ok(PartitionStep::Waiting(since + self.format.settling));
            }
            return self.last(rest);
        }
        if is_left {
            return Ok(self.leave());
        }
        if let Some(replaced) = self.replaced {
            return Ok(PartitionStep::Waiting(replaced.max(since) + GRACE));
        }
        self.compact();
        self.buffer.shrink_to(TRAIL);
        if is_delivered || self.content.as_ref().is_some_and(|content| content.codec().is_some()) {
            self.rest();
        }
        Ok(PartitionStep::AtEnd)
    }

    /// Leaves a file that was replaced or removed, after it was read to its end.
    fn leave(&mut self) -> PartitionStep {
        self.forget_file();
        if self.is_there || self.successor.is_some() { PartitionStep::Busy } else { PartitionStep::Gone }
    }

    /// Makes the next step read a file from its start.
    fn start_over(&mut self) {
        self.resume = None;
        self.delivered = None;
        self.place = ContentPosition::default();
        self.is_unfinished = false;
        self.quiet = None;
        self.rest();
        self.passed = 0;
        self.framer = Framer::new(self.format.framing.clone());
        self.header_due = self.format.has_header;
    }

    /// Frees the memory for the content. The next step opens it at the place.
    fn rest(&mut self) {
        if let Some(content) = self.content.take() {
            self.passed = content.raw();
        }
        self.table = None;
        (self.buffer, self.damage) = (Vec::new(), None);
        self.at = 0;
    }

    /// Handles content that cannot be read. The file is closed, so that the one at the path is opened next, which may be
    /// repaired or another one.
    fn unreadable(&mut self, error: ContentError) -> PartitionStep {
        match error {
            ContentError::Io(error) => {
                self.rest();
                self.file = None;
                PartitionStep::Unreadable { fault: unreadable(&self.shown, &error), is_temporary: true }
            }
            ContentError::Corrupt { .. } if self.replaced.is_some() => {
                self.missed += 1;
                self.warnings.push(format!("{}: {error}, and the file was replaced: the rest is lost", self.shown));
                self.leave()
            }
            ContentError::Corrupt { .. } => {
                let message = format!(
                    "{}: {error}; the {} bytes of content before it were read; replace the file with a good copy, and \
                     reading continues there",
                    self.shown, self.place.offset
                );
                self.damaged(codes::FILE_CORRUPT, message)
            }
        }
    }

    /// Closes a file that cannot be read further until it changes.
    fn damaged(&mut self, code: Code, message: String) -> PartitionStep {
        self.rest();
        (self.file, self.quiet) = (None, None);
        PartitionStep::Unreadable { fault: Fault::record(code, message), is_temporary: false }
    }

    fn too_long(&self) -> Fault {
        Fault::fatal(
            codes::LINE_TOO_LONG,
            format!(
                "record {} of {}, at byte {}, is longer than {} bytes; raise maxLineBytes to read it",
                self.place.record + 1,
                self.shown,
                self.place.offset,
                self.format.limit
            ),
        )
    }

    /// Drops the content before the place, except the bytes that the next position needs.
    fn compact(&mut self) {
        let kept = self.at.min(TRAIL);
        self.buffer.drain(..self.at - kept);
        self.at = kept;
    }

    /// Returns since when the file has had this length.
    fn quiet_since(&mut self, length: u64, now: Instant) -> Instant {
        match self.quiet {
            Some((known, since)) if known == length => since,
            _ => {
                // A file that was written long ago does not grow only because it is found now.
                let metadata = self.file.as_ref().and_then(|file| file.metadata().ok());
                let age = metadata.and_then(|it| it.modified().ok()?.elapsed().ok()).unwrap_or_default();
                let since = now.checked_sub(age.min(self.format.settling)).unwrap_or(now);
                self.quiet = Some((length, since));
                since
            }
        }
    }

    /// Checks that a plain file whose change time is another still has the content that was read.
    fn compare(&mut self) -> io::Result<()> {
        let Some(file) = self.file.clone().filter(|_| self.content.as_ref().is_some_and(|it| it.codec().is_none()))
        else {
            return Ok(());
        };
        let metadata = file.metadata()?;
        let changed = changed(&metadata);
        if self.compared == Some(changed) {
            return Ok(());
        }
        self.compared = Some(changed);
        let Some(resume) = self.resume() else { return Ok(()) };
        let held = Content::resume(file, Compression::None, &resume, 0);
        match held {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.warn_once("cut", "was truncated or rewritten: reading it from its start");
                self.start_over();
            }
            Err(ContentError::Io(error)) => return Err(error),
            Err(ContentError::Corrupt { .. }) => {}
        }
        Ok(())
    }

    /// Returns `true` if the file is shorter than what was read of it.
    fn is_cut(&self) -> io::Result<bool> {
        let (Some(file), Some(content)) = (&self.file, &self.content) else { return Ok(false) };
        Ok(file.metadata()?.len() < content.raw())
    }

    fn warn_once(&mut self, what: &'static str, text: &str) {
        if what == "cut" || self.warned.insert(what) {
            self.warnings.push(format!("{} {text}", self.shown));
        }
    }
}

/// Returns `true` if a file has the identity and, as far as both are known, the creation time.
pub(super) fn is_of(metadata: &Metadata, of: u32, created: u64) -> bool {
    let now = born(metadata);
    identity(metadata) == of && (created == 0 || now == 0 || created == now)
}

fn changed(metadata: &Metadata) -> (i64, i64) {
    (metadata.ctime(), metadata.ctime_nsec())
}
