use anabranch_record::Position;
use anabranch_record::mark::Mark;
use proptest::prelude::*;

use super::*;

fn position(i: u64) -> Position {
    Position::copy_from(&i.to_be_bytes())
}

fn positions(from: u64, n: usize) -> Vec<Position> {
    (from..from + n as u64).map(position).collect()
}

fn ledger() -> Ledger {
    Ledger::new(LaneIndex(0), None)
}

#[test]
fn rows_leave_in_read_order_and_also_out_of_the_front_segment() {
    let mut ledger = ledger();
    let mut a = ledger.open(positions(0, 3), 10);
    let b = ledger.open(positions(3, 2), 10);
    assert_eq!(ledger.settle(b), Ok(Settlement { rows: 2, bytes: 10 }));
    assert_eq!(ledger.advance(), None);
    let first = a.cut(1);
    assert_eq!(ledger.settle(first), Ok(Settlement { rows: 1, bytes: 0 }));
    let advance = ledger.advance().unwrap();
    assert_eq!(advance.positions, positions(0, 1));
    assert_eq!(advance.mark, Mark { generation: 1, seq: 1, position: position(0) });
    assert_eq!((ledger.in_flight(), ledger.open_rows(), ledger.seq_of_row(&a, 0)), (2, 2, 1));
    assert_eq!(ledger.gathered(), 1);
    ledger.land(&a).unwrap();
    assert_eq!((ledger.gathered(), ledger.mark_at(4).unwrap().position), (5, position(4)));
    ledger.take_off(&a).unwrap();
    assert_eq!(ledger.gathered(), 1);
    assert!(ledger.take_off(&a).is_err());
    assert_eq!((ledger.mark_at(0), ledger.mark_at(5)), (None, None), "one has left, the other was not read");
    assert_eq!(ledger.settle(a), Ok(Settlement { rows: 2, bytes: 10 }));
    let advance = ledger.advance().unwrap();
    assert_eq!((advance.positions, advance.mark.seq), (positions(1, 4), 5));
    assert_eq!((ledger.in_flight(), ledger.watermark()), (0, 5));
}

#[test]
fn a_position_without_rows_leaves_in_order_and_counts_no_row() {
    let mut ledger = ledger();
    let run = ledger.open(positions(0, 1), 0);
    ledger.open_progress(position(9));
    assert_eq!(ledger.advance(), None);
    ledger.settle(run).unwrap();
    let advance = ledger.advance().unwrap();
    assert_eq!(advance.positions, [position(0), position(9)]);
    assert_eq!(advance.mark, Mark { generation: 1, seq: 1, position: position(9) });
    ledger.persist(2);
    assert_eq!(ledger.unpersisted(), 0);
}

#[test]
fn settling_twice_is_refused_and_changes_nothing() {
    let mut ledger = ledger();
    let run = ledger.open(positions(0, 2), 0);
    let forged = |rows| Run::whole(LaneIndex(0), 0, rows);
    ledger.settle(run).unwrap();
    assert!(ledger.settle(forged(2)).is_err());
    assert!(ledger.settle(forged(3)).is_err());
    assert!(ledger.settle(Run::whole(LaneIndex(0), 7, 1)).is_err());
    assert!(ledger.lend(&mut Run::whole(LaneIndex(0), 7, 1)).is_ok(), "full credit needs no loan");
    assert_eq!(ledger.advance().unwrap().positions.len(), 2);
}

#[test]
fn a_row_split_again_and_again_borrows_credit() {
    let mut ledger = ledger();
    let mut run = ledger.open(positions(0, 1), 0);
    let mut out = Vec::new();
    for _ in 0..40 {
        let (first, rest) = match run.pieces(3) {
            Ok(pieces) => pieces,
            Err(mut run) => {
                ledger.lend(&mut run).unwrap();
                run.pieces(3).unwrap()
            }
        };
        run = first;
        if let Some(rest) = rest {
            out.push(rest);
        } else {
            let rest = run.cut(1);
            out.push(std::mem::replace(&mut run, rest));
        }
    }
    for run in out {
        ledger.settle(run).unwrap();
    }
    assert_eq!(ledger.advance(), None, "one piece is still out");
    ledger.settle(run).unwrap();
    assert_eq!(ledger.advance().unwrap().positions.len(), 1);
}

#[test]
fn segment_numbers_wrap() {
    let mut ledger = ledger();
    ledger.front = u32::MAX - 1;
    let runs: Vec<Run> = (0..5u64).map(|i| ledger.open(positions(i, 1), 0)).collect();
    for run in runs.into_iter().rev() {
        ledger.settle(run).unwrap();
    }
    assert_eq!(ledger.advance().unwrap().positions, positions(0, 5));
    assert!(ledger.is_empty());
}

/// The rows of a copy, by number, as the model counts them.
struct Copy {
    run: Run,
    rows: Vec<u64>,
    /// `true` if it is at a destination.
    landed: bool,
}

#[derive(Clone, Debug)]
enum Act {
    Open(usize),
    Progress,
    Cut(usize, usize),
    Pieces(usize, u32),
    Divide(usize, u32),
    Join(usize),
    Settle(usize),
    Land(usize),
    TakeOff(usize),
    Advance,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1usize..6).prop_map(Act::Open),
        1 => Just(Act::Progress),
        4 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Act::Cut(a, b)),
        4 => (any::<usize>(), 1u32..70_000).prop_map(|(a, n)| Act::Pieces(a, n)),
        4 => (any::<usize>(), 1u32..6).prop_map(|(a, n)| Act::Divide(a, n)),
        2 => any::<usize>().prop_map(Act::Join),
        6 => any::<usize>().prop_map(Act::Settle),
        6 => any::<usize>().prop_map(Act::Land),
        2 => any::<usize>().prop_map(Act::TakeOff),
        3 => Just(Act::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Against a model that counts copies per row: rows leave exactly when, and in the order, the model says.
    #[test]
    fn the_ledger_agrees_with_counting(acts in proptest::collection::vec(act(), 1..120)) {
        let mut ledger = ledger();
        let mut copies: Vec<Copy> = Vec::new();
        // Per position in read order: number of copies out; `None` for a position without a row.
        let mut open: Vec<Option<u64>> = Vec::new();
        let mut left = 0usize;
        for act in acts {
            match act {
                Act::Open(n) => {
                    let from = open.len() as u64;
                    let run = ledger.open(positions(from, n), n);
                    open.extend(std::iter::repeat_n(Some(1), n));
                    copies.push(Copy { run, rows: (from..from + n as u64).collect(), landed: false });
                }
                Act::Progress => {
                    ledger.open_progress(position(open.len() as u64));
                    open.push(None);
                }
                Act::Cut(at, n) if !copies.is_empty() => {
                    let at = at % copies.len();
                    let copy = &mut copies[at];
                    if copy.rows.len() > 1 {
                        let n = 1 + n % (copy.rows.len() - 1);
                        let run = copy.run.cut(n);
                        let rows = copy.rows.drain(..n).collect();
                        let landed = copy.landed;
                        copies.insert(at, Copy { run, rows, landed });
                    }
                }
                Act::Pieces(at, n) if !copies.is_empty() => {
                    let at = at % copies.len();
                    if copies[at].rows.len() == 1 && !copies[at].landed {
                        let Copy { mut run, rows, landed } = copies.remove(at);
                        if let Err(back) = run.pieces(n).map(|(first, rest)| {
                            copies.insert(at, Copy { rows: vec![rows[0]; first.rows()], run: first, landed });
                            if let Some(rest) = rest {
                                copies.insert(at + 1, Copy { rows: vec![rows[0]; rest.rows()], run: rest, landed });
                            }
                            *open[rows[0] as usize].as_mut().unwrap() += u64::from(n) - 1;
                        }) {
                            run = back;
                            ledger.lend(&mut run).unwrap();
                            copies.insert(at, Copy { run, rows, landed });
                        }
                    }
                }
                Act::Divide(at, n) if !copies.is_empty() => {
                    let at = at % copies.len();
                    let copy = &mut copies[at];
                    if copy.landed {
                        continue;
                    }
                    match copy.run.divide(n) {
                        Some(others) => {
                            let rows = copy.rows.clone();
                            rows.iter().for_each(|r| *open[*r as usize].as_mut().unwrap() += u64::from(n) - 1);
                            copies.extend(others.into_iter().map(|run| Copy { run, rows: rows.clone(), landed: false }));
                        }
                        None => ledger.lend(&mut copy.run).unwrap(),
                    }
                }
                Act::Join(at) if copies.len() > 1 => {
                    let at = at % (copies.len() - 1);
                    if copies[at].landed != copies[at + 1].landed {
                        continue;
                    }
                    let Copy { run, rows, landed } = copies.remove(at + 1);
                    match copies[at].run.join(run) {
                        Ok(()) => copies[at].rows.extend(rows),
                        Err(run) => copies.insert(at + 1, Copy { run, rows, landed }),
                    }
                }
                Act::Settle(at) if !copies.is_empty() => {
                    let at = at % copies.len();
                    let copy = copies.swap_remove(at);
                    let mut settled = 0;
                    for row in copy.rows {
                        let n = open[row as usize].as_mut().unwrap();
                        *n -= 1;
                        settled += usize::from(*n == 0);
                    }
                    let settlement =
                        if copy.landed { ledger.settle_landed(copy.run) } else { ledger.settle(copy.run) };
                    prop_assert_eq!(settlement.unwrap().rows, settled);
                }
                Act::Land(at) if !copies.is_empty() => {
                    let at = at % copies.len();
                    if !std::mem::replace(&mut copies[at].landed, true) {
                        ledger.land(&copies[at].run).unwrap();
                    }
                }
                Act::TakeOff(at) if !copies.is_empty() => {
                    let at = at % copies.len();
                    if std::mem::replace(&mut copies[at].landed, false) {
                        ledger.take_off(&copies[at].run).unwrap();
                    }
                }
                Act::Advance => {
                    let prefix = open[left..].iter().take_while(|n| n.is_none_or(|n| n == 0)).count();
                    let advance = ledger.advance();
                    prop_assert_eq!(advance.as_ref().map_or(0, |a| a.positions.len()), prefix);
                    if let Some(advance) = advance {
                        prop_assert_eq!(&advance.positions, &positions(left as u64, prefix));
                        left += prefix;
                        prop_assert_eq!(advance.mark.seq, open[..left].iter().flatten().count() as u64);
                    }
                }
                _ => {}
            }
            prop_assert_eq!(ledger.in_flight(), open.iter().flatten().filter(|n| **n > 0).count());
            prop_assert_eq!(ledger.in_flight(), ledger.open_rows());
            let afloat = copies.iter().filter(|copy| !copy.landed).flat_map(|copy| copy.rows.iter());
            let first = afloat.min().map_or(open.len(), |row| *row as usize);
            let gathered = open[..first].iter().flatten().count() as u64;
            prop_assert_eq!(ledger.gathered(), gathered);
            let last = open[..first].iter().rposition(Option::is_some);
            if let Some(last) = last.filter(|last| *last >= left) {
                let mark = ledger.mark_at(gathered - 1).unwrap();
                prop_assert_eq!((mark.seq, mark.position), (gathered, position(last as u64)));
            }
        }
        for copy in copies {
            ledger.settle(copy.run).unwrap();
        }
        ledger.advance();
        prop_assert!(ledger.is_empty());
    }
}
