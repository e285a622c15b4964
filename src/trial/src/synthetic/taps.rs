//! The plan for synthetic records: its operators note the result of each record, its sources return the
//! synthetic records, its destinations write nothing, and operators that need the outside world are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_graph::plan::stage::{StageId, StageKind, StagePlan, StepCondition, StepSpec};
use anabranch_plugin::destination::{Delivered, Destination, Retry, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{
    AsyncOperator, BuiltAsync, BuiltInline, BuiltIsolate, Class, ConfiguredOperator, Decision, Layer, Operator,
    OperatorContext, Rows,
};
use anabranch_plugin::source::{OpenedSource, Read, Reader, Room, Source};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;
use async_trait::async_trait;

use crate::codes;

/// A point where a record can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FailurePoint {
    /// The stage.
    pub(super) stage: StageId,
    /// Index of the step in the stage; 0 for a destination.
    pub(super) step: usize,
    /// True for the condition of the step.
    pub(super) is_condition: bool,
}

/// A record at a point, and its result.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    /// The record before the point.
    pub(super) before: Record,
    /// The fault, if it failed.
    pub(super) fault: Option<Fault>,
}

/// Observations of all records.
#[derive(Debug, Default)]
pub(super) struct Observations {
    by_point: Mutex<BTreeMap<FailurePoint, Vec<Observation>>>,
}

impl Observations {
    fn note(&self, point: FailurePoint, before: Record, fault: Option<Fault>) {
        let mut by_point = self.by_point.lock().unwrap_or_else(PoisonError::into_inner);
        by_point.entry(point).or_default().push(Observation { before, fault });
    }

    /// Takes the observations, by point.
    pub(super) fn take(&self) -> BTreeMap<FailurePoint, Vec<Observation>> {
        std::mem::take(&mut *self.by_point.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Processors that compute from the record alone. Others are skipped, and points behind them are not judged.
const TRIED: [&str; 17] = [
    "ai.chunk",
    "base64.decode",
    "base64.encode",
    "clone",
    "custom.javascript",
    "error",
    "field.convert",
    "field.exclude",
    "field.rename",
    "field.set",
    "filter",
    "json.decode",
    "json.encode",
    "split",
    "unwrap.debezium",
    "unwrap.kafkaconnect",
    "unwrap.opencdc",
];

fn is_tried(step: &StepSpec) -> bool {
    TRIED.contains(&step.plugin.as_str()) && step.operator.class() != Class::Async
}

/// Returns the plan with taps, and the points that are not judged.
pub(super) fn tapped(
    plan: &StagePlan,
    records: &BTreeMap<Str, Vec<Record>>,
    observations: &Arc<Observations>,
) -> (StagePlan, BTreeSet<FailurePoint>) {
    let mut tapped = plan.clone();
    let mut left_out = BTreeSet::new();
    for (index, stage) in tapped.stages.iter_mut().enumerate() {
        let stage_id = StageId(index);
        let tap = |step| Tap {
            observations: observations.clone(),
            point: FailurePoint { stage: stage_id, step, is_condition: false },
        };
        match &mut stage.kind {
            StageKind::Read(read) => {
                read.source = Arc::new(FixedSource(records.get(&read.connector).cloned().unwrap_or_default()));
                read.batch_rows = None;
            }
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                let mut after = false;
                for (at, step) in steps.iter_mut().enumerate() {
                    after |= !is_tried(step);
                    if after {
                        left_out.extend(points(stage_id, at));
                    }
                    instrument(step, tap(at));
                }
                if after {
                    left_out.extend(behind(plan, stage_id));
                }
            }
            StageKind::Async { step, .. } => {
                left_out.extend(points(stage_id, 0));
                left_out.extend(behind(plan, stage_id));
                instrument(step, tap(0));
            }
            StageKind::Route(_) => {}
            StageKind::Write(write) => {
                write.destination =
                    Arc::new(RecordingDestination { destination: write.destination.clone(), tap: tap(0) });
                (write.batch_rows, write.batch_delay, write.rate) = (None, None, None);
            }
        }
    }
    tapped.dead_letter.destination = Arc::new(DiscardingDestination);
    (tapped.dead_letter.window_size, tapped.dead_letter.threshold) = (0, 0);
    (tapped, left_out)
}

fn points(stage: StageId, step: usize) -> [FailurePoint; 2] {
    [false, true].map(|is_condition| FailurePoint { stage, step, is_condition })
}

/// Returns all points of the stages behind a stage.
fn behind(plan: &StagePlan, stage: StageId) -> Vec<FailurePoint> {
    let steps = |stage: StageId| match plan.stages.get(stage.0).map(|stage| &stage.kind) {
        Some(StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. }) => {
            steps.len()
        }
        _ => 1,
    };
    let stages = plan.reachable(stage).into_iter().filter(|other| *other != stage);
    stages.flat_map(|stage| (0..steps(stage)).flat_map(move |step| points(stage, step))).collect()
}

fn instrument(step: &mut StepSpec, tap: Tap) {
    if let StepCondition::If(condition) = &step.condition {
        let (tap, decides) = (tap.clone(), condition.clone());
        let point = FailurePoint { is_condition: true, ..tap.point };
        let note = move |records: &[Record]| {
            for record in records {
                tap.observations.note(point, record.clone(), decides.evaluate(record).err());
            }
        };
        step.condition = StepCondition::If(Arc::new(condition.witnessed(Arc::new(note))));
    }
    let operator = step.operator.clone();
    step.operator = match is_tried(step) {
        true => operator.layered(TappedStep { tap, multiplies: step.multiplies }),
        false => operator.layered(SkippedStep),
    };
}

/// Records the results of records at a point.
#[derive(Clone)]
struct Tap {
    observations: Arc<Observations>,
    point: FailurePoint,
}

struct TappedStep {
    tap: Tap,
    multiplies: bool,
}

impl TappedStep {
    fn recording<O: ?Sized>(&self, operator: Box<O>) -> RecordingOperator<O> {
        RecordingOperator { operator, tap: self.tap.clone(), multiplies: self.multiplies }
    }
}

impl Layer for TappedStep {
    fn inline(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltInline>,
        context: &OperatorContext,
    ) -> Result<BuiltInline, Fault> {
        Ok(Box::new(self.recording(inner.build(context)?)))
    }

    fn isolate(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltIsolate>,
        context: &OperatorContext,
    ) -> Result<BuiltIsolate, Fault> {
        Ok(Box::new(self.recording(inner.build(context)?)))
    }

    fn asynchronous(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltAsync>,
        context: &OperatorContext,
    ) -> Result<BuiltAsync, Fault> {
        inner.build(context)
    }
}

struct RecordingOperator<O: ?Sized> {
    operator: Box<O>,
    tap: Tap,
    /// True if the executor allows it to split records.
    multiplies: bool,
}

impl<O: Operator + ?Sized> Operator for RecordingOperator<O> {
    fn process(&mut self, rows: &mut Rows<'_>, context: &OperatorContext) {
        let entering: Vec<(usize, Record)> = rows.iter_mut().map(|(row, record)| (row, record.clone())).collect();
        let before = rows.decisions_mut().count();
        self.operator.process(rows, context);
        let mut faults: BTreeMap<usize, Fault> = BTreeMap::new();
        for (row, decision) in rows.decisions_mut().skip(before) {
            match decision {
                Decision::Fail(fault) => drop(faults.insert(row, fault.clone())),
                Decision::Split(pieces) if pieces.len() > 1 && !self.multiplies => {
                    faults.insert(row, multiplied(pieces.len()));
                }
                _ => {}
            }
        }
        for (row, record) in entering {
            self.tap.observations.note(self.tap.point, record, faults.remove(&row));
        }
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.operator.close()
    }
}

/// Returns the fault of the executor for an operator that splits a record without permission.
fn multiplied(records: usize) -> Fault {
    let text = format!(
        "the processor made {records} records of one, which is only in the newer pipeline architecture: allow it with \
         preview.pipeline-arch-v2: true in anabranch.yaml, or --preview.pipeline-arch-v2 on the command line"
    );
    Fault::record(codes::NEEDS_ARCH_V2, text)
}

/// Replaces a step that needs more than the record: it filters every record.
struct SkippedStep;

impl Layer for SkippedStep {
    fn inline(
        &self,
        _: &dyn ConfiguredOperator<Built = BuiltInline>,
        _: &OperatorContext,
    ) -> Result<BuiltInline, Fault> {
        Ok(Box::new(FilterAll))
    }

    fn isolate(
        &self,
        _: &dyn ConfiguredOperator<Built = BuiltIsolate>,
        _: &OperatorContext,
    ) -> Result<BuiltIsolate, Fault> {
        Ok(Box::new(FilterAll))
    }

    fn asynchronous(
        &self,
        _: &dyn ConfiguredOperator<Built = BuiltAsync>,
        _: &OperatorContext,
    ) -> Result<BuiltAsync, Fault> {
        Ok(Arc::new(FilterAll))
    }
}

struct FilterAll;

impl Operator for FilterAll {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|_| Ok(Decision::Filter));
    }
}

#[async_trait]
impl AsyncOperator for FilterAll {
    async fn call(&self, rows: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
        rows.iter().map(|_| Decision::Filter).collect()
    }
}

/// A source of given records.
struct FixedSource(Vec<Record>);

#[async_trait]
impl Source for FixedSource {
    fn catches_up(&self) -> bool {
        true
    }

    async fn open(&self, _: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        Ok(OpenedSource::new(Box::new(FixedReader(self.0.clone())), Box::new(crate::lines::Unacknowledged)))
    }
}

struct FixedReader(Vec<Record>);

#[async_trait]
impl Reader for FixedReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        if self.0.is_empty() {
            return Ok(Read::End);
        }
        let records = self.0.drain(..room.rows.min(self.0.len()).max(1)).collect();
        Ok(Read::Rows { partition: Partition::ONLY, records })
    }
}

/// Replaces a destination.
#[derive(Clone)]
struct RecordingDestination {
    destination: Arc<dyn Destination>,
    tap: Tap,
}

#[async_trait]
impl Destination for RecordingDestination {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(self.clone()))
    }

    fn policy(&self) -> WritePolicy {
        POLICY
    }
}

const POLICY: WritePolicy =
    WritePolicy { rows: 1000, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::AtMostOnce };

#[async_trait]
impl Writer for RecordingDestination {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        for row in rows {
            let fault = self.destination.written(row).and_then(Result::err);
            self.tap.observations.note(self.tap.point, row.clone(), fault);
        }
        Ok(Verdicts::All(Delivered::Durable))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Replaces the dead-letter queue.
struct DiscardingDestination;

#[async_trait]
impl Destination for DiscardingDestination {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(DiscardingDestination))
    }

    fn policy(&self) -> WritePolicy {
        POLICY
    }
}

#[async_trait]
impl Writer for DiscardingDestination {
    async fn write(&mut self, _: Write<'_>) -> Result<Verdicts, Fault> {
        Ok(Verdicts::All(Delivered::Durable))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
