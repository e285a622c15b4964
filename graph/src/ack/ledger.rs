//! Ledger of one lane.

use std::collections::VecDeque;
use std::ops::Range;

use anabranch_record::Position;
use anabranch_record::mark::Mark;

use super::credit::{Credit, LaneIndex, Run};

/// More credit was returned, or was to be topped up, than was given out. The engine has a bug, and continuing could
/// acknowledge rows that were not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("credit of segment {segment} is overdrawn")]
pub struct Overdrawn {
    segment: u32,
}

/// Result of taking back credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    /// Number of rows that became settled.
    pub rows: usize,
    /// Bytes of the segments that became settled.
    pub bytes: usize,
}

/// Settled prefix removed from a ledger.
#[derive(Debug, PartialEq, Eq)]
pub struct Advance {
    /// Positions in read order; at least one.
    pub positions: Vec<Position>,
    /// Mark after the last position.
    pub mark: Mark,
}

enum Owed {
    /// All rows owe the same amount. This is the common case while a strip stays whole.
    Uniform(u64),
    /// Amount that each row owes, and the number of rows that owe more than 0.
    PerRow { owed: Box<[u64]>, open: u32 },
}

/// The part of the owed credit that has landed, that is, that a destination holds.
enum Landed {
    /// The same amount for all rows.
    Uniform(u64),
    /// An amount per row.
    PerRow(Box<[u64]>),
}

impl Landed {
    fn of(&self, row: usize) -> u64 {
        match self {
            Landed::Uniform(v) => *v,
            Landed::PerRow(landed) => landed.get(row).copied().unwrap_or(0),
        }
    }

    /// Applies `change` to the landed credit of `range` out of `all` rows. Returns `None` and changes nothing if the
    /// change is impossible.
    fn change(&mut self, range: Range<usize>, all: usize, change: impl Fn(u64) -> Option<u64>) -> Option<()> {
        if range.end > all {
            return None;
        }
        if let Landed::Uniform(v) = self {
            if range.len() == all {
                *v = change(*v)?;
                return Some(());
            }
            *self = Landed::PerRow(vec![*v; all].into_boxed_slice());
        }
        let Landed::PerRow(landed) = self else { return None };
        let landed = &mut landed[range];
        if landed.iter().any(|v| change(*v).is_none()) {
            return None;
        }
        landed.iter_mut().for_each(|v| *v = change(*v).unwrap_or(*v));
        Some(())
    }
}

struct Segment {
    positions: Vec<Position>,
    /// Number of rows: `positions.len()`, or 0 if the position moved without a record.
    rows: u32,
    /// Number of rows of this generation before the segment.
    base: u64,
    bytes: usize,
    owed: Owed,
    landed: Landed,
}

impl Segment {
    fn settled(&self) -> bool {
        matches!(self.owed, Owed::Uniform(0) | Owed::PerRow { open: 0, .. })
    }

    fn open_rows(&self) -> usize {
        match self.owed {
            Owed::Uniform(0) => 0,
            Owed::Uniform(_) => self.rows as usize,
            Owed::PerRow { open, .. } => open as usize,
        }
    }

    fn owes(&self, row: usize) -> u64 {
        match &self.owed {
            Owed::Uniform(v) => *v,
            // A row that does not exist is never settled.
            Owed::PerRow { owed, .. } => owed.get(row).copied().unwrap_or(u64::MAX),
        }
    }

    fn per_row(&mut self) -> (&mut [u64], &mut u32) {
        if let Owed::Uniform(v) = self.owed {
            let open = if v == 0 { 0 } else { self.rows };
            self.owed = Owed::PerRow { owed: vec![v; self.rows as usize].into_boxed_slice(), open };
        }
        match &mut self.owed {
            Owed::PerRow { owed, open } => (owed, open),
            Owed::Uniform(_) => unreachable!("converted above"),
        }
    }
}

/// Credit that the rows of one lane still owe. Not synchronized: the lock of the lanes of the pipeline guards it.
pub struct Ledger {
    lane: LaneIndex,
    generation: u64,
    /// Number of rows of this generation that `advance` has removed.
    seq: u64,
    /// Number of rows of this generation that were read.
    next_seq: u64,
    /// Number of the front segment. Numbers wrap.
    pub(super) front: u32,
    /// Last result of [`Ledger::gathered`].
    gathered: u64,
    /// Number of positions of the front segment that are already removed.
    drained: usize,
    segments: VecDeque<Segment>,
    read: u64,
    settled: u64,
    opened: u64,
    persisted: u64,
}

impl Ledger {
    /// Creates a ledger that continues after `resume`, or starts at the beginning of generation 1.
    pub fn new(lane: LaneIndex, resume: Option<&Mark>) -> Self {
        Ledger {
            lane,
            generation: resume.map_or(1, |mark| mark.generation),
            seq: if mutant!(ResumeForgotten) { 0 } else { resume.map_or(0, |mark| mark.seq) },
            next_seq: resume.map_or(0, |mark| mark.seq),
            front: 0,
            gathered: 0,
            drained: 0,
            segments: VecDeque::new(),
            read: 0,
            settled: 0,
            opened: 0,
            persisted: 0,
        }
    }

    /// Registers rows that were just read, at least one. Their content takes `bytes`. O(1).
    pub fn open(&mut self, positions: Vec<Position>, bytes: usize) -> Run {
        let segment = self.front.wrapping_add(self.segments.len() as u32);
        let rows = positions.len() as u32;
        let base = self.next_seq;
        self.next_seq += u64::from(rows);
        self.read += u64::from(rows);
        self.opened += u64::from(rows);
        let owed = Owed::Uniform(if rows == 0 { 0 } else { u64::from(Credit::full()) });
        self.segments.push_back(Segment { positions, rows, base, bytes, owed, landed: Landed::Uniform(0) });
        Run::whole(self.lane, segment, rows)
    }

    /// Registers a position without a row. It is settled from the start and leaves in order like a row. O(1).
    pub fn open_progress(&mut self, position: Position) {
        self.opened += 1;
        let owed = Owed::Uniform(0);
        let landed = Landed::Uniform(0);
        let base = self.next_seq;
        self.segments.push_back(Segment { positions: vec![position], rows: 0, base, bytes: 0, owed, landed });
    }

    fn segment_mut(&mut self, segment: u32) -> Result<&mut Segment, Overdrawn> {
        let index = segment.wrapping_sub(self.front) as usize;
        self.segments.get_mut(index).ok_or(Overdrawn { segment })
    }

    /// Adds `bytes` to the size of the segment, because copies of its rows grew. They are freed with the segment. O(1).
    ///
    /// # Errors
    /// The rows are settled already.
    pub fn grow(&mut self, run: &Run, bytes: usize) -> Result<(), Overdrawn> {
        let segment = self.segment_mut(run.segment)?;
        if segment.settled() {
            return Err(Overdrawn { segment: run.segment });
        }
        segment.bytes += bytes;
        Ok(())
    }

    /// Takes back the credit of a run. O(1) if the run covers a segment whose rows owe the same amount, else O(rows).
    ///
    /// # Errors
    /// More credit came back than was given out. The ledger is unchanged.
    pub fn settle(&mut self, run: Run) -> Result<Settlement, Overdrawn> {
        let (segment, first, rows, credit) = run.spend();
        let overdrawn = Overdrawn { segment };
        let segment = self.segment_mut(segment)?;
        let end = first + rows as usize;
        if end > segment.rows as usize {
            return Err(overdrawn);
        }
        let newly = match &mut segment.owed {
            Owed::Uniform(owed) if rows == segment.rows => {
                *owed = owed.checked_sub(credit).ok_or(overdrawn)?;
                if *owed == 0 { rows } else { 0 }
            }
            _ => {
                let (owed, open) = segment.per_row();
                let owed = &mut owed[first..end];
                if owed.iter().any(|v| *v < credit) {
                    return Err(overdrawn);
                }
                let mut newly = 0;
                for v in owed {
                    *v -= credit;
                    newly += u32::from(*v == 0 && credit > 0);
                }
                *open -= newly;
                newly
            }
        };
        let bytes = if newly > 0 && segment.settled() { segment.bytes } else { 0 };
        self.settled += u64::from(newly);
        Ok(Settlement { rows: newly as usize, bytes })
    }

    /// Tops up a run whose credit is too small to divide, and increases the debt of its rows by the same amount.
    /// O(rows).
    ///
    /// # Errors
    /// The rows are settled already.
    pub fn lend(&mut self, run: &mut Run) -> Result<(), Overdrawn> {
        let overdrawn = Overdrawn { segment: run.segment };
        if run.credit.0 >= Credit::full() {
            return Ok(());
        }
        let (first, rows) = (run.first as usize, run.source_rows() as usize);
        let before = run.credit_per_source_row();
        run.credit.0 += Credit::full();
        let more = run.credit_per_source_row() - before;
        let segment = self.segment_mut(run.segment)?;
        if first + rows > segment.rows as usize {
            return Err(overdrawn);
        }
        let (owed, _) = segment.per_row();
        for v in &mut owed[first..first + rows] {
            if *v == 0 {
                return Err(overdrawn);
            }
            *v = v.checked_add(if mutant!(LentForNothing) { 0 } else { more }).ok_or(overdrawn)?;
        }
        Ok(())
    }

    /// Removes and returns the settled prefix, including the settled start of the front segment. O(rows removed).
    pub fn advance(&mut self) -> Option<Advance> {
        self.advance_below(u64::MAX)
    }

    /// Like [`Ledger::advance`], limited to the rows below number `limit`. Rows from `limit` on count as open.
    pub fn advance_below(&mut self, limit: u64) -> Option<Advance> {
        let mut positions = Vec::new();
        while let Some(segment) = self.segments.front_mut() {
            let left =
                if segment.settled() || mutant!(WholeSegmentStored) && segment.open_rows() < segment.rows as usize {
                    segment.positions.len()
                } else {
                    let open = |row: &usize| segment.owes(*row) > 0;
                    let mut rows = self.drained..segment.positions.len();
                    match mutant!(GapInPrefix) {
                        true => rows.rfind(|row| !open(row)).map_or(self.drained, |row| row + 1),
                        false => rows.find(open).unwrap_or(self.drained),
                    }
                };
            let below = usize::try_from(limit.saturating_sub(segment.base)).unwrap_or(usize::MAX);
            let cut = segment.rows > 0 && left > below;
            let left = if cut { below.max(self.drained) } else { left };
            if segment.rows > 0 {
                self.seq += (left - self.drained) as u64;
            }
            positions.extend(segment.positions[self.drained..left].iter_mut().map(std::mem::take));
            self.drained = left;
            let leaves = segment.settled() && !cut || mutant!(WholeSegmentStored) && left == segment.positions.len();
            if !leaves {
                break;
            }
            self.segments.pop_front();
            self.front = self.front.wrapping_add(1);
            self.drained = 0;
        }
        if mutant!(EqualPositionsMerge) {
            positions.dedup();
        }
        let position = positions.last()?.clone();
        Some(Advance { positions, mark: Mark { generation: self.generation, seq: self.seq, position } })
    }

    /// Returns `true` if [`Ledger::advance_below`] would remove a row.
    pub fn advances_below(&self, limit: u64) -> bool {
        self.segments.front().is_some_and(|segment| {
            segment.rows == 0 || segment.base + (self.drained as u64) < limit && segment.owes(self.drained) == 0
        })
    }

    /// Notes that the rows of a run arrived at a destination. O(1) if the run covers a segment with equal landed credit
    /// for all rows, else O(rows).
    ///
    /// # Errors
    /// The rows are already settled.
    pub fn land(&mut self, run: &Run) -> Result<(), Overdrawn> {
        self.change_landed(run, u64::checked_add)
    }

    /// Reverses [`Ledger::land`]: the destination hands the rows of a run over to the dead-letter queue.
    ///
    /// # Errors
    /// The rows have not landed.
    pub fn take_off(&mut self, run: &Run) -> Result<(), Overdrawn> {
        let first = self.segment_mut(run.segment)?.base + u64::from(run.first);
        self.gathered = self.gathered.min(first);
        self.change_landed(run, u64::checked_sub)
    }

    /// Takes back credit that has landed.
    ///
    /// # Errors
    /// The errors of [`Ledger::settle`]; or the credit has not landed.
    pub fn settle_landed(&mut self, run: Run) -> Result<Settlement, Overdrawn> {
        self.change_landed(&run, u64::checked_sub)?;
        self.settle(run)
    }

    fn change_landed(&mut self, run: &Run, change: fn(u64, u64) -> Option<u64>) -> Result<(), Overdrawn> {
        let (first, rows, credit) = (run.first as usize, run.source_rows() as usize, run.credit_per_source_row());
        let overdrawn = Overdrawn { segment: run.segment };
        let segment = self.segment_mut(run.segment)?;
        let all = segment.rows as usize;
        segment.landed.change(first..first + rows, all, |landed| change(landed, credit)).ok_or(overdrawn)
    }

    /// Returns the number of the first row that is not gathered. A row is gathered when all of the credit that it owes
    /// has landed. Then no further piece of it can arrive at a destination, and all of its dead letters are durable:
    /// otherwise some of its credit would be neither settled nor at a destination. O(rows gathered since the last
    /// call).
    pub fn gathered(&mut self) -> u64 {
        let mut next = self.gathered.max(self.seq);
        let from = self.segments.partition_point(|segment| segment.base + u64::from(segment.rows) <= next);
        for segment in self.segments.range(from..) {
            let rows = (next - segment.base) as usize..segment.rows as usize;
            match (&segment.owed, &segment.landed) {
                (Owed::Uniform(owed), Landed::Uniform(landed)) if owed == landed => {}
                _ => match rows.clone().find(|row| segment.owes(*row) > segment.landed.of(*row)) {
                    Some(row) if !mutant!(MarksTooFar) => {
                        next = segment.base + row as u64;
                        break;
                    }
                    _ => {}
                },
            }
            next = segment.base + u64::from(segment.rows);
        }
        self.gathered = next;
        next
    }

    /// Returns the mark at which row `seq` is settled and the next row is not. `None` if the row has already left or
    /// was not read yet. O(log segments).
    pub fn mark_at(&self, seq: u64) -> Option<Mark> {
        if seq < self.seq {
            return None;
        }
        let after = self.segments.partition_point(|segment| segment.base + u64::from(segment.rows) <= seq);
        let segment = self.segments.get(after)?;
        let position = segment.positions.get(usize::try_from(seq.checked_sub(segment.base)?).ok()?)?.clone();
        Some(Mark { generation: self.generation, seq: seq + 1, position })
    }

    /// Returns the number, from the start of the generation, of the source row of row `row` of a run. Dead letters are
    /// named by it. O(1).
    pub fn seq_of_row(&self, run: &Run, row: usize) -> u64 {
        let index = run.segment.wrapping_sub(self.front) as usize;
        let in_segment = u64::from(run.first) + run.source_offset(row);
        self.segments.get(index).map_or(self.seq, |segment| segment.base + in_segment)
    }

    /// Returns the generation of the marks.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of the first row that is not settled, as of the last [`Ledger::advance`].
    pub fn watermark(&self) -> u64 {
        self.seq
    }

    /// Returns the number of rows that were read and are not settled.
    pub fn in_flight(&self) -> usize {
        (self.read - self.settled) as usize
    }

    /// Returns the number of rows read since the ledger was created.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Returns the number of rows settled since the ledger was created.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Notes that `positions` positions are stored.
    pub fn persist(&mut self, positions: usize) {
        self.persisted += positions as u64;
    }

    /// Returns the number of positions that were read and are not stored. A crash would repeat them.
    pub fn unpersisted(&self) -> usize {
        (self.opened - self.persisted) as usize
    }

    /// Returns `true` if all rows are settled and removed by `advance`.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Counts the open rows one by one. Equals [`Ledger::in_flight`] if credit was conserved. O(segments).
    pub fn open_rows(&self) -> usize {
        self.segments.iter().map(Segment::open_rows).sum()
    }
}
