//! A processor in a test: the real operator with the test's time of day, network and faults.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_plugin::host::{Host, Network};
use anabranch_plugin::operator::{
    AsyncOperator, BuiltOperator, ConfiguredOperator, Decision, Operator, Rows, Signature, Verdict,
};
use anabranch_record::fault::Fault;
use anabranch_record::mask::Mask;
use anabranch_record::text::Str;
use anabranch_record::{Position, Record, clock};
use async_trait::async_trait;

use super::script::{FaultEffect, Script};

/// An operator before it is opened.
pub(super) struct TestStep {
    pub(super) operator: Arc<dyn ConfiguredOperator>,
    pub(super) node: Str,
    pub(super) script: Arc<Script>,
    pub(super) network: Network,
    pub(super) now: Option<SystemTime>,
}

impl ConfiguredOperator for TestStep {
    fn signature(&self) -> Signature {
        self.operator.signature()
    }

    fn patience(&self) -> Option<Duration> {
        self.operator.patience()
    }

    fn build(&self, worker: usize, host: &Host) -> Result<BuiltOperator, Fault> {
        // An isolated processor is built on its own thread, which needs the time too.
        clock::hold(self.now);
        let host = Host { network: self.network, ..host.clone() };
        let built = self.operator.build(worker, &host)?;
        if !self.script.troubles(&self.node) {
            return Ok(built);
        }
        let (node, script) = (self.node.clone(), self.script.clone());
        Ok(match built {
            BuiltOperator::Inline(operator) => {
                BuiltOperator::Inline(Box::new(FaultyOperator { operator, node, script }))
            }
            BuiltOperator::Isolate(operator) => {
                BuiltOperator::Isolate(Box::new(FaultyOperator { operator, node, script }))
            }
            BuiltOperator::Async(operator) => {
                BuiltOperator::Async(Arc::new(FaultyAsyncOperator { operator, node, script }))
            }
        })
    }
}

struct FaultyOperator<O: ?Sized> {
    operator: Box<O>,
    node: Str,
    script: Arc<Script>,
}

impl<O: Operator + ?Sized> Operator for FaultyOperator<O> {
    fn process(&mut self, rows: &mut Rows<'_>) {
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
        self.operator.process(&mut rows.among(&left));
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.operator.close()
    }
}

/// Longer than any test.
const HANGING: Duration = Duration::from_secs(3600);

struct FaultyAsyncOperator {
    operator: Arc<dyn AsyncOperator>,
    node: Str,
    script: Arc<Script>,
}

#[async_trait]
impl AsyncOperator for FaultyAsyncOperator {
    async fn call(&self, rows: Vec<Record>) -> Vec<Verdict> {
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
        let count = rows.len();
        let sound = rows.into_iter().enumerate().filter(|(index, _)| !failed.contains_key(index));
        let sound: Vec<Record> = sound.map(|(_, record)| record).collect();
        let mut verdicts = if sound.is_empty() { Vec::new() } else { self.operator.call(sound).await }.into_iter();
        // In the order of the records. If the operator stopped early, the caller passes the rest again.
        let verdict = |index| failed.remove(&index).map(Verdict::Fail).or_else(|| verdicts.next());
        (0..count).map_while(verdict).collect()
    }

    async fn close(&self) -> Result<(), Fault> {
        self.operator.close().await
    }
}
