//! The `file` source: one record per line, as the file grows.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use anabranch_graph::arguments::Arguments;
use anabranch_graph::diagnostic::Diagnostics;
use anabranch_graph::fault::{Fault, FaultClass};
use anabranch_graph::flow::{Keys, RecordShape, Shape};
use anabranch_graph::kind;
use anabranch_graph::metadata::{Metadata, key};
use anabranch_graph::operator::Host;
use anabranch_graph::record::{Data, Position, Record};
use anabranch_graph::source::{Acker, Backlog, Mark, Partition, Read, Reader, Room, Source, SourceKind};
use anabranch_graph::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_graph::text::Str;

use super::backlog::Lengths;
use super::follower::{Follower, Step, misled};
use super::generations::Missed;
use super::position::{LONGEST, Place, Resume};
use super::watch::Watch;
use crate::arena::Arena;
use crate::offload::Offload;

/// An unterminated last line is delivered when it did not grow for so long.
const STABLE: Duration = Duration::from_millis(100);

/// Pause between two looks at a file that does not grow: doubled from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(160));

/// From this pause on the system is asked to tell of changes, so that a file at rest costs nothing.
const AT_REST: Duration = Duration::from_millis(40);

/// Longest pause between two looks at a file whose changes the system tells: it does not tell those that another
/// machine makes. Pauses double, so that even such a change waits no longer than the file was at rest before.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Most records of one read, whatever the room.
const LONGEST_READ: usize = 4096;

/// The kind, for the registry.
pub fn kind() -> Arc<dyn SourceKind> {
    let specification = Specification::builtin("file", "Reads the lines of a file and follows it as it grows.")
        .describe(
            "Makes a record of each line: the payload is the line without its line feed (a carriage return stays), \
             the key is the number of the line in the file, and the metadata has `file.path`. A file that does not \
             exist yet is waited for. A restart goes on after the last line; a file that was renamed and replaced \
             is read to its end before the new one, also when that happened between two runs and the old file is \
             still in the same directory. While the source runs on Linux, it opens each file as soon as it appears \
             under the path, up to 128 ahead of the one it reads: files that are renamed, compressed and deleted in \
             the meantime are read all the same. A file that was gone before it could be opened is logged and counted \
             in `anabranch_source_missed_total`; so is one that was truncated or rewritten in place before all was read \
             that the source had seen in it. If a copy of that is beside it, not compressed and named so that the name \
             holds that of the path as a word, the source reads the copy for it. A restart does not find deleted files; it reads, in the order in which \
             they were written, files that took the place of the one it read and were renamed too, to the same name \
             but for its numbers: `app.log.2`, then `app.log.1`. Where the file that it \
             read is gone, it reads those that were made after it, also while no file is at the path, if the file \
             system keeps when a file is made; their names must be that of the path and numbers. If you change `path`, \
             the source reads on where it was if the file there begins with what it has read, and otherwise reads that \
             file from its start.\n\n\
             A restart does not read compressed files, and it logs and counts, in the same metric, the files that it can tell are \
             missing between the one that it read and the next: numbers that no uncompressed file has, where names count up to 999 \
             (`app.log.3` and `app.log.1` without `app.log.2`; `app.log.2` and a new file at the path without `app.log.1`), \
             and compressed files where names hold dates. It cannot tell files that were moved to another directory, that \
             were renamed to a name of another form (`app.log.save`; a date where the others have a number) or deleted where \
             names hold dates, and those that were deleted after a file that is gone itself: these are neither read nor \
             counted.\n\n\
             A renamed file whose name holds that of the path as a word is recognised by its content too, as in a \
             directory that was restored from a backup or copied from another host, and where a rotation copies \
             the file and truncates it. A copy must keep the times of the files (`cp -a`, `rsync -a`): they tell the \
             order. Where several begin with what was read, as with no more than a common first line, the oldest \
             is read and all after it: files may come again. A directory that is moved is read on wherever it is; \
             one that was removed, or that may not be listed, is waited for where renamed files are left to be found \
             in it. A restart that finds another file at the path fails with `file_unreadable` while the directory \
             may not be listed.\n\n\
             A truncated or rewritten file is read again from its start. What was read is recognised by its length, \
             its first 1,024 bytes and its last 1,024; after a restart, instead of these, by the last line that was \
             delivered (its last 256 bytes, and at least 64). A rewrite that leaves them where they were, and is \
             different only in between, is not noticed.\n\n\
             Rotated files that were written at the same time, as far as the file system keeps it, are read in the \
             order of their numbers. Where neither the other files nor the name tell whether the larger number is the \
             newer file, as in `app-1.log` and `app-2.log`, all of them are read: a file that was read by an earlier \
             run may come again, and none is left out.\n\n\
             A renamed file is left when nothing was added to it for a second: its writer may still have it open. Of \
             several that a restart finds, it waits so only at the newest, and at those that were written or renamed \
             within the last second.\n\n\
             A last line without line feed is delivered when the end of the file is reached for the first time \
             and when the file is replaced; if it grows later, the whole line is delivered again under the same \
             number. While the file is followed, an unterminated line waits for its line feed.\n\n\
             New lines are seen as they are written. On a network file system whose other machines' changes the \
             system does not tell, the first may be seen ten seconds late, those after it 160 milliseconds.",
        )
        .with(Parameter::new("path", ParameterKind::File, "The file.").required())
        .with(
            Parameter::new(
                "maxLineBytes",
                ParameterKind::Bytes,
                "A longer line stops the pipeline: the bound of the memory one line may take.",
            )
            .default_value("64MiB")
            .validate(Validation::GreaterThan(0.0)),
        )
        .with_all(shared::source());
    kind::source(specification, configure)
}

fn configure(arguments: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
    Ok(Arc::new(ConfiguredFile {
        path: arguments.text("path").cloned().unwrap_or_default(),
        limit: arguments.bytes("maxLineBytes").and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX),
        opened: AtomicBool::new(false),
    }))
}

struct ConfiguredFile {
    path: Str,
    limit: usize,
    /// It was opened before, in this run of the pipeline or an earlier one of the process.
    opened: AtomicBool,
}

#[async_trait]
impl Source for ConfiguredFile {
    fn catches_up(&self) -> bool {
        true
    }

    fn file(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn locate(&self, position: &Position) -> Option<String> {
        let Resume { line, tail, .. } = Resume::decode(position).ok()?;
        Some(format!("{}:{}", self.path, line + u64::from(tail > 0)))
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        Some(Resume::decode(position).map(drop))
    }

    fn is_partitioned(&self) -> bool {
        false
    }

    /// Acknowledged lines stay in the file, and in the rotated ones as long as these are there.
    fn rereads(&self) -> bool {
        true
    }

    async fn still_has(&self, position: &Position) -> Result<bool, Fault> {
        let mut follower = Follower::new(PathBuf::from(self.path.as_str()), Some(Resume::decode(position)?));
        let finds = tokio::task::spawn_blocking(move || follower.finds());
        match finds.await {
            Ok(found) => found.map_err(|error| unreadable(&self.path, &error)),
            Err(error) => Err(Fault::transient("file_unreadable", error.to_string())),
        }
    }

    fn shape(&self) -> RecordShape {
        RecordShape { metadata: Keys::of([key::FILE_PATH]), ..RecordShape::create(Shape::PLAIN, Shape::RAW) }
    }

    async fn open(
        &self,
        resume: &BTreeMap<Partition, Mark>,
        host: &Host,
    ) -> Result<(Box<dyn Reader>, Box<dyn Acker>), Fault> {
        let resume = resume.get(&Partition::ONLY).map(|mark| Resume::decode(&mark.position)).transpose()?;
        let mut metadata = Metadata::with_capacity(4);
        metadata.insert(key::FILE_PATH, self.path.clone());
        let follower = Follower::new(PathBuf::from(self.path.as_str()), resume);
        let mut reader = Lines {
            host: host.clone(),
            path: self.path.clone(),
            limit: self.limit,
            metadata,
            input: Offload::Here(Input { follower, rest: Vec::new(), watch: None }),
            place: Place::default(),
            whole: Bytes::new(),
            found: None,
            scanned: 0,
            idle: Idle::default(),
            changes_untold: false,
            lengths: Lengths::default(),
            missed: Missed::default(),
            arena: Arena::default(),
        };
        // What cannot be read is said here and now; a file that is missing may come.
        let step = reader.look(0).await.map_err(|fault| {
            // A right that was never there is waited for as long as one that a server refuses.
            let is_new = fault.is_of_login() && !self.opened.load(Ordering::Relaxed);
            if is_new { fault.with_class(FaultClass::Fatal) } else { fault }
        })?;
        self.opened.store(true, Ordering::Relaxed);
        reader.note(step);
        Ok((Box::new(reader), Box::new(Forgetful)))
    }
}

/// What a blocking thread works on.
struct Input {
    follower: Follower,
    /// Bytes of the file after the whole lines.
    rest: Vec<u8>,
    /// While the file is at rest.
    watch: Option<Watch>,
}

/// The reader.
struct Lines {
    host: Host,
    path: Str,
    limit: usize,
    /// Shared by all records.
    metadata: Metadata,
    input: Offload<Input, io::Result<Step>>,
    /// What was delivered; the next line starts here.
    place: Place,
    /// Whole lines, line feeds included, that were not delivered yet.
    whole: Bytes,
    /// What a look brought that was not acted on yet.
    found: Option<Step>,
    /// Bytes of the rest that hold no line feed.
    scanned: usize,
    idle: Idle,
    /// The file changed while it was watched, and the system did not tell: it is looked at all the time from then on.
    changes_untold: bool,
    /// Of the current file.
    lengths: Lengths,
    /// Generations of the file that were reported as missed.
    missed: Missed,
    arena: Arena,
}

/// What is known while the file does not grow.
#[derive(Default)]
struct Idle {
    /// `CaughtUp` was said since the last record.
    said: bool,
    /// `CaughtUp` was said at any time.
    ever: bool,
    /// Length of the unterminated line, and when it is taken for stable.
    tail: Option<(usize, Instant)>,
    pause: Duration,
    /// The last pause ended without a word from the system.
    untold: bool,
    /// It was said that the directory cannot be listed.
    unlisted: bool,
}

#[async_trait]
impl Reader for Lines {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        loop {
            let records = self.lines(room)?;
            if !records.is_empty() {
                self.idle = Idle { ever: self.idle.ever, ..Idle::default() };
                return Ok(Read::Rows { partition: Partition::ONLY, records });
            }
            // Between here and the next loop, whatever a look brings is noted before anything else is waited for.
            if self.found.is_none() {
                let rest = self.input.here().map_or(0, |input| input.rest.len());
                // A line as long as the limit, and its line feed.
                let most = self.limit.saturating_sub(rest).saturating_add(1);
                let step = self.look(most).await?;
                self.note(step);
            }
            match self.found.take() {
                Some(Step::Replaced) => {
                    let last = self.leave("the file was replaced: going on with the new one");
                    if let Some(record) = last {
                        return Ok(Read::Rows { partition: Partition::ONLY, records: vec![record] });
                    }
                }
                Some(Step::Truncated) => {
                    let start = self.place.restarted();
                    let last = self.leave("the file was truncated or rewritten: reading it from its start");
                    self.place = start;
                    if let Some(record) = last {
                        return Ok(Read::Rows { partition: Partition::ONLY, records: vec![record] });
                    }
                }
                Some(end @ (Step::AtEnd | Step::Missing)) => {
                    if let Some(read) = self.at_end(end).await {
                        return Ok(read);
                    }
                }
                // There is more to read in the file that took its place.
                Some(Step::Leaving | Step::Unlisted) => self.pause().await,
                Some(Step::Opened(_) | Step::Grown | Step::Surveyed) | None => {}
            }
        }
    }

    fn missing(&self) -> Option<String> {
        let Some(Step::Missing) = self.found else { return None };
        let hint = match self.path.find(WILDCARDS) {
            Some(_) => ": the source reads one file, and wildcards are not expanded",
            None => "",
        };
        Some(format!("there is no file {}{hint}", self.path))
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        let survey = |input: &mut Input| {
            input.follower.survey();
            Ok(Step::Surveyed)
        };
        // Where a read was dropped, this is the outcome of its look. What that failed of, the next read meets again.
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

fn unreadable(path: &str, error: &io::Error) -> Fault {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, PermissionDenied};
    if let Some(why) = misled(error) {
        return Fault::fatal("file_unreadable", format!("cannot read {path}: {why}"));
    }
    let text = format!("cannot read {path}: {error}");
    match error.kind() {
        IsADirectory | NotADirectory | InvalidInput => Fault::fatal("file_unreadable", text),
        // It may be given: a rotation creates the file first and sets its owner later.
        PermissionDenied => Fault::transient("file_unreadable", text).of_login(),
        _ => Fault::transient("file_unreadable", text),
    }
}

/// Characters with which shells name several files.
const WILDCARDS: [char; 3] = ['*', '?', '['];

impl Lines {
    /// Looks at the file, at most `most` bytes further. Cancel-safe: what it brings is not lost.
    async fn look(&mut self, most: usize) -> Result<Step, Fault> {
        let watch = self.idle.pause >= AT_REST && !self.changes_untold;
        self.input
            .run(move |input| {
                // First the watch, then the look: no change falls between them.
                if watch && input.watch.is_none() {
                    input.watch = Watch::on(input.follower.path());
                }
                input.follower.step(&mut input.rest, most)
            })
            .await
            .map_err(|e| Fault::fatal("file_unreadable", e))?
            .map_err(|e| unreadable(&self.path, &e))
    }

    /// Takes in what a look brought, at once and without waiting.
    fn note(&mut self, step: Step) {
        if matches!(step, Step::Surveyed) {
            return;
        }
        self.say_what_is_missing();
        if !matches!(step, Step::AtEnd | Step::Missing)
            && let Some(watch) = self.input.here().and_then(|input| input.watch.take())
        {
            let untold = std::mem::take(&mut self.idle.untold);
            self.changes_untold = untold && watch.changed().now_or_never().is_none();
        }
        match &step {
            Step::Opened(opened) => {
                if let Some(warning) = &opened.warning {
                    self.warn(warning);
                }
                self.place = opened.place;
                self.lengths.clear();
            }
            Step::Grown => self.take_whole_lines(),
            Step::Missing if !self.idle.ever => self.warn("there is no such file: waiting for it"),
            Step::Unlisted if !self.idle.unlisted => {
                self.idle.unlisted = true;
                self.warn(
                    "the file was replaced, and its directory cannot be listed: waiting for it, as other files may have \
                     come between",
                );
            }
            Step::Missing | Step::AtEnd | Step::Leaving | Step::Unlisted => {}
            Step::Replaced | Step::Truncated | Step::Surveyed => {}
        }
        self.found = Some(step);
    }

    /// Moves whole lines out of the rest. The bytes after them are copied: there are none after a long line, and else no
    /// more than were read at once.
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

    /// Records of the whole lines at hand, as far as there is room.
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
                // Delivered before its line feed came.
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
            // The records alone keep the buffer from here on.
            self.whole = Bytes::new();
            if records.is_empty() && self.scanned > self.limit {
                return Err(self.too_long());
            }
        }
        Ok(records)
    }

    fn too_long(&self) -> Fault {
        Fault::fatal(
            "line_too_long",
            format!(
                "line {} of {}, at byte {}, is longer than {} bytes; raise maxLineBytes to read it",
                self.place.line + 1,
                self.path,
                self.place.offset,
                self.limit
            ),
        )
    }

    /// The unterminated line at the end, unless there is none or it was delivered.
    fn rest(&mut self) -> Option<&mut Vec<u8>> {
        let tail = self.place.tail;
        self.input.here().map(|input| &mut input.rest).filter(|rest| !rest.is_empty() && rest.len() as u64 != tail)
    }

    /// The record of the unterminated line.
    fn unterminated(&mut self, rest: Bytes) -> Record {
        let place = self.place.with_tail(&rest);
        self.place.tail = place.tail;
        record(&place, place.line + 1, rest, &self.metadata, &mut self.arena)
    }

    /// Forgets the file that was read, with a warning: the next one starts anew. Its last line, if it was not delivered.
    fn leave(&mut self, what: &str) -> Option<Record> {
        let rest = self.rest().map(std::mem::take);
        let last = rest.map(|rest| self.unterminated(Bytes::from(rest)));
        self.warn(what);
        self.place = Place::default();
        self.lengths.clear();
        self.scanned = 0;
        if let Some(input) = self.input.here() {
            input.rest = Vec::new();
        }
        last
    }

    /// At the end of the file. If nothing is returned, it is time to look again.
    async fn at_end(&mut self, end: Step) -> Option<Read> {
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

    /// Waits before the next look, longer each time, or until the system tells of a change.
    async fn pause(&mut self) {
        let changed = self.input.here().and_then(|input| input.watch.as_ref()).map(Watch::changed);
        let longest = if changed.is_some() { LONGEST_PAUSE } else { PAUSES.1 };
        self.idle.pause = (self.idle.pause * 2).clamp(PAUSES.0, longest);
        match changed {
            Some(changed) => self.idle.untold = timeout(self.idle.pause, changed).await.is_err(),
            None => sleep(self.idle.pause).await,
        }
    }

    /// Warns of files that came and went unread since the last warning.
    fn say_what_is_missing(&mut self) {
        let Some(missed) = self.input.here().map(|input| input.follower.missed()) else { return };
        let files = missed.files - self.missed.files;
        // What was lost between two runs, the warning of the opened file says.
        if files > 0
            && let Some(last) = missed.last
        {
            let last = chrono::DateTime::<chrono::Utc>::from(last).to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
            let count = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
            self.warn(&format!(
                "{count} that appeared here, the last at {last}, could not be opened before the rotation removed them: \
                 their lines are not read"
            ));
        }
        if missed.cut > self.missed.cut {
            self.warn(
                "the file was truncated or rewritten before all that it held was read, and no copy of that is beside it: \
                 the lines that were not read yet are lost",
            );
        }
        if missed.copied > self.missed.copied {
            self.warn(
                "the file was truncated or rewritten before all that it held was read: a copy beside it is read for that",
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

/// A line of this number, after which is `place`.
fn record(place: &Place, line: u64, payload: Bytes, metadata: &Metadata, arena: &mut Arena) -> Record {
    // Position and key are copied as one.
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

/// There is nothing to forget: the lines stay in the file.
struct Forgetful;

#[async_trait]
impl Acker for Forgetful {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
