//! What is shown of a run: whether it moves, who holds it up, how far behind it is.

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::codes::{BAD, BAD_ROW};
use anabranch_plugin::testing::{AtEnd, Reaction, asynchronous, inline, kept, row_at};
use anabranch_record::code::Code;
use anabranch_record::fault::Fault;
use futures::FutureExt;

use super::*;
use crate::exec::{Activity, Progress, STATE_STORE};
use crate::plan::stage::{StageKind, StagePlan};

/// Who holds a run up, and for how many seconds by now.
fn stalled(progress: &Progress) -> Option<(String, u64)> {
    match progress.activity() {
        Activity::Stalled { node, since, .. } => {
            let now = progress.clock.wall(progress.clock.now());
            Some((node.to_string(), now.duration_since(since).unwrap().as_secs()))
        }
        Activity::Opening | Activity::Moving | Activity::Idle { .. } => None,
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Runs until rows have rested for 9, then for 30 seconds: who holds them up then.
async fn holder(bench: &Bench, plan: &Arc<StagePlan>) -> Option<(String, u64)> {
    let running = bench.start(plan);
    let progress = running.progress();
    assert_eq!(progress.activity(), Activity::Opening);
    running.opened().await.unwrap();
    pass(9).await;
    assert_eq!(progress.activity(), Activity::Moving);
    pass(21).await;
    let held = stalled(&progress);
    running.kill();
    assert!(matches!(in_time(running.join()).await, Ending::Killed));
    held
}

fn at_rest(bench: &Bench, rows: u64) -> Arc<Upstream> {
    Arc::new(Upstream::new(&bench.journal, rows, AtEnd::Wait))
}

#[tokio::test(start_paused = true)]
async fn a_run_without_anything_to_do_is_idle() {
    let bench = Bench::new();
    let upstream = at_rest(&bench, 10);
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &shelf(&bench, "a"));
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    running.opened().await.unwrap();
    pass(1).await;
    assert_eq!(progress.activity(), Activity::Moving);
    pass(60).await;
    let Activity::Idle { since } = progress.activity() else { panic!("{:?}", progress.activity()) };
    let now = progress.clock.wall(progress.clock.now());
    assert_eq!(now.duration_since(since).unwrap().as_secs(), 61);
    let [lane] = &progress.lanes()[..] else { panic!("one lane") };
    assert_eq!((lane.read, lane.settled, lane.lag, lane.unstored), (10, 10, Duration::ZERO, Duration::ZERO));
    upstream.add(10..20);
    pass(1).await;
    assert_eq!((progress.activity(), progress.totals().delivered), (Activity::Moving, 20));
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn a_step_that_hangs_holds_the_run_up() {
    let bench = Bench::new();
    let keep = inline(|_| Ok(Decision::Keep));
    let hang = asynchronous(|rows| {
        async move {
            if rows.iter().any(|row| row_at(row.position()) >= 256) {
                std::future::pending::<()>().await;
            }
            kept(rows)
        }
        .boxed()
    });
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &at_rest(&bench, 5000));
    let chain = pipeline.chain(&[read], &[keep]);
    let step = Pipeline::step("call", &hang);
    let waiting = pipeline.stage("async", &[chain], StageKind::Async { step, in_flight: 2 });
    pipeline.write(&[waiting], "a", &shelf(&bench, "a"));
    assert_eq!(holder(&bench, &pipeline.plan()).await, Some(("call".to_owned(), 30)));
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_hangs_holds_the_run_up() {
    let bench = Bench::new();
    let hung = Arc::new(Downstream::new("b", &bench.journal).script(|_, _| Reaction::Hang));
    let mut pipeline = bench.pipeline().limits(|limits| limits.replay_rows = 2000);
    let read = pipeline.read("in", &at_rest(&bench, 20_000));
    pipeline.write(&[read], "a", &shelf(&bench, "a"));
    pipeline.write(&[read], "b", &hung);
    let plan = pipeline.plan();
    assert_eq!(holder(&bench, &plan).await, Some(("b".to_owned(), 30)));

    let running = bench.start(&plan);
    pass(20).await;
    let progress = running.progress();
    let [lane] = &progress.lanes()[..] else { panic!("one lane") };
    assert_eq!((lane.settled, lane.lag.as_secs(), lane.unstored.as_secs()), (0, 20, 20));
    let [_, a, b] = &progress.stages()[..] else { panic!("three stages") };
    // Nothing of a waits, as far as it was given it; b has one write, and its queue is full.
    assert_eq!((a.queue.rows, a.nodes[0].count.held), (0, 0));
    assert!(b.queue.full && b.queue.rows == b.queue.bound_rows, "{:?}", b.queue);
    assert!(b.nodes[0].count.held >= 128, "{:?}", b.nodes[0]);
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn what_a_destination_is_told_to_wait_is_no_stall() {
    let bench = Bench::new();
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &at_rest(&bench, 10));
    pipeline.write_with(&[read], "a", &shelf(&bench, "a"), |spec| spec.batch_delay = Some(Duration::from_secs(60)));
    assert_eq!(holder(&bench, &pipeline.plan()).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_holds_the_run_up() {
    let bench = Bench::new();
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &at_rest(&bench, 10));
    pipeline.write(&[read], "a", &shelf(&bench, "a"));
    bench.store.hang();
    assert_eq!(holder(&bench, &pipeline.plan()).await, Some((STATE_STORE.to_string(), 30)));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_queue_that_hangs_holds_the_run_up() {
    let bench = Bench::new();
    let letters = Arc::new(Downstream::new("letters", &bench.journal).script(|_, _| Reaction::Hang));
    let picky = inline(|record| match row_at(record.position()) {
        7 => Err(Fault::record(anabranch_plugin::testing::codes::PICKY, "row 7 says hunter2")),
        _ => Ok(Decision::Keep),
    });
    let mut pipeline = Pipeline::new(&letters, 0, 0);
    let read = pipeline.read("in", &at_rest(&bench, 10));
    let chain = pipeline.chain(&[read], &[inline(|_| Ok(Decision::Keep)), picky]);
    pipeline.write(&[chain], "a", &shelf(&bench, "a"));
    let plan = pipeline.plan();
    assert_eq!(holder(&bench, &plan).await, Some(("dead-letter-queue".to_owned(), 30)));

    let options = RunOptions { mask: Arc::new(["hunter2".into()]), ..RunOptions::default() };
    let running = start(plan, services(&bench.store), options);
    pass(1).await;
    let progress = running.progress();
    let [first, second] = &progress.stages()[1].nodes[..] else { panic!("two steps") };
    let error = second.last_error.as_ref().unwrap();
    assert_eq!((error.code.name(), error.message.as_str(), &first.last_error), ("picky", "row 7 says ***", &None));
    assert_eq!((progress.dead_letters().count.rows_in, progress.dead_letters().count.rows_out), (1, 0));
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn each_step_shows_its_own_last_error() {
    let bench = Bench::new();
    let refuses = |refused: [u64; 2], code: Code| {
        inline(move |record| match row_at(record.position()) {
            row if refused.contains(&row) => Err(Fault::record(code, format!("row {row}"))),
            _ => Ok(Decision::Keep),
        })
    };
    let letters = Arc::new(Downstream::new("letters", &bench.journal));
    let mut pipeline = Pipeline::new(&letters, 0, 0);
    let read = pipeline.read("in", &at_rest(&bench, 10));
    let steps = [refuses([2, 7], BAD), refuses([3, 8], BAD_ROW), inline(|_| Ok(Decision::Keep))];
    let chain = pipeline.chain(&[read], &steps);
    pipeline.write(&[chain], "a", &shelf(&bench, "a"));
    let running = bench.start(&pipeline.plan());
    pass(1).await;
    let stages = running.progress().stages();
    let errors = stages[1].nodes.iter().map(|node| node.last_error.as_ref());
    let shown: Vec<_> = errors.map(|error| error.map(|error| (error.code.name(), error.message.as_str()))).collect();
    assert_eq!(shown, [Some(("bad", "row 7")), Some(("bad_row", "row 8")), None]);
    running.kill();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_tried_again_shows_its_error() {
    let bench = Bench::new();
    let down = Arc::new(Downstream::new("a", &bench.journal).script(|_, call| match call {
        0..3 => Reaction::Fail(Fault::transient(anabranch_plugin::testing::codes::DOWN, "nobody answers")),
        _ => Reaction::Durable,
    }));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream(&bench, 10));
    pipeline.write(&[read], "a", &down);
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    finished(&in_time(running.join()).await);
    let node = &progress.stages()[1].nodes[0];
    assert_eq!(node.last_error.as_ref().unwrap().message, "nobody answers");
    assert_eq!((node.count.rows_out, node.count.failed, node.count.held), (10, 0, 0));
}
