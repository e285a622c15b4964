//! A panic in a processor is an error of its records, never of the process.

use super::*;
use crate::fault::FaultClass;
use crate::operator::Decision;
use crate::testing::{inline, row_at};

async fn with_panics_at(bench: &Bench, at: &'static [u64]) -> (Ending, Arc<Shelf>, Arc<Upstream>) {
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
async fn the_rows_of_the_call_fail_and_the_row_is_named() {
    let bench = Bench::new();
    let (ending, a, upstream) = with_panics_at(&bench, &[200]).await;
    finished(&ending);
    assert_eq!(bench.letters.rows(), (128..256).collect::<Vec<_>>());
    assert_eq!(a.rows().len(), 1000 - 128);
    let letter = &bench.letters.durable()[0];
    let error = letter.metadata.get("svc.dlq.nack.error").unwrap();
    assert_eq!(error, &"the processor panicked at row 72 of 128: boom");
    assert_eq!(letter.metadata.get("svc.dlq.nack.node.id").unwrap(), &"step0");
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_panic_of_the_step_is_fatal() {
    let bench = Bench::new();
    let (ending, _, upstream) = with_panics_at(&bench, &[200, 600]).await;
    let Ending::Faulted(fault) = ending else { panic!("{ending:?}") };
    assert_eq!((fault.class(), fault.code()), (FaultClass::Fatal, "operator_panicked"));
    assert_eq!(fault.node().unwrap(), &"step0");
    assert!(upstream.kept() > 0);
}
