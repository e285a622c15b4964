//! Taps: a plan whose processors record what they do with each record, and whose sources and destinations are replaced.

use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::plan::stage::{StageId, StageKind, StagePlan, StepSpec, Unmatched};
use anabranch_plugin::destination::{Delivered, Destination, Retry, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{
    AsyncOperator, BuiltAsync, BuiltInline, BuiltIsolate, ConfiguredOperator, Decision, Layer, Operator,
    OperatorContext, Rows, arrange,
};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use async_trait::async_trait;

use crate::limited::LimitedSource;
use crate::trace::{StepId, StepInfo, StepOutcome, Trace, steps};

/// Returns the plan with taps: each source gives at most `records` and receives no acknowledgements, nothing reaches
/// its destinations, and failures never stop it. Everything else runs as in the pipeline.
pub fn tapped(plan: &StagePlan, records: usize, trace: &Arc<Trace>) -> StagePlan {
    let noted: Arc<[StepInfo]> = steps(plan).into();
    let mut plan = plan.clone();
    for (index, stage) in plan.stages.iter_mut().enumerate() {
        let id = |step| StepId { stage: StageId(index), step };
        match &mut stage.kind {
            StageKind::Read(read) => {
                let (source, connector) = (read.source.clone(), read.connector.clone());
                read.source = Arc::new(LimitedSource { source, connector, records, trace: trace.clone() });
            }
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                steps.iter_mut().enumerate().for_each(|(at, step)| tap(step, id(at), trace));
            }
            StageKind::Async { step, .. } => tap(step, id(0), trace),
            // A dead letter shows the record that is dropped or that stops the pipeline.
            StageKind::Route(route) => route.unmatched = Unmatched::DeadLetter,
            StageKind::Write(write) => {
                let destination = Some(write.destination.clone());
                write.destination = Arc::new(TracedDestination {
                    step: Some(id(0)),
                    destination,
                    steps: noted.clone(),
                    trace: trace.clone(),
                });
                (write.batch_rows, write.batch_delay, write.rate) = (None, None, None);
            }
        }
    }
    plan.dead_letter.destination =
        Arc::new(TracedDestination { step: None, destination: None, steps: noted, trace: trace.clone() });
    (plan.dead_letter.window_size, plan.dead_letter.threshold) = (0, 0);
    plan
}

fn tap(step: &mut StepSpec, id: StepId, trace: &Arc<Trace>) {
    step.operator = step.operator.clone().layered(TracePoint { step: id, trace: trace.clone() });
}

/// The step of a tap, and the trace that it writes to.
#[derive(Clone)]
struct TracePoint {
    step: StepId,
    trace: Arc<Trace>,
}

impl Layer for TracePoint {
    fn inline(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltInline>,
        context: &OperatorContext,
    ) -> Result<BuiltInline, Fault> {
        Ok(Box::new(TracedOperator { operator: inner.build(context)?, point: self.clone() }))
    }

    fn isolate(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltIsolate>,
        context: &OperatorContext,
    ) -> Result<BuiltIsolate, Fault> {
        Ok(Box::new(TracedOperator { operator: inner.build(context)?, point: self.clone() }))
    }

    fn asynchronous(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltAsync>,
        context: &OperatorContext,
    ) -> Result<BuiltAsync, Fault> {
        Ok(Arc::new(TracedAsyncOperator { operator: inner.build(context)?, point: self.clone() }))
    }
}

/// Returns the outcome of a record that `decision` was made on; `None` if it failed, which its dead letter records.
fn outcome(record: &Record, decision: &Decision) -> Option<StepOutcome> {
    match decision {
        Decision::Keep => Some(StepOutcome::Kept(record.clone())),
        Decision::Split(pieces) if pieces.is_empty() => Some(StepOutcome::Dropped),
        Decision::Split(pieces) => Some(StepOutcome::Split(pieces.clone())),
        Decision::Pieces(pieces) => Some(StepOutcome::Split(pieces.iter().collect())),
        Decision::Filter => Some(StepOutcome::Dropped),
        Decision::Fail(_) => None,
    }
}

struct TracedOperator<O: ?Sized> {
    operator: Box<O>,
    point: TracePoint,
}

impl<O: Operator + ?Sized> Operator for TracedOperator<O> {
    fn process(&mut self, rows: &mut Rows<'_>, context: &OperatorContext) {
        let (numbers, before): (Vec<usize>, Vec<Record>) =
            rows.iter_mut().map(|(number, record)| (number, record.clone())).unzip();
        // On copies: if the operator panics, the rows are unchanged.
        let mut records = before.clone();
        let mut decisions = Vec::new();
        self.operator.process(&mut Rows::new(&mut records, None, &mut decisions), context);
        arrange(&mut decisions);
        let mut outcomes: Vec<Option<StepOutcome>> =
            records.iter().map(|record| outcome(record, &Decision::Keep)).collect();
        for (at, decision) in &decisions {
            if let (Some(noted), Some(record)) = (outcomes.get_mut(*at), records.get(*at)) {
                *noted = outcome(record, decision);
            }
        }
        for ((_, row), record) in rows.iter_mut().zip(records) {
            *row = record;
        }
        for (at, decision) in decisions {
            if let Some(number) = numbers.get(at) {
                rows.decide(*number, decision);
            }
        }
        for (before, outcome) in before.into_iter().zip(outcomes) {
            if let Some(outcome) = outcome {
                self.point.trace.note(self.point.step, before, outcome);
            }
        }
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.operator.close()
    }
}

struct TracedAsyncOperator {
    operator: Arc<dyn AsyncOperator>,
    point: TracePoint,
}

#[async_trait]
impl AsyncOperator for TracedAsyncOperator {
    async fn call(&self, rows: &mut [Record], context: &OperatorContext) -> Vec<Decision> {
        let before = rows.to_vec();
        let decisions = self.operator.call(rows, context).await;
        for ((before, after), decision) in before.into_iter().zip(&*rows).zip(&decisions) {
            if let Some(outcome) = outcome(after, decision) {
                self.point.trace.note(self.point.step, before, outcome);
            }
        }
        decisions
    }

    async fn close(&self) -> Result<(), Fault> {
        self.operator.close().await
    }
}

/// Replaces a destination or the dead-letter queue.
#[derive(Clone)]
struct TracedDestination {
    /// `None` for the dead-letter queue.
    step: Option<StepId>,
    /// The destination, which returns what it would write.
    destination: Option<Arc<dyn Destination>>,
    steps: Arc<[StepInfo]>,
    trace: Arc<Trace>,
}

#[async_trait]
impl Destination for TracedDestination {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(self.clone()))
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 1000, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::AtMostOnce }
    }
}

#[async_trait]
impl Writer for TracedDestination {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let mut verdicts = Vec::with_capacity(rows.len());
        for row in rows {
            let Some(step) = self.step else {
                self.trace.failed(row, &self.steps);
                verdicts.push(Ok(Delivered::Durable));
                continue;
            };
            let written = self.destination.as_ref().and_then(|destination| destination.written(row)).transpose();
            verdicts.push(written.map(|written| {
                self.trace.note(step, row.clone(), StepOutcome::Delivered(written));
                Delivered::Durable
            }));
        }
        Ok(Verdicts::Each(verdicts))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
