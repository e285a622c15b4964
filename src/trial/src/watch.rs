//! A plan whose processors and destinations show each incoming record to an observer.

use std::collections::BTreeSet;
use std::sync::Arc;

use anabranch_graph::plan::Observer;
use anabranch_graph::plan::stage::{StageId, StageKind, StagePlan, StepCondition, StepSpec};
use anabranch_plugin::destination::{Destination, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{
    AsyncOperator, BuiltAsync, BuiltInline, BuiltIsolate, ConfiguredOperator, Decision, Layer, Operator,
    OperatorContext, Rows,
};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};
use async_trait::async_trait;

/// Returns the plan with an observer. Everything else runs as in the pipeline.
pub fn watched(plan: &StagePlan, observer: &Arc<Observer>) -> StagePlan {
    let mut plan = plan.clone();
    for (index, stage) in plan.stages.iter_mut().enumerate() {
        let observed = |step| StepObserver { observer: observer.clone(), stage: StageId(index), step };
        match &mut stage.kind {
            StageKind::Read(_) | StageKind::Route(_) => {}
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                steps.iter_mut().enumerate().for_each(|(at, step)| watch(step, observed(at)));
            }
            StageKind::Async { step, .. } => watch(step, observed(0)),
            StageKind::Write(write) => {
                write.destination =
                    Arc::new(WatchedDestination { destination: write.destination.clone(), observed: observed(0) });
            }
        }
    }
    plan
}

fn watch(step: &mut StepSpec, observed: StepObserver) {
    if let StepCondition::If(condition) = &step.condition {
        let observed = observed.clone();
        let show = move |records: &[Record]| {
            records
                .iter()
                .for_each(|record| observed.observer.look_at_condition(observed.stage, observed.step, record));
        };
        step.condition = StepCondition::If(Arc::new(condition.witnessed(Arc::new(show))));
    }
    step.operator = step.operator.clone().layered(observed);
}

/// An observer, and the step that it observes.
#[derive(Clone)]
struct StepObserver {
    observer: Arc<Observer>,
    stage: StageId,
    step: usize,
}

impl StepObserver {
    fn look(&self, record: &Record) {
        self.observer.look(self.stage, self.step, record);
    }
}

impl Layer for StepObserver {
    fn inline(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltInline>,
        context: &OperatorContext,
    ) -> Result<BuiltInline, Fault> {
        Ok(Box::new(WatchedOperator { operator: inner.build(context)?, observed: self.clone() }))
    }

    fn isolate(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltIsolate>,
        context: &OperatorContext,
    ) -> Result<BuiltIsolate, Fault> {
        Ok(Box::new(WatchedOperator { operator: inner.build(context)?, observed: self.clone() }))
    }

    fn asynchronous(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltAsync>,
        context: &OperatorContext,
    ) -> Result<BuiltAsync, Fault> {
        Ok(Arc::new(WatchedAsyncOperator { operator: inner.build(context)?, observed: self.clone() }))
    }
}

struct WatchedOperator<O: ?Sized> {
    operator: Box<O>,
    observed: StepObserver,
}

impl<O: Operator + ?Sized> Operator for WatchedOperator<O> {
    fn process(&mut self, rows: &mut Rows<'_>, context: &OperatorContext) {
        rows.iter_mut().for_each(|(_, record)| self.observed.look(record));
        let StepObserver { observer, stage, step } = &self.observed;
        let before = rows.decisions_mut().count();
        let mut plain: BTreeSet<usize> = rows
            .iter_mut()
            .filter_map(|(row, record)| Some((row, observer.look_for_objects(*stage, *step, record)?)))
            .filter_map(|(row, holds)| (!holds).then_some(row))
            .collect();
        self.operator.process(rows, context);
        for (row, decision) in rows.decisions_mut().skip(before) {
            let was_plain = plain.remove(&row);
            if let Decision::Split(pieces) = decision {
                observer.look_at_pieces(*stage, *step, pieces);
                if was_plain {
                    observer.look_at_results(*stage, *step, pieces.iter());
                }
            }
        }
        for (_, record) in rows.iter_mut().filter(|(row, _)| plain.contains(row)) {
            observer.look_at_results(*stage, *step, [&*record]);
        }
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.operator.close()
    }
}

struct WatchedAsyncOperator {
    operator: Arc<dyn AsyncOperator>,
    observed: StepObserver,
}

#[async_trait]
impl AsyncOperator for WatchedAsyncOperator {
    async fn call(&self, rows: &mut [Record], context: &OperatorContext) -> Vec<Decision> {
        rows.iter().for_each(|record| self.observed.look(record));
        self.operator.call(rows, context).await
    }

    async fn close(&self) -> Result<(), Fault> {
        self.operator.close().await
    }
}

/// A destination, or the writer of one.
struct WatchedDestination<D> {
    destination: D,
    observed: StepObserver,
}

#[async_trait]
impl Destination for WatchedDestination<Arc<dyn Destination>> {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(WatchedDestination {
            destination: self.destination.open(host).await?,
            observed: self.observed.clone(),
        }))
    }

    fn policy(&self) -> WritePolicy {
        self.destination.policy()
    }

    /// Called for the records of a trial instead of writing them.
    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        self.observed.look(record);
        self.destination.written(record)
    }
}

#[async_trait]
impl Writer for WatchedDestination<Box<dyn Writer>> {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        self.destination.marks().await
    }

    async fn write(&mut self, write: Write<'_>) -> Result<Verdicts, Fault> {
        write.rows.iter().for_each(|record| self.observed.look(record));
        self.destination.write(write).await
    }

    async fn forget(&mut self, lanes: &[LaneId]) -> Result<bool, Fault> {
        self.destination.forget(lanes).await
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        self.destination.flush().await
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.destination.close().await
    }
}
