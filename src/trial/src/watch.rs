//! A plan whose processors and destinations show each incoming record to an observer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::plan::Observer;
use anabranch_graph::plan::stage::{StageId, StageKind, StagePlan, StepCondition, StepSpec};
use anabranch_plugin::destination::{Destination, Verdicts, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{
    AsyncOperator, BuiltOperator, ConfiguredOperator, Decision, Operator, Rows, Signature, Verdict,
};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};
use async_trait::async_trait;

/// Returns the plan with an observer. Everything else runs as in the pipeline.
pub fn watched(plan: &StagePlan, observer: &Arc<Observer>) -> StagePlan {
    let mut plan = plan.clone();
    for (index, stage) in plan.stages.iter_mut().enumerate() {
        let eye = |step| Eye { observer: observer.clone(), stage: StageId(index), step };
        match &mut stage.kind {
            StageKind::Read(_) => {}
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                steps.iter_mut().enumerate().for_each(|(at, step)| watch(step, eye(at)));
            }
            StageKind::Async { step, .. } => watch(step, eye(0)),
            StageKind::Write(write) => {
                write.destination = Arc::new(End { destination: write.destination.clone(), eye: eye(0) });
            }
        }
    }
    plan
}

fn watch(step: &mut StepSpec, eye: Eye) {
    if let StepCondition::If(condition) = &step.condition {
        let eye = eye.clone();
        let show = move |records: &[Record]| {
            records.iter().for_each(|record| eye.observer.look_at_condition(eye.stage, eye.step, record));
        };
        step.condition = StepCondition::If(Arc::new(condition.witnessed(Arc::new(show))));
    }
    step.operator = Arc::new(Step { operator: step.operator.clone(), eye });
}

/// An observer and the place that it observes.
#[derive(Clone)]
struct Eye {
    observer: Arc<Observer>,
    stage: StageId,
    step: usize,
}

impl Eye {
    fn look(&self, record: &Record) {
        self.observer.look(self.stage, self.step, record);
    }
}

struct Step {
    operator: Arc<dyn ConfiguredOperator>,
    eye: Eye,
}

impl ConfiguredOperator for Step {
    fn signature(&self) -> Signature {
        self.operator.signature()
    }

    fn patience(&self) -> Option<Duration> {
        self.operator.patience()
    }

    fn build(&self, worker: usize, host: &Host) -> Result<BuiltOperator, Fault> {
        let eye = self.eye.clone();
        Ok(match self.operator.build(worker, host)? {
            BuiltOperator::Inline(operator) => BuiltOperator::Inline(Box::new(Watched { operator, eye })),
            BuiltOperator::Isolate(operator) => BuiltOperator::Isolate(Box::new(Watched { operator, eye })),
            BuiltOperator::Async(operator) => BuiltOperator::Async(Arc::new(WatchedAsync { operator, eye })),
        })
    }
}

struct Watched<O: ?Sized> {
    operator: Box<O>,
    eye: Eye,
}

impl<O: Operator + ?Sized> Operator for Watched<O> {
    fn process(&mut self, rows: &mut Rows<'_>) {
        rows.iter_mut().for_each(|(_, record)| self.eye.look(record));
        let Eye { observer, stage, step } = &self.eye;
        let before = rows.decisions_mut().count();
        let mut plain: BTreeSet<usize> = rows
            .iter_mut()
            .filter_map(|(row, record)| Some((row, observer.look_for_objects(*stage, *step, record)?)))
            .filter_map(|(row, holds)| (!holds).then_some(row))
            .collect();
        self.operator.process(rows);
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

struct WatchedAsync {
    operator: Arc<dyn AsyncOperator>,
    eye: Eye,
}

#[async_trait]
impl AsyncOperator for WatchedAsync {
    async fn call(&self, rows: Vec<Record>) -> Vec<Verdict> {
        rows.iter().for_each(|record| self.eye.look(record));
        self.operator.call(rows).await
    }

    async fn close(&self) -> Result<(), Fault> {
        self.operator.close().await
    }
}

/// A destination, or the writer of one.
struct End<D> {
    destination: D,
    eye: Eye,
}

#[async_trait]
impl Destination for End<Arc<dyn Destination>> {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(End { destination: self.destination.open(host).await?, eye: self.eye.clone() }))
    }

    fn policy(&self) -> WritePolicy {
        self.destination.policy()
    }

    /// Called for the records of a trial instead of writing them.
    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        self.eye.look(record);
        self.destination.written(record)
    }
}

#[async_trait]
impl Writer for End<Box<dyn Writer>> {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        self.destination.marks().await
    }

    async fn write(&mut self, rows: &[Record], marks: &[(LaneId, Mark)]) -> Result<Verdicts, Fault> {
        rows.iter().for_each(|record| self.eye.look(record));
        self.destination.write(rows, marks).await
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        self.destination.flush().await
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.destination.close().await
    }
}
