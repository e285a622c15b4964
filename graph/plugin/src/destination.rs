//! Destinations: plugins that write records and confirm their delivery.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use anabranch_record::Record;
use anabranch_record::extent::{CollectionSpace, Extent};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use async_trait::async_trait;

use crate::arguments::Arguments;
use crate::diagnostic::Diagnostics;
use crate::flow::Flow;
use crate::host::{Host, LogLevel};
use crate::letter::{LetterBounds, LetterForm};
use crate::specification::Specification;
use crate::state::Slots;

/// A kind of destination, as registered.
pub trait DestinationKind: Send + Sync {
    /// Returns the name, documentation and parameters.
    fn specification(&self) -> &Specification;

    /// Checks settings across several parameters and creates the destination. Opens nothing.
    ///
    /// # Errors
    /// All findings, with the places of the settings.
    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics>;

    /// Returns `true` if the destination can be used only as a dead-letter queue.
    fn takes_only_letters(&self) -> bool {
        false
    }
}

/// A configured destination, before it is opened.
#[async_trait]
pub trait Destination: Send + Sync {
    /// Opens the destination.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault>;

    /// Opens the destination for a run that has several slots of its pipeline ([`Host::slots`]). Returns the writers, each
    /// with the slots whose rows it gets: each slot of the run has one writer. The executor calls the writers at the same
    /// time. By default, one writer gets all rows.
    ///
    /// A destination with one fence per slot returns a writer for each slot. Then a run that takes a slot over fences only
    /// the writer of that slot, and a transaction has the rows and marks of one slot.
    ///
    /// # Errors
    /// Those of [`Destination::open`].
    async fn open_shares(&self, host: &Host) -> Result<Vec<ShareWriter>, Fault> {
        Ok(vec![ShareWriter { slots: host.slots, writer: self.open(host).await? }])
    }

    /// Declares the requirements on records with the shape in `flow`: [`Flow::need_fields`], [`Flow::template`]. By
    /// default there are none.
    fn flow(&self, _flow: &mut Flow) {}

    /// Returns the path of the file that the destination writes, if it writes one.
    fn file(&self) -> Option<&str> {
        None
    }

    /// Returns the directory below which each record names the file that the destination writes for it. `None` if there is
    /// none.
    fn directory(&self) -> Option<&str> {
        None
    }

    /// Returns the resources that the destination writes for any record, in addition to [`Destination::file`]. If a
    /// source reads one of them, it receives the destination's output. The call opens nothing. The default is an empty
    /// list: the destination writes no such resource, or does not know it.
    fn writes(&self) -> Vec<Extent> {
        Vec::new()
    }

    /// Returns the place in which the collection of each record alone names the resource that the destination writes.
    /// Opens nothing. `None` by default: a setting names the resource, or there is no such place.
    fn collections(&self) -> Option<CollectionSpace> {
        None
    }

    /// Returns the form in which the destination receives dead letters if it is a dead-letter queue.
    fn letter_form(&self) -> LetterForm {
        LetterForm::Record
    }

    /// Checks the external system for `anabranch doctor`: that it can be reached, that the rights suffice, and that no
    /// setting of it endangers records. Creates and changes nothing. Returns warnings, one phrase each; there are none
    /// by default.
    ///
    /// # Errors
    /// The reason why the destination could not write now.
    async fn examine(&self) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }

    /// Returns the topic that a record goes to, if the destination includes
    /// [`MessageEncoding`](crate::parameters::shared::MessageEncoding): it is part of the subjects of schemas. `None` if
    /// there is none, or the record does not determine it; then writing the record fails it.
    fn topic<'a>(&'a self, record: &Record) -> Option<Cow<'a, str>> {
        let _ = record;
        None
    }

    /// Returns `true` if the settings let rows count as delivered before the external system has them safely, so that a
    /// failure there may lose them. `pipelines plan` then promises nothing. The default is `false`.
    fn confirms_early(&self) -> bool {
        false
    }

    /// Returns `true` if several runs of a pipeline may write to the destination at the same time, each the rows of its
    /// slots ([`Host::slots`]). `false` by default.
    fn takes_shares(&self) -> bool {
        false
    }

    /// Returns `true` if the destination refuses what an earlier run still writes after a later one has opened it
    /// ([`Host::shared`]). Otherwise a process that was paused may deliver once more what it had in flight; `pipelines plan`
    /// says so. `false` by default.
    fn refuses_earlier_runs(&self) -> bool {
        false
    }

    /// Returns how the executor writes to the destination; `pipelines plan` prints it.
    fn policy(&self) -> WritePolicy;

    /// Returns the limits of the dead-letter queue in the state store
    /// ([`LetterStore`](crate::letter::LetterStore)), if the destination is that queue. Such a
    /// destination receives only dead letters and is never opened.
    fn keeps_letters(&self) -> Option<LetterBounds> {
        None
    }

    /// Returns the result of writing a record in a trial of the pipeline, without I/O: the output for the record if
    /// each record is written separately, such as a line of a file. `None` if records are written together or not as
    /// text. Returns an error if the settings and the record suffice to determine that [`Writer::write`] rejects the
    /// record: the same fault, with which the trial fails the record.
    fn written(&self, _record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        None
    }

    /// Returns the level and the text of its lines, if the destination is the service log. As a dead-letter queue it
    /// receives records only if the log includes lines of level debug: the lines that the executor logs about failures
    /// name the records.
    fn logs(&self) -> Option<(LogLevel, Str)> {
        None
    }
}

/// A writer, and the slots of the pipeline whose rows it gets. The partition of a row determines its slot
/// ([`Slots::slot_of`]).
pub struct ShareWriter {
    /// The slots.
    pub slots: Slots,
    /// The writer.
    pub writer: Box<dyn Writer>,
}

impl ShareWriter {
    /// Puts another writer around the writer; the slots stay.
    #[must_use]
    pub fn around(self, wrap: impl FnOnce(Box<dyn Writer>) -> Box<dyn Writer>) -> ShareWriter {
        ShareWriter { writer: wrap(self.writer), ..self }
    }
}

/// How the executor writes to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePolicy {
    /// Maximum number of rows of one write.
    pub rows: usize,
    /// Maximum number of bytes of one write; a single larger record is written alone.
    pub bytes: usize,
    /// Maximum time for which a write waits for more rows.
    pub linger: Duration,
    /// Behaviour after a write with an unknown outcome.
    pub retry: Retry,
}

/// Behaviour after a write with an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retry {
    /// The same rows are written again: they overwrite the earlier ones, or duplicates are acceptable (at least once).
    Idempotent,
    /// The rows are not written again in this run; the pipeline restarts from its stored positions.
    AtMostOnce,
    /// A write is one transaction that also stores the marks, so a replay creates no duplicates.
    Transactional,
}

/// The state of a delivered row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The row is durable.
    Durable,
    /// The row becomes durable at the next successful [`Writer::flush`].
    Accepted,
}

/// The results for the rows of one write.
#[derive(Debug)]
pub enum Verdicts {
    /// The same result for all rows.
    All(Delivered),
    /// One result per row, in the order of the rows of this call.
    Each(Vec<Result<Delivered, Fault>>),
    /// Nothing was written because of the listed rows of this call (index, reason). They are dead-lettered. When the
    /// dead letters are durable, the other rows are written again with the same marks; if there are no other rows,
    /// there is no further call. A [`Retry::Transactional`] destination may reject rows only in this way: a mark must
    /// never be stored before the dead letter of a row that it covers.
    Refused(Vec<(usize, Fault)>),
}

/// Rows for a destination.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Write<'a> {
    /// The rows, in order.
    pub rows: &'a [Record],
    /// The last source rows that are complete if these rows are delivered, for [`Retry::Transactional`] destinations;
    /// otherwise empty.
    pub marks: &'a [(LaneId, Mark)],
}

impl<'a> Write<'a> {
    /// Creates a write of rows without marks.
    pub fn new(rows: &'a [Record]) -> Self {
        Write { rows, marks: &[] }
    }

    /// Sets the marks.
    #[must_use]
    pub fn marks(mut self, marks: &'a [(LaneId, Mark)]) -> Self {
        self.marks = marks;
        self
    }
}

/// Writes records. Only one call at a time. The executor is responsible for batching, linger, retry and bisection.
#[async_trait]
pub trait Writer: Send {
    /// Returns the marks that this pipeline's transactions stored here, for [`Retry::Transactional`] destinations.
    ///
    /// Called after opening: if this is the source's only destination, the source resumes after these marks, even if
    /// the state store has none. Called again after every transient failure of a write or of [`Writer::forget`], whose
    /// outcome is then unknown: if the marks show that it took effect, it is not repeated. So the result must be final.
    /// The destination first waits for or ends any transaction that an earlier connection, or an earlier run, may still
    /// commit (a lock on the marks does that), and reopens a lost connection. After this call, the destination must also
    /// accept other rows than those of the failed write.
    ///
    /// # Errors
    /// The marks cannot be read. After a transient error the call is repeated.
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        Ok(Vec::new())
    }

    /// Writes rows in order. All rows are of the slots for which the writer was opened ([`Host::slots`], or those of its
    /// [`ShareWriter`]). A transactional destination always receives whole source rows: all pieces of a row are in one call, even if that exceeds the
    /// limits of the policy.
    ///
    /// A transactional destination stores the given marks, even if they are lower than the stored ones, in one
    /// transaction with the rows; it returns [`Delivered::Durable`] for all rows or [`Verdicts::Refused`]. It is
    /// fenced: after [`Writer::marks`] of a later run with one of the slots, a transaction of an earlier run fails and writes
    /// nothing, also if no mark was stored yet, and if the write carries none. So it needs an epoch that each run
    /// increases; a comparison of marks is not enough. A transaction also fails with a transient error, and writes
    /// nothing, if the destination has lost the previous transaction, for example after a failover. The next run then
    /// reads the remaining marks.
    ///
    /// # Errors
    /// Transient: the outcome is unknown; if the policy allows it, the same rows are written again in the same order.
    /// Record: nothing was written because of some row; the executor bisects the rows (for a transactional destination
    /// between source rows; if a single source row fails, all its pieces are rejected). Fatal: the pipeline stops.
    async fn write(&mut self, write: Write<'_>) -> Result<Verdicts, Fault>;

    /// Removes the marks of lanes that are finished, in one transaction under the fence. Called for transactional
    /// destinations, when all rows of the lanes are durable. Returns `false` if the destination keeps them: then the
    /// state store keeps its marks too. `false` by default.
    ///
    /// # Errors
    /// Those of [`Writer::write`] for all rows. After a transient error the lanes may or may not be removed.
    async fn forget(&mut self, _lanes: &[LaneId]) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Makes all accepted rows durable.
    ///
    /// # Errors
    /// The rows accepted since the last flush count as not delivered.
    async fn flush(&mut self) -> Result<(), Fault>;

    /// Releases the resources of `open`, after a flush.
    async fn close(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
