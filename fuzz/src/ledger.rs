//! For any fate of the copies of rows, in any order: the ledger returns the positions that are settled according to a
//! count of the copies, in read order, each once, and accepts every valid operation.

use anabranch_graph::ack::{LaneIndex, Ledger, Run};
use anabranch_record::Position;

/// A copy of some rows, in flight or at a destination.
struct Copy {
    run: Run,
    /// For each of its rows, the number of the original row.
    rows: Vec<usize>,
    landed: bool,
}

struct Model {
    ledger: Ledger,
    copies: Vec<Copy>,
    /// Number of unsettled copies per position in read order; `None` if the position moved without a row.
    open: Vec<Option<usize>>,
    /// Number of positions that the ledger has returned.
    left: usize,
}

/// Maximum number of rows of all copies together, because they are counted one by one.
const MOST: usize = 4096;

pub(crate) fn check(input: &[u8]) {
    let mut model = Model { ledger: Ledger::new(LaneIndex(0), None), copies: Vec::new(), open: Vec::new(), left: 0 };
    for act in input.chunks_exact(3).take(512) {
        model.act(act[0], usize::from(act[1]), usize::from(act[2]));
        model.agrees();
    }
    while let Some(copy) = model.copies.pop() {
        model.settle(copy);
    }
    model.advance();
    assert!(model.ledger.is_empty());
    assert_eq!(model.left, model.open.len());
    model.ledger.persist(model.left);
    assert_eq!(model.ledger.unpersisted(), 0);
}

fn position(number: usize) -> Position {
    Position::copy_from(&number.to_be_bytes())
}

impl Model {
    /// Applies operation `of` to copy number `which`; `many` is its size.
    fn act(&mut self, of: u8, which: usize, many: usize) {
        let copies = self.copies.len();
        let at = which % copies.max(1);
        match of % 10 {
            0 => self.read(1 + which % 8),
            1 => {
                self.ledger.open_progress(position(self.open.len()));
                self.open.push(None);
            }
            2 => self.advance(),
            _ if copies == 0 => {}
            3 => self.cut(at, many),
            4 => self.pieces(at, many),
            5 => self.divide(at, 1 + many % 8),
            6 => self.join(at),
            7 => {
                let copy = self.copies.swap_remove(at);
                self.settle(copy);
            }
            8 => {
                let copy = &mut self.copies[at];
                if !std::mem::replace(&mut copy.landed, true) {
                    self.ledger.land(&copy.run).expect("it owes what it holds");
                }
            }
            _ => {
                let copy = &mut self.copies[at];
                if std::mem::replace(&mut copy.landed, false) {
                    self.ledger.take_off(&copy.run).expect("it has landed");
                } else {
                    assert!(self.ledger.land(&copy.run).is_ok());
                    assert!(self.ledger.take_off(&copy.run).is_ok());
                }
            }
        }
    }

    fn read(&mut self, rows: usize) {
        let numbers: Vec<usize> = (self.open.len()..self.open.len() + rows).collect();
        let run = self.ledger.open(numbers.iter().copied().map(position).collect(), rows);
        self.open.extend(numbers.iter().map(|_| Some(1)));
        self.copies.push(Copy { run, rows: numbers, landed: false });
    }

    fn full(&self) -> bool {
        self.copies.iter().map(|copy| copy.rows.len()).sum::<usize>() > MOST
    }

    fn born(&mut self, row: usize, copies: usize) {
        let open = self.open[row].as_mut().expect("a row");
        assert!(*open > 0, "only entries that are not settled are copied");
        *open += copies;
    }

    fn cut(&mut self, at: usize, many: usize) {
        let copy = &mut self.copies[at];
        if copy.rows.len() > 1 {
            let head = 1 + many % (copy.rows.len() - 1);
            let cut = Copy { run: copy.run.cut(head), rows: copy.rows.drain(..head).collect(), landed: copy.landed };
            self.copies.insert(at, cut);
        }
    }

    fn pieces(&mut self, at: usize, many: usize) {
        if self.copies[at].landed || self.full() {
            return;
        }
        let Copy { run, rows, .. } = self.copies.remove(at);
        match run.pieces(many as u32) {
            Ok((first, rest)) => {
                assert!(rows.len() == 1 && many > 0);
                self.born(rows[0], many - 1);
                for run in [Some(first), rest].into_iter().flatten() {
                    self.copies.push(Copy { rows: vec![rows[0]; run.rows()], run, landed: false });
                }
            }
            Err(mut run) => {
                assert_eq!(run.rows(), rows.len());
                self.ledger.lend(&mut run).expect("it is open");
                self.copies.insert(at, Copy { run, rows, landed: false });
            }
        }
    }

    fn divide(&mut self, at: usize, many: usize) {
        if self.copies[at].landed || self.full() {
            return;
        }
        let copy = &mut self.copies[at];
        let others = match copy.run.divide(many as u32) {
            Some(others) => others,
            None => {
                self.ledger.lend(&mut copy.run).expect("it is open");
                copy.run.divide(many as u32).expect("enough was lent")
            }
        };
        assert_eq!(others.len(), many - 1);
        let rows = copy.rows.clone();
        for row in &rows {
            self.born(*row, many - 1);
        }
        self.copies.extend(others.into_iter().map(|run| Copy { run, rows: rows.clone(), landed: false }));
    }

    fn join(&mut self, at: usize) {
        if at + 1 >= self.copies.len() || self.copies[at].landed != self.copies[at + 1].landed {
            return;
        }
        let Copy { run, rows, landed } = self.copies.remove(at + 1);
        match self.copies[at].run.join(run) {
            Ok(()) => self.copies[at].rows.extend(rows),
            Err(run) => self.copies.insert(at + 1, Copy { run, rows, landed }),
        }
    }

    fn settle(&mut self, Copy { run, rows, landed }: Copy) {
        let mut settled = 0;
        for row in rows {
            let open = self.open[row].as_mut().expect("a row");
            *open -= 1;
            settled += usize::from(*open == 0);
        }
        let settlement = if landed { self.ledger.settle_landed(run) } else { self.ledger.settle(run) };
        assert_eq!(settlement.expect("it owes what it holds").rows, settled);
    }

    fn advance(&mut self) {
        let prefix = self.open[self.left..].iter().take_while(|open| open.is_none_or(|open| open == 0)).count();
        let Some(advance) = self.ledger.advance() else { return assert_eq!(prefix, 0) };
        let expected: Vec<Position> = (self.left..self.left + prefix).map(position).collect();
        assert_eq!(advance.positions, expected);
        self.left += prefix;
        assert_eq!(advance.mark.seq as usize, self.open[..self.left].iter().flatten().count());
        assert_eq!(Some(&advance.mark.position), expected.last());
    }

    /// Compares the state of the ledger with the model.
    fn agrees(&mut self) {
        let open = self.open.iter().flatten().filter(|open| **open > 0).count();
        assert_eq!((self.ledger.in_flight(), self.ledger.open_rows()), (open, open));
        let afloat = self.copies.iter().filter(|copy| !copy.landed).flat_map(|copy| &copy.rows).min();
        let gathered = &self.open[..afloat.copied().unwrap_or(self.open.len())];
        let rows = gathered.iter().flatten().count() as u64;
        assert_eq!(self.ledger.gathered(), rows);
        if let Some(last) = gathered.iter().rposition(Option::is_some).filter(|last| *last >= self.left) {
            let mark = self.ledger.mark_at(rows - 1).expect("the row has not left");
            assert_eq!((mark.seq, mark.position), (rows, position(last)));
        }
    }
}
