//! Durable, then stored, then acknowledged; each once and in read order.

use std::collections::BTreeSet;

use anabranch_plugin::operator::Decision;
use anabranch_plugin::testing::{AtEnd, Event, inline, row_at, rows};
use anabranch_record::mark::Partition;

use super::*;

/// Checks the journal: every acknowledgement comes after a commit that covers it, every commit after the rows it
/// covers are durable in all shelves, and acknowledgements are complete, in order and without repetition.
pub(super) fn check_order(events: &[Event], shelves: &[&str], expected: u64) {
    let mut durable: BTreeSet<(String, u64)> = BTreeSet::new();
    let mut stored: Option<u64> = None;
    let mut acked = 0;
    for event in events {
        match event {
            Event::Durable { shelf, row } => {
                durable.insert((shelf.to_string(), *row));
            }
            Event::Transacted { .. } | Event::Forgotten(_) => {}
            Event::Committed(_, mark) => {
                let upto = row_at(&mark.position);
                assert_eq!(mark.seq, upto + 1);
                for row in stored.map_or(0, |row| row + 1)..=upto {
                    let everywhere = shelves.iter().all(|shelf| durable.contains(&((*shelf).to_owned(), row)));
                    assert!(everywhere || durable.contains(&("letters".to_owned(), row)), "{row} stored, not durable");
                }
                stored = Some(upto);
            }
            Event::Acked(_, row) => {
                assert_eq!(*row, acked, "acknowledged out of order");
                assert!(stored.is_some_and(|stored| *row <= stored), "{row} acknowledged, not stored");
                acked += 1;
            }
        }
    }
    assert_eq!(acked, expected);
}

#[tokio::test(start_paused = true)]
async fn rows_are_durable_then_stored_then_acknowledged() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 1000);
    let (a, b) = (Arc::new(Downstream::new("a", &bench.journal).accepting()), shelf(&bench, "b"));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[inline(|_| Ok(Decision::Keep))]);
    pipeline.write(&[chain], "a", &a);
    pipeline.write(&[chain], "b", &b);
    finished(&bench.run(&pipeline.plan()).await);
    check_order(&bench.journal.events(), &["a", "b"], 1000);
    assert_eq!(a.rows(), (0..1000).collect::<Vec<_>>());
    assert_eq!(b.rows(), (0..1000).collect::<Vec<_>>());
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_waits_is_acknowledged_all_the_same() {
    for at_end in [AtEnd::CaughtUp, AtEnd::Wait] {
        let bench = Bench::new();
        let upstream = Arc::new(Upstream::new(&bench.journal, 10, at_end));
        let a = Arc::new(Downstream::new("a", &bench.journal).accepting());
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        pipeline.write(&[read], "a", &a);
        let running = bench.start(&pipeline.plan());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(upstream.kept(), 0);
        let progress = running.progress();
        assert_eq!(progress.lanes()[0].persisted, 10);
        running.stop(None);
        assert!(matches!(in_time(running.join()).await, Ending::Stopped));
        assert!(progress.totals().balance());
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_have_order_and_marks_of_their_own() {
    let bench = Bench::new();
    let partitions = [(Partition("x".into()), 300), (Partition("y".into()), 500)];
    let upstream = Arc::new(Upstream::partitioned(&bench.journal, partitions, AtEnd::End).per_read(7));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(upstream.kept(), 0);
    assert_eq!(a.rows().len(), 800);
    for (name, n) in [("x", 300), ("y", 500)] {
        let acked = bench.journal.events().into_iter().filter_map(|event| match event {
            Event::Acked(partition, row) if &*partition.0 == name => Some(row),
            _ => None,
        });
        assert_eq!(acked.collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn once_ends_when_the_source_has_caught_up() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10, AtEnd::CaughtUp));
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let plan = pipeline.plan();
    finished(&in_time(bench.start_once(&plan).join()).await);
    upstream.add(10..15);
    finished(&in_time(bench.start_once(&plan).join()).await);
    assert_eq!(a.rows(), (0..15).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn records_are_stamped_and_what_they_carry_is_kept() {
    let bench = Bench::new();
    let upstream = Upstream::new(&bench.journal, 3, AtEnd::End).make(|row| {
        let mut record = anabranch_plugin::testing::record(row);
        if row == 1 {
            record.metadata.insert("recfmt.readAt", "1");
        }
        record
    });
    let a = shelf(&bench, "a");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &Arc::new(upstream));
    pipeline.write(&[read], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    let records = a.durable();
    assert_eq!(rows(&records), [0, 1, 2]);
    for record in &records {
        assert_eq!(record.metadata.get("svc.source.connector.id").unwrap(), &"p:in");
        assert_eq!(record.metadata.get("recfmt.readAt").unwrap() == "1", row_at(record.position()) == 1);
    }
}
