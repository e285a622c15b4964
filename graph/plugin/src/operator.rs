//! Operators: the implementations of processors, and the properties that the compiler uses.
//!
//! An operator receives rows and decides on them. It never sees credit, channels or the runtime.
//!
//! The simple case is an [`InlineOperator`]: one type that computes. Any other processor implements
//! [`ConfiguredOperator`], and [`ConfiguredOperator::Built`] says its class once: the compiler reads it without opening
//! anything, and `build` cannot return another one.
//!
//! ```
//! use anabranch_plugin::operator::{AsyncOperator, BuiltAsync, Class, Configured, ConfiguredOperator, Decision};
//! use anabranch_plugin::operator::{OperatorContext, Signature};
//! use anabranch_record::Record;
//! use anabranch_record::fault::Fault;
//! use async_trait::async_trait;
//!
//! /// Stores the answer of another system in records.
//! #[derive(Clone)]
//! struct Lookup;
//!
//! impl ConfiguredOperator for Lookup {
//!     type Built = BuiltAsync;
//!
//!     fn signature(&self) -> Signature {
//!         Signature::new()
//!     }
//!
//!     fn build(&self, _: &OperatorContext) -> Result<BuiltAsync, Fault> {
//!         Ok(std::sync::Arc::new(self.clone()))
//!     }
//! }
//!
//! #[async_trait]
//! impl AsyncOperator for Lookup {
//!     async fn call(&self, rows: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
//!         for record in rows.iter_mut() {
//!             record.metadata.insert("answer", "42");
//!         }
//!         rows.iter().map(|_| Decision::Keep).collect()
//!     }
//! }
//!
//! assert_eq!(Configured::from(Lookup).class(), Class::Async);
//! ```

mod class;
mod decision;
mod inline;
mod pieces;

use std::iter;
use std::time::Duration;

use async_trait::async_trait;

pub use class::{Built, BuiltAsync, BuiltInline, BuiltIsolate, Class, Configured, Layer};
pub use decision::{Decision, arrange};
pub use inline::InlineOperator;
pub use pieces::Pieces;

use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::mask::Mask;

use crate::arguments::Arguments;
use crate::diagnostic::Diagnostics;
use crate::flow::Flow;
use crate::host::Host;
use crate::specification::Specification;

/// A kind of processor, as registered.
pub trait OperatorKind: Send + Sync {
    /// Returns the name, documentation and parameters.
    fn specification(&self) -> &Specification;

    /// Checks settings across several parameters (for example, that one excludes another) and creates the processor.
    /// Opens nothing.
    ///
    /// # Errors
    /// All findings, with the places of the settings ([`Arguments::span`]).
    fn configure(&self, arguments: &Arguments) -> Result<Configured, Diagnostics>;
}

/// A configured processor, before it is opened.
pub trait ConfiguredOperator: Send + Sync + 'static {
    /// The opened operator. Its type is the class: [`BuiltInline`], [`BuiltAsync`] or [`BuiltIsolate`].
    type Built: Built;

    /// Returns the properties that the compiler uses.
    fn signature(&self) -> Signature;

    /// Applies the operator's effect to the record shape in `flow` and reports problems. By default, the output is
    /// unknown.
    fn flow(&self, flow: &mut Flow) {
        flow.forget();
    }

    /// Returns the time that one row may take because of the operator's settings. The run is not considered stalled
    /// before that. `None` if rows never take long.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Opens the operator of one worker. Called once per worker and run, on the worker's own thread for
    /// [`Class::Isolate`].
    ///
    /// # Errors
    /// The reason why it cannot be opened; transient errors are retried according to the pipeline's recovery settings.
    fn build(&self, context: &OperatorContext) -> Result<Self::Built, Fault>;
}

/// The surroundings of an opened operator: the same for all its calls.
#[derive(Clone)]
#[non_exhaustive]
pub struct OperatorContext {
    /// Number of the worker, from 0. An operator of [`Class::Async`] has one worker.
    pub worker: usize,
    /// The resources that the operator may use, and its name.
    pub host: Host,
}

impl OperatorContext {
    /// Creates the context of a worker.
    pub fn new(worker: usize, host: Host) -> Self {
        OperatorContext { worker, host }
    }
}

/// Number of output records per input record.
///
/// The compiler must handle every variant, so the enum is exhaustive. Operators only create it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fan {
    /// None: every record is filtered or fails (`filter`, `error`).
    Never,
    /// Always one.
    One,
    /// One or none.
    AtMostOne,
    /// At most this many: `clone`.
    Copies(u32),
    /// Any number: `split`.
    Many,
}

impl Fan {
    /// Returns `true` if a record may become several records.
    pub fn multiplies(self) -> bool {
        matches!(self, Fan::Many | Fan::Copies(_))
    }
}

/// Properties of a configured operator, which the compiler uses.
///
/// ```
/// use anabranch_plugin::operator::{Fan, Signature};
/// use anabranch_record::access::Access;
///
/// let drops_by_key = Signature::new().fan(Fan::AtMostOne).writes(Access::NOTHING);
/// assert_eq!(drops_by_key.max_workers, None);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Signature {
    /// Number of output records per input record.
    pub fan: Fan,
    /// Maximum number of workers; `None` = no limit.
    pub max_workers: Option<u32>,
    /// The parts of a record that it reads.
    pub reads: Access,
    /// The parts of a record that it writes.
    pub writes: Access,
    /// True if it requires `--preview.pipeline-arch-v2`. Without that flag, an operator of [`Fan::Many`] that does not
    /// require it cannot create several records.
    pub needs_arch_v2: bool,
}

impl Signature {
    /// Returns the signature of an operator with one output record per input record, any number of workers, and unknown
    /// reads and writes.
    pub fn new() -> Self {
        Signature {
            fan: Fan::One,
            max_workers: None,
            reads: Access::Everything,
            writes: Access::Everything,
            needs_arch_v2: false,
        }
    }

    /// Sets the number of output records per input record.
    #[must_use]
    pub fn fan(mut self, fan: Fan) -> Self {
        self.fan = fan;
        self
    }

    /// Sets the maximum number of workers; `None` = no limit.
    #[must_use]
    pub fn max_workers(mut self, most: impl Into<Option<u32>>) -> Self {
        self.max_workers = most.into();
        self
    }

    /// Sets the parts of a record that the operator reads.
    #[must_use]
    pub fn reads(mut self, reads: Access) -> Self {
        self.reads = reads;
        self
    }

    /// Sets the parts of a record that the operator writes.
    #[must_use]
    pub fn writes(mut self, writes: Access) -> Self {
        self.writes = writes;
        self
    }

    /// Sets whether the operator requires `--preview.pipeline-arch-v2`.
    #[must_use]
    pub fn needs_arch_v2(mut self, needs: bool) -> Self {
        self.needs_arch_v2 = needs;
        self
    }
}

impl Default for Signature {
    fn default() -> Self {
        Signature::new()
    }
}

/// An operator that computes.
pub trait Operator {
    /// Processes the selected rows of a strip.
    ///
    /// A row that fails must stay unchanged: its dead letter contains the record as this operator received it.
    fn process(&mut self, rows: &mut Rows<'_>, context: &OperatorContext);

    /// Releases the resources of `build`.
    ///
    /// # Errors
    /// The resources that could not be released; the error is logged.
    fn close(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// An operator that waits.
#[async_trait]
pub trait AsyncOperator: Send + Sync {
    /// Processes copies of the selected rows, which it may change in place. Returns one decision per row, in order. If
    /// there are fewer, the remaining rows are passed again as they were; three rounds without progress are fatal. The
    /// dead letter of a row that fails contains the record as this operator received it, whatever it changed.
    async fn call(&self, rows: &mut [Record], context: &OperatorContext) -> Vec<Decision>;

    /// Releases the resources of `build`.
    async fn close(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// The selected rows of a strip, and the decisions on them.
pub struct Rows<'a> {
    records: &'a mut [Record],
    selected: Option<&'a Mask>,
    decisions: &'a mut Vec<(usize, Decision)>,
    current: Option<usize>,
}

impl<'a> Rows<'a> {
    /// Creates the rows of a strip; `selected` has one bit per row, `None` selects all. Decisions are appended to
    /// `decisions`.
    pub fn new(
        records: &'a mut [Record],
        selected: Option<&'a Mask>,
        decisions: &'a mut Vec<(usize, Decision)>,
    ) -> Self {
        Rows { records, selected, decisions, current: None }
    }

    /// Returns the number of selected rows.
    pub fn len(&self) -> usize {
        self.selected.map_or(self.records.len(), Mask::count)
    }

    /// Returns `true` if no row is selected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` for the selected rows in order. An error fails the row.
    #[inline]
    pub fn for_each(&mut self, mut f: impl FnMut(&mut Record) -> Result<Decision, Fault>) {
        let decisions = &mut *self.decisions;
        let current = &mut self.current;
        let mut visit = |row: usize, record: &mut Record| {
            *current = Some(row);
            match f(record) {
                Ok(Decision::Keep) => {}
                // Constructed in the list: copying a decision costs more than the rest of a filter.
                Ok(Decision::Filter) => decisions.extend(iter::once_with(|| (row, Decision::Filter))),
                Ok(decision) => decisions.push((row, decision)),
                Err(fault) => decisions.push((row, Decision::Fail(fault))),
            }
        };
        match self.selected {
            None => self.records.iter_mut().enumerate().for_each(|(row, record)| visit(row, record)),
            Some(mask) => mask.rows().for_each(|row| visit(row, &mut self.records[row])),
        }
        self.current = None;
    }

    /// Returns the same strip with a subset of the selected rows.
    pub fn among<'b>(&'b mut self, selected: &'b Mask) -> Rows<'b> {
        Rows { records: &mut *self.records, selected: Some(selected), decisions: &mut *self.decisions, current: None }
    }

    /// Returns the number of rows of the strip, selected or not: the length of a mask.
    pub fn width(&self) -> usize {
        self.records.len()
    }

    /// Returns the rows of the strip that have failed so far.
    pub fn failed(&self) -> impl Iterator<Item = usize> {
        self.decisions.iter().filter(|(_, decision)| matches!(decision, Decision::Fail(_))).map(|(row, _)| *row)
    }

    /// Returns the decisions so far, with the rows of the strip, for operators that wrap others.
    pub fn decisions_mut(&mut self) -> impl Iterator<Item = (usize, &mut Decision)> {
        self.decisions.iter_mut().map(|(row, decision)| (*row, decision))
    }

    /// Returns the current row of [`Rows::for_each`], to locate a panic.
    pub fn current(&self) -> Option<usize> {
        self.current
    }

    /// Returns the selected rows with their numbers, for operators that examine several rows before they decide.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Record)> {
        let selected = self.selected;
        self.records.iter_mut().enumerate().filter(move |(row, _)| selected.is_none_or(|mask| mask.get(*row)))
    }

    /// Decides on a row. An earlier decision on the same row is combined with it ([`Decision::combine`]). O(decisions).
    pub fn decide(&mut self, row: usize, decision: Decision) {
        match self.decisions.iter_mut().find(|(r, _)| *r == row) {
            Some((_, earlier)) => earlier.combine(decision),
            None => self.decisions.push((row, decision)),
        }
    }
}
