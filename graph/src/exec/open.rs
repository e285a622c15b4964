//! Opens a plan: first destinations, then processors, sources last.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_plugin::destination::ShareWriter;
use anabranch_plugin::host::LogLevel;
use anabranch_plugin::operator::{Configured, Operator, OperatorContext};
use anabranch_plugin::source::OpenedSource;
use anabranch_plugin::state::Commit;
use anabranch_plugin::trace::SpanKind;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use futures::future::try_join_all;
use tokio::sync::mpsc;

use super::asynchronous::Asynchronous;
use super::chain::{self, Steps};
use super::claims::Claims;
use super::context::{Context, Interrupt};
use super::dead_letter::{DeadLetters, Outlet};
use super::deliver::{Delivery, WriterMarks};
use super::drain::{Acknowledging, Drain, store_fault};
use super::fan_out::Output;
use super::idle::Idle;
use super::isolate;
use super::lanes::Lanes;
use super::parallel;
use super::queue::{Gauge, Receiver, Sender, queue};
use super::read::{Reading, beginning};
use super::resume::{ForeignMark, MissingWrites, Remedy, ask_sources, resume, shown};
use super::route::Routing;
use super::tap::NodeRole;
use super::write::{OpenedWriter, shares};
use crate::batch::FailedRows;
use crate::codes;
use crate::plan::stage::{ReadSpec, StageId, StageKind, StagePlan, StageSpec, StepCondition, StepSpec};

/// Number of failed batches in the queue to the dead letters.
const DEAD_QUEUE: usize = 8;

type Task = std::pin::Pin<Box<dyn Future<Output = Result<(), Interrupt>> + Send>>;

/// A stage that is ready to run.
pub(super) struct Stage {
    pub(super) name: Str,
    pub(super) idle: Idle,
    pub(super) task: Task,
}

/// All opened parts, before the start.
pub(super) struct OpenedParts {
    pub(super) stages: Vec<Stage>,
    pub(super) drain: Drain,
}

/// The two ends of the queues of each stage.
struct Wiring {
    inputs: Vec<Option<Receiver>>,
    outputs: Vec<Vec<Sender>>,
    gauges: Box<[Gauge]>,
}

fn wire(plan: &StagePlan) -> Result<Wiring, Fault> {
    let broken = |what: String| Fault::fatal(codes::PLAN_BROKEN, what);
    let mut senders = Vec::new();
    let mut inputs = Vec::new();
    for _ in &plan.stages {
        let (sender, receiver) = queue(&plan.limits);
        senders.push(sender);
        inputs.push(Some(receiver));
    }
    let mut outputs: Vec<Vec<Sender>> = plan.stages.iter().map(|_| Vec::new()).collect();
    for wire in &plan.wires {
        let (Some(output), Some(sender)) = (outputs.get_mut(wire.from.0), senders.get(wire.to.0)) else {
            return Err(broken(format!("a wire leads from stage {} to stage {}", wire.from.0, wire.to.0)));
        };
        output.push(sender.clone());
    }
    for (stage, output) in plan.stages.iter().zip(&outputs) {
        if output.is_empty() != matches!(stage.kind, StageKind::Write(_)) {
            return Err(broken(format!("stage {} has {} successors", stage.name, output.len())));
        }
    }
    let gauges = senders.iter().map(Sender::gauge).collect();
    Ok(Wiring { inputs, outputs, gauges })
}

/// Claims the units, loads their marks and opens all parts.
pub(super) async fn open(context: &Arc<Context>, plan: &StagePlan) -> Result<OpenedParts, Fault> {
    let store = &context.services.store;
    let claims = Claims::make(&**store, &context.pipeline, context.options.slots).await.map_err(store_fault)?;
    let mut marks = claims.load(&**store).await.map_err(store_fault)?;
    let receipts = claims.receipts(&**store).await.map_err(store_fault)?;
    let Wiring { mut inputs, outputs, gauges } = wire(plan)?;
    context.progress.set_queues(gauges);

    let dead_node = Str::from(format!("{}-dlq", plan.pipeline));
    let dead_letter = open_dead_letters(context, plan, &dead_node, &claims);
    let writers = try_join_all(plan.stages.iter().map(|stage| open_writers(context, stage)));
    let (letters_to, writers) = futures::try_join!(dead_letter, writers)?;

    let writers = try_join_all(plan.stages.iter().zip(writers).map(|(stage, writers)| read_marks(stage, writers)));
    let writers = writers.await?;
    let known = known_marks(plan, &writers);
    if context.services.shared.is_some() && !mutant!(OpenedTooLate) {
        // A process that was paused may have opened destinations after a later run. Then it must write nothing, because
        // the destinations take it for the latest.
        claims.load(&**store).await.map_err(store_fault)?;
    }
    let mut resume = resume(plan, &marks, &known, &receipts)?;
    ask_sources(plan, &resume.lost).await?;
    for ForeignMark { destination, lane, theirs, ours } in &resume.foreign {
        let what = if theirs < ours {
            "records that the destination already has may be delivered again"
        } else {
            "the state store may be an old copy, and records may be delivered again or be missing: deliver missing \
             records with `anabranch positions rewind`"
        };
        tracing::warn!(
            pipeline = %plan.pipeline, %destination, source = %lane.connector, partition = %lane.partition.0,
            "the destination has positions of generation {theirs}, the state store of {ours}: the pipeline uses those \
             of the state store, and {what}"
        );
    }
    for (lane, mark) in &resume.moves {
        let why = match marks.get(lane) {
            None => "has no position of this source, and the destination has one under these ids",
            Some(stored) if stored.generation < mark.generation => {
                "has an older position of this source than the destination, and may be an old copy"
            }
            Some(_) => continue,
        };
        tracing::warn!(
            pipeline = %plan.pipeline, source = %lane.connector, partition = %lane.partition.0,
            "the state store {why}: the source resumes after {}; `anabranch positions reset` delivers everything again",
            shown(mark)
        );
    }
    for MissingWrites { destination, lane, confirmed, left, remedy } in &resume.lost {
        let left = left.as_ref().map_or_else(|| "none".to_owned(), shown);
        let what = match remedy {
            Remedy::Rewound => "the source reads the lost records again",
            Remedy::MovedByUser => "the source resumes from the position that a user set",
        };
        tracing::warn!(
            pipeline = %plan.pipeline, %destination, source = %lane.connector, partition = %lane.partition.0,
            confirmed = shown(confirmed), left, "the destination lost records that it had confirmed: {what}"
        );
    }
    for (at, known) in &known {
        if let StageKind::Write(write) = &plan.stages[at.0].kind {
            context.confirmed.add(*at, write.connector.clone(), known.clone());
        }
    }
    if !resume.moves.is_empty() || !resume.receipts.is_empty() {
        let commit = Commit::of(&resume.moves).with_receipts(&resume.receipts);
        claims.commit(&**store, commit).await.map_err(store_fault)?;
        marks.extend(resume.moves.drain(..));
    }

    let (dead, failures) = mpsc::channel::<FailedRows>(DEAD_QUEUE);
    let mut stages: Vec<Stage> = Vec::new();
    let mut gates = Vec::new();
    let mut reads = Vec::new();
    for (index, (stage, writers)) in plan.stages.iter().zip(writers).enumerate() {
        let output = Output::new(context, index, outputs[index].clone(), dead.clone());
        let input = inputs[index].take();
        let idle = input.as_ref().map(Receiver::idle).unwrap_or_default();
        let task: Task = match (&stage.kind, input) {
            (StageKind::Read(spec), _) => {
                reads.push((stage.name.clone(), spec, output));
                continue;
            }
            (StageKind::Write(spec), Some(input)) if !writers.is_empty() => {
                stages.extend(shares::stages(&stage.name, spec, writers, input, &output, &mut gates));
                continue;
            }
            (StageKind::Route(spec), Some(input)) => {
                let at = StageId(index);
                let to: Vec<StageId> = plan.wires.iter().filter(|wire| wire.from == at).map(|wire| wire.to).collect();
                Box::pin(Routing::new(spec, &to, output)?.run(input))
            }
            (StageKind::Chain(steps), Some(input)) => {
                Box::pin(chain::run(build_inline(context, steps, 0, &output)?, input, output))
            }
            (StageKind::Parallel { steps, workers }, Some(input)) => {
                let mut copies = Vec::new();
                for worker in 0..(*workers).max(1) as usize {
                    let steps = build_inline(context, steps, worker, &output)?;
                    copies.push(parallel::spawn(context, steps, output.for_worker()));
                }
                Box::pin(parallel::run(copies, input, output))
            }
            (StageKind::Isolate { steps, workers }, Some(input)) => {
                let steps: Arc<[StepSpec]> = steps.clone().into();
                let threads = (0..(*workers).max(1) as usize)
                    .map(|worker| isolate::spawn(context, steps.clone(), worker, output.for_worker()));
                let threads = try_join_all(threads).await?;
                Box::pin(parallel::run(threads, input, output))
            }
            (StageKind::Async { step, in_flight }, Some(input)) => {
                let Configured::Async(configured) = &step.operator else { return Err(wrong_stage(step)) };
                let surroundings = operator_context(context, step, 0);
                let operator = configured.build(&surroundings).map_err(|fault| fault.at(&step.node))?;
                let condition = match &step.condition {
                    StepCondition::Always => None,
                    StepCondition::If(condition) => Some(condition.instantiate()),
                    StepCondition::AsBefore => return Err(wrong_condition(step)),
                };
                let in_flight = (*in_flight).max(1) as usize;
                let tap = output.tap(NodeRole::Processor, &step.node);
                let tracer = output.tracer(&step.node, &step.plugin, SpanKind::Request);
                let (node, changes, multiplies) = (step.node.clone(), step.changes(), step.multiplies);
                let context = Arc::new(surroundings);
                let step =
                    Asynchronous { node, condition, operator, context, changes, multiplies, in_flight, tap, tracer };
                Box::pin(step.run(input, output))
            }
            _ => return Err(Fault::fatal(codes::PLAN_BROKEN, format!("stage {} cannot be run", stage.name))),
        };
        stages.push(Stage { name: stage.name.clone(), idle, task });
    }
    drop(dead);
    drop(outputs);

    let letters = DeadLetters::new(context, plan, dead_node.clone(), letters_to);
    let idle = Idle::default();
    stages.push(Stage { name: dead_node, idle: idle.clone(), task: Box::pin(letters.run(failures, idle)) });

    let opening = reads
        .into_iter()
        .enumerate()
        .map(|(source, (name, spec, output))| open_source(context, source, name, spec, output, &marks, &claims));
    let mut sources = Vec::new();
    let opened = try_join_all(opening).await?;
    let begun: Vec<_> = opened.iter().flat_map(|opened| opened.begun.iter().cloned()).collect();
    if !begun.is_empty() {
        // Before a row is read: row numbers of an earlier generation must not identify it.
        let receipts = context.confirmed.receipts(&begun);
        claims.commit(&**store, Commit::of(&begun).with_receipts(&receipts)).await.map_err(store_fault)?;
    }
    // A source that cannot read records again, such as standard input, never starts after a position.
    let rereads = |connector: &Str| {
        !plan.stages.iter().any(|stage| match &stage.kind {
            StageKind::Read(spec) => spec.connector == *connector && !spec.source.undelivered().is_read_again(),
            _ => false,
        })
    };
    for (lane, mark) in begun.iter().filter(|(lane, _)| rereads(&lane.connector)) {
        tracing::warn!(
            pipeline = %plan.pipeline, source = %lane.connector, partition = %lane.partition.0,
            "the source does not start after the stored position: generation {} begins", mark.generation
        );
    }
    for OpenSource { name, reading, acknowledging, .. } in opened {
        stages.push(Stage { name, idle: Idle::default(), task: Box::pin(reading.run()) });
        sources.push(acknowledging);
    }
    Ok(OpenedParts { stages, drain: Drain { context: context.clone(), claims, sources, gates, removable: Vec::new() } })
}

async fn open_dead_letters(
    context: &Arc<Context>,
    plan: &StagePlan,
    node: &Str,
    claims: &Claims,
) -> Result<Outlet, Fault> {
    let destination = &plan.dead_letter.destination;
    if let Some(bounds) = destination.keeps_letters() {
        // Removes expired dead letters, and detects a store without dead letters before a record fails.
        let first = claims.of_slot(0);
        let kept = context.services.keep_letters(first, Vec::new(), &bounds).await;
        let kept = kept.map_err(|error| store_fault(error).at(node))?;
        context.progress.add_letters_evicted(kept.evicted);
        return Ok(Outlet::Store { claims: claims.clone(), bounds });
    }
    if destination.logs().is_some() && !context.services.log.enabled(LogLevel::Debug) {
        return Ok(Outlet::Log);
    }
    let writer = destination.open(&context.host(node)).await.map_err(|fault| fault.at(node))?;
    let retry = destination.policy().retry;
    Ok(Outlet::Destination(Delivery {
        context: context.clone(),
        stage: None,
        slots: context.options.slots,
        writer,
        retry,
        known: WriterMarks::new(),
    }))
}

async fn open_writers(context: &Context, stage: &StageSpec) -> Result<Vec<ShareWriter>, Fault> {
    match &stage.kind {
        StageKind::Write(spec) => shares::open_writers(context, spec).await,
        _ => Ok(Vec::new()),
    }
}

/// Reads the marks of the writers of a stage, if its destination is transactional.
async fn read_marks(stage: &StageSpec, writers: Vec<ShareWriter>) -> Result<Vec<OpenedWriter>, Fault> {
    let is_transactional = stage.is_transactional();
    let reading = writers.into_iter().map(|ShareWriter { slots, mut writer }| async move {
        let marks = if is_transactional { writer.marks().await } else { Ok(Vec::new()) };
        let marks = marks.map_err(|fault| match &stage.kind {
            StageKind::Write(spec) => fault.at(&spec.connector),
            _ => fault,
        })?;
        Ok(OpenedWriter { slots, writer, known: marks.into_iter().collect() })
    });
    try_join_all(reading).await
}

/// Returns the marks of the transactional destinations, by stage.
fn known_marks(plan: &StagePlan, writers: &[Vec<OpenedWriter>]) -> BTreeMap<StageId, WriterMarks> {
    let stages = plan.stages.iter().zip(writers).enumerate().filter(|(_, (stage, _))| stage.is_transactional());
    let marks = stages.map(|(index, (_, writers))| {
        let marks = writers.iter().flat_map(|writer| &writer.known);
        (StageId(index), marks.map(|(lane, mark)| (lane.clone(), mark.clone())).collect())
    });
    marks.collect()
}

/// A source that is ready to be read.
struct OpenSource {
    name: Str,
    reading: Reading,
    acknowledging: Acknowledging,
    /// Marks of lanes that begin a new generation, because the source does not start after their marks.
    begun: Vec<(LaneId, Mark)>,
}

async fn open_source(
    context: &Arc<Context>,
    source: usize,
    name: Str,
    spec: &ReadSpec,
    output: Output,
    marks: &BTreeMap<LaneId, Mark>,
    claims: &Claims,
) -> Result<OpenSource, Fault> {
    let ours = marks.iter().filter(|(lane, _)| lane.connector == spec.connector);
    let mut resume: BTreeMap<Partition, Mark> =
        ours.map(|(lane, mark)| (lane.partition.clone(), mark.clone())).collect();
    let host = context.host(&spec.connector);
    // A lane that was reset has a generation but no position.
    let takes_resets = spec.source.takes_resets();
    let begun = resume.iter().filter(|(_, mark)| takes_resets || !mark.position.0.is_empty());
    let begun = begun.map(|(partition, mark)| (partition.clone(), mark.clone())).collect();
    let opened = spec.source.open(&begun, &host).await.map_err(|fault| fault.at(&spec.connector))?;
    let OpenedSource { reader, acker, starts, .. } = opened;
    let mut begun = Vec::new();
    for (partition, start) in &starts {
        if start.is_elsewhere() && !mutant!(ElsewhereContinues) {
            let id = Lanes::lane_id(&spec.connector, partition);
            let mark =
                beginning(&context.confirmed, claims.number(partition), &id, resume.get(partition), start.position());
            resume.insert(partition.clone(), mark.clone());
            begun.push((id, mark));
        }
    }
    let meters = output.meters();
    let reading = Reading::new(source, spec, reader, resume, starts, claims.clone(), output);
    let acknowledging = Acknowledging { connector: spec.connector.clone(), acker, meters };
    Ok(OpenSource { name, reading, acknowledging, begun })
}

/// Builds the operators of a chain for one worker.
pub(super) fn build_inline(
    context: &Context,
    steps: &[StepSpec],
    worker: usize,
    output: &Output,
) -> Result<Steps<dyn Operator + Send>, Fault> {
    let mut built = Vec::with_capacity(steps.len());
    check_conditions(steps)?;
    for step in steps {
        let Configured::Inline(configured) = &step.operator else { return Err(wrong_stage(step)) };
        let surroundings = operator_context(context, step, worker);
        let operator = configured.build(&surroundings).map_err(|fault| fault.at(&step.node))?;
        built.push((step, operator, surroundings));
    }
    Ok(Steps::new(built, false, output))
}

/// Returns the context of the operator of a step, for one worker.
pub(super) fn operator_context(context: &Context, step: &StepSpec, worker: usize) -> OperatorContext {
    OperatorContext::new(worker, context.host(&step.node))
}

/// Checks that the first step of a stage does not share the condition of a step before it.
pub(super) fn check_conditions(steps: &[StepSpec]) -> Result<(), Fault> {
    match steps.first() {
        Some(step) if matches!(step.condition, StepCondition::AsBefore) => Err(wrong_condition(step)),
        _ => Ok(()),
    }
}

fn wrong_condition(step: &StepSpec) -> Fault {
    Fault::fatal(codes::PLAN_BROKEN, "the first step of a stage shares the condition of a step before it")
        .at(&step.node)
}

/// Returns the fault of a plan that has an operator in a stage for another class.
pub(super) fn wrong_stage(step: &StepSpec) -> Fault {
    let what = format!("processor {} is in a stage for another class than its own", step.plugin);
    Fault::fatal(codes::PLAN_BROKEN, what).at(&step.node)
}
