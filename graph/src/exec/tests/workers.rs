//! Several workers, and calls that overtake each other: output in the order of the input.

use std::sync::atomic::{AtomicUsize, Ordering};

use anabranch_plugin::operator::{Decision, Pieces};
use anabranch_plugin::testing::{asynchronous, inline, kept, row_at};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::{Data, Record};
use futures::FutureExt;

use super::*;
use crate::batch::STRIP_ROWS;
use crate::plan::stage::StageKind;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_keep_the_order() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 20_000);
    let a = shelf(&bench, "a");
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let operator = inline(|record| match row_at(record.position()) % 100 {
        7 => Ok(Decision::Filter),
        8 => Ok(Decision::Split(vec![record.clone(); 3])),
        9 => Err(Fault::record(anabranch_plugin::testing::codes::BAD, "no")),
        _ => Ok(Decision::Keep),
    });
    let steps = vec![Pipeline::step("s", &operator)];
    let parallel = pipeline.stage("s", &[read], StageKind::Parallel { steps, workers: 3 });
    pipeline.write(&[parallel], "a", &a);
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    finished(&running.join().await);
    let rows = a.rows();
    assert!(rows.is_sorted());
    assert_eq!(rows.len(), 20_000 + 2 * 200 - 200 - 200);
    assert_eq!(bench.letters.rows().len(), 200);
    assert_eq!(upstream.kept(), 0);
    assert!(progress.totals().balance());
}

async fn with_async(
    bench: &Bench,
    rows: u64,
    call: impl for<'a> Fn(&'a mut [Record]) -> futures::future::BoxFuture<'a, Vec<Decision>> + Send + Sync + 'static,
) -> (Ending, Arc<Downstream>) {
    let upstream = upstream(bench, rows);
    let a = shelf(bench, "a");
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let step = Pipeline::step("s", &asynchronous(call));
    let waiting = pipeline.stage("s", &[read], StageKind::Async { step, in_flight: 4 });
    pipeline.write(&[waiting], "a", &a);
    (bench.run(&pipeline.plan()).await, a)
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_keep_the_order() {
    let bench = Bench::new();
    let (flying, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let (ending, a) = with_async(&bench, 2000, move |rows| {
        let (flying, most) = (flying.clone(), most.clone());
        async move {
            most.fetch_max(flying.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Later strips are faster.
            let first = row_at(rows[0].position());
            tokio::time::sleep(Duration::from_millis(2000 - first % 2000)).await;
            flying.fetch_sub(1, Ordering::SeqCst);
            rows.iter_mut()
                .map(|record| {
                    record.payload.after = Data::text("done");
                    let astray = record.clone().with_position(Default::default());
                    match row_at(record.position()) % 50 {
                        1 => return Decision::Filter,
                        2 => return Decision::Split(vec![astray, record.clone()]),
                        3 => return Decision::Fail(Fault::record(anabranch_plugin::testing::codes::BAD, "no")),
                        4 => *record = astray,
                        5 => {
                            let record = record.clone();
                            return Decision::Pieces(Pieces::new(2, move |_| record.clone()));
                        }
                        _ => {}
                    }
                    Decision::Keep
                })
                .collect()
        }
        .boxed()
    })
    .await;
    finished(&ending);
    assert_eq!(seen.load(Ordering::SeqCst), 4);
    let rows = a.rows();
    assert!(rows.is_sorted() && rows.iter().all(|row| *row < 2000), "positions are the source's");
    assert_eq!(rows.len(), 2000 - 40 + 40 - 40 + 40);
    assert!(a.durable().iter().all(|record| record.payload.after == Data::text("done")));
    assert!(bench.letters.rows().len() == 40);
    let is_unchanged = |letter: &Record| letter.payload.after != Data::text("done");
    assert!(bench.letters.durable().iter().all(is_unchanged), "dead letters are as they were received");
}

#[tokio::test(start_paused = true)]
async fn rows_that_trickle_are_in_flight_together() {
    for (in_flight, expected) in [(1, 1), (2, STRIP_ROWS)] {
        let bench = Bench::new();
        let upstream = Arc::new(Upstream::new(&bench.journal, 300, anabranch_plugin::testing::AtEnd::End).per_read(1));
        let a = shelf(&bench, "a");
        let (flying, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = most.clone();
        let operator = asynchronous(move |rows| {
            let (flying, most) = (flying.clone(), most.clone());
            async move {
                most.fetch_max(flying.fetch_add(rows.len(), Ordering::SeqCst) + rows.len(), Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                flying.fetch_sub(rows.len(), Ordering::SeqCst);
                kept(rows)
            }
            .boxed()
        });
        let mut pipeline = bench.tolerant();
        let read = pipeline.read("in", &upstream);
        let step = Pipeline::step("s", &operator);
        let waiting = pipeline.stage("s", &[read], StageKind::Async { step, in_flight });
        pipeline.write(&[waiting], "a", &a);
        finished(&bench.run(&pipeline.plan()).await);
        assert_eq!(seen.load(Ordering::SeqCst), expected, "{in_flight}");
        assert_eq!(a.rows(), (0..300).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn rows_without_a_decision_are_given_again_as_they_were() {
    let bench = Bench::new();
    let (ending, a) = with_async(&bench, 500, |rows| {
        for record in rows.iter_mut() {
            let seen = record.metadata.get("seen").cloned().unwrap_or_default();
            record.metadata.insert("seen", format!("{seen}x"));
        }
        async move { kept(&rows[..rows.len().min(30)]) }.boxed()
    })
    .await;
    finished(&ending);
    assert_eq!(a.rows(), (0..500).collect::<Vec<_>>());
    assert!(a.durable().iter().all(|record| record.metadata.get("seen").unwrap() == "x"));
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_never_converges_is_stopped() {
    let bench = Bench::new();
    let rounds = Arc::new(AtomicUsize::new(0));
    let counted = rounds.clone();
    let (ending, _) = with_async(&bench, 5, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Vec::new() }.boxed()
    })
    .await;
    let Ending::Faulted(fault) = ending else { panic!("{ending:?}") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "not_converging"));
    assert_eq!(fault.node().unwrap(), &"s");
    assert_eq!(rounds.load(Ordering::SeqCst), 3);
    let bench = Bench::new();
    let (ending, _) =
        with_async(&bench, 5, |rows| async move { [kept(rows), kept(rows)].into_iter().flatten().collect() }.boxed())
            .await;
    assert!(matches!(ending, Ending::Faulted(fault) if fault.code().name() == "too_many_verdicts"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_panics_fails_its_rows_only() {
    let bench = Bench::new();
    let (ending, a) = with_async(&bench, 300, |rows| {
        async move {
            assert!(row_at(rows[0].position()) != 128, "boom");
            kept(rows)
        }
        .boxed()
    })
    .await;
    finished(&ending);
    assert_eq!(a.rows().len(), 300 - 128);
    assert_eq!(bench.letters.rows(), (128..256).collect::<Vec<_>>());
    let error = bench.letters.durable()[0].metadata.get("svc.dlq.nack.error").unwrap().to_string();
    assert!(error.contains("boom"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_makes_one_record_of_one_may_not_make_two() {
    let bench = Bench::new();
    let (upstream, a) = (upstream(&bench, 10), shelf(&bench, "a"));
    let two = asynchronous(|rows| {
        let decision = |record: &Record| match row_at(record.position()) {
            3 => Decision::Split(vec![record.clone(); 2]),
            4 => Decision::Split(vec![record.clone()]),
            _ => Decision::Keep,
        };
        std::future::ready(rows.iter().map(decision).collect()).boxed()
    });
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let step = crate::plan::stage::StepSpec { multiplies: false, ..Pipeline::step("two", &two) };
    let waiting = pipeline.stage("two", &[read], StageKind::Async { step, in_flight: 1 });
    pipeline.write(&[waiting], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!((a.rows().len(), bench.letters.rows()), (9, vec![3]));
}
