//! A slow destination slows the source down; nothing piles up.

use anabranch_config::limits::MemoryLimits;
use anabranch_plugin::operator::{Decision, Pieces};
use anabranch_plugin::testing::{AtEnd, asynchronous, inline, isolated, kept};
use anabranch_record::{Data, Record};

use super::*;
use crate::batch::STRIP_ROWS;
use crate::plan::stage::{StageId, StageKind};

#[tokio::test(start_paused = true)]
async fn the_reader_is_never_further_ahead_than_the_window() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 20_000);
    let slow = Arc::new(Downstream::new("a", &bench.journal).delay(Duration::from_millis(10)).policy(|p| p.rows = 50));
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
    let hung = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| anabranch_plugin::testing::Reaction::Hang));
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
async fn bounded(fill: fn(&mut anabranch_record::Record)) {
    let bench = Bench::new();
    let upstream = Upstream::new(&bench.journal, 1000, AtEnd::End).per_read(1).make(move |row| {
        let mut record = anabranch_plugin::testing::record(row);
        fill(&mut record);
        record
    });
    let upstream = Arc::new(upstream);
    let slow = Arc::new(Downstream::new("a", &bench.journal).delay(Duration::from_millis(5)));
    let mut pipeline = bench.pipeline().limits(|limits| limits.held_bytes = 100_000);
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &slow);
    let most = most_in_flight(&bench, &pipeline.plan()).await;
    assert!((5..=10).contains(&most), "{most}");
    assert_eq!(slow.rows().len(), 1000);
}

/// Runs it to its end; the most records that were read and not settled at a time.
async fn most_in_flight(bench: &Bench, plan: &Arc<StagePlan>) -> u64 {
    let running = bench.start(plan);
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
    most
}

#[tokio::test(start_paused = true)]
async fn a_record_larger_than_every_bound_passes() {
    let bench = Bench::new();
    let upstream = Upstream::new(&bench.journal, 5, AtEnd::End).make(|row| {
        let mut record = anabranch_plugin::testing::record(row);
        record.payload.after = Data::Raw(vec![0; if row == 2 { 1_000_000 } else { 10 }].into());
        record
    });
    let a = Arc::new(Downstream::new("a", &bench.journal).policy(|policy| policy.bytes = 1000));
    let mut pipeline = bench.pipeline().limits(|limits| (limits.held_bytes, limits.queue_bytes) = (5000, 1000));
    let read = pipeline.read("in", &Arc::new(upstream));
    let chain = pipeline
        .chain(&[read], &[anabranch_plugin::testing::inline(|_| Ok(anabranch_plugin::operator::Decision::Keep))]);
    pipeline.write(&[chain], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(a.rows(), [0, 1, 2, 3, 4]);
}

/// How a processor makes records large.
#[derive(Clone, Copy, Debug)]
enum Growth {
    Inline,
    OnAThread,
    Workers,
    Answers,
    Pieces,
}

/// Makes a record of 10,000 bytes from a small one.
fn enlarge(record: &mut Record, growth: Growth) -> Decision {
    let large = Data::Raw(vec![0; 10_000].into());
    match growth {
        Growth::Pieces => {
            let mut piece = record.clone();
            piece.payload.after = Data::Raw(vec![0; 1000].into());
            Decision::Split(vec![piece; 10])
        }
        _ => {
            record.payload.after = large;
            Decision::Keep
        }
    }
}

fn grow(pipeline: &mut crate::testing::Pipeline, from: StageId, growth: Growth) -> StageId {
    let step = move |record: &mut Record| Ok(enlarge(record, growth));
    match growth {
        Growth::Inline | Growth::Pieces => {
            let mut spec = crate::testing::Pipeline::step("grow", &inline(step));
            spec.multiplies = true;
            pipeline.stage("grow", &[from], StageKind::Chain(vec![spec]))
        }
        Growth::OnAThread => {
            let steps = vec![crate::testing::Pipeline::step("grow", &isolated(step))];
            pipeline.stage("grow", &[from], StageKind::Isolate { steps, workers: 1 })
        }
        Growth::Workers => {
            let steps = vec![crate::testing::Pipeline::step("grow", &inline(step))];
            pipeline.stage("grow", &[from], StageKind::Parallel { steps, workers: 2 })
        }
        Growth::Answers => {
            let call = asynchronous(move |rows| {
                rows.iter_mut().for_each(|record| drop(enlarge(record, growth)));
                Box::pin(std::future::ready(kept(rows)))
            });
            let step = crate::testing::Pipeline::step("grow", &call);
            pipeline.stage("grow", &[from], StageKind::Async { step, in_flight: 2 })
        }
    }
}

/// Reads small records that a processor makes large, of which ten may be held, as slowly as they are delivered. The
/// destination is durable when it is flushed: no queue holds the records, and only the bound on what is held stops the
/// source.
#[tokio::test(start_paused = true)]
async fn what_processors_add_is_held_too() {
    for growth in [Growth::Inline, Growth::OnAThread, Growth::Workers, Growth::Answers, Growth::Pieces] {
        let bench = Bench::new();
        let upstream = Upstream::new(&bench.journal, 1000, AtEnd::End).per_read(1).delay(Duration::from_micros(100));
        let upstream = Arc::new(upstream);
        let accepting = Arc::new(Downstream::new("a", &bench.journal).accepting());
        let limits = |limits: &mut MemoryLimits| (limits.held_bytes, limits.queue_strips) = (100_000, 1);
        let mut pipeline = bench.pipeline().limits(limits);
        let read = pipeline.read("in", &upstream);
        let grown = grow(&mut pipeline, read, growth);
        pipeline.write(&[grown], "a", &accepting);
        let most = most_in_flight(&bench, &pipeline.plan()).await;
        // Those come on top that were read before the bound was reached: one or two for each worker, and, as the clock
        // does not wait for a thread, a full queue in front of that.
        let before = if matches!(growth, Growth::OnAThread) { 12 + STRIP_ROWS as u64 } else { 4 };
        assert!((5..=10 + before).contains(&most), "{growth:?}: {most}");
        let pieces = if matches!(growth, Growth::Pieces) { 10 } else { 1 };
        assert_eq!(accepting.rows().len(), 1000 * pieces, "{growth:?}");
    }
}

/// The queue behind a processor takes what the records weigh there, not what they weighed when they were read.
#[tokio::test(start_paused = true)]
async fn a_queue_is_bounded_by_what_records_became() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 1000, AtEnd::End).per_read(1));
    let hung = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| anabranch_plugin::testing::Reaction::Hang));
    let mut pipeline = bench.pipeline().limits(|limits| limits.queue_bytes = 50_000);
    let read = pipeline.read("in", &upstream);
    let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = made.clone();
    let step = inline(move |record| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(enlarge(record, Growth::Inline))
    });
    let grown = pipeline.chain(&[read], &[step]);
    pipeline.write(&[grown], "a", &hung);
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(600)).await;
    // The call of the destination, the four that fit in the queue, and the one that waits for room.
    let first = hung.calls().first().copied().unwrap_or_default();
    let made = made.load(std::sync::atomic::Ordering::Relaxed);
    assert!(made <= first + 6, "{made} records were made, {first} of them were being written");
    running.kill();
    in_time(running.join()).await;
}

/// Copies for several destinations are one in memory until a processor changes one of them.
#[tokio::test(start_paused = true)]
async fn copies_count_when_they_were_changed() {
    for (changed, copies) in [(false, 1), (true, 4)] {
        let bench = Bench::new();
        let upstream = Upstream::new(&bench.journal, 1000, AtEnd::End).per_read(1).delay(Duration::from_micros(100));
        let upstream = Arc::new(upstream.make(|row| {
            let mut record = anabranch_plugin::testing::record(row);
            record.payload.after = Data::Raw(vec![0; 10_000].into());
            record
        }));
        let mut pipeline = bench.pipeline().limits(|limits| limits.held_bytes = 400_000);
        let read = pipeline.read("in", &upstream);
        for name in ["a", "b", "c", "d"] {
            let accepting = Arc::new(Downstream::new(name, &bench.journal).accepting());
            let from = match changed {
                true => grow(&mut pipeline, read, Growth::Inline),
                false => read,
            };
            pipeline.write(&[from], name, &accepting);
        }
        let most = most_in_flight(&bench, &pipeline.plan()).await as usize;
        assert!((30 / copies..=45 / copies + 4).contains(&most), "{copies} copies: {most}");
    }
}

/// A row that becomes very many is in memory a strip at a time, whoever runs the operator, and its pieces keep the order
/// and settle their row once all are delivered.
#[tokio::test(start_paused = true)]
async fn the_pieces_of_a_row_are_made_as_there_is_room() {
    for workers in [1, 2] {
        let bench = Bench::new();
        let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = made.clone();
        let unfold = inline(move |record| {
            let (count, record) = (count.clone(), record.clone());
            Ok(Decision::Pieces(Pieces::new(100_000, move |i| {
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let mut piece = record.clone();
                piece.metadata.insert("i", i.to_string());
                piece
            })))
        });
        let start = |to: &Arc<Downstream>| {
            let upstream = Arc::new(Upstream::new(&bench.journal, 3, AtEnd::End));
            let mut pipeline = bench.pipeline().limits(|limits| limits.queue_strips = 2);
            let read = pipeline.read("in", &upstream);
            let mut step = crate::testing::Pipeline::step("unfold", &unfold);
            step.multiplies = true;
            let kind = match workers {
                1 => StageKind::Chain(vec![step]),
                _ => StageKind::Parallel { steps: vec![step], workers },
            };
            let unfolded = pipeline.stage("unfold", &[read], kind);
            pipeline.write(&[unfolded], "a", to);
            (bench.start(&pipeline.plan()), upstream)
        };
        let hung =
            Arc::new(Downstream::new("a", &bench.journal).script(|_, _| anabranch_plugin::testing::Reaction::Hang));
        let (running, _) = start(&hung);
        tokio::time::sleep(Duration::from_secs(600)).await;
        let before = made.load(std::sync::atomic::Ordering::Relaxed);
        assert!((1..40 * STRIP_ROWS).contains(&before), "{workers} workers made {before} pieces");
        running.kill();
        in_time(running.join()).await;

        let shelf = Arc::new(Downstream::new("a", &bench.journal));
        let (running, upstream) = start(&shelf);
        let progress = running.progress();
        finished(&in_time(running.join()).await);
        let numbers =
            shelf.durable().into_iter().map(|record| record.metadata.get("i").unwrap().parse::<usize>().unwrap());
        assert!(numbers.eq((0..3).flat_map(|_| 0..100_000)), "{workers} workers");
        assert!(shelf.rows().is_sorted());
        assert_eq!((progress.totals().born, upstream.kept()), (3 * 99_999, 0));
    }
}
