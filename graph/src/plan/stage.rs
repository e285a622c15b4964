//! The fused plan that the executor runs: stages and the wires between them.

use anabranch_config::limits::MemoryLimits;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::destination::{Destination, Retry};
use anabranch_plugin::operator::Configured;
use anabranch_plugin::source::Source;
use anabranch_record::access::Access;
use anabranch_record::text::Str;
use anabranch_template::condition::CompiledCondition;

use crate::plan::LocatedTemplates;

/// Index of a stage in [`StagePlan::stages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct StageId(pub usize);

/// A pipeline that is ready to run. Acyclic; every path leads from a [`StageKind::Read`] to a [`StageKind::Write`].
#[derive(Clone)]
pub struct StagePlan {
    /// Id of the pipeline.
    pub pipeline: Str,
    /// The stages, sources first, each stage before its successors.
    pub stages: Vec<StageSpec>,
    /// Connections of stages. A stage with several successors gives each of them a copy of every row (fan-out). A stage
    /// with several predecessors takes strips in order of arrival (merge).
    pub wires: Vec<Wire>,
    /// The dead-letter queue for failed rows.
    pub dead_letter: DeadLetterSpec,
    /// Memory limits.
    pub limits: MemoryLimits,
    /// True if all runs see the same files (`placement: shared`), so that they may share those of a source.
    pub files_are_shared: bool,
    /// Places of templates and conditions in the file, if known.
    pub located: Option<Arc<LocatedTemplates>>,
}

/// An edge of the fused plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Wire {
    /// The stage that sends.
    pub from: StageId,
    /// The stage that receives.
    pub to: StageId,
}

/// A stage: one future, or `workers` of them.
#[derive(Clone)]
pub struct StageSpec {
    /// Displayed name, made of the ids of its nodes.
    pub name: Str,
    /// Kind of the stage.
    pub kind: StageKind,
}

impl StagePlan {
    /// Returns the stages that records of stage `from` can reach, `from` included. O(stages × wires).
    pub fn reachable(&self, from: StageId) -> Vec<StageId> {
        let mut reached = vec![false; self.stages.len()];
        let mut todo = vec![from];
        while let Some(stage) = todo.pop() {
            if reached.get(stage.0).is_some_and(|reached| !reached) {
                reached[stage.0] = true;
                todo.extend(self.wires.iter().filter(|wire| wire.from == stage).map(|wire| wire.to));
            }
        }
        (0..reached.len()).filter(|stage| reached[*stage]).map(StageId).collect()
    }
}

impl StagePlan {
    /// Returns `true` if several runs of the pipeline may share its partitions: all sources split and none reads files that
    /// only one run sees, and all destinations,
    /// including that of the dead letters, take rows of several runs.
    pub fn splits(&self) -> bool {
        let letters = &self.dead_letter.destination;
        let is_shared = |stage: &StageSpec| match &stage.kind {
            StageKind::Read(read) => read.source.splits() && (self.files_are_shared || read.source.file().is_none()),
            StageKind::Write(write) => write.destination.takes_shares(),
            _ => true,
        };
        let takes_letters = letters.keeps_letters().is_some() || letters.logs().is_some() || letters.takes_shares();
        takes_letters && self.stages.iter().all(is_shared)
    }
}

impl StageSpec {
    /// Returns `true` if the stage writes a destination that stores the marks in its transactions.
    pub fn is_transactional(&self) -> bool {
        matches!(&self.kind, StageKind::Write(spec) if spec.destination.policy().retry == Retry::Transactional)
    }
}

/// Kind of a stage.
#[derive(Clone)]
pub enum StageKind {
    /// Reads a source.
    Read(ReadSpec),
    /// Inline steps fused into one future.
    Chain(Vec<StepSpec>),
    /// Inline steps; strips are distributed over `workers` copies of the chain, and the output is in input order.
    Parallel {
        /// The steps.
        steps: Vec<StepSpec>,
        /// Number of copies, at least 2.
        workers: u32,
    },
    /// One asynchronous step with several strips in flight; the output is in input order.
    Async {
        /// The step.
        step: StepSpec,
        /// Strips in flight.
        in_flight: u32,
    },
    /// Steps of which some are isolated; each worker runs the whole chain on a thread of its own.
    Isolate {
        /// The steps. Inline steps between isolated ones run on the same thread.
        steps: Vec<StepSpec>,
        /// Number of threads, at least 1.
        workers: u32,
    },
    /// Gives rows to the successors whose rules they fulfil.
    Route(RouteSpec),
    /// Writes a destination.
    Write(WriteSpec),
}

/// The rules of a route.
#[derive(Clone)]
pub struct RouteSpec {
    /// One rule per successor.
    pub rules: Vec<StageRule>,
    /// What becomes of a row that fulfils no rule.
    pub unmatched: Unmatched,
}

/// The rows that a successor of a route receives.
#[derive(Clone)]
pub struct StageRule {
    /// The successor.
    pub to: StageId,
    /// Id of the condition in faults.
    pub node: Str,
    /// The condition.
    pub condition: Option<Arc<CompiledCondition>>,
    /// True for the rows that fulfil no condition. A rule with neither is fulfilled by every row.
    pub otherwise: bool,
}

/// What becomes of a record that fulfils the condition of no destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It is dropped, acknowledged and counted.
    #[default]
    Drop,
    /// It fails, and its dead letter is stored.
    DeadLetter,
    /// The pipeline fails.
    Fail,
}

/// An operator of a stage and the condition for its rows.
#[derive(Clone)]
pub struct StepSpec {
    /// Configured id of the processor.
    pub node: Str,
    /// Name of the plugin.
    pub plugin: Str,
    /// The operator.
    pub operator: Configured,
    /// The rows that the operator is applied to.
    pub condition: StepCondition,
    /// True if the operator may make several records of one.
    pub multiplies: bool,
}

impl StepSpec {
    /// Returns `true` if the operator may change records or make several of one, according to its signature.
    pub fn changes(&self) -> bool {
        let signature = self.operator.signature();
        signature.fan.multiplies() || signature.writes != Access::NOTHING
    }
}

/// The rows that a step is applied to.
#[derive(Clone)]
pub enum StepCondition {
    /// All rows.
    Always,
    /// Rows that satisfy the condition.
    If(Arc<CompiledCondition>),
    /// The same rows as the step before, which has the same condition and changes nothing that the condition reads.
    AsBefore,
}

/// A source connector.
#[derive(Clone)]
pub struct ReadSpec {
    /// Id of the connector, unique in the pipeline.
    pub connector: Str,
    /// Name of the plugin.
    pub plugin: Str,
    /// The source.
    pub source: Arc<dyn Source>,
    /// `sdk.batch.size`: number of rows to collect before they are passed on; `None` = rows are passed on as they
    /// arrive.
    pub batch_rows: Option<usize>,
    /// `sdk.batch.delay`: maximum wait after the first collected row.
    pub batch_delay: Duration,
}

/// A destination connector.
#[derive(Clone)]
pub struct WriteSpec {
    /// Id of the connector, unique in the pipeline.
    pub connector: Str,
    /// Name of the plugin.
    pub plugin: Str,
    /// The destination.
    pub destination: Arc<dyn Destination>,
    /// `sdk.batch.size`: rows per write; `None` = default of the destination.
    pub batch_rows: Option<usize>,
    /// `sdk.batch.delay`: maximum wait of a write for more rows; `None` = default of the destination.
    pub batch_delay: Option<Duration>,
    /// `sdk.rate.perSecond`: maximum rows per second; `None` = unlimited.
    pub rate: Option<f64>,
    /// `sdk.rate.burst`: maximum rows at once under a rate limit.
    pub burst: usize,
}

/// The dead-letter queue. Each source lane has its own writer and its own window.
#[derive(Clone)]
pub struct DeadLetterSpec {
    /// Name of the destination plugin.
    pub plugin: Str,
    /// The destination.
    pub destination: Arc<dyn Destination>,
    /// Number of latest outcomes in the window; 0 = failures are not limited.
    pub window_size: u64,
    /// Maximum number of failures in the window; one more stops the pipeline.
    pub threshold: u64,
}

impl DeadLetterSpec {
    /// Id of the node of the dead-letter queue.
    pub const NODE: &str = "dead-letter-queue";
}
