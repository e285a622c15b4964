//! The fused plan: stages and the wires between them. It is what the executor runs.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::destination::{Destination, Retry};
use anabranch_plugin::operator::ConfiguredOperator;
use anabranch_plugin::source::Source;
use anabranch_record::access::Access;
use anabranch_record::text::Str;
use anabranch_template::condition::CompiledCondition;

use crate::plan::Located;

/// Index of a stage in [`StagePlan::stages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct StageId(pub usize);

/// A pipeline, ready to run. Acyclic; every path goes from a [`StageKind::Read`] to a [`StageKind::Write`].
#[derive(Clone)]
pub struct StagePlan {
    /// Id of the pipeline.
    pub pipeline: Str,
    /// The stages, sources first, each before its successors.
    pub stages: Vec<StageSpec>,
    /// Who feeds whom. A stage with several successors gives each a copy of every row (fan-out); a stage
    /// with several predecessors takes strips as they come (merge).
    pub wires: Vec<Wire>,
    /// Where failed rows go.
    pub dead_letter: DeadLetterSpec,
    /// Bounds on what is held.
    pub limits: Limits,
    /// Where its templates and conditions stand, where that is known.
    pub located: Option<Arc<Located>>,
}

/// One edge of the fused plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Wire {
    /// The stage that emits.
    pub from: StageId,
    /// The stage that takes.
    pub to: StageId,
}

/// One stage: one future, or `workers` of them.
#[derive(Clone)]
pub struct StageSpec {
    /// Shown name: ids of its nodes.
    pub name: Str,
    /// What it does.
    pub kind: StageKind,
}

impl StagePlan {
    /// The stages that records of a stage can come to, itself included. O(stages × wires).
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

impl StageSpec {
    /// Whether it writes a destination whose transactions hold the marks.
    pub fn is_transactional(&self) -> bool {
        matches!(&self.kind, StageKind::Write(spec) if spec.destination.policy().retry == Retry::Transactional)
    }
}

/// What a stage does.
#[derive(Clone)]
pub enum StageKind {
    /// Reads a source.
    Read(ReadSpec),
    /// Inline steps fused into one future.
    Chain(Vec<StepSpec>),
    /// Inline steps, whole strips over `workers` copies of the chain, output in input order.
    Parallel {
        /// The steps.
        steps: Vec<StepSpec>,
        /// Number of copies, at least 2.
        workers: u32,
    },
    /// One step that waits; several strips in flight, output in input order.
    Async {
        /// The step.
        step: StepSpec,
        /// Strips in flight.
        in_flight: u32,
    },
    /// Steps of which some are bound to a thread: one thread per worker for the whole chain.
    Isolate {
        /// The steps; inline ones between isolated ones run on the same thread.
        steps: Vec<StepSpec>,
        /// Number of threads, at least 1.
        workers: u32,
    },
    /// Writes a destination.
    Write(WriteSpec),
}

/// One operator of a stage and the rows it is applied to.
#[derive(Clone)]
pub struct StepSpec {
    /// Id of the processor, as the user knows it.
    pub node: Str,
    /// Name of its plugin.
    pub plugin: Str,
    /// The operator.
    pub operator: Arc<dyn ConfiguredOperator>,
    /// For which rows.
    pub condition: StepCondition,
    /// Whether it may make several records of one.
    pub multiplies: bool,
}

impl StepSpec {
    /// Whether it may change records or make several of one, as its operator says.
    pub fn changes(&self) -> bool {
        let signature = self.operator.signature();
        signature.fan.multiplies() || signature.writes != Access::NOTHING
    }
}

/// For which rows a step is applied.
#[derive(Clone)]
pub enum StepCondition {
    /// All.
    Always,
    /// Those it holds for.
    If(Arc<CompiledCondition>),
    /// The same rows as the step before: it has the same condition and changed nothing that it reads.
    AsBefore,
}

/// A source connector.
#[derive(Clone)]
pub struct ReadSpec {
    /// Id of the connector, unique in the pipeline.
    pub connector: Str,
    /// Name of its plugin.
    pub plugin: Str,
    /// The source.
    pub source: Arc<dyn Source>,
    /// `sdk.batch.size`: collect this many rows before they go on; `None` = as they come.
    pub batch_rows: Option<usize>,
    /// `sdk.batch.delay`: but wait no longer than this after the first.
    pub batch_delay: Duration,
}

/// A destination connector.
#[derive(Clone)]
pub struct WriteSpec {
    /// Id of the connector, unique in the pipeline.
    pub connector: Str,
    /// Name of its plugin.
    pub plugin: Str,
    /// The destination.
    pub destination: Arc<dyn Destination>,
    /// `sdk.batch.size`: rows of one write; `None` = the destination's own.
    pub batch_rows: Option<usize>,
    /// `sdk.batch.delay`: how long a write waits for more rows; `None` = the destination's own.
    pub batch_delay: Option<Duration>,
    /// `sdk.rate.perSecond`: most rows per second; `None` = no limit.
    pub rate: Option<f64>,
    /// `sdk.rate.burst`: most rows at once under a rate.
    pub burst: usize,
}

/// The dead-letter queue. One writer and one window per source lane.
#[derive(Clone)]
pub struct DeadLetterSpec {
    /// Name of the destination plugin.
    pub plugin: Str,
    /// The destination.
    pub destination: Arc<dyn Destination>,
    /// How many of the latest outcomes are looked at; 0 = failures are never too many.
    pub window_size: u64,
    /// The pipeline stops when more than this many in the window failed.
    pub threshold: u64,
}

impl DeadLetterSpec {
    /// Id of the node that takes dead letters.
    pub const NODE: &str = "dead-letter-queue";
}

/// Bounds on what a pipeline holds in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of a lane that are read and not yet stored as settled. Bounds duplicates after a crash.
    pub replay_rows: usize,
    /// Bytes of records in the whole pipeline.
    pub held_bytes: usize,
    /// Bytes of one queue between stages.
    pub queue_bytes: usize,
    /// Strips of one queue between stages.
    pub queue_strips: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { replay_rows: 16_384, held_bytes: 64 << 20, queue_bytes: 8 << 20, queue_strips: 4 }
    }
}
