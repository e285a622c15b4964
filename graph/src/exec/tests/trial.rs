//! Trying plans out: measured, bounded, and without a trace.

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, Event, asynchronous, inline, isolated, kept, row_at};
use anabranch_record::fault::Fault;
use anabranch_template::condition::CompiledCondition;
use futures::FutureExt;

use super::*;
use crate::exec::{Trial, try_out};
use crate::plan::Measured;
use crate::plan::stage::{StageKind, StagePlan, StepCondition, StepSpec};

fn trial(records: usize) -> Trial {
    Trial { records, write: false, patience: Duration::from_secs(60) }
}

async fn measure(bench: &Bench, plan: &StagePlan, trial: Trial) -> Measured {
    try_out(plan, trial, services(&bench.store).log, Arc::new([]), services(&bench.store).schemas).await.unwrap()
}

/// In, selected, out, failed.
fn rows(measured: &Measured) -> Vec<Vec<[u64; 4]>> {
    let row = |count: &crate::plan::StepCount| [count.rows_in, count.selected, count.rows_out, count.failed];
    measured.stages.iter().map(|stage| stage.iter().map(row).collect()).collect()
}

#[tokio::test]
async fn every_step_is_measured() {
    let bench = Bench::new();
    let make = |row: u64| {
        let mut record = anabranch_plugin::testing::record(row);
        record.metadata.insert("n", (row % 4).to_string());
        record
    };
    let upstream = Arc::new(Upstream::new(&bench.journal, 1000, AtEnd::End).make(make));
    let when = |text: &str| StepCondition::If(Arc::new(CompiledCondition::compile(text).unwrap()));
    let halve = inline(|record| match row_at(record.position()) % 2 {
        0 => Ok(Decision::Keep),
        _ => Ok(Decision::Filter),
    });
    let pair = inline(|record| Ok(Decision::Split(vec![record.clone(), record.clone()])));
    let picky = inline(|record| match row_at(record.position()) {
        8 => Err(Fault::record(anabranch_plugin::testing::codes::PICKY, "no")),
        _ => Ok(Decision::Keep),
    });
    let call = asynchronous(|rows| async move { kept(rows) }.boxed());
    let script = isolated(|_| Ok(Decision::Keep));
    let steps = vec![
        Pipeline::step("halve", &halve),
        StepSpec { condition: when(r#"{{ eq (index .Metadata "n") "0" }}"#), ..Pipeline::step("pair", &pair) },
        Pipeline::step("picky", &picky),
    ];
    let shelf = Arc::new(Downstream::new("a", &bench.journal));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.stage("chain", &[read], StageKind::Chain(steps));
    let step = Pipeline::step("call", &call);
    let waiting = pipeline.stage("async", &[chain], StageKind::Async { step, in_flight: 2 });
    let steps = vec![Pipeline::step("script", &script)];
    let thread = pipeline.stage("isolate", &[waiting], StageKind::Isolate { steps, workers: 2 });
    pipeline.write(&[thread], "a", &shelf);
    let plan = pipeline.plan();

    let measured = measure(&bench, &plan, trial(400)).await;
    assert_eq!(measured.cut_short, None);
    assert_eq!((measured.read, measured.delivered, measured.failed), (400, 298, 2));
    // Of 400 every other is kept; of these 200 every other becomes two; both copies of row 8 fail.
    assert_eq!(
        rows(&measured),
        [
            vec![[400, 400, 400, 0]],
            vec![[400, 400, 200, 0], [200, 100, 300, 0], [300, 300, 298, 2]],
            vec![[298, 298, 298, 0]],
            vec![[298, 298, 298, 0]],
            vec![[298, 298, 298, 0]],
        ]
    );
    assert!(measured.stages.iter().flatten().all(|count| !count.busy.is_zero()));
    // Nothing is left behind.
    assert_eq!(bench.journal.events(), []);
    assert_eq!((shelf.rows().len(), upstream.kept(), bench.store.commits()), (0, 1000, 0));
}

#[tokio::test]
async fn a_trial_may_write_but_tells_no_source() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 50, AtEnd::CaughtUp));
    let shelf = Arc::new(Downstream::new("a", &bench.journal));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &shelf);
    let plan = pipeline.plan();
    let measured = measure(&bench, &plan, Trial { write: true, ..trial(1000) }).await;
    assert_eq!((measured.read, measured.delivered, measured.cut_short), (50, 50, None));
    assert_eq!(shelf.rows(), (0..50).collect::<Vec<_>>());
    assert_eq!(upstream.kept(), 50);
    assert!(bench.journal.events().iter().all(|event| matches!(event, Event::Durable { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_never_ends_is_not_waited_for() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10, AtEnd::Wait));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &Arc::new(Downstream::new("a", &bench.journal)));
    let measured = measure(&bench, &pipeline.plan(), trial(11)).await;
    assert_eq!((measured.read, measured.delivered), (10, 10));
    assert_eq!(measured.cut_short.as_deref(), Some("the time limit of 60 s was reached"));
    assert!(!measured.broken);
}

#[tokio::test]
async fn a_failure_is_told_with_what_was_measured() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10, AtEnd::End));
    let fatal = inline(|_| Err(Fault::fatal(anabranch_plugin::testing::codes::BROKEN, "it broke")));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[fatal]);
    pipeline.write(&[chain], "a", &Arc::new(Downstream::new("a", &bench.journal)));
    let measured = measure(&bench, &pipeline.plan(), trial(10)).await;
    assert!(measured.broken);
    assert!(measured.cut_short.unwrap().contains("it broke"));
    assert_eq!(measured.stages[1][0].failed, 10);
}
