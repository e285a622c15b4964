//! Partitions of sources: what was read of them, is stored and acknowledged, and whose they are.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_plugin::state::Receipt;
use anabranch_record::Position;
use anabranch_record::mark::{LaneId, Mark, Partition};
use tokio::time::Instant;

use super::{State, World};
use crate::oracle::{Copy, Fate};
use crate::scenario::mix;

/// So long after a partition was revoked at the latest nothing more of it is acknowledged: five seconds, and the time
/// of a commit and of the attempts to acknowledge it.
const REVOKED: Duration = Duration::from_secs(15);

/// A partition of a source.
pub struct Lane {
    /// Its id.
    pub id: LaneId,
    /// Index of the source.
    pub source: usize,
    /// What must become of each row.
    pub fates: Vec<Fate>,
    /// The next row to read in this run.
    pub next: u32,
    /// Rows that are stored as settled.
    pub stored: u32,
    /// Rows that the source was told of.
    pub acked: u32,
    /// Rows read in this run, with those that were read again.
    read: usize,
    /// Positions read in this run and not acknowledged.
    unacked: VecDeque<Position>,
    /// Since when the partition is somebody else's.
    revoked: Option<Instant>,
    /// It is ours again, and waits to be told where it goes on.
    returning: bool,
    /// It came back in this run, and rows are read again: those of both times may be on their way.
    pub(super) again: bool,
}

impl Lane {
    pub(super) fn new(id: LaneId, source: usize, fates: Vec<Fate>) -> Lane {
        Lane {
            id,
            source,
            fates,
            next: 0,
            stored: 0,
            acked: 0,
            read: 0,
            unacked: VecDeque::new(),
            revoked: None,
            returning: false,
            again: false,
        }
    }

    pub(super) fn end_run(&mut self) {
        self.unacked.clear();
        (self.revoked, self.returning, self.again, self.read) = (None, false, false, 0);
    }

    /// How many rows a mark stands for; `None` where count and position do not agree.
    pub fn rows_upto(&self, mark: &Mark) -> Option<u32> {
        let row = row_of(&mark.position)?;
        let rows = mark.seq as u32;
        // Two rows may have the same position.
        (rows > 0 && (row + 1 == rows || row + 2 == rows && row.is_multiple_of(2))).then_some(rows)
    }
}

/// Where rows are looked at from when a lane goes back to a mark: all of them where it goes back at all.
fn lane_start(lane: &Lane, mark: &Mark) -> u32 {
    lane.rows_upto(mark).filter(|upto| *upto < lane.stored).map_or(lane.stored, |_| 0)
}

/// The position of a row, or the one after it that comes without a record.
pub fn position(lane: usize, row: u32, kind: u8) -> Position {
    let [a, b, c, d] = row.to_be_bytes();
    Position::copy_from(&[lane as u8, a, b, c, d, kind])
}

fn row_of(position: &Position) -> Option<u32> {
    let [_, a, b, c, d, _] = position.0[..] else { return None };
    Some(u32::from_be_bytes([a, b, c, d]))
}

/// The record of a row.
pub fn first(lane: usize, row: u32) -> Copy {
    let id = mix(lane as u64 + 1, u64::from(row) + 1);
    Copy { id, mark: (id % 3) as u8 }
}

impl World {
    /// A partition is somebody else's.
    pub fn revoked(&self, lane: usize) -> Partition {
        let mut state = self.lock();
        state.note(|| format!("lane {lane} is somebody else's"));
        let lane = &mut state.lanes[lane];
        lane.revoked = Some(Instant::now());
        let partition = lane.id.partition.clone();
        if state.nothing_to_do() {
            self.orders.notify_one();
        }
        partition
    }

    /// So many rows more of a lane are read, of this weight each.
    pub fn holds(&self, lane: usize, rows: usize, weight: usize) {
        let mut state = self.lock();
        state.lanes[lane].read += rows;
        let scenario = state.scenario.clone();
        let Some(progress) = state.progress.clone().filter(|_| scenario.held_bytes < 1 << 20) else { return };
        let settled: u64 = progress.lanes().iter().map(|lane| lane.settled).sum();
        let open = state.lanes.iter().map(|lane| lane.read).sum::<usize>() - settled as usize;
        // Each source may fill what is free, with a last row that is larger.
        let most = scenario.sources.len() * (scenario.held_bytes + weight);
        if open * weight > most {
            self.broken(&mut state, || format!("{open} rows of {weight} bytes are held, {most} bytes may be"));
        }
    }

    /// The marks of all lanes.
    pub fn marks(&self) -> BTreeMap<LaneId, Mark> {
        self.lock().marks.clone()
    }

    /// What transactional destinations had confirmed.
    pub fn receipts(&self) -> Vec<Receipt> {
        self.lock().receipts.clone()
    }

    /// Marks are stored.
    pub fn store(&self, moves: &[(LaneId, Mark)], receipts: &[Receipt]) {
        let mut state = self.lock();
        let state = &mut *state;
        for receipt in receipts {
            state.receipts.retain(|old| (&old.destination, &old.lane) != (&receipt.destination, &receipt.lane));
            state.receipts.push(receipt.clone());
        }
        for (id, mark) in moves {
            let Some(lane) = state.lanes.iter().position(|lane| lane.id == *id) else {
                return self.broken(state, || format!("a mark of lane {id:?}, which there is not"));
            };
            let mut before = state.lanes[lane].stored;
            if state.shelves.iter().any(|shelf| shelf.went_back && shelf.marks.get(id) == Some(mark)) {
                // The source resumes where such a destination stands; no other one may have less.
                before = before.min(lane_start(&state.lanes[lane], mark));
            }
            let Some(upto) = state.lanes[lane].rows_upto(mark).filter(|upto| *upto >= before) else {
                return self.broken(state, || format!("lane {lane}: stored {mark:?} after {before} rows"));
            };
            let confirmed = if upto > state.lanes[lane].stored { state.confirmed() } else { Vec::new() };
            let missing =
                (before..upto).find(|row| !state.is_durable(&state.lanes[lane].fates[*row as usize], &confirmed));
            if let Some(row) = missing {
                return self.broken(state, || format!("row {row} of lane {lane} is stored as settled and is not safe"));
            }
            state.lanes[lane].stored = upto;
            state.marks.insert(id.clone(), mark.clone());
        }
    }

    /// Positions are read.
    pub fn read(&self, lane: usize, positions: impl IntoIterator<Item = Position>) {
        self.lock().lanes[lane].unacked.extend(positions);
    }

    /// A partition that came back goes on after a mark.
    pub fn goes_on(&self, lane: usize, mark: Option<&Mark>) {
        let mut state = self.lock();
        state.note(|| format!("lane {lane} goes on after {mark:?}"));
        let stored = state.marks.get(&state.lanes[lane].id).cloned();
        let at = &mut state.lanes[lane];
        let from = mark.map_or(Some(0), |mark| at.rows_upto(mark));
        if !at.returning || mark != stored.as_ref() || from != Some(at.acked) {
            let acked = at.acked;
            return self.broken(&mut state, || {
                format!("lane {lane} goes on after {mark:?}, {stored:?} is stored, {acked} rows are acknowledged")
            });
        }
        at.again |= at.next > at.acked;
        (at.next, at.revoked, at.returning) = (at.acked, None, false);
        at.unacked.clear();
    }

    /// A source is told that positions are safe.
    pub fn acked(&self, source: usize, partition: &Partition, positions: &[Position]) {
        let mut state = self.lock();
        if state.told_fenced {
            return self.broken(&mut state, || "a run that is not the owner any more acknowledges".to_owned());
        }
        let lanes = &mut state.lanes;
        let Some(lane) = lanes.iter_mut().find(|lane| lane.source == source && lane.id.partition == *partition) else {
            return self.broken(&mut state, || format!("an acknowledgement for partition {partition:?}"));
        };
        // Beside threads that work the clock runs on, and says nothing of how long it took.
        let late = lane.revoked.is_some_and(|since| since.elapsed() > REVOKED) && !self.scenario.has_threads();
        if late && !lane.returning {
            return self.broken(&mut state, || format!("{positions:?} are somebody else's for long"));
        }
        for position in positions {
            let expected = lane.unacked.pop_front();
            let stored = lane.stored;
            lane.acked = lane.acked.max(row_of(position).map_or(0, |row| row + 1));
            if expected.as_ref() != Some(position) {
                return self.broken(&mut state, || format!("{position:?} is acknowledged instead of {expected:?}"));
            }
            if row_of(position).is_none_or(|row| row >= stored) {
                return self
                    .broken(&mut state, || format!("{position:?} is acknowledged, and {stored} rows are stored"));
            }
        }
        if state.nothing_to_do() && !state.dead {
            self.orders.notify_one();
        }
    }
}

impl State {
    /// Whether everything that was read was acknowledged, and no source has more.
    pub fn all_told(&self) -> bool {
        self.lanes.iter().all(|lane| lane.stored as usize == lane.fates.len() && lane.unacked.is_empty())
    }

    /// A row that is stored as settled and is not safe.
    pub fn unsafe_row(&self) -> Option<(usize, u32)> {
        let rows = self.lanes.iter().enumerate().flat_map(|(at, lane)| (0..lane.stored).map(move |row| (at, row)));
        rows.into_iter().find(|(lane, row)| !self.is_durable(&self.lanes[*lane].fates[*row as usize], &[]))
    }

    /// As [`State::all_told`], without the partitions that are somebody else's.
    pub fn nothing_to_do(&self) -> bool {
        let mut ours = self.lanes.iter().filter(|lane| lane.revoked.is_none());
        ours.all(|lane| lane.stored as usize == lane.fates.len() && lane.unacked.is_empty())
    }

    /// Lanes with positions that were read and not acknowledged.
    pub fn untold(&self) -> Vec<usize> {
        let untold = |lane: &usize| !self.lanes[*lane].unacked.is_empty() && self.lanes[*lane].revoked.is_none();
        (0..self.lanes.len()).filter(untold).collect()
    }

    /// Whether rows were read more than once in this run.
    pub fn reads_again(&self) -> bool {
        self.lanes.iter().any(|lane| lane.again)
    }

    /// A partition that was somebody else's is ours again.
    pub fn returns(&mut self, lane: usize) -> Partition {
        self.note(|| format!("lane {lane} comes back"));
        let lane = &mut self.lanes[lane];
        lane.returning = true;
        lane.id.partition.clone()
    }
}
