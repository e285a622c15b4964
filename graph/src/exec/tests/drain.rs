//! Stopping: everything that was read is delivered, stored and acknowledged, or said to be left.

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, Reaction, inline};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_stop_delivers_what_was_read() {
    let bench = Bench::new();
    let upstream =
        Arc::new(Upstream::new(&bench.journal, 100_000, AtEnd::End).per_read(10).delay(Duration::from_millis(1)));
    let slow = Arc::new(Downstream::new("a", &bench.journal).delay(Duration::from_millis(20)).accepting());
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[inline(|_| Ok(Decision::Keep))]);
    pipeline.write(&[chain], "a", &slow);
    let plan = pipeline.plan();
    let running = bench.start(&plan);
    in_time(running.opened()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    running.stop(Some(Duration::from_secs(25)));
    let progress = running.progress();
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
    let totals = progress.totals();
    assert!(totals.balance() && totals.in_flight == 0, "{totals:?}");
    assert_eq!(slow.rows(), (0..totals.read).collect::<Vec<_>>());
    assert_eq!(upstream.kept() as u64, 100_000 - totals.read);
    // The next run goes on exactly there.
    let running = bench.start(&plan);
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.stop(None);
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
    let rows = slow.rows();
    assert!(rows.len() as u64 > totals.read);
    assert_eq!(rows, (0..rows.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_hung_destination_uses_up_the_budget_and_is_named() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 100);
    let hung = Arc::new(
        Downstream::new("a", &bench.journal)
            .script(|_, call| match call {
                0 => Reaction::Durable,
                _ => Reaction::Hang,
            })
            .policy(|policy| policy.rows = 40),
    );
    let good = shelf(&bench, "b");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &hung);
    pipeline.write(&[read], "b", &good);
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let since = Instant::now();
    running.stop(Some(Duration::from_secs(20)));
    let Ending::NotDrained { left } = in_time(running.join()).await else { panic!("drained") };
    assert_eq!(left, ["a"]);
    let took = since.elapsed();
    assert!(took >= Duration::from_secs(17) && took < Duration::from_secs(20), "{took:?}");
    // Rows that all destinations have are acknowledged; the others are kept.
    assert_eq!(upstream.kept(), 60);
    assert_eq!(good.rows().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn retries_end_early_enough_for_what_was_delivered_to_be_stored() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 100);
    let down =
        Arc::new(Downstream::new("a", &bench.journal).script(|_, _| {
            Reaction::Fail(Fault::transient(anabranch_plugin::testing::codes::DOWN, "no route to host"))
        }));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &down);
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let since = Instant::now();
    running.stop(Some(Duration::from_secs(5)));
    let Ending::NotDrained { left } = in_time(running.join()).await else { panic!("drained") };
    assert_eq!(left, ["a"]);
    assert_eq!(since.elapsed(), Duration::from_secs(3));
    assert_eq!(upstream.kept(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_waits_is_stopped_at_once() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 0, AtEnd::Wait));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let running = bench.start(&pipeline.plan());
    in_time(running.opened()).await.unwrap();
    let since = Instant::now();
    running.stop(Some(Duration::from_secs(5)));
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
    assert_eq!(since.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn one_source_that_ends_leaves_the_others_alone() {
    let bench = Bench::new();
    let (ending, waiting) = (upstream(&bench, 10), Arc::new(Upstream::new(&bench.journal, 10, AtEnd::CaughtUp)));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let reads = [pipeline.read("one", &ending), pipeline.read("two", &waiting)];
    pipeline.write(&reads, "a", &a);
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((ending.kept(), waiting.kept()), (0, 0));
    waiting.add(10..20);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(waiting.kept(), 0);
    running.stop(None);
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
    assert_eq!(a.rows().len(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_can_shorten_the_first() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 100);
    let hung = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| Reaction::Hang));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &hung);
    let running = bench.start(&pipeline.plan());
    in_time(running.opened()).await.unwrap();
    let calls = async {
        while hung.calls().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_time(calls).await;
    let since = Instant::now();
    running.stop(None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    running.stop(Some(Duration::from_secs(10)));
    running.stop(Some(Duration::from_secs(1000)));
    let Ending::NotDrained { left } = in_time(running.join()).await else { panic!("drained") };
    assert_eq!(left, ["a"]);
    // Writes are given up when 85 % of the shorter budget are used up.
    assert_eq!(since.elapsed(), Duration::from_millis(68_500));
    assert_eq!(upstream.kept(), 100);
}

/// A stop before everything is open has nothing to drain.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_stopped_while_it_opens_ends_at_once() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 100);
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let running = bench.start(&pipeline.plan());
    let since = Instant::now();
    running.stop(None);
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
    assert_eq!((since.elapsed(), upstream.kept(), a.rows().len()), (Duration::ZERO, 100, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lineage_that_is_dropped_faults_the_run() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10, AtEnd::CaughtUp));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let running = bench.start(&pipeline.plan());
    in_time(running.opened()).await.unwrap();
    let context = running.context.clone();
    context
        .lanes
        .add(
            0,
            super::super::lanes::Lanes::lane_id(&"in".into(), &anabranch_record::mark::Partition("z".into())),
            None,
            false,
        )
        .map(|lane| {
            context.lanes.open(lane, [(vec![anabranch_plugin::testing::position(0)], 1)].into_iter(), |run| {
                drop(crate::batch::Lineage::of(run, &context.alarm));
            });
        })
        .unwrap();
    let Ending::Faulted(fault) = in_time(running.join()).await else { panic!("nothing was lost") };
    assert_eq!(fault.code().name(), "lost");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_for_good_fails_the_run_after_its_rows_are_delivered() {
    let gone = || Fault::fatal(anabranch_plugin::testing::codes::GONE, "the disk is gone");
    // In a batch, the rows wait in front of the graph.
    for batch in [None, Some(5_000)] {
        let bench = Bench::new();
        let upstream = Arc::new(Upstream::new(&bench.journal, 1_000, AtEnd::Wait).per_read(300));
        let slow = Arc::new(Downstream::new("a", &bench.journal).delay(Duration::from_millis(500)));
        let mut pipeline = bench.pipeline();
        let read = pipeline.read_batches("in", &upstream, batch, Duration::from_secs(5));
        pipeline.write(&[read], "a", &slow);
        let running = bench.start(&pipeline.plan());
        in_time(running.opened()).await.unwrap();
        while upstream.rows_read() < 1_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        upstream.fail_read(gone());
        let Ending::Faulted(fault) = in_time(running.join()).await else { panic!("it ended without a fault") };
        assert_eq!((fault.code(), fault.node().map(Str::as_str)), (gone().code(), Some("in")));
        assert_eq!(slow.rows(), (0..1_000).collect::<Vec<_>>(), "{batch:?}");
        assert_eq!(upstream.kept(), 0, "they are acknowledged: {batch:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_source_does_not_wait_long_for_a_destination_that_hangs() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10, AtEnd::Wait));
    let hung = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| Reaction::Hang));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &hung);
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let since = Instant::now();
    upstream.fail_read(Fault::fatal(anabranch_plugin::testing::codes::GONE, "the disk is gone"));
    let Ending::Faulted(fault) = in_time(running.join()).await else { panic!("it ended without a fault") };
    assert_eq!(fault.code(), anabranch_plugin::testing::codes::GONE);
    assert!(since.elapsed() <= Duration::from_secs(30), "{:?}", since.elapsed());
    assert_eq!(upstream.kept(), 10);
}
