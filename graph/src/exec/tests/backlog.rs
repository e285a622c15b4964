//! What a source has not read is known while it reads, while it has no room, and while it waits.

use anabranch_plugin::testing::{AtEnd, Reaction};

use super::*;
use crate::exec::Progress;

fn left(progress: &Progress) -> Vec<Option<u64>> {
    progress.backlogs().iter().map(|source| source.backlog.records).collect()
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_held_up_is_asked_all_the_same() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 20_000, AtEnd::Wait).counts());
    let hung = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| Reaction::Hang));
    let mut pipeline = bench.pipeline().limits(|limits| limits.replay_rows = 300);
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &hung);
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(left(&progress), [Some(19_700)]);
    upstream.add(20_000..30_000);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(left(&progress), [Some(29_700)]);
    assert!((15..=21).contains(&upstream.asked()), "once a second: {}", upstream.asked());
    running.kill();
    in_time(running.join()).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_at_rest_is_not_asked() {
    for (upstream, expected, most) in [
        (|bench: &Bench| Upstream::new(&bench.journal, 50, AtEnd::Wait).counts(), vec![Some(0)], 3),
        (|bench: &Bench| Upstream::new(&bench.journal, 50, AtEnd::CaughtUp).counts(), vec![Some(0)], 3),
        (|bench: &Bench| Upstream::new(&bench.journal, 50, AtEnd::Wait), vec![], 1),
    ] as [(fn(&Bench) -> Upstream, _, _); 3]
    {
        let bench = Bench::new();
        let upstream = Arc::new(upstream(&bench));
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        pipeline.write(&[read], "a", &shelf(&bench, "a"));
        let running = bench.start(&pipeline.plan());
        let progress = running.progress();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(left(&progress), expected);
        assert!(upstream.asked() <= most, "{}", upstream.asked());
        // A later record is noticed.
        upstream.add(50..90);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(left(&progress), expected);
        running.kill();
        in_time(running.join()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_waits_is_interrupted_for_what_is_left_and_loses_nothing() {
    let bench = Bench::new();
    let upstream = Upstream::new(&bench.journal, 1000, AtEnd::End).counts().per_read(100);
    let upstream = Arc::new(upstream.delay(Duration::from_millis(700)));
    let shelf = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &shelf);
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    tokio::time::sleep(Duration::from_millis(3500)).await;
    let [Some(left)] = left(&progress)[..] else { panic!("unknown") };
    assert!((400..900).contains(&left), "{left}");
    finished(&in_time(running.join()).await);
    assert_eq!(shelf.rows(), (0..1000).collect::<Vec<_>>());
    // Every record that was read was asked for once.
    assert_eq!(upstream.rows_read(), 1000);
}
