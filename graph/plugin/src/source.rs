//! Sources: plugins that read records, and receive acknowledgements for delivered ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use anabranch_record::extent::Extent;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::{Position, Record};
use async_trait::async_trait;

use crate::arguments::Arguments;
use crate::codes;
use crate::diagnostic::Diagnostics;
use crate::flow::RecordShape;
use crate::host::Host;
use crate::specification::Specification;

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
#[async_trait]
pub trait Source: Send + Sync {
    /// Returns `true` if the source can detect that nothing more is available now. `run --once` rejects other sources.
    fn catches_up(&self) -> bool;

    /// Returns `true` if a source that is opened again after a mark reads the same records in the same order, so that
    /// [`Mark::seq`] identifies the same records as before. That holds for a file or a partition of a log, but not for
    /// a changing list of objects. Only with such a source can a transactional destination that is not the only
    /// destination detect which of the replayed records it already has.
    fn replays_exactly(&self) -> bool {
        false
    }

    /// Returns the path of the file that the source reads, if it reads one.
    fn file(&self) -> Option<&str> {
        None
    }

    /// Returns the external resources that the source reads, in addition to [`Source::file`]. A destination that writes
    /// one of them feeds the source. Opens nothing. Empty by default: none, or unknown.
    fn reads(&self) -> Vec<Extent> {
        Vec::new()
    }

    /// Returns `true` if the source can be opened at a position before the last acknowledged one, and then reads every
    /// record after it again. A source that deletes acknowledged records cannot. Only such a source can resume at the
    /// position of a destination that has lost confirmed records; otherwise the pipeline stops.
    fn rereads(&self) -> bool {
        self.replays_exactly()
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

    /// Describes the place of a record for people, such as `in.txt:17`. `None` by default: positions are not meaningful
    /// to people.
    fn locate(&self, _position: &Position) -> Option<String> {
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

    /// Returns `true` if the source may have other partitions than [`Partition::ONLY`]. `true` by default: unknown
    /// before the source is opened.
    fn is_partitioned(&self) -> bool {
        true
    }

    /// Opens the source at the marks in `resume`; a partition without a mark starts from the beginning.
    ///
    /// A mark counts as the acknowledgement of everything up to it: a crash may have occurred after the mark was stored
    /// and before [`Acker::ack`] was called, and those positions are not acknowledged again.
    ///
    /// # Errors
    /// The reason why it cannot be opened. An invalid position is a fatal error.
    async fn open(
        &self,
        resume: &BTreeMap<Partition, Mark>,
        host: &Host,
    ) -> Result<(Box<dyn Reader>, Box<dyn Acker>), Fault>;
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
#[derive(Debug)]
pub enum Read {
    /// Records of one partition, in order, at least one; positions are not empty.
    Rows {
        /// The partition.
        partition: Partition,
        /// Its next records.
        records: Vec<Record>,
    },
    /// The position advanced without records. It is stored and acknowledged in order, like the position of a record.
    Progress(Partition, Position),
    /// Nothing more is available now. The next read blocks until more arrives.
    CaughtUp,
    /// Another process owns the partition now.
    Revoked(Partition),
    /// This process owns the partition from now on: a new one, or one that was revoked and is assigned again. The
    /// source reads no record of it until the engine has called [`Reader::go_on`]. Partitions that a source has when it
    /// is opened need no such event.
    Assigned(Partition),
    /// The source has ended.
    End,
}

/// The unread part of a source, as far as the source knows. Each field is unknown unless it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Files or objects that were removed or truncated before they could be read, since the source was opened.
    pub missed: u64,
    /// The part of `objects` that the source holds back because their dates are ahead of the clock of their store.
    pub ahead: u64,
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
        }
    }
}

/// Reads records. Only one call at a time.
#[async_trait]
pub trait Reader: Send {
    /// Returns the next records, as soon as there are any. Cancel-safe: dropping the call loses nothing.
    ///
    /// # Errors
    /// After a transient error, the pipeline restarts from its stored positions.
    async fn read(&mut self, room: Room) -> Result<Read, Fault>;

    /// Resumes an assigned partition after a mark, which has the same meaning as in [`Source::open`], or from
    /// the beginning. Earlier records of the partition are not acknowledged any more.
    ///
    /// # Errors
    /// The errors of [`Reader::read`].
    async fn go_on(&mut self, partition: &Partition, mark: Option<&Mark>) -> Result<(), Fault> {
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

    /// Closes the source after the last acknowledgement.
    async fn close(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
