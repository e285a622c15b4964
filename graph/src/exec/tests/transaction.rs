//! A transactional destination has every piece of a source row once, together, and a mark that says so.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_plugin::operator::{Configured, Decision};
use anabranch_plugin::testing::{AtEnd, Event, Reaction, asynchronous, inline, position, record, row_at};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::{Data, Position, Record};
use futures::FutureExt;

use super::*;
use crate::plan::stage::StageKind;

fn lane(connector: &str) -> LaneId {
    LaneId { connector: connector.into(), partition: Default::default() }
}

fn mark(generation: u64, seq: u64) -> Mark {
    Mark { generation, seq, position: position(seq - 1) }
}

fn text(record: &Record) -> String {
    match &record.payload.after {
        Data::Raw(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// `n` pieces of a row, told apart by what is added to its payload.
fn split(n: impl Fn(u64) -> u64 + Send + 'static) -> Configured {
    inline(move |record| {
        let pieces = n(row_at(record.position()));
        let piece = |i| {
            let mut piece = record.clone();
            piece.payload.after = Data::text(format!("{}.{i}", text(record)));
            piece
        };
        Ok(Decision::Split((0..pieces).map(piece).collect()))
    })
}

fn transactional(bench: &Bench, name: &str, rows: usize) -> Downstream {
    Downstream::new(name, &bench.journal).transactional().policy(|policy| policy.rows = rows)
}

/// The transactions that hold rows of each source row, by what is before the first dot of the payload.
fn transactions_per_row(shelf: &Downstream) -> BTreeMap<String, BTreeSet<usize>> {
    let mut per_row: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (i, rows) in shelf.transactions().iter().enumerate() {
        for row in rows.iter().map(text) {
            per_row.entry(row.split('.').next().unwrap().to_owned()).or_default().insert(i);
        }
    }
    per_row
}

fn all_together(shelf: &Downstream) {
    for (row, transactions) in transactions_per_row(shelf) {
        assert_eq!(transactions.len(), 1, "the pieces of row {row} are in transactions {transactions:?}");
    }
}

/// Each text once.
fn once(shelf: &Downstream) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for row in shelf.durable() {
        assert!(seen.insert(text(&row)), "{} is there twice", text(&row));
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_transaction_ends_between_source_rows() {
    for rows in [1, 7, 100, 1000] {
        let bench = Bench::new();
        let upstream = upstream(&bench, 500);
        let a = Arc::new(transactional(&bench, "a", rows));
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        let chain = pipeline.chain(&[read], &[split(|row| row % 5 * 3)]);
        pipeline.write_with(&[chain], "a", &a, |spec| {
            spec.rate = Some(1000.0);
            spec.burst = 10;
        });
        finished(&bench.run(&pipeline.plan()).await);
        assert_eq!(once(&a).len(), 100 * (3 + 6 + 9 + 12));
        all_together(&a);
        assert_eq!(a.marks()[&lane("in")], mark(1, 500), "the last row has pieces");
        assert!(a.calls().iter().all(|call| *call < rows.min(10) + 12));
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_of_more_pieces_than_anything_may_hold_is_one_transaction() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 3);
    let a = Arc::new(transactional(&bench, "a", 10));
    let mut pipeline = bench.pipeline().limits(|limits| {
        limits.queue_bytes = 1;
        limits.queue_strips = 1;
        limits.held_bytes = 1;
        limits.replay_rows = 1;
    });
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[split(|row| if row == 1 { 5000 } else { 1 })]);
    pipeline.write(&[chain], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(a.calls(), [1, 5000, 1]);
}

#[tokio::test(start_paused = true)]
async fn refused_rows_have_letters_before_the_mark_that_covers_them() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 100);
    let refuse = |rows: &[Record], _: usize| {
        let bad = |(i, row): (usize, &Record)| {
            (row_at(row.position()) % 10 == 9)
                .then(|| (i, Fault::record(anabranch_plugin::testing::codes::BAD, "not this one")))
        };
        let refused: Vec<_> = rows.iter().enumerate().filter_map(bad).take(2).collect();
        if refused.is_empty() { Reaction::Durable } else { Reaction::Refuse(refused) }
    };
    let a = Arc::new(transactional(&bench, "a", 30).script(refuse));
    let letters = Arc::new(Downstream::new("letters", &bench.journal).accepting().delay(Duration::from_millis(20)));
    let mut pipeline = crate::testing::Pipeline::new(&letters, 0, 0);
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let running = bench.start(&pipeline.plan());
    let progress = running.progress();
    finished(&in_time(running.join()).await);
    assert_eq!((once(&a).len(), letters.rows().len()), (90, 10));
    let totals = progress.totals();
    assert_eq!((totals.delivered, totals.dead_lettered), (90, 10));
    letters_first(&bench.journal.events(), |row| row % 10 == 9);
}

/// Whether every mark of shelf `a` comes after the letters of the rows that it covers.
fn letters_first(events: &[Event], fails: impl Fn(u64) -> bool) {
    let mut lettered = BTreeSet::new();
    let mut marks = 0;
    for event in events {
        match event {
            Event::Durable { shelf, row } if shelf == "letters" => {
                lettered.insert(*row);
            }
            Event::Transacted { shelf, marks: stored } if shelf == "a" => {
                for (_, mark) in stored {
                    marks += 1;
                    let missing = (0..mark.seq).find(|row| fails(*row) && !lettered.contains(row));
                    assert_eq!(missing, None, "{mark:?} comes before the letter");
                }
            }
            _ => {}
        }
    }
    assert!(marks > 0);
}

#[tokio::test(start_paused = true)]
async fn rows_behind_one_that_failed_wait_for_its_letter() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 300);
    let a = Arc::new(transactional(&bench, "a", 10));
    let letters = Arc::new(Downstream::new("letters", &bench.journal).delay(Duration::from_millis(500)));
    let mut pipeline = crate::testing::Pipeline::new(&letters, 0, 0);
    let read = pipeline.read("in", &upstream);
    let some = inline(|record| match row_at(record.position()) % 100 {
        50 => Err(Fault::record(anabranch_plugin::testing::codes::BAD, "no")),
        7 => Ok(Decision::Filter),
        _ => Ok(Decision::Keep),
    });
    let chain = pipeline.chain(&[read], &[some]);
    pipeline.write(&[chain], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!((once(&a).len(), letters.rows().len()), (294, 3));
    letters_first(&bench.journal.events(), |row| row % 100 == 50);
}

#[tokio::test(start_paused = true)]
async fn a_record_fault_is_narrowed_down_to_a_source_row() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 60);
    let unfit = |rows: &[Record], _: usize| match rows.iter().any(|row| row_at(row.position()) == 33) {
        true => Reaction::Fail(Fault::record(anabranch_plugin::testing::codes::BAD, "something in there")),
        false => Reaction::Durable,
    };
    let a = Arc::new(transactional(&bench, "a", 1000).script(unfit));
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[split(|row| if row == 59 { 400 } else { 2 })]);
    pipeline.write(&[chain], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!((once(&a).len(), bench.letters.rows()), (58 * 2 + 400, vec![33, 33]));
    all_together(&a);
    letters_first(&bench.journal.events().into_iter().collect::<Vec<_>>(), |row| row == 33);
}

#[tokio::test(start_paused = true)]
async fn answers_for_single_rows_are_refused() {
    for reaction in
        [|| Reaction::Accepted, || Reaction::Each(vec![Ok(anabranch_plugin::destination::Delivered::Durable)])]
    {
        let bench = Bench::new();
        let upstream = upstream(&bench, 1);
        let a = Arc::new(transactional(&bench, "a", 10).script(move |_, _| reaction()));
        let mut pipeline = bench.tolerant();
        let read = pipeline.read("in", &upstream);
        pipeline.write(&[read], "a", &a);
        let Ending::Faulted(fault) = bench.run(&pipeline.plan()).await else { panic!("it went on") };
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "verdict_kind"));
    }
    for refused in [vec![], vec![5], vec![0, 0]] {
        let bench = Bench::new();
        let upstream = upstream(&bench, 2);
        let refuse = move |_: &[Record], _: usize| {
            Reaction::Refuse(
                refused.iter().map(|row| (*row, Fault::record(anabranch_plugin::testing::codes::BAD, "no"))).collect(),
            )
        };
        let a = Arc::new(transactional(&bench, "a", 10).script(refuse));
        let mut pipeline = bench.tolerant();
        let read = pipeline.read("in", &upstream);
        pipeline.write(&[read], "a", &a);
        let Ending::Faulted(fault) = bench.run(&pipeline.plan()).await else { panic!("it went on") };
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "verdict_count"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_was_made_is_not_repeated() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 100);
    let lost = |_: &[Record], call: usize| match call % 3 {
        0 => Reaction::FailAfter(Fault::transient(crate::codes::LOST, "the connection was lost at COMMIT")),
        1 => Reaction::Fail(Fault::transient(crate::codes::LOST, "the connection was lost before COMMIT")),
        _ => Reaction::Durable,
    };
    let a = Arc::new(transactional(&bench, "a", 10).script(lost));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(once(&a).len(), 100);
    assert_eq!(a.transactions().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn another_run_that_writes_the_same_destination_is_noticed() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10, AtEnd::Wait));
    let a = Arc::new(transactional(&bench, "a", 10));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(1)).await;
    a.set_mark(lane("in"), mark(1, 11));
    upstream.add(10..20);
    let Ending::Faulted(fault) = in_time(running.join()).await else { panic!("it went on") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "marks_moved"));
    assert_eq!(once(&a).len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_source_resumes_after_the_mark_of_its_only_destination() {
    // The position in the store, the mark of the destination, and where the source continues.
    for (stored, theirs, from) in [
        (None, Some(mark(1, 60)), 60),
        (Some(mark(1, 50)), Some(mark(1, 60)), 60),
        (Some(mark(1, 60)), Some(mark(1, 50)), 60),
        (Some(mark(2, 50)), Some(mark(1, 60)), 50),
        // An old copy of the store.
        (Some(mark(1, 50)), Some(mark(2, 60)), 60),
        (Some(mark(1, 50)), Some(mark(2, 20)), 20),
        (None, Some(mark(3, 60)), 60),
    ] {
        let bench = Bench::new();
        let upstream = upstream(&bench, 100);
        let a = Arc::new(transactional(&bench, "a", 10));
        let generation = [&stored, &theirs].into_iter().flatten().map(|mark| mark.generation).max().unwrap_or(1);
        stored.into_iter().for_each(|mark| bench.store.set_mark("p", lane("in"), mark));
        theirs.into_iter().for_each(|mark| a.set_mark(lane("in"), mark));
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        pipeline.write(&[read], "a", &a);
        finished(&bench.run(&pipeline.plan()).await);
        assert_eq!(a.rows(), (from..100).collect::<Vec<_>>());
        assert_eq!(bench.store.mark("p", &lane("in")), Some(mark(generation, 100)));
        assert_eq!(a.marks()[&lane("in")], mark(generation, 100));
    }
}

#[tokio::test(start_paused = true)]
async fn the_store_has_the_mark_of_the_destination_before_a_source_is_opened() {
    let bench = Bench::new();
    let upstream = upstream(&bench, 60);
    let a = Arc::new(transactional(&bench, "a", 10));
    a.set_mark(lane("in"), mark(1, 60));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    finished(&bench.run(&pipeline.plan()).await);
    assert_eq!(bench.journal.events(), [Event::Committed(lane("in"), mark(1, 60))]);
    assert_eq!(upstream.kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn beside_another_destination_rows_are_left_out_if_the_source_replays_exactly() {
    for (exact, from) in [(true, 60), (false, 40)] {
        let bench = Bench::new();
        let mut upstream = Upstream::new(&bench.journal, 100, AtEnd::End);
        if exact {
            upstream = upstream.exact();
        }
        let upstream = Arc::new(upstream);
        let (a, b) = (Arc::new(transactional(&bench, "a", 10)), shelf(&bench, "b"));
        bench.store.set_mark("p", lane("in"), mark(1, 40));
        a.set_mark(lane("in"), mark(1, 60));
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        pipeline.write(&[read], "a", &a);
        pipeline.write(&[read], "b", &b);
        let running = bench.start(&pipeline.plan());
        let progress = running.progress();
        finished(&in_time(running.join()).await);
        assert_eq!(a.rows(), (from..100).collect::<Vec<_>>());
        assert_eq!(b.rows(), (40..100).collect::<Vec<_>>());
        assert!(progress.totals().balance());
    }
}

/// Returns the rows that a destination has after a run over rows `0..100`, with the store's mark and receipt.
async fn after_a_run(bench: &Bench, pipeline: &Arc<crate::plan::stage::StagePlan>) {
    finished(&bench.run(pipeline).await);
    assert_eq!(bench.store.mark("p", &lane("in")), Some(mark(1, 100)));
    assert_eq!(bench.store.receipt("p", "a", &lane("in")), Some(mark(1, 100)));
}

#[tokio::test(start_paused = true)]
async fn what_a_destination_lost_is_delivered_again() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 100, AtEnd::End).rereading());
    let a = Arc::new(transactional(&bench, "a", 10));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let plan = pipeline.plan();
    after_a_run(&bench, &plan).await;
    a.restore(&lane("in"), Some(mark(1, 60)));
    after_a_run(&bench, &plan).await;
    assert_eq!(a.rows(), (0..100).collect::<Vec<_>>());
    assert_eq!(upstream.rows_read(), 140);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_lost_what_cannot_be_read_again_stops_the_pipeline() {
    // Whether the source keeps what is acknowledged, what is left at the destination, and what the fault says.
    for (rereads, left, words) in [
        (false, Some(mark(1, 60)), "cannot read acknowledged records again"),
        (true, None, "it has none"),
        (false, None, "it has none"),
    ] {
        let bench = Bench::new();
        let mut upstream = Upstream::new(&bench.journal, 100, AtEnd::End);
        if rereads {
            upstream = upstream.rereading();
        }
        let upstream = Arc::new(upstream);
        let a = Arc::new(transactional(&bench, "a", 10));
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        pipeline.write(&[read], "a", &a);
        let plan = pipeline.plan();
        after_a_run(&bench, &plan).await;
        a.restore(&lane("in"), left.clone());
        for _ in 0..2 {
            let Ending::Faulted(fault) = bench.run(&plan).await else { panic!("it went on") };
            assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "destination_went_back"));
            assert_eq!(fault.node().map(anabranch_record::text::Str::as_str), Some("a"));
            let message = fault.message();
            assert!(message.contains("100 records of generation 1, up to position 99"), "{message}");
            assert!(message.contains(words) && message.contains("positions reset"), "{message}");
            if left.is_some() {
                assert!(message.contains("60 records of generation 1, up to position 59"), "{message}");
            }
        }
        // A user decides.
        bench.store.set_mark("p", lane("in"), Mark { generation: 2, seq: 0, position: position(79) });
        upstream.add(80..100);
        finished(&bench.run(&plan).await);
        let from = left.map_or(0, |left| left.seq);
        assert_eq!(a.rows(), (0..from).chain(80..100).collect::<Vec<_>>());
        assert_eq!(
            bench.store.receipt("p", "a", &lane("in")),
            Some(Mark { generation: 2, seq: 20, position: position(99) })
        );
        finished(&bench.run(&plan).await);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_destination_lost_and_the_source_has_no_more_stops_the_pipeline() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 100, AtEnd::End).rereading());
    let a = Arc::new(transactional(&bench, "a", 10));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let plan = pipeline.plan();
    after_a_run(&bench, &plan).await;
    a.restore(&lane("in"), Some(mark(1, 60)));
    upstream.forget(true);
    for _ in 0..2 {
        let Ending::Faulted(fault) = bench.run(&plan).await else { panic!("it went on") };
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "destination_went_back"));
        assert!(
            fault.message().contains("the source no longer has the records after that position"),
            "{}",
            fault.message()
        );
        assert_eq!(bench.store.mark("p", &lane("in")), Some(mark(1, 100)));
    }
    // It is put back.
    upstream.forget(false);
    after_a_run(&bench, &plan).await;
    assert_eq!(a.rows(), (0..100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_goes_back_in_mid_run_is_noticed() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 50, AtEnd::Wait).rereading());
    let a = Arc::new(transactional(&bench, "a", 10));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    let plan = pipeline.plan();
    let running = bench.start(&plan);
    tokio::time::sleep(Duration::from_secs(1)).await;
    a.restore(&lane("in"), Some(mark(1, 20)));
    upstream.add(50..100);
    let Ending::Faulted(fault) = in_time(running.join()).await else { panic!("it went on") };
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "marks_moved"));
    let running = bench.start(&plan);
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.stop(None);
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
    assert_eq!(a.rows(), (0..100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn of_several_destinations_the_one_that_lost_most_decides() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 100, AtEnd::End).rereading().exact());
    let [a, b, c] = ["a", "b", "c"].map(|name| Arc::new(transactional(&bench, name, 10)));
    let plain = shelf(&bench, "d");
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    for (name, shelf) in [("a", &a), ("b", &b), ("c", &c), ("d", &plain)] {
        pipeline.write(&[read], name, shelf);
    }
    let plan = pipeline.plan();
    after_a_run(&bench, &plan).await;
    a.restore(&lane("in"), Some(mark(1, 60)));
    b.restore(&lane("in"), Some(mark(1, 40)));
    after_a_run(&bench, &plan).await;
    for shelf in [&a, &b, &c] {
        assert_eq!(shelf.rows(), (0..100).collect::<Vec<_>>());
    }
    assert_eq!(plain.rows().len(), 160, "a destination without transactions gets them again");
}

/// A destination that has less than the store says, and has lost nothing.
#[tokio::test(start_paused = true)]
async fn a_destination_that_is_behind_has_not_lost_anything() {
    let run = async |bench: &Bench, a: &Arc<Downstream>, keep: fn(u64) -> bool| {
        let upstream = Arc::new(Upstream::new(&bench.journal, 100, AtEnd::End));
        let mut pipeline = bench.pipeline();
        let read = pipeline.read("in", &upstream);
        let only = inline(move |record| match keep(row_at(record.position())) {
            true => Ok(Decision::Keep),
            false => Ok(Decision::Filter),
        });
        let chain = pipeline.chain(&[read], &[only]);
        pipeline.write(&[chain], "a", a);
        finished(&bench.run(&pipeline.plan()).await);
    };
    // The last rows are filtered.
    let bench = Bench::new();
    let a = Arc::new(transactional(&bench, "a", 10));
    for _ in 0..2 {
        run(&bench, &a, |row| row < 70).await;
        assert_eq!(a.marks()[&lane("in")], mark(1, 70));
        assert_eq!(bench.store.mark("p", &lane("in")), Some(mark(1, 100)));
        assert_eq!(bench.store.receipt("p", "a", &lane("in")), Some(mark(1, 70)));
    }
    // It is new, or takes part in transactions since this run.
    let bench = Bench::new();
    let a = Arc::new(transactional(&bench, "a", 10));
    bench.store.set_mark("p", lane("in"), mark(1, 30));
    for _ in 0..2 {
        run(&bench, &a, |_| true).await;
        assert_eq!(a.rows(), (30..100).collect::<Vec<_>>());
    }
    // A user moved the position, and nothing was delivered since.
    let bench = Bench::new();
    let a = Arc::new(transactional(&bench, "a", 10));
    run(&bench, &a, |_| true).await;
    bench.store.set_mark("p", lane("in"), Mark { generation: 2, seq: 0, position: Position::copy_from(b"") });
    for _ in 0..2 {
        run(&bench, &a, |_| false).await;
        assert_eq!(bench.store.mark("p", &lane("in")).unwrap().generation, 2);
    }
    assert_eq!(a.rows().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_stop_writes_what_is_whole() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10_000, AtEnd::Wait).per_read(50));
    let shelf = transactional(&bench, "a", 100).delay(Duration::from_millis(20));
    let a = Arc::new(shelf.policy(|policy| policy.linger = Duration::from_secs(60)));
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    let chain = pipeline.chain(&[read], &[split(|_| 3)]);
    pipeline.write(&[chain], "a", &a);
    let running = bench.start(&pipeline.plan());
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.stop(Some(Duration::from_secs(10)));
    let ending = in_time(running.join()).await;
    assert!(matches!(ending, Ending::Stopped), "{ending:?}");
    all_together(&a);
    assert_eq!(once(&a).len() as u64, 3 * upstream.rows_read());
    assert_eq!(upstream.kept() as u64 + upstream.rows_read(), 10_000);
}

fn mix(seed: u64, n: u64) -> u64 {
    let mut x = (seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

const ROWS: u64 = 300;

/// The fate of a row in a random pipeline, as its seed decides.
#[derive(Clone, Copy)]
struct Fates {
    seed: u64,
}

impl Fates {
    fn filtered(self, row: u64) -> bool {
        mix(self.seed ^ 1, row).is_multiple_of(7)
    }

    fn fails(self, row: u64) -> bool {
        mix(self.seed ^ 2, row).is_multiple_of(11)
    }

    fn pieces(self, row: u64) -> u64 {
        match mix(self.seed ^ 3, row) % 40 {
            0 => 150,
            1 => 0,
            n => 1 + n % 3,
        }
    }

    /// Whether the destination refuses a piece.
    fn refused(self, piece: &str) -> bool {
        let salt = piece.bytes().fold(self.seed ^ 4, |salt, byte| mix(salt, u64::from(byte)));
        salt.is_multiple_of(23)
    }

    /// Where the rows of the second branch go.
    fn second_branch(self, row: u64) -> bool {
        !mix(self.seed ^ 5, row).is_multiple_of(3)
    }

    fn expected(self, sources: u64) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for (source, row) in (0..sources).flat_map(|source| (0..ROWS).map(move |row| (source, row))) {
            if self.filtered(row) || self.fails(row) {
                continue;
            }
            for piece in 0..self.pieces(row) {
                for branch in ["x", "y"] {
                    let piece = format!("{source}-{row}.{piece}{branch}");
                    if (branch == "x" || self.second_branch(row)) && !self.refused(&piece) {
                        all.insert(piece);
                    }
                }
            }
        }
        all
    }
}

/// Split, filtered and failed in a chain, then through two branches of which one waits, into the same destination.
fn random_plan(
    bench: &Bench,
    fates: Fates,
    upstreams: &[Arc<Upstream>],
    shelves: &[Arc<Downstream>],
) -> Arc<StagePlan> {
    let mut pipeline = bench.tolerant().limits(|limits| {
        limits.replay_rows = 100;
        if fates.seed.is_multiple_of(3) {
            limits.queue_bytes = 1;
            limits.held_bytes = 1 << 14;
        }
    });
    let reads: Vec<_> = upstreams.iter().enumerate().map(|(i, up)| pipeline.read(&format!("in{i}"), up)).collect();
    let some = inline(move |record| match row_at(record.position()) {
        row if fates.filtered(row) => Ok(Decision::Filter),
        row if fates.fails(row) => Err(Fault::record(anabranch_plugin::testing::codes::BAD, "no")),
        _ => Ok(Decision::Keep),
    });
    let chain = pipeline.chain(&reads, &[some, split(move |row| fates.pieces(row))]);
    let end = |record: &mut Record, branch: &str| record.payload.after = Data::text(text(record) + branch);
    let x = pipeline.chain(
        &[chain],
        &[inline(move |record| {
            end(record, "x");
            Ok(Decision::Keep)
        })],
    );
    let slow = asynchronous(move |rows| {
        async move {
            tokio::time::sleep(Duration::from_micros(mix(fates.seed, row_at(rows[0].position())) % 9000)).await;
            let decision = |record: &mut Record| {
                if !fates.second_branch(row_at(record.position())) {
                    return Decision::Filter;
                }
                end(record, "y");
                Decision::Keep
            };
            rows.iter_mut().map(decision).collect()
        }
        .boxed()
    });
    let y = StageKind::Async { step: Pipeline::step("slow", &slow), in_flight: 3 };
    let y = pipeline.stage("slow", &[chain], y);
    for (i, shelf) in shelves.iter().enumerate() {
        pipeline.write(&[x, y], &format!("out{i}"), shelf);
    }
    pipeline.plan()
}

/// A destination that refuses pieces, fails before and after it has stored, and hangs, up to some call.
fn random_shelf(bench: &Bench, name: &str, fates: Fates, salt: u64, troubled: usize) -> Downstream {
    let shelf = transactional(bench, name, [1, 20, 100][(fates.seed % 3) as usize]);
    let lost = || Fault::transient(crate::codes::LOST, "the connection was lost");
    let shelf = shelf.script(move |rows, call| {
        let trouble = if call < troubled { mix(fates.seed ^ salt, call as u64) % 12 } else { 9 };
        let bad = |(i, row): (usize, &Record)| {
            fates
                .refused(&text(row))
                .then(|| (i, Fault::record(anabranch_plugin::testing::codes::REFUSED, "it does not want it")))
        };
        match trouble {
            0 => Reaction::Fail(lost()),
            1 => Reaction::Hang,
            _ => {
                let refused: Vec<_> = rows.iter().enumerate().filter_map(bad).collect();
                match trouble {
                    _ if !refused.is_empty() => Reaction::Refuse(refused),
                    2 | 3 => Reaction::FailAfter(lost()),
                    4 => Reaction::HangAfter,
                    _ => Reaction::Durable,
                }
            }
        }
    });
    let shelf = shelf.delay(Duration::from_micros(mix(fates.seed, salt) % 3000));
    shelf.policy(|policy| policy.linger = Duration::from_millis(mix(fates.seed ^ 9, salt) % 20))
}

#[tokio::test(start_paused = true)]
async fn crashes_double_nothing_and_lose_nothing() {
    let (mut crashed, mut repeated) = (0, 0);
    for seed in 0..24 {
        let fates = Fates { seed: mix(seed, 0) };
        let bench = Bench::new();
        let sources = 1 + seed % 2;
        let upstreams: Vec<_> = (0..sources)
            .map(|source| {
                let upstream = Upstream::new(&bench.journal, ROWS, AtEnd::End).per_read(40).exact();
                let make = move |row| {
                    let mut record = record(row);
                    record.payload.after = Data::text(format!("{source}-{row}"));
                    record
                };
                Arc::new(upstream.make(make).delay(Duration::from_millis(1)))
            })
            .collect();
        let others = (seed / 2) % 3;
        let mut shelves = vec![Arc::new(random_shelf(&bench, "a", fates, 0, 60))];
        shelves.extend((others == 1).then(|| Arc::new(random_shelf(&bench, "b", fates, 1, 40))));
        shelves.extend((others == 2).then(|| Arc::new(Downstream::new("c", &bench.journal).accepting())));
        let plan = random_plan(&bench, fates, &upstreams, &shelves);
        let mut ended = false;
        for run in 0..60 {
            let running = bench.start(&plan);
            if run < 12 {
                tokio::time::sleep(Duration::from_micros(mix(fates.seed, 100 + run) % 90_000)).await;
                for _ in 0..mix(fates.seed, 200 + run) % 9 {
                    tokio::task::yield_now().await;
                }
                running.kill();
            } else {
                tokio::time::sleep(Duration::from_secs(30)).await;
                running.kill();
            }
            match in_time(running.join()).await {
                Ending::Finished => {
                    ended = true;
                    break;
                }
                Ending::Killed => crashed += 1,
                Ending::Faulted(fault) if fault.class() == FaultClass::Transient => crashed += 1,
                ending => panic!("seed {seed}: {ending:?}"),
            }
        }
        assert!(ended, "seed {seed} does not end");
        let expected = fates.expected(sources);
        for shelf in shelves.iter().filter(|shelf| !shelf.marks().is_empty()) {
            let found = once(shelf);
            let missing: Vec<_> = expected.difference(&found).take(5).collect();
            assert!(missing.is_empty(), "seed {seed}: {missing:?} are missing");
            assert_eq!(found.len(), expected.len(), "seed {seed}");
            all_together(shelf);
        }
        if others == 0 && sources == 1 {
            letters_first(&bench.journal.events(), |row| fates.fails(row) && !fates.filtered(row));
        }
        if others == 2 {
            repeated += shelves[1].rows().len().saturating_sub(expected.len());
        }
        assert!(upstreams.iter().all(|upstream| upstream.kept() == 0));
    }
    assert!(crashed > 60, "most runs are ended before their end: {crashed}");
    assert!(repeated > 0, "a destination that is not transactional has rows twice");
}
