//! Destinations: where records are written, and when they count as delivered.

use std::sync::Arc;
use std::time::Duration;

use anabranch_record::Record;
use anabranch_record::extent::Extent;
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

/// A kind of destination, as the registry knows it.
pub trait DestinationKind: Send + Sync {
    /// What it is and which parameters it takes.
    fn specification(&self) -> &Specification;

    /// Checks what single parameters cannot. Opens nothing.
    ///
    /// # Errors
    /// All findings, with the places of the settings.
    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics>;

    /// Whether it can be a dead-letter queue and nothing else.
    fn takes_only_letters(&self) -> bool {
        false
    }
}

/// A destination with its settings, before anything is opened.
#[async_trait]
pub trait Destination: Send + Sync {
    /// Opens it.
    ///
    /// # Errors
    /// Why it cannot be opened.
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault>;

    /// What it needs of records that are as `flow` says: [`Flow::need_fields`], [`Flow::template`]. As it is: nothing.
    fn flow(&self, _flow: &mut Flow) {}

    /// The file that it writes, where it is one.
    fn file(&self) -> Option<&str> {
        None
    }

    /// What it writes, whatever the records are, beside [`Destination::file`]: a source that reads it is fed by it. Opens
    /// nothing. As it is: nothing, or nobody knows.
    fn writes(&self) -> Vec<Extent> {
        Vec::new()
    }

    /// How it takes dead letters where it is a dead-letter queue.
    fn letter_form(&self) -> LetterForm {
        LetterForm::Record
    }

    /// What delivery means here; printed by `pipelines plan`.
    fn policy(&self) -> WritePolicy;

    /// Whether it is the queue whose letters [`StateStore::keep_letters`](crate::state::StateStore::keep_letters) keeps,
    /// and how many of them. Such a destination takes nothing but dead letters and is never opened.
    fn keeps_letters(&self) -> Option<LetterBounds> {
        None
    }

    /// What a trial of the pipeline says of a record, without I/O. What would be written for it, where each record is
    /// written by itself: a line of a file. `None`: as a whole with others, or not as text. An error where the settings
    /// and the record are enough to tell that [`Writer::write`] refuses it: the same fault, with which the trial fails
    /// the record.
    fn written(&self, _record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        None
    }

    /// The level and the text of its lines, where it is the service log. As a dead-letter queue it is given records only
    /// where the log takes lines of level debug: the lines that the executor writes about failures name them.
    fn logs(&self) -> Option<(LogLevel, Str)> {
        None
    }
}

/// How the executor writes to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePolicy {
    /// Most rows of one write.
    pub rows: usize,
    /// Most bytes of one write (a single larger record is written alone).
    pub bytes: usize,
    /// How long a write may wait for more rows.
    pub linger: Duration,
    /// What may be done after a write whose outcome is unknown.
    pub retry: Retry,
}

/// What may be done after a write whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retry {
    /// The same rows may be written again: they overwrite, or doubling is allowed (at least once).
    Idempotent,
    /// They must not be written again in this run; the pipeline recovers from its stored positions.
    AtMostOnce,
    /// A write is one transaction that holds the marks too: a replay doubles nothing.
    Transactional,
}

/// When a row is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// Now.
    Durable,
    /// At the next successful [`Writer::flush`].
    Accepted,
}

/// What became of the rows of one write.
#[derive(Debug)]
pub enum Verdicts {
    /// The same for all.
    All(Delivered),
    /// By index of this call; as many as there were rows.
    Each(Vec<Result<Delivered, Fault>>),
    /// Nothing was written, because of these rows of this call (index, why). They are dead-lettered, and when the
    /// letters are durable the other rows come again with the same marks; if there are none, no call comes. The only
    /// way in which a [`Retry::Transactional`] destination may refuse rows: a mark must never be stored before the
    /// letter of a row that it covers.
    Refused(Vec<(usize, Fault)>),
}

/// Writes records. Only one call at a time; coalescing, linger, retry and bisection are the executor's.
#[async_trait]
pub trait Writer: Send {
    /// The marks that this pipeline's transactions stored here, for [`Retry::Transactional`] destinations.
    ///
    /// Asked after opening: a source with this one destination resumes after them, even where the state store knows
    /// nothing. Asked again after every transient failure of a write, whose outcome is unknown: if the marks of that
    /// write are there, it is not repeated. So the answer must be final. A transaction that an earlier connection, or
    /// an earlier run, may still commit is waited for or ended first (its lock on the marks is the natural way), and a
    /// connection that was lost is opened anew. With the answer the doubt is over for the destination too: other rows
    /// than those of the doubtful write may come next.
    ///
    /// # Errors
    /// They cannot be read. Transient: asked again.
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        Ok(Vec::new())
    }

    /// Writes rows in order. `marks`: the last source rows that are complete if these rows are delivered,
    /// for transactional destinations, whose rows are always whole source rows: no piece of one comes in a later call,
    /// even if the rows are more than the policy asks for.
    ///
    /// A transactional destination stores the marks as they are given, also where they are lower than those it has,
    /// with the rows in one transaction; it answers [`Delivered::Durable`] for all or [`Verdicts::Refused`]. It is
    /// fenced: once a later run of the pipeline has opened it, a transaction of an earlier one fails with nothing
    /// written (an epoch that each run raises, or a comparison of the marks within the transaction). A transaction also
    /// fails, transiently and with nothing written, where the destination does not have what the one before it stored: it
    /// lost what it had confirmed, as after a failover. The next run then sees the marks that are left.
    ///
    /// # Errors
    /// Transient: the outcome is unknown, the same rows come again in the same order if the policy allows it.
    /// Record: nothing was written because of some row; the rows are bisected (of a transactional destination: between
    /// source rows, and the pieces of one that fails alone are refused). Fatal: the pipeline stops.
    async fn write(&mut self, rows: &[Record], marks: &[(LaneId, Mark)]) -> Result<Verdicts, Fault>;

    /// Makes everything accepted durable.
    ///
    /// # Errors
    /// Nothing accepted since the last flush counts as delivered.
    async fn flush(&mut self) -> Result<(), Fault>;

    /// Releases what `open` acquired. Flushed before.
    async fn close(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
