//! Sources: what is read, and what is told back once records are safe.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use anabranch_record::extent::Extent;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::{Position, Record};
use async_trait::async_trait;

use crate::arguments::Arguments;
use crate::diagnostic::Diagnostics;
use crate::flow::RecordShape;
use crate::host::Host;
use crate::specification::Specification;

/// A kind of source, as the registry knows it.
pub trait SourceKind: Send + Sync {
    /// What it is and which parameters it takes.
    fn specification(&self) -> &Specification;

    /// Checks what single parameters cannot. Opens nothing.
    ///
    /// # Errors
    /// All findings, with the places of the settings.
    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Source>, Diagnostics>;
}

/// A source with its settings, before anything is opened.
#[async_trait]
pub trait Source: Send + Sync {
    /// Whether it can tell that there is nothing more to read now. `run --once` refuses a source that cannot.
    fn catches_up(&self) -> bool;

    /// Whether a source that is opened again after a mark reads the same records in the same order, so that the
    /// numbers of [`Mark::seq`] mean the same records as before. A file or a partition of a log does; a listing of
    /// objects that change does not. Only then can a transactional destination beside another destination tell which
    /// of the records that come again it has.
    fn replays_exactly(&self) -> bool {
        false
    }

    /// The file that it reads, where it is one.
    fn file(&self) -> Option<&str> {
        None
    }

    /// What it reads of things that have names outside, beside [`Source::file`]: a destination that writes them feeds it.
    /// Opens nothing. As it is: nothing, or nobody knows.
    fn reads(&self) -> Vec<Extent> {
        Vec::new()
    }

    /// Whether it can be opened at a position before the last one that was acknowledged, and then reads every record
    /// after it again. A source that deletes what is acknowledged cannot. Only then a source resumes where a destination
    /// stands that lost what it had confirmed; otherwise the pipeline stops.
    fn rereads(&self) -> bool {
        self.replays_exactly()
    }

    /// Whether what comes after a position is still there: asked of a source that rereads, before it resumes where a
    /// destination stands that lost what it had confirmed. May look at what it reads from. As it is: what was there is.
    ///
    /// # Errors
    /// It cannot be told now.
    async fn still_has(&self, _position: &Position) -> Result<bool, Fault> {
        Ok(true)
    }

    /// What every record it reads is like. As it is: nothing is known.
    fn shape(&self) -> RecordShape {
        RecordShape::unknown()
    }

    /// Where a record was read, for people, as `in.txt:17`. As it is: positions say nothing to people.
    fn locate(&self, _position: &Position) -> Option<String> {
        None
    }

    /// Whether it can be opened at a position, as far as that shows without opening anything: before a position replaces
    /// another one. As it is (`None`): only [`Source::open`] tells.
    ///
    /// # Errors
    /// Why it cannot be.
    fn check(&self, _position: &Position) -> Option<Result<(), Fault>> {
        None
    }

    /// Whether it may have other partitions than [`Partition::ONLY`]. As it is (`true`): not known before it is opened.
    fn is_partitioned(&self) -> bool {
        true
    }

    /// Opens it where `resume` says; a partition that is not in it starts from the beginning.
    ///
    /// A mark counts as the acknowledgement of everything up to it: a crash may have come after it was stored and
    /// before [`Acker::ack`] was called, and those positions are not acknowledged again.
    ///
    /// # Errors
    /// Why it cannot be opened. A position it does not understand is fatal.
    async fn open(
        &self,
        resume: &BTreeMap<Partition, Mark>,
        host: &Host,
    ) -> Result<(Box<dyn Reader>, Box<dyn Acker>), Fault>;
}

/// How much the graph can take now. A read may return less, and more only if one record is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Rows.
    pub rows: usize,
    /// Bytes.
    pub bytes: usize,
}

/// What a read gave.
#[derive(Debug)]
pub enum Read {
    /// Records of one partition, in order, at least one; every position non-empty.
    Rows {
        /// The partition.
        partition: Partition,
        /// Its next records.
        records: Vec<Record>,
    },
    /// The position moved without records; stored and acknowledged in order like a record.
    Progress(Partition, Position),
    /// There is nothing more to read now. The next read waits for more.
    CaughtUp,
    /// The partition is somebody else's now.
    Revoked(Partition),
    /// The partition is ours from now on: a new one, or one that was revoked and comes back. No record of it is read
    /// before the engine has said with [`Reader::go_on`] where it goes on. Partitions that a source has when it is
    /// opened need not be told.
    Assigned(Partition),
    /// There will never be more.
    End,
}

/// What a source has not read yet, as far as it knows. Each part is unknown unless it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Records.
    pub records: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Objects, such as those of a bucket.
    pub objects: Option<u64>,
    /// Since when the next record waits to be read, at the latest: it may have come earlier. `None` where nothing waits
    /// or the time is unknown.
    pub since: Option<SystemTime>,
    /// Files or objects that were gone or truncated before they could be read, since the source was opened.
    pub missed: u64,
    /// Objects, of those above, that the source holds back because they are dated ahead of the clock of their store.
    pub ahead: u64,
}

impl Backlog {
    /// Whether the source knows that nothing is left to read.
    pub fn is_empty(&self) -> bool {
        let mut counts = [self.records, self.bytes, self.objects].into_iter().flatten().peekable();
        counts.peek().is_some() && counts.all(|count| count == 0)
    }

    /// The same after everything was read.
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
    /// The next records, as soon as there are any. Cancel-safe: a dropped call loses nothing.
    ///
    /// # Errors
    /// Transient ones make the pipeline recover from its stored positions.
    async fn read(&mut self, room: Room) -> Result<Read, Fault>;

    /// A partition that was assigned goes on after this mark, with the meaning that it has in [`Source::open`], or
    /// from the beginning. Nothing that was read of the partition before is acknowledged any more.
    ///
    /// # Errors
    /// As those of [`Reader::read`].
    async fn go_on(&mut self, partition: &Partition, mark: Option<&Mark>) -> Result<(), Fault> {
        let _ = (partition, mark);
        Err(Fault::fatal("partition_unexpected", "the source was given a partition and cannot say where it goes on"))
    }

    /// Why nothing is there to be read, in words: what the source reads does not exist. Asked when `read` has said
    /// [`Read::CaughtUp`] or [`Read::End`]. As it is: it exists, or nobody can tell.
    fn missing(&self) -> Option<String> {
        None
    }

    /// What is there and is left to a later run, in words. Asked when `read` has said [`Read::CaughtUp`]. As it is:
    /// nothing.
    fn left(&self) -> Option<String> {
        None
    }

    /// What is left to read; `None` = unknown. The engine asks between two reads, and while it has no room for more, at
    /// most once a second, and gives up an answer that takes long. A read that waits for records is dropped for it, but
    /// only where the last answer was `Some` and may have changed.
    ///
    /// Cheap and cancel-safe: records must not wait for it.
    async fn backlog(&mut self) -> Option<Backlog> {
        None
    }

    /// Stops reading; `read` is not called again.
    async fn stop(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Is told which records are settled and stored.
#[async_trait]
pub trait Acker: Send {
    /// These positions are stored: in read order, each once. The source may forget the records.
    ///
    /// # Errors
    /// Transient ones are retried.
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault>;

    /// Everything that could be acknowledged was.
    async fn close(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
