//! A panic in a processor is an error of its records, never of the process.

use std::collections::BTreeMap;

use anabranch_plugin::host::Host;
use anabranch_plugin::operator::{
    BuiltInline, ConfiguredOperator, Decision, Operator, OperatorContext, Rows, Signature,
};
use anabranch_plugin::source::{Acker, OpenedSource, Source};
use anabranch_plugin::testing::{inline, row_at};
use anabranch_record::Position;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{Mark, Partition};

use super::*;
use crate::plan::stage::StageKind;

async fn with_panics_at(bench: &Bench, at: &'static [u64]) -> (Ending, Arc<Downstream>, Arc<Upstream>) {
    let upstream = upstream(bench, 1000);
    let a = shelf(bench, "a");
    let fragile = inline(move |record| {
        assert!(!at.contains(&row_at(record.position())), "boom");
        Ok(Decision::Keep)
    });
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[fragile]);
    pipeline.write(&[chain], "a", &a);
    (bench.run(&pipeline.plan()).await, a, upstream)
}

#[tokio::test(start_paused = true)]
async fn the_row_fails_and_no_other() {
    let bench = Bench::new();
    let (ending, a, upstream) = with_panics_at(&bench, &[200]).await;
    finished(&ending);
    assert_eq!(bench.letters.rows(), [200]);
    assert_eq!(a.rows(), (0..1000).filter(|row| *row != 200).collect::<Vec<_>>());
    let letter = &bench.letters.durable()[0];
    let error = letter.metadata.get("svc.dlq.nack.error").unwrap();
    assert_eq!(error, &"the processor panicked at record 72 of 128: boom");
    assert_eq!(letter.metadata.get("svc.dlq.nack.node.id").unwrap(), &"step0");
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn rows_before_and_after_it_are_processed_once() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 100);
    let a = shelf(&bench, "a");
    let fragile = inline(|record| {
        let row = row_at(record.position());
        assert!(row != 60, "boom");
        let seen = record.metadata.get("seen").map_or(1, |seen| seen.len() + 1);
        record.metadata.insert("seen", "x".repeat(seen));
        Ok(if row % 10 == 3 { Decision::Filter } else { Decision::Keep })
    });
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[fragile]);
    pipeline.write(&[chain], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(bench.letters.rows(), [60]);
    assert_eq!(a.rows(), (0..100).filter(|row| *row != 60 && row % 10 != 3).collect::<Vec<_>>());
    assert!(a.durable().iter().all(|record| record.metadata.get("seen").unwrap() == "x"));
}

#[tokio::test(start_paused = true)]
async fn where_it_is_not_known_at_which_row_all_fail() {
    struct Whole;
    impl Operator for Whole {
        fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
            rows.for_each(|_| Ok(Decision::Filter));
            assert!(rows.iter_mut().all(|(_, record)| row_at(record.position()) != 60), "boom");
        }
    }
    impl ConfiguredOperator for Whole {
        type Built = BuiltInline;
        fn signature(&self) -> Signature {
            Signature::new()
        }
        fn build(&self, _: &OperatorContext) -> Result<BuiltInline, Fault> {
            Ok(Box::new(Whole))
        }
    }
    let bench = Bench::new();
    let upstream = upstream(&bench, 200);
    let a = shelf(&bench, "a");
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[Whole.into()]);
    pipeline.write(&[chain], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(bench.letters.rows(), (0..128).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_second_panic_of_the_step_is_fatal() {
    let bench = Bench::new();
    let (ending, _, upstream) = with_panics_at(&bench, &[200, 600]).await;
    let Ending::Faulted(fault) = ending else { panic!("{ending:?}") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "operator_panicked"));
    assert_eq!(fault.node().unwrap(), &"step0");
    assert!(upstream.kept() > 0);
}

/// Whatever runs the step, its fault ends the run, and not the loss of the rows that it held.
#[tokio::test]
async fn a_second_panic_of_a_worker_is_reported_as_such() {
    use crate::plan::stage::StageKind;
    for isolates in [false, true] {
        let bench = Bench::new();
        let upstream = upstream(&bench, 300);
        let a = shelf(&bench, "a");
        let fragile = inline(|record| {
            assert!(![10, 20].contains(&row_at(record.position())), "boom");
            Ok(Decision::Keep)
        });
        let broken = inline(|record| match row_at(record.position()) {
            150.. => {
                Err(anabranch_record::fault::Fault::fatal(anabranch_plugin::testing::codes::BROKEN, "it is broken"))
            }
            _ => Ok(Decision::Keep),
        });
        let mut pipeline = bench.tolerant();
        let read = pipeline.read("in", &upstream);
        let stage = match isolates {
            false => StageKind::Parallel { steps: vec![Pipeline::step("fragile", &fragile)], workers: 2 },
            true => StageKind::Isolate { steps: vec![Pipeline::step("fragile", &broken)], workers: 2 },
        };
        let stage = pipeline.stage("stage", &[read], stage);
        pipeline.write(&[stage], "a", &a);
        let ending = bench.start(&pipeline.plan()).join().await;
        let Ending::Faulted(fault) = ending else { panic!("it went on") };
        assert_eq!(fault.code().name(), if isolates { "broken" } else { "operator_panicked" });
        assert_eq!(fault.node().unwrap(), &"fragile");
    }
}

/// A source that panics while it opens, or when it is told what is stored.
struct Fragile {
    inner: Arc<dyn Source>,
    opens: bool,
}

struct FragileAcker;

#[async_trait::async_trait]
impl Source for Fragile {
    fn catches_up(&self) -> bool {
        true
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        assert!(self.opens, "boom while opening");
        let mut opened = self.inner.open(resume, host).await?;
        opened.acker = Box::new(FragileAcker);
        Ok(opened)
    }
}

#[async_trait::async_trait]
impl Acker for FragileAcker {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        panic!("boom while told")
    }
}

/// A pipeline with that source, which has more to come.
fn fragile(bench: &Bench, opens: bool) -> Arc<StagePlan> {
    let upstream = Arc::new(Upstream::new(&bench.journal, 5, anabranch_plugin::testing::AtEnd::CaughtUp));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &shelf(bench, "a"));
    let mut plan = pipeline.plan();
    let StageKind::Read(spec) = &mut Arc::get_mut(&mut plan).unwrap().stages[0].kind else { panic!("no source") };
    spec.source = Arc::new(Fragile { inner: spec.source.clone(), opens });
    plan
}

#[tokio::test(start_paused = true)]
async fn where_positions_are_acknowledged_it_ends_the_run_at_once() {
    let bench = Bench::new();
    let ending = bench.run(&fragile(&bench, true)).await;
    let Ending::Faulted(fault) = ending else { panic!("{ending:?}") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "engine_panicked"));
    assert!(fault.message().contains("boom while told"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn where_something_is_opened_it_is_what_the_opening_failed_with() {
    let bench = Bench::new();
    let running = bench.start(&fragile(&bench, false));
    let fault = running.opened().await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "engine_panicked"));
    assert!(fault.message().contains("boom while opening"), "{fault}");
    assert!(matches!(in_time(running.join()).await, Ending::Faulted(_)));
}
