//! Faults that go away by themselves, and faults that do not.

use anabranch_plugin::destination::{Delivered, Retry};
use anabranch_plugin::testing::{AtEnd, Reaction, row_at};
use anabranch_record::fault::{Fault, FaultClass};

use super::*;
use tokio::time::Instant;

fn down() -> Fault {
    Fault::transient(anabranch_plugin::testing::codes::DOWN, "no route to host")
}

async fn run_with(bench: &Bench, rows: u64, shelf: &Arc<Downstream>) -> (Ending, Arc<Upstream>) {
    let upstream = upstream(bench, rows);
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", shelf);
    (bench.run(&pipeline.plan()).await, upstream)
}

#[tokio::test(start_paused = true)]
async fn a_transient_write_is_repeated_in_order() {
    let bench = Bench::new();
    let a = Downstream::new("a", &bench.journal).script(|_, call| match call % 4 {
        3 => Reaction::Durable,
        _ => Reaction::Fail(down()),
    });
    let a = Arc::new(a);
    let (ending, upstream) = run_with(&bench, 500, &a).await;
    finished(&ending);
    assert_eq!(a.rows(), (0..500).collect::<Vec<_>>());
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_stays_down_makes_the_pipeline_recover() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| Reaction::Fail(down())));
    let (ending, upstream) = run_with(&bench, 10, &a).await;
    let Ending::Faulted(fault) = ending else { panic!("{ending:?}") };
    assert_eq!((fault.class(), fault.code().name(), a.calls().len()), (FaultClass::Transient, "down", 8));
    assert_eq!(fault.node().unwrap(), &"a");
    assert_eq!(upstream.kept(), 10);
}

#[tokio::test(start_paused = true)]
async fn what_may_be_written_once_only_is_not_repeated() {
    let bench = Bench::new();
    let a = Downstream::new("a", &bench.journal).script(|_, _| Reaction::Fail(down()));
    let a = Arc::new(a.policy(|policy| policy.retry = Retry::AtMostOnce));
    let (ending, _) = run_with(&bench, 10, &a).await;
    assert!(matches!(ending, Ending::Faulted(fault) if fault.class() == FaultClass::Transient));
    assert_eq!(a.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_one_record_fails_is_halved_until_it_is_found() {
    let bench = Bench::new();
    let bad = |row: u64| row == 37 || row == 90;
    let a = Downstream::new("a", &bench.journal).script(move |rows, _| {
        match rows.iter().any(|record| bad(row_at(record.position()))) {
            true => {
                Reaction::Fail(Fault::record(anabranch_plugin::testing::codes::CONSTRAINT, "it violates a constraint"))
            }
            false => Reaction::Durable,
        }
    });
    let a = Arc::new(a);
    let (ending, upstream) = run_with(&bench, 100, &a).await;
    finished(&ending);
    assert_eq!(a.rows(), (0..100).filter(|row| !bad(*row)).collect::<Vec<_>>());
    assert_eq!(bench.letters.rows(), [37, 90]);
    assert!(a.calls().len() < 40);
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn verdicts_may_differ_from_row_to_row() {
    let bench = Bench::new();
    let a = Downstream::new("a", &bench.journal).script(move |rows, call| {
        let verdict = |i: usize| match (i % 4, call) {
            (0, _) => Ok(Delivered::Durable),
            (1, 0) => Err(down()),
            (2, _) => Err(Fault::record(anabranch_plugin::testing::codes::REJECTED, "no")),
            _ => Ok(Delivered::Accepted),
        };
        Reaction::Each((0..rows.len()).map(verdict).collect())
    });
    let a = Arc::new(a);
    let (ending, upstream) = run_with(&bench, 40, &a).await;
    finished(&ending);
    let mut rows = a.rows();
    rows.sort_unstable();
    assert_eq!(rows, (0..40).filter(|row| row % 4 != 2).collect::<Vec<_>>());
    assert_eq!(bench.letters.rows().len(), 10);
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn too_few_verdicts_are_fatal() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| Reaction::Each(vec![Ok(Delivered::Durable)])));
    let (ending, upstream) = run_with(&bench, 2, &a).await;
    assert!(matches!(ending, Ending::Faulted(fault) if fault.code().name() == "verdict_count"));
    assert_eq!(upstream.kept(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_flush_delivers_nothing() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).accepting());
    a.fail_flush(down());
    let (ending, upstream) = run_with(&bench, 10, &a).await;
    assert!(matches!(ending, Ending::Faulted(fault) if fault.class() == FaultClass::Transient));
    assert_eq!(upstream.kept(), 10);
}

#[tokio::test(start_paused = true)]
async fn faults_of_a_source_keep_its_name() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 5, AtEnd::Wait));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let plan = pipeline.plan();
    let running = bench.start(&plan);
    tokio::time::sleep(Duration::from_secs(1)).await;
    upstream.fail_read(down());
    let Ending::Faulted(fault) = in_time(running.join()).await else { panic!("it went on") };
    assert_eq!((fault.class(), fault.node().unwrap().as_str()), (FaultClass::Transient, "in"));
    // An acknowledgement that fails for a while is repeated.
    upstream.add(5..10);
    (0..5).for_each(|_| upstream.fail_ack(down()));
    let running = bench.start(&plan);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(upstream.kept(), 0);
    running.stop(None);
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_position_that_says_nothing_is_refused() {
    let bench = Bench::new();
    let upstream = Upstream::new(&bench.journal, 1, AtEnd::End).make(|_| anabranch_record::Record::default());
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &Arc::new(upstream));
    pipeline.write(&[read], "a", &a);
    let ending = bench.run(&pipeline.plan()).await;
    assert!(matches!(ending, Ending::Faulted(fault) if fault.code().name() == "empty_position"));
    assert!(a.rows().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_delivered_before_a_fault_is_not_repeated() {
    let bench = Bench::new();
    let a = Downstream::new("a", &bench.journal).script(|rows, _| match row_at(rows[0].position()) {
        0..50 => Reaction::Durable,
        _ => Reaction::Fail(Fault::fatal(anabranch_plugin::testing::codes::GONE, "the table is gone")),
    });
    let a = Arc::new(a.policy(|policy| policy.rows = 10));
    let (ending, upstream) = run_with(&bench, 100, &a).await;
    assert!(matches!(ending, Ending::Faulted(fault) if fault.code().name() == "gone"));
    assert_eq!((a.rows().len(), upstream.kept()), (50, 50));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_told_is_told_nothing_later() {
    let bench = Bench::new();
    let upstream = Upstream::new(&bench.journal, 100, AtEnd::Wait).per_read(1).delay(Duration::from_millis(100));
    let upstream = Arc::new(upstream);
    (0..12).for_each(|_| upstream.fail_ack(down()));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let plan = pipeline.plan();
    let ending = bench.run(&plan).await;
    assert!(matches!(ending, Ending::Faulted(fault) if fault.class() == FaultClass::Transient));
    assert_eq!(upstream.kept(), 100, "a gap in the acknowledgements");
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_down_for_ten_minutes_costs_a_window_and_loses_nothing() {
    const DOWN: Duration = Duration::from_secs(600);
    const ROWS: u64 = 6000;
    const WINDOW: usize = 500;
    let bench = Bench::new();
    let start = Instant::now();
    let is_down = move || start.elapsed() < DOWN;
    let a = Downstream::new("a", &bench.journal).script(move |_, _| match is_down() {
        true => Reaction::Fail(down()),
        false => Reaction::Durable,
    });
    let (a, b) = (Arc::new(a), shelf(&bench, "b"));
    let upstream = Arc::new(Upstream::new(&bench.journal, 0, AtEnd::Wait));
    let mut pipeline = bench.pipeline().limits(|limits| limits.replay_rows = WINDOW);
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    pipeline.write(&[read], "b", &b);
    let plan = pipeline.plan();
    // As the service does it by default: a second after the first fault, twice as long after each that follows.
    let (mut runs, mut wait, mut added, mut most) = (0, Duration::from_secs(1), 0, 0);
    let mut asked = 0;
    loop {
        runs += 1;
        let mut running = bench.start(&plan);
        let progress = running.progress();
        let ending = loop {
            tokio::select! {
                biased;
                ending = running.wait() => break ending,
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
            // Upstream goes on all the time.
            let more = (start.elapsed().as_millis() as u64 / 100).min(ROWS);
            upstream.add(added..more.max(added));
            added = more.max(added);
            most = most.max(progress.lanes().iter().map(|lane| lane.read - lane.persisted).max().unwrap_or(0));
            if is_down() {
                asked = a.calls().len();
            }
            if !is_down() && a.rows().len() as u64 == ROWS {
                running.stop(None);
            }
        };
        match ending {
            Ending::Stopped => break,
            Ending::Faulted(fault) if fault.class() == FaultClass::Transient => tokio::time::sleep(wait).await,
            ending => panic!("{ending:?}"),
        }
        wait *= 2;
    }
    assert_eq!(a.rows(), (0..ROWS).collect::<Vec<_>>(), "each once, in order");
    let there: std::collections::BTreeSet<u64> = b.rows().into_iter().collect();
    assert_eq!(there.len() as u64, ROWS);
    let again = b.rows().len() - there.len();
    assert!(again <= WINDOW * (runs - 1), "{again} rows came again in {runs} runs");
    assert_eq!(upstream.kept(), 0);
    assert!(most <= WINDOW as u64 && most > WINDOW as u64 / 2, "{most} rows were held");
    assert!((5..12).contains(&runs) && asked <= 8 * runs, "{runs} runs asked {asked} times");
    assert!(start.elapsed() < DOWN * 2 + Duration::from_secs(30), "it went on {:?} after the start", start.elapsed());
}
