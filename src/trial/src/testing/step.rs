//! A processor in a test: the real operator with the test's time of day, network and faults.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_plugin::operator::{
    AsyncOperator, Built, BuiltAsync, BuiltInline, BuiltIsolate, ConfiguredOperator, Decision, Layer, Operator,
    OperatorContext, Rows,
};
use anabranch_record::fault::Fault;
use anabranch_record::mask::Mask;
use anabranch_record::text::Str;
use anabranch_record::{Position, Record, clock};
use async_trait::async_trait;

use super::script::{FaultEffect, Script};

/// The surroundings of a processor in a test.
pub(super) struct TestStep {
    pub(super) node: Str,
    pub(super) script: Arc<Script>,
    pub(super) now: Option<SystemTime>,
}

impl TestStep {
    /// Opens an operator at the test's time of day. An isolated processor is built on its own thread, which needs the
    /// time too.
    fn build<B: Built>(
        &self,
        inner: &dyn ConfiguredOperator<Built = B>,
        context: &OperatorContext,
    ) -> Result<B, Fault> {
        clock::hold(self.now);
        inner.build(context)
    }

    fn faulty<O>(&self, operator: O) -> Faulty<O> {
        Faulty { operator, node: self.node.clone(), script: self.script.clone() }
    }
}

impl Layer for TestStep {
    fn inline(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltInline>,
        context: &OperatorContext,
    ) -> Result<BuiltInline, Fault> {
        let operator = self.build(inner, context)?;
        Ok(if self.script.troubles(&self.node) { Box::new(self.faulty(operator)) } else { operator })
    }

    fn isolate(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltIsolate>,
        context: &OperatorContext,
    ) -> Result<BuiltIsolate, Fault> {
        let operator = self.build(inner, context)?;
        Ok(if self.script.troubles(&self.node) { Box::new(self.faulty(operator)) } else { operator })
    }

    fn asynchronous(
        &self,
        inner: &dyn ConfiguredOperator<Built = BuiltAsync>,
        context: &OperatorContext,
    ) -> Result<BuiltAsync, Fault> {
        let operator = self.build(inner, context)?;
        Ok(if self.script.troubles(&self.node) { Arc::new(self.faulty(operator)) } else { operator })
    }
}

/// An operator with the faults of a test.
struct Faulty<O> {
    operator: O,
    node: Str,
    script: Arc<Script>,
}

impl<O: Operator + ?Sized> Operator for Faulty<Box<O>> {
    fn process(&mut self, rows: &mut Rows<'_>, context: &OperatorContext) {
        let (numbers, positions): (Vec<usize>, Vec<Position>) =
            rows.iter_mut().map(|(number, record)| (number, record.position().clone())).unzip();
        let mut left = Mask::none(rows.width());
        numbers.iter().for_each(|number| left.set(*number));
        for (index, strike) in self.script.strikes(&self.node, positions.iter()) {
            let Some(number) = numbers.get(index) else { continue };
            match strike {
                FaultEffect::Fail(fault) => {
                    left.clear(*number);
                    rows.decide(*number, Decision::Fail(fault));
                }
                // On a thread of its own: tests with such a fault at a processor on the run's threads are refused.
                FaultEffect::Delay(time) => std::thread::sleep(time),
                FaultEffect::Hang => std::thread::sleep(HANGING),
                #[allow(clippy::panic, reason = "the test asks for it")]
                FaultEffect::Panic => panic!("injected by the test"),
                FaultEffect::Partial(_) | FaultEffect::Crash => {}
            }
        }
        self.operator.process(&mut rows.among(&left), context);
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.operator.close()
    }
}

/// Longer than any test.
const HANGING: Duration = Duration::from_secs(3600);

#[async_trait]
impl AsyncOperator for Faulty<BuiltAsync> {
    async fn call(&self, rows: &mut [Record], context: &OperatorContext) -> Vec<Decision> {
        let mut failed: HashMap<usize, Fault> = HashMap::new();
        for (index, strike) in self.script.strikes(&self.node, rows.iter().map(Record::position)) {
            match strike {
                FaultEffect::Fail(fault) => drop(failed.insert(index, fault)),
                FaultEffect::Delay(time) => tokio::time::sleep(time).await,
                FaultEffect::Hang => std::future::pending().await,
                #[allow(clippy::panic, reason = "the test asks for it")]
                FaultEffect::Panic => panic!("injected by the test"),
                FaultEffect::Partial(_) | FaultEffect::Crash => {}
            }
        }
        let sound: Vec<usize> = (0..rows.len()).filter(|index| !failed.contains_key(index)).collect();
        let mut passed: Vec<Record> = sound.iter().map(|index| rows[*index].clone()).collect();
        let mut decisions = match passed.is_empty() {
            true => Vec::new(),
            false => self.operator.call(&mut passed, context).await,
        }
        .into_iter();
        for (index, record) in sound.into_iter().zip(passed) {
            rows[index] = record;
        }
        // In the order of the records. If the operator stopped early, the caller passes the rest again.
        let decision = |index| failed.remove(&index).map(Decision::Fail).or_else(|| decisions.next());
        (0..rows.len()).map_while(decision).collect()
    }

    async fn close(&self) -> Result<(), Fault> {
        self.operator.close().await
    }
}
