//! Sources: plugins that read records, and receive acknowledgements for delivered ones.

mod refused;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_record::extent::{CollectionSpace, Extent};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;
use anabranch_record::{Position, Record};
use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::arguments::Arguments;
use crate::codes;
use crate::diagnostic::Diagnostics;
use crate::flow::{Flow, RecordShape};
use crate::host::Host;
use crate::specification::Specification;
pub use refused::RefusedRequests;

/// A kind of source, as registered.
pub trait SourceKind: Send + Sync {
    /// Returns the name, documentation and parameters.
    fn specification(&self) -> &Specification;

    /// Checks settings across several parameters and creates the source. Opens nothing.
    ///
    /// # Errors
    /// All findings, with the places of the settings.
    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Source>, Diagnostics>;
}

/// A configured source, before it is opened.
///
/// Some sources cannot read a record a second time, such as one that receives requests. Its sender repeats the records that
/// were not acknowledged, as other records. Such a source gives every record a position that no other record of the connector
/// has, in this run or another one. It is opened after any mark ([`Start::after_mark`]), so that the lane continues its
/// generation with the records that arrive then. It declares neither [`Replay::Exactly`] nor [`Source::rereads`].
#[async_trait]
pub trait Source: Send + Sync {
    /// Returns `true` if the source can detect that nothing more is available now. `run --once` rejects other sources.
    fn catches_up(&self) -> bool;

    /// Returns whether a source that is opened again after a mark reads the same records in the same order. Opens
    /// nothing: `pipelines plan` prints the answer. [`Start::replays_exactly`] decides it for each partition.
    fn replay(&self) -> Replay {
        Replay::NotExactly
    }

    /// Returns what becomes of records that the source has handed over or confirmed, and that are not delivered when a run
    /// ends. `pipelines plan` and the log of the service say so. By default, the next run reads them again.
    fn undelivered(&self) -> Undelivered {
        Undelivered::ReadAgain
    }

    /// Warns about settings that are probably a mistake. `flow` has the shape of the records of the source. Opens nothing.
    /// Nothing by default.
    fn flow(&self, _flow: &mut Flow) {}

    /// Returns the path of the file that the source reads, if it reads one.
    fn file(&self) -> Option<&str> {
        None
    }

    /// Returns `true` if the source reads the file at a path, also if it selects files by a pattern. Opens nothing.
    fn reads_file(&self, path: &str) -> bool {
        self.file() == Some(path)
    }

    /// Returns the external resources that the source reads, in addition to [`Source::file`]. A destination that writes
    /// one of them feeds the source. Opens nothing. Empty by default: none, or unknown.
    fn reads(&self) -> Vec<Extent> {
        Vec::new()
    }

    /// Returns `true` if the source reads everything in an extent. A source that selects by a pattern knows more than its list
    /// says. Opens nothing.
    fn reads_all_of(&self, extent: &Extent) -> bool {
        self.reads().iter().any(|read| extent.is_within(read))
    }

    /// Returns the resource that the source takes for itself, such as the address at which it listens: of two sources whose
    /// resources have a name in common, only one can work. Opens nothing. `None` by default: the source shares what it reads.
    fn takes(&self) -> Option<Extent> {
        None
    }

    /// Returns the place whose resources the source names in the collection of every record. A destination that chooses
    /// its resource in this place by the collection feeds the source. Opens nothing. `None` by default: there is none.
    fn collections(&self) -> Option<CollectionSpace> {
        None
    }

    /// Returns the condition under which nobody else reads the partitions of this source and moves its positions, as a phrase
    /// such as `no other service reads with the same consumer group`. A transactional destination stores the positions of one
    /// service only, so its records are effectively once under this condition. `None` by default: nobody does.
    fn alone_if(&self) -> Option<&'static str> {
        None
    }

    /// Returns `true` if the source can be opened at a position before the last acknowledged one, and then reads every
    /// record after it again. A source that deletes acknowledged records cannot. Only such a source can resume at the
    /// position of a destination that has lost confirmed records; otherwise the pipeline stops.
    fn rereads(&self) -> bool {
        self.replay() != Replay::NotExactly
    }

    /// Returns `true` if the source distinguishes a partition that a user has reset from a new one: marks without a
    /// position are in `resume` and reach [`Reader::go_on`]. Otherwise, a reset partition has no mark.
    fn takes_resets(&self) -> bool {
        false
    }

    /// Returns the name of what a user can have read again while the source reads on ([`Request::Backfill`]), such as
    /// `table`. `None` by default: nothing.
    fn backfills(&self) -> Option<&'static str> {
        None
    }

    /// Returns `true` if the records after a position still exist. Called for a source that can read again, before it
    /// resumes at the position of a destination that has lost confirmed records. May access the external system. `true`
    /// by default.
    ///
    /// # Errors
    /// The source cannot determine this now.
    async fn still_has(&self, _position: &Position) -> Result<bool, Fault> {
        Ok(true)
    }

    /// Returns the shape of all records of the source. Unknown by default.
    fn shape(&self) -> RecordShape {
        RecordShape::unknown()
    }

    /// Describes the place of a record of a partition for people, such as `in.txt:17`. `None` by default: positions are not
    /// meaningful to people.
    fn locate(&self, _partition: &Partition, _position: &Position) -> Option<String> {
        None
    }

    /// Checks, without opening anything, whether the source can be opened at a position, before that position replaces
    /// another one. `None` by default: only [`Source::open`] finds out.
    ///
    /// # Errors
    /// The reason why it cannot be opened there.
    fn check(&self, _position: &Position) -> Option<Result<(), Fault>> {
        None
    }

    /// Checks the external system for `anabranch doctor`: that it can be reached, that the rights suffice, and that no
    /// setting of it endangers records. Creates, changes and consumes nothing, and reads no record. Returns warnings, one
    /// phrase each; there are none by default.
    ///
    /// # Errors
    /// The reason why the source could not read now.
    async fn examine(&self) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }

    /// Asks the external system for the streams that it offers, with the choice of the settings. Creates, changes and
    /// consumes nothing. `None` by default: the source does not name streams.
    ///
    /// # Errors
    /// The reason why the system cannot be asked, or does not have what the settings choose.
    async fn discover(&self) -> Result<Option<Vec<OfferedStream>>, Fault> {
        Ok(None)
    }

    /// Returns `true` if the source may have other partitions than [`Partition::ONLY`]. `true` by default: unknown
    /// before the source is opened.
    fn is_partitioned(&self) -> bool {
        true
    }

    /// Returns how several runs may share the source, each with the partitions that its slots have ([`Host::slots`]).
    /// [`Split::Whole`] by default. `pipelines plan` prints the answer.
    fn split(&self) -> Split {
        Split::Whole
    }

    /// Returns `true` if several runs may read the source at the same time.
    fn splits(&self) -> bool {
        self.split() != Split::Whole
    }

    /// Removes what the source has created for itself in the external system, such as a replication slot, because its
    /// connector is deleted. `marks` are its last ones. Returns `true` if the source can no longer continue after them.
    /// Nothing by default.
    ///
    /// # Errors
    /// Something stays, and the user has to remove it. The connector is deleted anyway.
    async fn deleted(&self, _marks: &BTreeMap<Partition, Mark>) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Opens the source at the marks in `resume`; a partition without a mark starts from the beginning. The result says
    /// of each partition for which this is not so that reading starts elsewhere ([`Start::elsewhere`]).
    ///
    /// A mark counts as the acknowledgement of everything up to it: a crash may have occurred after the mark was stored
    /// and before [`Acker::ack`] was called, and those positions are not acknowledged again.
    ///
    /// The mark of a finished partition ([`Read::Finished`]) is in `resume` if the last run ended before the engine
    /// dropped it. The source then reports the partition as finished again.
    ///
    /// # Errors
    /// The reason why it cannot be opened. An invalid position is a fatal error.
    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault>;
}

/// A stream that an external system offers to a source ([`Source::discover`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedStream {
    /// Unique id, which settings may name.
    pub id: Str,
    /// Name, which is the collection of its records.
    pub name: Str,
    /// Properties that identify a record. There are none if it is blank.
    pub key: Vec<Str>,
    /// How the stream is read, such as `INCREMENTAL`. `None` if the system decides.
    pub replication_method: Option<Str>,
    /// Property by which the stream is read incrementally.
    pub replication_key: Option<Str>,
    /// Properties by which it can be read incrementally, as far as they are known.
    pub replication_keys: Vec<Str>,
    /// All properties.
    pub properties: Vec<Str>,
    /// True if the settings select it.
    pub is_selected: bool,
}

/// The fate of records that a run has not delivered when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Undelivered {
    /// The source reads them again. It resumes after any record.
    ReadAgain,
    /// The source reads all records from a place on again: the end of a phrase, such as `after the last STATE message of the
    /// tap`. Such a source knows few places to resume from, and may read any number of records between two of them. So
    /// `engine.replay-rows` does not limit what a crash repeats, and a transaction of the destination does not prevent it.
    ReadAgainFrom(&'static str),
    /// Their senders do, because they got no confirmation. The source cannot read them again.
    SentAgain,
    /// Nobody: the source confirmed them, and they are lost with the process. A source that keeps them in memory for the next
    /// run of this process returns their number.
    Lost(Option<u64>),
}

impl Undelivered {
    /// Returns `true` if the source reads the records again.
    pub fn is_read_again(self) -> bool {
        matches!(self, Undelivered::ReadAgain | Undelivered::ReadAgainFrom(_))
    }

    /// Returns `true` if the records are lost with the process.
    pub fn is_lost(self) -> bool {
        matches!(self, Undelivered::Lost(_))
    }
}

/// How the runs of a pipeline share a source. A phrase says what each run reads, such as `partitions of the topics`. A source
/// whose partitions another system assigns (a consumer group) is read by one run, unless the pipeline is split: then the slots
/// alone decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// One run reads everything.
    Whole,
    /// The settings say which partitions there are.
    Static(&'static str),
    /// Partitions come and go while the source is read.
    Dynamic(&'static str),
}

/// Whether a source that resumes after a mark reads the same records in the same order, so that [`Mark::seq`]
/// identifies the same records as before. That holds for a file or a partition of a log, but not for a changing list of
/// objects. Only then can a transactional destination that is not the only destination detect which of the replayed
/// records it already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replay {
    /// Always.
    Exactly,
    /// Only under this condition, such as `the topic is not compacted`. The source checks it for each partition when
    /// it starts to read, and answers with [`Start::replays_exactly`].
    ExactlyIf(&'static str),
    /// Never, or unknown.
    NotExactly,
}

/// A source that was opened.
#[non_exhaustive]
pub struct OpenedSource {
    /// Reads records.
    pub reader: Box<dyn Reader>,
    /// Receives acknowledgements.
    pub acker: Box<dyn Acker>,
    /// Where partitions start. A partition that is not listed starts after its mark.
    pub starts: BTreeMap<Partition, Start>,
}

impl OpenedSource {
    /// Creates an opened source of which every partition starts after its mark.
    pub fn new(reader: Box<dyn Reader>, acker: Box<dyn Acker>) -> Self {
        OpenedSource { reader, acker, starts: BTreeMap::new() }
    }

    /// Sets where a partition starts.
    #[must_use]
    pub fn start(mut self, partition: Partition, start: Start) -> Self {
        self.starts.insert(partition, start);
        self
    }
}

/// Where a source starts to read a partition, and whether it replays it exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    elsewhere: bool,
    position: Option<Position>,
    replays_exactly: Option<bool>,
}

impl Start {
    /// Reading starts with the record after the mark; without a mark, with the first record of the partition.
    pub fn after_mark() -> Self {
        Start::default()
    }

    /// Reading starts at another place, because the offsets were reset, records are missing, or a range is read again.
    ///
    /// The engine then begins a new generation ([`Mark::generation`]), and stores it before it delivers a record: row
    /// numbers that were stored before no longer identify records. A source that says so without need causes duplicates
    /// at transactional destinations after a crash; one that fails to say so loses records there.
    pub fn elsewhere() -> Self {
        Start { elsewhere: true, ..Start::default() }
    }

    /// Sets the position after which reading starts elsewhere, so that the next run resumes there. Without it, the next
    /// run receives the earlier position again until a record of the new generation is settled, with a [`Mark::seq`] of
    /// 0: then the source starts elsewhere again.
    #[must_use]
    pub fn at(mut self, position: Position) -> Self {
        self.position = Some(position).filter(|position| !position.0.is_empty());
        self
    }

    /// Sets whether the partition is replayed exactly, from its start on. By default it is if [`Source::replay`] is
    /// [`Replay::Exactly`].
    #[must_use]
    pub fn replays_exactly(mut self, exactly: bool) -> Self {
        self.replays_exactly = Some(exactly);
        self
    }

    /// Returns `true` if reading does not start after the mark.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Returns the position after which reading starts elsewhere, if it is known.
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref().filter(|_| self.elsewhere)
    }

    /// Returns `true` if the partition is replayed exactly by a source that declares `replay`.
    pub fn is_exact(&self, replay: Replay) -> bool {
        self.replays_exactly.unwrap_or(replay == Replay::Exactly)
    }
}

/// Limits of one read. A read may return less, and more only if a single record is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Maximum number of rows.
    pub rows: usize,
    /// Maximum number of bytes.
    pub bytes: usize,
}

/// The result of a read.
///
/// Exhaustive, so that an engine or a wrapper that does not handle a variant fails to compile. A new variant is a new
/// version of the contract.
#[derive(Debug)]
pub enum Read {
    /// Records of one partition, in order, at least one; positions are not empty.
    Rows {
        /// The partition.
        partition: Partition,
        /// Its next records.
        records: Vec<Record>,
    },
    /// The next record of a partition, which the source cannot pass on: it goes to the dead-letter queue with the fault, in its
    /// place in the order. A fault that is not of a record ends the run.
    Failed {
        /// The partition.
        partition: Partition,
        /// The record, as far as the source has it; its position is not empty.
        record: Box<Record>,
        /// The reason.
        fault: Fault,
    },
    /// The position advanced without records. It is stored and acknowledged in order, like the position of a record.
    Progress(Partition, Position),
    /// Nothing more is available now. The next read blocks until more arrives.
    CaughtUp,
    /// The partition has no more records, in this or a later run: a range was read to its end, or a topic was deleted.
    /// The engine settles and acknowledges what was read, removes the mark, and calls [`Acker::released`] with
    /// [`Release::Finished`]. Until then, a later run may receive the mark, and the source reports the partition as
    /// finished again. Once the last position is acknowledged, the source itself must know that it has read the
    /// partition.
    ///
    /// A partition of that name that appears later is a new one, which starts without a mark. If it appears in another
    /// run with other records, the source says [`Start::elsewhere`].
    Finished(Partition),
    /// Another process will own the partition, in `within` from now. The engine delivers, stores and acknowledges what
    /// was read until then, gives up the rest, and calls [`Acker::released`]. Other partitions do not wait. The source
    /// reads no more records of the partition.
    Revoked {
        /// The partition.
        partition: Partition,
        /// Time until the partition is given up.
        within: Duration,
    },
    /// Another process may own the partition already. The engine stores and acknowledges nothing more of it, whatever
    /// is in flight; the new owner reads it again. An acknowledgement that the engine is already sending may still
    /// arrive: the source drops it.
    Lost(Partition),
    /// This process owns the partition from now on: a new one, or one that was revoked or lost and is assigned again.
    /// The source reads no record of it, and does not return [`Read::CaughtUp`] or [`Read::End`], until the engine has
    /// called [`Reader::go_on`]. The engine calls it when no earlier row of the partition can be written or stored any
    /// more; until then it reads other partitions. Partitions that a source has when it is opened need no such event.
    Assigned(Partition),
    /// The source has ended.
    End,
}

/// A request to a source that is reading.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Read all records of a part of the source again, such as a table, beside the records that arrive. The source
    /// stores the request before it confirms it, so that a crash does not lose it.
    Backfill {
        /// The part, as the source names it.
        part: Str,
    },
}

/// A request that a source has accepted. Completes when the source has stored it.
///
/// # Errors
/// The source could not store the request, or found that it cannot carry it out.
pub type Requested = BoxFuture<'static, Result<(), Fault>>;

/// How the engine gave up a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// Everything that was read is delivered, stored and acknowledged.
    Drained,
    /// Records are left, which the next owner reads again.
    Abandoned,
    /// Like `Drained`, and the mark of the finished partition is removed.
    Finished,
}

/// The unread part of a source, as far as the source knows. Each field is unknown unless it is set. Create one with
/// `..Backlog::default()`, because fields may be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Records.
    pub records: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Objects, such as those of a bucket.
    pub objects: Option<u64>,
    /// Upper bound of the time at which the next unread record arrived. `None` if no record is waiting or the time is
    /// unknown.
    pub since: Option<SystemTime>,
    /// Files, objects or records that were removed before they could be read, since the source was opened.
    pub missed: u64,
    /// The part of `objects` that the source holds back because their dates are ahead of the clock of their store.
    pub ahead: u64,
    /// Unread records of each partition for which the source knows them. Not necessarily all partitions.
    pub partitions: BTreeMap<Partition, u64>,
    /// Requests that the source has refused, since it was opened.
    pub refused: RefusedRequests,
    /// Data that the external system retains for the source. `None` if it retains nothing, or this is unknown.
    pub retention: Option<Retention>,
}

/// Data that an external system retains until a source has acknowledged it, such as the log of a database. The data uses disk
/// space of that system, which may limit its size. A field that is not set is unknown. Create a value with
/// `..Retention::default()`, because fields may be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Bytes that the system retains for the source.
    pub bytes: Option<u64>,
    /// Bytes that can still be added before the system may remove what the source has not read. `None` if there is no limit.
    pub spare_bytes: Option<u64>,
    /// Name of the state in the system, such as `reserved`.
    pub status: Option<Str>,
    /// True if the system may soon remove data that the source has not read.
    pub at_risk: bool,
    /// Number of transactions for which the system cannot remove old rows, because the source may need them.
    pub transactions: Option<u64>,
}

impl Backlog {
    /// Returns `true` if the source knows that nothing is left to read.
    pub fn is_empty(&self) -> bool {
        let mut counts = [self.records, self.bytes, self.objects].into_iter().flatten().peekable();
        counts.peek().is_some() && counts.all(|count| count == 0)
    }

    /// Returns the backlog after everything was read.
    #[must_use]
    pub fn emptied(self) -> Self {
        let none = |count: Option<u64>| count.map(|_| 0);
        Backlog {
            records: none(self.records),
            bytes: none(self.bytes),
            objects: none(self.objects),
            since: None,
            missed: self.missed,
            ahead: 0,
            partitions: self.partitions.into_keys().map(|partition| (partition, 0)).collect(),
            refused: self.refused,
            retention: self.retention,
        }
    }
}

/// Reads records. Only one call at a time.
#[async_trait]
pub trait Reader: Send {
    /// Returns the next records, as soon as there are any. Cancel-safe: dropping the call loses nothing.
    ///
    /// # Errors
    /// After a transient error, the pipeline restarts from its stored positions. After any other error, the engine
    /// delivers the records that were read before, and then the run fails.
    async fn read(&mut self, room: Room) -> Result<Read, Fault>;

    /// Waits for a change of the partitions, and returns [`Read::Revoked`], [`Read::Lost`], [`Read::Assigned`] or
    /// [`Read::Finished`]. The engine calls it instead of [`Reader::read`] while it has no room for records, so that a
    /// full pipeline does not delay the loss of a partition. Cancel-safe. By default it never completes: changes are
    /// seen by the next read.
    ///
    /// # Errors
    /// Those of [`Reader::read`].
    async fn change(&mut self) -> Result<Read, Fault> {
        std::future::pending().await
    }

    /// Resumes an assigned partition after a mark, which has the same meaning as in [`Source::open`], or from
    /// the beginning, and returns where reading starts. Earlier records of the partition are not acknowledged any more.
    ///
    /// # Errors
    /// The errors of [`Reader::read`].
    async fn go_on(&mut self, partition: &Partition, mark: Option<&Mark>) -> Result<Start, Fault> {
        let _ = (partition, mark);
        Err(Fault::fatal(
            codes::PARTITION_UNEXPECTED,
            "the source was assigned a partition, but cannot resume partitions",
        ))
    }

    /// Describes why there is nothing to read: the resource does not exist. Called after `read` has returned
    /// [`Read::CaughtUp`] or [`Read::End`]. `None` by default: it exists, or this is unknown.
    fn missing(&self) -> Option<String> {
        None
    }

    /// Describes records that exist but are left to a later run. Called after `read` has returned [`Read::CaughtUp`].
    /// `None` by default.
    fn left(&self) -> Option<String> {
        None
    }

    /// Returns the unread part of the source; `None` if unknown. The engine calls it between two reads, and while it
    /// has no room for more, at most once a second, and cancels a call that takes long. The engine interrupts a waiting
    /// read for it only if the last result was `Some` and may have changed.
    ///
    /// Must be cheap and cancel-safe, because it delays records.
    async fn backlog(&mut self) -> Option<Backlog> {
        None
    }

    /// Accepts a request of a user, between two reads. The result completes when the request is stored, while the engine
    /// continues to read. Dropping the result does not withdraw the request. By default the source supports none.
    ///
    /// # Errors
    /// The source does not support the request, or cannot carry it out. The run continues.
    async fn request(&mut self, request: Request) -> Result<Requested, Fault> {
        Err(Fault::record(codes::REQUEST_UNSUPPORTED, format!("the source does not support the request {request:?}")))
    }

    /// Stops reading; `read` is not called again.
    async fn stop(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Receives acknowledgements for records that are settled and stored.
#[async_trait]
pub trait Acker: Send {
    /// Acknowledges positions that are stored: in read order, each once. The source may discard the records.
    ///
    /// # Errors
    /// Transient errors are retried.
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault>;

    /// Notes that the engine gave up a partition that was revoked, lost or finished, after its last acknowledgement.
    /// Called once for each of these events. A source that is asked for the partition by another process may let go of
    /// it now, before the time of [`Read::Revoked`] is over. Nothing by default.
    ///
    /// # Errors
    /// As for [`Reader::read`].
    async fn released(&mut self, _partition: &Partition, _release: Release) -> Result<(), Fault> {
        Ok(())
    }

    /// Closes the source after the last acknowledgement.
    async fn close(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
