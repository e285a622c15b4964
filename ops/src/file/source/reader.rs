//! The reader of the source: follows the file, and delivers whole lines, or the rest of a file that stays unterminated.

mod beginning;
mod compressed;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Backlog, Read, Reader, Room};
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::{Data, Position, Record};

use super::partition::FileFormat;
use super::several::SeveralFiles;
use super::unreadable::unreadable;
use crate::arena::Arena;
use crate::codes;
use crate::file::backlog::Lengths;
use crate::file::follower::{Follower, StepResult};
use crate::file::generations::UnreadFiles;
use crate::file::position::{FilePosition, LONGEST, Resume};
use crate::file::watch::Watch;
use crate::offload::Offload;
use beginning::encoded;

/// Time without growth after which an unterminated last line is delivered.
const STABLE: Duration = Duration::from_millis(100);

/// Shortest and longest pause between two checks of a file that does not grow; the pause doubles.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(160));

/// Pause from which the file is watched through the system, so that an idle file costs nothing.
const AT_REST: Duration = Duration::from_millis(40);

/// Longest pause between two checks of a watched file. The system does not report changes by other machines. Pauses
/// double, so such a change waits no longer than the file was idle before.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Maximum number of records per read.
const LONGEST_READ: usize = 4096;

/// State used on a blocking thread.
struct Input {
    follower: Follower,
    /// Bytes of the file after the last whole line.
    rest: Vec<u8>,
    /// Watch of the idle file.
    watch: Option<Watch>,
}

/// Reader of the source.
pub(super) struct Lines {
    host: Host,
    path: Str,
    limit: usize,
    /// Metadata shared by all records.
    metadata: Metadata,
    input: Offload<Input, io::Result<StepResult>>,
    /// FilePosition after the last delivered line; the next line starts here.
    place: FilePosition,
    /// Whole lines with their line feeds that were not delivered yet.
    whole: Bytes,
    /// Position where reading begins, if it is not stored yet. A restart finds the file by it, also if the file was renamed
    /// before a record was stored.
    begun_at: Option<Position>,
    /// True if a position of a file is stored or in `begun_at`.
    has_begun: bool,
    /// Format and pace of files that turn out to be compressed.
    format: Arc<FileFormat>,
    polling: Duration,
    /// Reads on from the first compressed file.
    compressed: Option<SeveralFiles>,
    /// Result of a step that was not handled yet.
    found: Option<StepResult>,
    /// Number of bytes in `rest` that were searched and contain no line feed.
    scanned: usize,
    idle: Idle,
    /// True if the watched file changed without a report. Then the file is polled.
    changes_untold: bool,
    /// Lengths of the current file over time.
    lengths: Lengths,
    /// Counts of missed files that were reported already.
    missed: UnreadFiles,
    arena: Arena,
}

/// State while the file does not grow.
#[derive(Default)]
struct Idle {
    /// True if `CaughtUp` was returned since the last record.
    said: bool,
    /// True if `CaughtUp` was ever returned.
    ever: bool,
    /// Length of the unterminated line, and when it counts as stable.
    tail: Option<(usize, Instant)>,
    pause: Duration,
    /// True if the last pause ended without a report from the system.
    untold: bool,
    /// True if the user was warned that the directory cannot be listed.
    unlisted: bool,
}

#[async_trait]
impl Reader for Lines {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        loop {
            if let Some(position) = self.begun_at.take() {
                return Ok(Read::Progress(Partition::ONLY, position));
            }
            if let Some(reader) = &mut self.compressed {
                return reader.read(room).await;
            }
            let records = self.lines(room)?;
            if !records.is_empty() {
                self.idle = Idle { ever: self.idle.ever, ..Idle::default() };
                return Ok(Read::Rows { partition: Partition::ONLY, records });
            }
            // Record the result of a step before the next await, so that a dropped call loses nothing.
            if self.found.is_none() {
                let rest = self.input.here().map_or(0, |input| input.rest.len());
                // A line of the maximum length and its line feed.
                let most = self.limit.saturating_sub(rest).saturating_add(1);
                let step = self.look(most).await?;
                self.note(step);
                if self.is_compressed() {
                    self.decompress()?;
                    continue;
                }
            }
            match self.found.take() {
                Some(StepResult::Replaced) => {
                    let last = self.leave("the file was replaced: continuing with the new one");
                    if let Some(record) = last {
                        return Ok(Read::Rows { partition: Partition::ONLY, records: vec![record] });
                    }
                }
                Some(StepResult::Truncated) => {
                    let start = self.place.restarted();
                    let last = self.leave("the file was truncated or rewritten: reading it from its start");
                    self.place = start;
                    if let Some(record) = last {
                        return Ok(Read::Rows { partition: Partition::ONLY, records: vec![record] });
                    }
                }
                Some(end @ (StepResult::AtEnd | StepResult::Missing)) => {
                    if let Some(read) = self.at_end(end).await {
                        return Ok(read);
                    }
                }
                // The file that took its place has more to read.
                Some(StepResult::Leaving | StepResult::Unlisted) => self.pause().await,
                Some(StepResult::Opened(_) | StepResult::Grown | StepResult::Surveyed) | None => {}
            }
        }
    }

    fn left(&self) -> Option<String> {
        self.compressed.as_ref()?.left()
    }

    fn missing(&self) -> Option<String> {
        if let Some(reader) = &self.compressed {
            return reader.missing();
        }
        let Some(StepResult::Missing) = self.found else { return None };
        Some(format!("the file {} does not exist", self.path))
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        if let Some(reader) = &mut self.compressed {
            return reader.backlog().await;
        }
        let survey = |input: &mut Input| {
            input.follower.survey();
            Ok(StepResult::Surveyed)
        };
        // After a dropped read, this returns the result of its step. The next read reports the same error again.
        if let Ok(step) = self.input.run(survey).await.ok()? {
            self.note(step);
        }
        self.say_what_is_missing();
        let delivered = self.place.offset + self.place.tail;
        let input = self.input.here()?;
        let (survey, read) = (input.follower.surveyed().clone(), input.follower.read());
        if let Some(modified) = survey.modified {
            self.lengths.note(survey.length, modified);
        }
        // A line without a line feed waits for its end.
        let incomplete = self.whole.is_empty() && survey.length == read && self.scanned == input.rest.len();
        let unread = if incomplete { 0 } else { survey.length.saturating_sub(delivered) };
        let since = if unread > 0 { self.lengths.since(delivered) } else { None };
        let missed = input.follower.missed();
        let missed = missed.files + missed.cut;
        Some(Backlog {
            bytes: Some(unread + survey.later),
            since: since.or(survey.later_since),
            missed,
            ..Backlog::default()
        })
    }
}

impl Lines {
    /// Creates a reader that resumes from a position, or else begins at the start of the file. Opens nothing.
    pub(super) fn new(
        path: &Str,
        (format, polling): (Arc<FileFormat>, Duration),
        resume: Option<Resume>,
        host: &Host,
    ) -> Self {
        let mut metadata = Metadata::with_capacity(4);
        metadata.insert(key::FILE_PATH, path.clone());
        let follower = Follower::new(PathBuf::from(path.as_str()), resume);
        Lines {
            host: host.clone(),
            path: path.clone(),
            limit: format.limit,
            metadata,
            input: Offload::Here(Input { follower, rest: Vec::new(), watch: None }),
            place: FilePosition::default(),
            whole: Bytes::new(),
            begun_at: None,
            has_begun: resume.is_some(),
            format,
            polling,
            compressed: None,
            found: None,
            scanned: 0,
            idle: Idle::default(),
            changes_untold: false,
            lengths: Lengths::default(),
            missed: UnreadFiles::default(),
            arena: Arena::default(),
        }
    }

    /// Reads at most `most` bytes further. Cancel-safe: a dropped call loses no result.
    pub(super) async fn look(&mut self, most: usize) -> Result<StepResult, Fault> {
        let watch = self.idle.pause >= AT_REST && !self.changes_untold;
        self.input
            .run(move |input| {
                // Set the watch before the check, so that no change falls between them.
                if watch && input.watch.is_none() {
                    input.watch = Watch::on(input.follower.path());
                }
                input.follower.step(&mut input.rest, most)
            })
            .await
            .map_err(|e| Fault::fatal(codes::FILE_UNREADABLE, e))?
            .map_err(|e| unreadable(&self.path, &e))
    }

    /// Handles the result of a step without waiting.
    pub(super) fn note(&mut self, step: StepResult) {
        if matches!(step, StepResult::Surveyed) {
            return;
        }
        self.say_what_is_missing();
        if !matches!(step, StepResult::AtEnd | StepResult::Missing)
            && let Some(watch) = self.input.here().and_then(|input| input.watch.take())
        {
            let untold = std::mem::take(&mut self.idle.untold);
            self.changes_untold = untold && watch.changed().now_or_never().is_none();
        }
        match &step {
            StepResult::Opened(opened) => {
                if let Some(warning) = &opened.warning {
                    self.warn(warning);
                }
                self.place = opened.place;
                if !std::mem::replace(&mut self.has_begun, true) {
                    self.begun_at = Some(encoded(&self.place));
                }
                self.lengths.clear();
            }
            StepResult::Grown if self.is_compressed() => {}
            StepResult::Grown => self.take_whole_lines(),
            StepResult::Missing if !self.idle.ever => self.warn("the file does not exist: waiting for it"),
            StepResult::Unlisted if !self.idle.unlisted => {
                self.idle.unlisted = true;
                self.warn(
                    "the file was replaced, and its directory cannot be listed: waiting for the directory, because \
                     other files may have been created in the meantime",
                );
            }
            StepResult::Missing | StepResult::AtEnd | StepResult::Leaving | StepResult::Unlisted => {}
            StepResult::Replaced | StepResult::Truncated | StepResult::Surveyed => {}
        }
        self.found = Some(step);
    }

    /// Moves whole lines out of `rest`. Copies the bytes after them: none after a long line, otherwise at most one
    /// read.
    fn take_whole_lines(&mut self) {
        let Some(input) = self.input.here() else { return };
        let Some(last) = memchr::memrchr(b'\n', &input.rest[self.scanned..]) else {
            self.scanned = input.rest.len();
            return;
        };
        let end = self.scanned + last + 1;
        let rest = input.rest[end..].to_vec();
        input.rest.truncate(end);
        self.whole = Bytes::from(std::mem::replace(&mut input.rest, rest));
        self.scanned = 0;
    }

    /// Returns records of the available whole lines, up to the limits of `room`.
    fn lines(&mut self, room: Room) -> Result<Vec<Record>, Fault> {
        let mut records = Vec::new();
        let (most, mut bytes) = (room.rows.clamp(1, LONGEST_READ), 0);
        let (whole, mut start) = (self.whole.clone(), 0);
        for end in memchr::memchr_iter(b'\n', &whole) {
            let line = start..end;
            if line.len() > self.limit {
                if records.is_empty() {
                    return Err(self.too_long());
                }
                break;
            }
            if line.len() as u64 == self.place.tail && self.place.tail > 0 {
                // This line was already delivered before its line feed arrived.
                self.place.advance(&whole[..=end], end + 1 - start);
                start = end + 1;
                continue;
            }
            let weight = size_of::<Record>() + self.metadata.weight() + LONGEST + line.len();
            if records.len() == most || (bytes + weight > room.bytes && !records.is_empty()) {
                break;
            }
            if records.is_empty() {
                records.reserve_exact(most.min(whole.len() - start));
            }
            bytes += weight;
            self.place.advance(&whole[..=end], end + 1 - start);
            records.push(record(&self.place, self.place.line, whole.slice(line), &self.metadata, &mut self.arena));
            start = end + 1;
        }
        self.place.turn(&whole[..start]);
        self.whole = self.whole.split_off(start);
        if self.whole.is_empty() {
            // Only the records keep the buffer alive from here on.
            self.whole = Bytes::new();
            if records.is_empty() && self.scanned > self.limit {
                return Err(self.too_long());
            }
        }
        Ok(records)
    }

    fn too_long(&self) -> Fault {
        Fault::fatal(
            codes::LINE_TOO_LONG,
            format!(
                "line {} of {}, at byte {}, is longer than {} bytes; raise maxLineBytes to read it",
                self.place.line + 1,
                self.path,
                self.place.offset,
                self.limit
            ),
        )
    }

    /// Returns the unterminated line at the end, unless there is none or it was delivered.
    fn rest(&mut self) -> Option<&mut Vec<u8>> {
        let tail = self.place.tail;
        self.input.here().map(|input| &mut input.rest).filter(|rest| !rest.is_empty() && rest.len() as u64 != tail)
    }

    /// Builds the record of the unterminated line.
    fn unterminated(&mut self, rest: Bytes) -> Record {
        let place = self.place.with_tail(&rest);
        self.place.tail = place.tail;
        record(&place, place.line + 1, rest, &self.metadata, &mut self.arena)
    }

    /// Leaves the file with a warning; the next one starts from its beginning. Returns the last line if it was not
    /// delivered.
    fn leave(&mut self, what: &str) -> Option<Record> {
        let rest = self.rest().map(std::mem::take);
        let last = rest.map(|rest| self.unterminated(Bytes::from(rest)));
        self.warn(what);
        self.place = FilePosition::default();
        self.lengths.clear();
        self.scanned = 0;
        if let Some(input) = self.input.here() {
            input.rest = Vec::new();
        }
        last
    }

    /// Handles the end of the file. Returns `None` if the file should be checked again.
    async fn at_end(&mut self, end: StepResult) -> Option<Read> {
        let rest = self.input.here().map_or(0, |input| input.rest.len());
        if !self.idle.ever && rest > 0 && rest as u64 != self.place.tail {
            let now = Instant::now();
            match self.idle.tail {
                Some((len, stable)) if len == rest => {
                    if now >= stable {
                        let rest = Bytes::copy_from_slice(self.rest()?);
                        let record = self.unterminated(rest);
                        self.idle.tail = None;
                        return Some(Read::Rows { partition: Partition::ONLY, records: vec![record] });
                    }
                    sleep_until(stable).await;
                }
                _ => {
                    self.idle.tail = Some((rest, now + STABLE));
                    sleep_until(now + STABLE).await;
                }
            }
            return None;
        }
        if !self.idle.said {
            (self.idle.said, self.idle.ever) = (true, true);
            self.found = Some(end);
            return Some(Read::CaughtUp);
        }
        self.pause().await;
        None
    }

    /// Waits before the next check: longer each time, or until the system reports a change.
    async fn pause(&mut self) {
        let changed = self.input.here().and_then(|input| input.watch.as_ref()).map(Watch::changed);
        let longest = if changed.is_some() { LONGEST_PAUSE } else { PAUSES.1 };
        self.idle.pause = (self.idle.pause * 2).clamp(PAUSES.0, longest);
        match changed {
            Some(changed) => self.idle.untold = timeout(self.idle.pause, changed).await.is_err(),
            None => sleep(self.idle.pause).await,
        }
    }

    /// Warns about files that were missed since the last warning.
    fn say_what_is_missing(&mut self) {
        let Some(missed) = self.input.here().map(|input| input.follower.missed()) else { return };
        let files = missed.files - self.missed.files;
        // Losses between two runs are in the warning of the opened file.
        if files > 0
            && let Some(last) = missed.last
        {
            let last = chrono::DateTime::<chrono::Utc>::from(last).to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
            let count = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
            self.warn(&format!(
                "{count} that appeared here, the last at {last}, could not be opened before the rotation removed \
                 the data: the lines are not read"
            ));
        }
        if missed.cut > self.missed.cut {
            self.warn(
                "the file was truncated or rewritten before all its lines were read, and no copy of them is beside \
                 it: the unread lines are lost",
            );
        }
        if missed.copied > self.missed.copied {
            self.warn(
                "the file was truncated or rewritten before all its lines were read: a copy beside it is read instead",
            );
        }
        if missed.unknown > self.missed.unknown {
            self.warn(
                "the system did not report all changes of the directory: files may have been rotated away unread",
            );
        }
        self.missed = missed;
    }

    fn warn(&self, what: &str) {
        tracing::warn!(pipeline = %self.host.pipeline, connector = %self.host.node, path = %self.path, "{what}");
    }
}

/// Builds the record of line number `line`, which ends at `place`.
fn record(place: &FilePosition, line: u64, payload: Bytes, metadata: &Metadata, arena: &mut Arena) -> Record {
    // Copy position and key together.
    let mut room = [0; LONGEST + 20];
    let end = place.encode(&mut room);
    let mut number = itoa::Buffer::new();
    let number = number.format(line).as_bytes();
    room[end..end + number.len()].copy_from_slice(number);
    let mut position = arena.copy(&room[..end + number.len()]);
    let key = position.split_off(end);
    let mut record = Record::create(Position(position), Data::Raw(key), Data::Raw(payload));
    record.metadata = metadata.clone();
    record
}
