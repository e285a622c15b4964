//! Operators: the implementations of processors, and the properties that the compiler uses.
//!
//! An operator receives rows and returns verdicts. It never sees credit, channels or the runtime.

mod inline;
mod pieces;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

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
    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics>;
}

/// A configured processor, before it is opened. The plan contains it.
pub trait ConfiguredOperator: Send + Sync {
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
    fn build(&self, worker: usize, host: &Host) -> Result<BuiltOperator, Fault>;
}

/// Execution class of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Computes and returns: fused with adjacent operators into one future.
    Inline,
    /// Waits for external systems: several batches in flight, in order.
    Async,
    /// Has state that is bound to one thread: runs on a thread of its own.
    Isolate,
}

/// Number of output records per input record.
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
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Execution class.
    pub class: Class,
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
    /// Returns the signature of an inline operator with one output record per input record and unknown reads and
    /// writes.
    pub fn inline() -> Self {
        Signature {
            class: Class::Inline,
            fan: Fan::One,
            max_workers: None,
            reads: Access::Everything,
            writes: Access::Everything,
            needs_arch_v2: false,
        }
    }
}

/// An opened operator.
pub enum BuiltOperator {
    /// For [`Class::Inline`].
    Inline(Box<dyn Operator + Send>),
    /// For [`Class::Isolate`]: stays on the thread that built it.
    Isolate(Box<dyn Operator>),
    /// For [`Class::Async`].
    Async(Arc<dyn AsyncOperator>),
}

/// An operator that computes.
pub trait Operator {
    /// Processes the selected rows of a strip.
    ///
    /// A row that fails must stay unchanged: its dead letter contains the record as this operator received it.
    fn process(&mut self, rows: &mut Rows<'_>);

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
    /// Processes copies of the selected rows. Returns one verdict per row, in order. If there are fewer, the remaining
    /// rows are passed again; three rounds without progress are fatal.
    async fn call(&self, rows: Vec<Record>) -> Vec<Verdict>;

    /// Releases the resources of `build`.
    async fn close(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// The result of an [`AsyncOperator`] for one row.
#[derive(Debug)]
pub enum Verdict {
    /// The row becomes this record.
    Keep(Record),
    /// The row becomes these records; an empty list filters the row.
    Split(Vec<Record>),
    /// The row is filtered and settled.
    Filter,
    /// The row goes to the dead-letter queue.
    Fail(Fault),
}

/// The decision of an [`Operator`] on one row; a row without a decision is kept.
#[derive(Debug)]
pub enum Decision {
    /// The row stays, with any changes made in place.
    Keep,
    /// These records replace the row; an empty list filters the row.
    Split(Vec<Record>),
    /// These records replace the row. They are created when there is room for them. For rows that may become more than
    /// [`Pieces::FEW`] records.
    Pieces(Pieces),
    /// The row is filtered and settled.
    Filter,
    /// The row goes to the dead-letter queue.
    Fail(Fault),
}

impl Decision {
    /// Returns the severity: of two decisions on a row, the one of higher rank applies.
    pub fn rank(&self) -> u8 {
        match self {
            Decision::Keep => 0,
            Decision::Split(_) | Decision::Pieces(_) => 1,
            Decision::Filter => 2,
            Decision::Fail(_) => 3,
        }
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

    /// Decides on a row. A later decision on the same row applies only if it is more severe: fail, filter, split, keep.
    pub fn decide(&mut self, row: usize, decision: Decision) {
        match self.decisions.iter_mut().find(|(r, _)| *r == row) {
            Some((_, earlier)) if earlier.rank() < decision.rank() => *earlier = decision,
            Some(_) => {}
            None => self.decisions.push((row, decision)),
        }
    }
}
