//! Settings of the ends: batches, linger, rates; and rows that become very many.

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, inline, row_at};
use anabranch_record::Data;
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_row_split_in_a_hundred_thousand_stays_in_strips() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 3);
    let a = Arc::new(Downstream::new("a", &bench.journal).policy(|policy| policy.rows = 1000));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let split = inline(|record| match row_at(record.position()) {
        1 => Ok(Decision::Split(vec![record.clone(); 100_000])),
        _ => Ok(Decision::Keep),
    });
    let run = Arc::new(std::sync::Mutex::new(0usize));
    let twice = inline(|record| {
        record.payload.after = Data::text("x");
        Ok(Decision::Split(vec![record.clone(), record.clone()]))
    });
    let count = run.clone();
    let last = inline(move |_| {
        *count.lock().unwrap() += 1;
        Ok(Decision::Keep)
    });
    let chain = pipeline.chain(&[read], &[split, twice, last]);
    pipeline.write(&[chain], "a", &a);
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    finished(&in_time(running.join()).await);
    let rows = a.rows();
    assert_eq!(rows.len(), 2 * 100_002);
    assert!(rows.is_sorted());
    assert_eq!(*run.lock().unwrap(), 2 * 100_002);
    assert!(a.calls().iter().all(|rows| *rows <= 1000));
    assert_eq!(progress.totals().born, 200_001);
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_source_collects_a_batch_or_waits_its_delay() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 25, AtEnd::Wait).per_read(1).delay(Duration::from_millis(1)));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read_batches("in", &upstream, Some(10), Duration::from_millis(100));
    pipeline.write(&[read], "a", &a);
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(a.calls(), [10, 10, 5]);
    running.stop(None);
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_collected_stays_within_the_bytes_that_may_be_held() {
    let bench = Bench::new();
    let upstream = Upstream::new(&bench.journal, 100, AtEnd::End).per_read(1).make(|row| {
        let mut record = anabranch_plugin::testing::record(row);
        record.payload.after = Data::text("x".repeat(1000));
        record
    });
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline().limits(|limits| limits.held_bytes = 10_000);
    let read = pipeline.read_batches("in", &Arc::new(upstream), Some(50), Duration::from_secs(1));
    pipeline.write(&[read], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(a.rows().len(), 100);
    assert!(a.calls().iter().all(|rows| *rows <= 10), "{:?}", a.calls());
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_for_more_rows_as_long_as_its_linger() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 95, AtEnd::Wait).per_read(5).delay(Duration::from_millis(1)));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write_with(&[read], "a", &a, |spec| {
        spec.batch_rows = Some(20);
        spec.batch_delay = Some(Duration::from_millis(200));
    });
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(a.calls(), [20, 20, 20, 20]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(a.calls(), [20, 20, 20, 20, 15]);
    assert_eq!(upstream.kept(), 0);
    running.stop(None);
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_batch_to_fill() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 5, AtEnd::Wait));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read_batches("in", &upstream, Some(1000), Duration::from_secs(3000));
    pipeline.write_with(&[read], "a", &a, |spec| {
        spec.batch_rows = Some(1000);
        spec.batch_delay = Some(Duration::from_secs(3000));
    });
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(a.rows().is_empty());
    let since = Instant::now();
    running.stop(Some(Duration::from_secs(10)));
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
    assert_eq!((since.elapsed(), a.rows().len(), upstream.kept()), (Duration::ZERO, 5, 0));
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_kept() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 1000);
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write_with(&[read], "a", &a, |spec| (spec.rate, spec.burst) = (Some(100.0), 10));
    let since = Instant::now();
    finished(&bench.run(&pipeline.plan()).await);
    let took = since.elapsed().as_secs_f64();
    assert!((9.8..10.3).contains(&took), "{took}");
    assert!(a.calls().iter().all(|rows| *rows <= 10));
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_does_not_hold_up_commits() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 100, AtEnd::Wait));
    let a = Arc::new(Downstream::new("a", &bench.journal).accepting());
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write_with(&[read], "a", &a, |spec| (spec.rate, spec.burst) = (Some(1.0), 1));
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(upstream.kept() <= 92, "{}", upstream.kept());
    running.kill();
    in_time(running.join()).await;
}
