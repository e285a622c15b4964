//! Operators: what a processor does to rows, and what it may know.
//!
//! An operator sees rows and gives verdicts. It never sees credit, channels or the runtime.

mod pieces;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

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

/// A kind of processor, as the registry knows it.
pub trait OperatorKind: Send + Sync {
    /// What it is and which parameters it takes.
    fn specification(&self) -> &Specification;

    /// Checks what single parameters cannot (one excludes another). Opens nothing.
    ///
    /// # Errors
    /// All findings, with the places of the settings ([`Arguments::span`]).
    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics>;
}

/// A processor with its settings, before anything is opened. The plan holds it.
pub trait ConfiguredOperator: Send + Sync {
    /// What the compiler may assume of it.
    fn signature(&self) -> Signature;

    /// What it makes of records that are as `flow` says, and what is wrong with it there. As it is: anything.
    fn flow(&self, flow: &mut Flow) {
        flow.forget();
    }

    /// How long one row may take by the operator's own settings. The run does not call it stalled before. `None` = no
    /// row takes long.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Opens one worker's operator. Called once per worker and run, on the worker's own thread for
    /// [`Class::Isolate`].
    ///
    /// # Errors
    /// Why it cannot be opened; transient ones are retried as the pipeline's recovery says.
    fn build(&self, worker: usize, host: &Host) -> Result<BuiltOperator, Fault>;
}

/// How an operator is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Computes and returns: fused with its neighbours into one future.
    Inline,
    /// Waits for the outside world: several batches in flight, order kept.
    Async,
    /// Holds state bound to one thread: gets a thread of its own.
    Isolate,
}

/// How many records an operator makes of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fan {
    /// None: every record it is applied to is filtered or fails (`filter`, `error`).
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
    /// Whether it may make several records of one.
    pub fn multiplies(self) -> bool {
        matches!(self, Fan::Many | Fan::Copies(_))
    }
}

/// What the compiler may assume of a configured operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// How it is run.
    pub class: Class,
    /// How many records it makes of one.
    pub fan: Fan,
    /// The most workers it allows; `None` = any number.
    pub max_workers: Option<u32>,
    /// What it reads.
    pub reads: Access,
    /// What it writes.
    pub writes: Access,
    /// Whether it may be used only with `--preview.pipeline-arch-v2`. One of [`Fan::Many`] that may be used without
    /// it is kept from making several records of one.
    pub needs_arch_v2: bool,
}

impl Signature {
    /// An inline operator that makes one record of one, and reads and writes what nobody knows.
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
    /// A row that fails must be left as it was: it is dead-lettered as it entered this step.
    fn process(&mut self, rows: &mut Rows<'_>);

    /// Releases what `build` acquired.
    ///
    /// # Errors
    /// What could not be released; logged.
    fn close(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// An operator that waits.
#[async_trait]
pub trait AsyncOperator: Send + Sync {
    /// Processes copies of the selected rows. One verdict per row, in order; if there are fewer, the
    /// rest is given again, and three rounds without progress are fatal.
    async fn call(&self, rows: Vec<Record>) -> Vec<Verdict>;

    /// Releases what `build` acquired.
    async fn close(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// What an [`AsyncOperator`] made of one row.
#[derive(Debug)]
pub enum Verdict {
    /// One record.
    Keep(Record),
    /// Any number of records; none filters the row.
    Split(Vec<Record>),
    /// None: the row is settled.
    Filter,
    /// The row goes to the dead-letter queue.
    Fail(Fault),
}

/// What an [`Operator`] decides on one row; a row it says nothing of stays.
#[derive(Debug)]
pub enum Decision {
    /// The row stays, changed in place or not.
    Keep,
    /// These records take its place; none filters the row.
    Split(Vec<Record>),
    /// So do these, which are made as there is room for them; for rows that may become more than [`Pieces::FEW`].
    Pieces(Pieces),
    /// The row is settled and leaves.
    Filter,
    /// The row goes to the dead-letter queue.
    Fail(Fault),
}

impl Decision {
    /// How bad it is: of two decisions on a row, the one of higher rank wins.
    pub fn rank(&self) -> u8 {
        match self {
            Decision::Keep => 0,
            Decision::Split(_) | Decision::Pieces(_) => 1,
            Decision::Filter => 2,
            Decision::Fail(_) => 3,
        }
    }
}

/// The selected rows of a strip, and the verdicts on them.
pub struct Rows<'a> {
    records: &'a mut [Record],
    selected: Option<&'a Mask>,
    decisions: &'a mut Vec<(usize, Decision)>,
    current: Option<usize>,
}

impl<'a> Rows<'a> {
    /// Rows of a strip; `selected` is one bit per row, `None` selects all. Verdicts are appended to `decisions`.
    pub fn new(
        records: &'a mut [Record],
        selected: Option<&'a Mask>,
        decisions: &'a mut Vec<(usize, Decision)>,
    ) -> Self {
        Rows { records, selected, decisions, current: None }
    }

    /// Number of selected rows.
    pub fn len(&self) -> usize {
        self.selected.map_or(self.records.len(), Mask::count)
    }

    /// Whether no row is selected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the selected rows in order. An error fails the row.
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

    /// The same rows of the strip, of which only these are selected; none may be that is not selected here.
    pub fn among<'b>(&'b mut self, selected: &'b Mask) -> Rows<'b> {
        Rows { records: &mut *self.records, selected: Some(selected), decisions: &mut *self.decisions, current: None }
    }

    /// Number of rows of the strip, selected or not: the length of a mask.
    pub fn width(&self) -> usize {
        self.records.len()
    }

    /// The rows of the strip that failed so far.
    pub fn failed(&self) -> impl Iterator<Item = usize> {
        self.decisions.iter().filter(|(_, decision)| matches!(decision, Decision::Fail(_))).map(|(row, _)| *row)
    }

    /// What was decided so far, with the rows of the strip, for operators around others.
    pub fn decisions_mut(&mut self) -> impl Iterator<Item = (usize, &mut Decision)> {
        self.decisions.iter_mut().map(|(row, decision)| (*row, decision))
    }

    /// The row that [`Rows::for_each`] is at: where a panic happened.
    pub fn current(&self) -> Option<usize> {
        self.current
    }

    /// The selected rows with their numbers, for operators that look at several before they decide.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Record)> {
        let selected = self.selected;
        self.records.iter_mut().enumerate().filter(move |(row, _)| selected.is_none_or(|mask| mask.get(*row)))
    }

    /// Decides on a row. A later decision on the same row wins only if it is worse: fail, filter, split, keep.
    pub fn decide(&mut self, row: usize, decision: Decision) {
        match self.decisions.iter_mut().find(|(r, _)| *r == row) {
            Some((_, earlier)) if earlier.rank() < decision.rank() => *earlier = decision,
            Some(_) => {}
            None => self.decisions.push((row, decision)),
        }
    }
}
