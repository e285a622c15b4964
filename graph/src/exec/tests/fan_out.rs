//! Many ways in, many ways out.

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, inline};
use anabranch_record::Data;

use super::*;

#[tokio::test(start_paused = true)]
async fn every_row_of_every_source_reaches_every_destination() {
    let bench = Bench::new();
    let upstreams: Vec<_> =
        (0..3).map(|i| Arc::new(Upstream::new(&bench.journal, 1000 + i * 100, AtEnd::End).per_read(33))).collect();
    let shelves: Vec<_> = ["a", "b", "c", "d"].map(|name| shelf(&bench, name)).into();
    let mut pipeline = bench.pipeline();
    let reads: Vec<_> =
        upstreams.iter().enumerate().map(|(i, upstream)| pipeline.read(&format!("in{i}"), upstream)).collect();
    let chain = pipeline.chain(&reads, &[inline(|_| Ok(Decision::Keep))]);
    for (i, shelf) in shelves.iter().enumerate() {
        let own = pipeline.chain(
            &[chain],
            &[inline(move |record| {
                record.payload.after = Data::text(i.to_string());
                Ok(Decision::Keep)
            })],
        );
        pipeline.write(&[own], &format!("out{i}"), shelf);
    }
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    finished(&in_time(running.join()).await);
    for (i, shelf) in shelves.iter().enumerate() {
        assert_eq!(shelf.rows().len(), 3300);
        assert!(shelf.durable().iter().all(|record| record.payload.after == Data::text(i.to_string())));
    }
    assert!(upstreams.iter().all(|upstream| upstream.kept() == 0));
    let totals = progress.totals();
    assert_eq!((totals.read, totals.born, totals.delivered), (3300, 3 * 3300, 4 * 3300));
    assert_eq!(progress.delivered().iter().map(|(_, rows)| *rows).collect::<Vec<_>>(), [3300; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_shared_destination_takes_sources_in_turn() {
    let bench = Bench::new();
    let (one, two) = (upstream(&bench, 10_000), upstream(&bench, 10_000));
    let a = Arc::new(Downstream::new("a", &bench.journal).delay(Duration::from_millis(1)).policy(|p| p.rows = 128));
    let mut pipeline = bench.pipeline();
    let reads = [pipeline.read("one", &one), pipeline.read("two", &two)];
    pipeline.write(&reads, "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    let half: Vec<_> = a.durable().into_iter().take(10_000).collect();
    let of_one = half.iter().filter(|r| r.metadata.get("svc.source.connector.id").unwrap() == "p:one").count();
    assert!((3500..=6500).contains(&of_one), "{of_one}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_branch_does_not_lose_the_rows_of_a_fast_one() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 3000);
    let slow = Arc::new(Downstream::new("a", &bench.journal).delay(Duration::from_millis(50)).policy(|p| p.rows = 20));
    let fast = Arc::new(Downstream::new("b", &bench.journal).accepting());
    let mut pipeline = bench.pipeline().limits(|limits| limits.replay_rows = 400);
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &slow);
    pipeline.write(&[read], "b", &fast);
    finished(&bench.run(&pipeline.plan()).await);
    super::ordering::check_order(&bench.journal.events(), &["a", "b"], 3000);
}
