//! A slow destination slows the source down; nothing piles up.

use super::*;
use crate::record::Data;
use crate::testing::AtEnd;

#[tokio::test(start_paused = true)]
async fn the_reader_is_never_further_ahead_than_the_window() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 20_000);
    let slow = Arc::new(Shelf::new("a", &bench.journal).delay(Duration::from_millis(10)).policy(|p| p.rows = 50));
    let mut pipeline = bench.pipeline().limits(|limits| limits.replay_rows = 500);
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &slow);
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    let mut most = 0;
    let ending = running.join();
    tokio::pin!(ending);
    loop {
        tokio::select! {
            biased;
            ending = &mut ending => {
                finished(&ending);
                break;
            }
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                for lane in progress.lanes() {
                    most = most.max(lane.read - lane.persisted);
                }
            }
        }
    }
    assert!(most <= 500, "{most}");
    assert!(most > 300, "the window is used: {most}");
    assert_eq!(slow.rows(), (0..20_000).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_hung_destination_stops_the_reader_at_the_window() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 20_000);
    let hung = Arc::new(Shelf::new("a", &bench.journal).script(|_, _| crate::testing::Reaction::Hang));
    let mut pipeline = bench.pipeline().limits(|limits| limits.replay_rows = 300);
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &hung);
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(upstream.rows_read(), 300);
    running.kill();
    assert!(matches!(in_time(running.join()).await, Ending::Killed));
}

#[tokio::test(start_paused = true)]
async fn bytes_held_are_bounded() {
    bounded(|record| record.payload.after = Data::Raw(vec![0; 10_000].into())).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_of_metadata_are_bounded() {
    bounded(|record| drop(record.metadata.insert("key", "x".repeat(10_000)))).await;
}

/// Reads records of about 10,000 bytes, of which ten may be held.
async fn bounded(fill: fn(&mut crate::record::Record)) {
    let bench = Bench::new();
    let upstream = Upstream::new(&bench.journal, 1000, AtEnd::End).per_read(1).make(move |row| {
        let mut record = crate::testing::record(row);
        fill(&mut record);
        record
    });
    let upstream = Arc::new(upstream);
    let slow = Arc::new(Shelf::new("a", &bench.journal).delay(Duration::from_millis(5)));
    let mut pipeline = bench.pipeline().limits(|limits| limits.held_bytes = 100_000);
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &slow);
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    let ending = running.join();
    tokio::pin!(ending);
    let mut most = 0;
    loop {
        tokio::select! {
            biased;
            ending = &mut ending => {
                finished(&ending);
                break;
            }
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                for lane in progress.lanes() {
                    most = most.max(lane.read - lane.settled);
                }
            }
        }
    }
    assert!((5..=10).contains(&most), "{most}");
    assert_eq!(slow.rows().len(), 1000);
}

#[tokio::test(start_paused = true)]
async fn a_record_larger_than_every_bound_passes() {
    let bench = Bench::new();
    let upstream = Upstream::new(&bench.journal, 5, AtEnd::End).make(|row| {
        let mut record = crate::testing::record(row);
        record.payload.after = Data::Raw(vec![0; if row == 2 { 1_000_000 } else { 10 }].into());
        record
    });
    let a = Arc::new(Shelf::new("a", &bench.journal).policy(|policy| policy.bytes = 1000));
    let mut pipeline = bench.pipeline().limits(|limits| (limits.held_bytes, limits.queue_bytes) = (5000, 1000));
    let read = pipeline.read("in", &Arc::new(upstream));
    let chain = pipeline.chain(&[read], &[crate::testing::inline(|_| Ok(crate::operator::Decision::Keep))]);
    pipeline.write(&[chain], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(a.rows(), [0, 1, 2, 3, 4]);
}
