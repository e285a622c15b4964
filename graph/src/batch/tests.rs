use std::collections::BTreeMap;

use anabranch_plugin::operator::Pieces;
use anabranch_plugin::testing::codes::BAD;
use anabranch_record::Position;
use proptest::prelude::*;

use super::*;
use crate::ack::{LaneIndex, Ledger};

fn position(i: usize) -> Position {
    Position::copy_from(&(i as u64).to_be_bytes())
}

fn id(record: &Record) -> usize {
    u64::from_be_bytes(record.position().0[..].try_into().unwrap()) as usize
}

fn batch(ledger: &mut Ledger, from: usize, rows: usize, alarm: &Arc<Alarm>) -> Batch {
    let run = ledger.open((from..from + rows).map(position).collect(), rows);
    let records = (from..from + rows).map(|i| Record::at(position(i))).collect();
    Batch::new(records, Lineage::of(run, alarm), rows * 100)
}

fn settle(ledger: &mut Ledger, lineage: Lineage) {
    for run in lineage.settle_runs() {
        ledger.settle(run).unwrap();
    }
}

#[test]
fn a_row_split_in_many_is_emitted_in_strips() {
    let alarm = Arc::new(Alarm::default());
    let mut ledger = Ledger::new(LaneIndex(0), None);
    let mut batch = batch(&mut ledger, 0, 3, &alarm);
    let pieces = vec![Record::at(position(1)); 100_000];
    let mut left = Leftover::new(&alarm);
    let mut decisions = vec![(1, Decision::Split(pieces))];
    batch.apply(&mut decisions, &mut left, &mut |run| ledger.lend(run)).unwrap();
    assert_eq!((batch.rows(), left.born), (100_002, 99_999));
    assert!(batch.lineage().runs().len() <= 4, "pieces of a row share a run");
    let mut rows = 0;
    for strip in batch.strips() {
        assert!(strip.rows() <= STRIP_ROWS);
        rows += strip.rows();
        settle(&mut ledger, strip.into_parts().1);
    }
    assert_eq!((rows, ledger.in_flight(), alarm.lost()), (100_002, 0, 0));
}

#[test]
fn a_lineage_dropped_unsettled_rings_the_alarm() {
    let alarm = Arc::new(Alarm::default());
    let mut ledger = Ledger::new(LaneIndex(0), None);
    drop(batch(&mut ledger, 0, 3, &alarm));
    assert_eq!(alarm.lost(), 3);
    let mut strips = batch(&mut ledger, 3, 300, &alarm).strips();
    settle(&mut ledger, strips.next().unwrap().into_parts().1);
    drop(strips);
    assert_eq!(alarm.lost(), 3 + 300 - 128);
    alarm.disarm();
    drop(batch(&mut ledger, 0, 3, &alarm));
    assert_eq!(alarm.lost(), 3 + 300 - 128);
}

#[test]
fn the_worse_of_two_decisions_counts() {
    let alarm = Arc::new(Alarm::default());
    let mut ledger = Ledger::new(LaneIndex(0), None);
    let mut batch = batch(&mut ledger, 0, 3, &alarm);
    let mut left = Leftover::new(&alarm);
    let mut decisions = vec![
        (2, Decision::Filter),
        (0, Decision::Keep),
        (2, Decision::Fail(Fault::record(BAD, "y"))),
        (9, Decision::Filter),
    ];
    batch.apply(&mut decisions, &mut left, &mut |run| ledger.lend(run)).unwrap();
    assert_eq!((batch.rows(), left.failed.faults.len(), left.filtered.rows()), (2, 1, 0));
    alarm.disarm();
}

#[derive(Clone, Debug)]
enum Fate {
    Nothing,
    Keep,
    Filter,
    Fail,
    Split(usize),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Nothing),
        1 => Just(Fate::Keep),
        2 => Just(Fate::Filter),
        2 => Just(Fate::Fail),
        2 => (0usize..5).prop_map(Fate::Split),
    ]
}

proptest! {
    /// Several rounds of decisions and a fan-out: order is kept, no row is lost, all credit comes back.
    #[test]
    fn decisions_keep_order_and_credit(
        rounds in proptest::collection::vec(proptest::collection::vec(fate(), 1..40), 1..4),
        rows in 2usize..40,
        ways in 1usize..4,
    ) {
        let alarm = Arc::new(Alarm::default());
        let mut ledger = Ledger::new(LaneIndex(0), None);
        let mut batch = batch(&mut ledger, 0, rows / 2, &alarm);
        batch.merge(super::tests::batch(&mut ledger, rows / 2, rows - rows / 2, &alarm));
        let mut left = Leftover::new(&alarm);
        let mut copies: BTreeMap<usize, usize> = (0..rows).map(|i| (i, 1)).collect();
        let mut expected: Vec<usize> = (0..rows).collect();
        for fates in &rounds {
            let mut decisions = Vec::new();
            let mut next = Vec::new();
            for (row, i) in expected.iter().enumerate() {
                let n = match fates.get(row).unwrap_or(&Fate::Nothing) {
                    Fate::Nothing => 1,
                    Fate::Keep => { decisions.push((row, Decision::Keep)); 1 }
                    Fate::Filter => { decisions.push((row, Decision::Filter)); 0 }
                    Fate::Fail => { decisions.push((row, Decision::Fail(Fault::record(BAD, "y")))); 0 }
                    Fate::Split(n) => {
                        decisions.push((row, Decision::Split(vec![Record::at(position(*i)); *n])));
                        *copies.get_mut(i).unwrap() += n.saturating_sub(1);
                        *n
                    }
                };
                next.extend(std::iter::repeat_n(*i, n));
            }
            batch.apply(&mut decisions, &mut left, &mut |run| ledger.lend(run)).unwrap();
            expected = next;
            prop_assert_eq!(batch.records().iter().map(id).collect::<Vec<_>>(), expected.clone());
        }
        let total = left.filtered.rows() + left.failed.faults.len() + batch.rows();
        prop_assert_eq!(total, rows + left.born);
        prop_assert_eq!(total, copies.values().sum::<usize>());
        for copy in batch.fan_out(ways, &mut |run| ledger.lend(run)).unwrap() {
            prop_assert_eq!(copy.records().iter().map(id).collect::<Vec<_>>(), expected.clone());
            settle(&mut ledger, copy.into_parts().1);
        }
        settle(&mut ledger, std::mem::replace(&mut left.filtered, Lineage::none(&alarm)));
        settle(&mut ledger, left.failed.batch.into_parts().1);
        prop_assert_eq!((ledger.in_flight(), ledger.open_rows(), alarm.lost()), (0, 0, 0));
    }
}

proptest! {
    /// Each way has its rows in order, and the credit of every copy comes back.
    #[test]
    fn routed_rows_keep_order_and_credit(bits in proptest::collection::vec(1u8..16, 2..60), cut in 1usize..60) {
        let alarm = Arc::new(Alarm::default());
        let mut ledger = Ledger::new(LaneIndex(0), None);
        let rows = bits.len();
        let cut = cut.min(rows - 1);
        let mut batch = batch(&mut ledger, 0, cut, &alarm);
        batch.merge(super::tests::batch(&mut ledger, cut, rows - cut, &alarm));
        let mut ways = vec![Mask::none(rows); 4];
        for (row, bits) in bits.iter().enumerate() {
            (0..4).filter(|way| bits >> way & 1 == 1).for_each(|way| ways[way].set(row));
        }
        let routed = batch.route(&ways, &mut |run| ledger.lend(run)).unwrap();
        prop_assert_eq!(routed.iter().map(|batch| batch.counted).sum::<usize>(), 100 * rows);
        for (way, batch) in routed.into_iter().enumerate() {
            let expected: Vec<usize> = (0..rows).filter(|row| bits[*row] >> way & 1 == 1).collect();
            prop_assert_eq!(batch.lineage().rows(), batch.rows());
            prop_assert_eq!(batch.records().iter().map(id).collect::<Vec<_>>(), expected);
            settle(&mut ledger, batch.into_parts().1);
        }
        prop_assert_eq!((ledger.in_flight(), ledger.open_rows(), alarm.lost()), (0, 0, 0));
    }
}

/// All rows of what a batch became, in order.
fn made(parts: Vec<BatchPart>) -> Vec<Batch> {
    let strips = |part| match part {
        BatchPart::Rows(batch) => vec![batch],
        BatchPart::Pieces(mut unfolding) => {
            std::iter::from_fn(|| (!unfolding.is_done()).then(|| unfolding.strip())).collect()
        }
    };
    parts.into_iter().flat_map(strips).collect()
}

#[test]
fn pieces_are_made_in_strips_of_rows_and_of_bytes() {
    for (length, rows) in [(1, STRIP_ROWS), (STRIP_BYTES / 10, 10)] {
        let alarm = Arc::new(Alarm::default());
        let mut ledger = Ledger::new(LaneIndex(0), None);
        let batch = batch(&mut ledger, 0, 3, &alarm);
        let mut piece = Record::at(position(1));
        piece.payload.after = anabranch_record::Data::text("x".repeat(length));
        let mut decisions = vec![(1, Decision::Pieces(Pieces::new(1000, move |_| piece.clone())))];
        let mut left = Leftover::new(&alarm);
        let parts = batch.unfold(&mut decisions, &mut left, &mut |run| ledger.lend(run)).unwrap();
        assert_eq!((parts.iter().map(BatchPart::rows).collect::<Vec<_>>(), left.born), (vec![1, 1000, 1], 999));
        let strips = made(parts);
        assert!(strips.iter().all(|strip| strip.rows() <= rows), "{length}");
        assert!(strips.len() >= 1002 / rows);
        assert_eq!(strips.iter().map(|strip| strip.counted).sum::<usize>(), 300);
        strips.into_iter().for_each(|strip| settle(&mut ledger, strip.into_parts().1));
        assert_eq!((ledger.in_flight(), ledger.open_rows(), alarm.lost()), (0, 0, 0));
    }
}

proptest! {
    /// Pieces that are made later are the rows that are made at once.
    #[test]
    fn to_unfold_is_to_apply(fates in proptest::collection::vec((fate(), any::<bool>()), 1..40), rows in 1usize..40) {
        let alarm = Arc::new(Alarm::default());
        let mut ledger = Ledger::new(LaneIndex(0), None);
        let decisions = |unfolds: bool| -> Vec<(usize, Decision)> {
            let decision = |(row, (fate, later)): (usize, &(Fate, bool))| {
                let piece = move |i: usize| {
                    let mut piece = Record::at(position(row));
                    piece.metadata.insert("i", i.to_string());
                    piece
                };
                Some((row, match fate {
                    Fate::Nothing => return None,
                    Fate::Keep => Decision::Keep,
                    Fate::Filter => Decision::Filter,
                    Fate::Fail => Decision::Fail(Fault::record(BAD, "y")),
                    Fate::Split(n) if *later && unfolds => Decision::Pieces(Pieces::new(n * 50, piece)),
                    Fate::Split(n) if *later => Decision::Split((0..n * 50).map(piece).collect()),
                    Fate::Split(n) => Decision::Split((0..*n).map(piece).collect()),
                }))
            };
            fates.iter().enumerate().filter_map(decision).rev().collect()
        };
        let (mut now, mut later) = (Leftover::new(&alarm), Leftover::new(&alarm));
        let mut applied = batch(&mut ledger, 0, rows, &alarm);
        applied.apply(&mut decisions(false), &mut now, &mut |run| ledger.lend(run)).unwrap();
        let unfolded = batch(&mut ledger, 0, rows, &alarm);
        let parts = unfolded.unfold(&mut decisions(true), &mut later, &mut |run| ledger.lend(run)).unwrap();
        let mut together = Leftover::new(&alarm).failed.batch;
        made(parts).into_iter().for_each(|part| together.merge(part));
        prop_assert_eq!(together.records(), applied.records());
        prop_assert_eq!(together.lineage().rows(), together.rows());
        prop_assert_eq!(now.born, later.born);
        prop_assert_eq!(now.filtered.rows(), later.filtered.rows());
        prop_assert_eq!(now.failed.batch.records(), later.failed.batch.records());
        for lineage in [now, later].map(|left| [left.filtered, left.failed.batch.into_parts().1]).into_iter().flatten() {
            settle(&mut ledger, lineage);
        }
        settle(&mut ledger, applied.into_parts().1);
        settle(&mut ledger, together.into_parts().1);
        prop_assert_eq!((ledger.in_flight(), ledger.open_rows(), alarm.lost()), (0, 0, 0));
    }
}
