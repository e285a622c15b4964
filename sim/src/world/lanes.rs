//! Partitions of sources: what was read of them, is stored and acknowledged, and whether they are revoked.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_plugin::state::Receipt;
use anabranch_record::Position;
use anabranch_record::mark::{LaneId, Mark, Partition};
use tokio::time::Instant;

use super::{State, World};
use crate::oracle::{Copy, RequiredOutcome};
use crate::scenario::{Upstream, mix};

/// Time after which a revoked partition gets no acknowledgements any more: five seconds, the duration of a commit, and
/// the retries of its acknowledgement.
const REVOKED: Duration = Duration::from_secs(15);

/// A partition of a source.
pub struct SourcePartition {
    /// Id.
    pub id: LaneId,
    /// Index of the source.
    pub source: usize,
    /// The required outcome of each row.
    pub fates: Vec<RequiredOutcome>,
    /// The next row to read in this run.
    pub next: u32,
    /// Number of rows that are stored as settled.
    pub stored: u32,
    /// Number of rows that are acknowledged.
    pub acked: u32,
    /// Number of rows read in this run, including rows that were read again.
    read: usize,
    /// Positions read in this run and not acknowledged.
    unacked: VecDeque<Position>,
    /// Time at which the partition was revoked.
    revoked: Option<Instant>,
    /// `true` if the partition is assigned again and waits for the position to resume from.
    returning: bool,
    /// `true` if the partition came back in this run and its rows are read again. Both copies of a row can be in
    /// flight.
    pub(super) again: bool,
}

impl SourcePartition {
    pub(super) fn new(id: LaneId, source: usize, fates: Vec<RequiredOutcome>) -> SourcePartition {
        SourcePartition {
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

    /// Returns the number of rows that a mark covers; `None` if its count and position do not match.
    pub fn rows_upto(&self, mark: &Mark) -> Option<u32> {
        let row = row_of(&mark.position)?;
        let rows = mark.seq as u32;
        // Two rows may have the same position.
        (rows > 0 && (row + 1 == rows || row + 2 == rows && row.is_multiple_of(2))).then_some(rows)
    }
}

/// Returns the first row to check when a lane moves to a mark: row 0 if the lane goes back.
fn lane_start(lane: &SourcePartition, mark: &Mark) -> u32 {
    lane.rows_upto(mark).filter(|upto| *upto < lane.stored).map_or(lane.stored, |_| 0)
}

impl Upstream {
    /// Returns the position of a row of a lane of this source.
    pub fn position(&self, lane: usize, row: u32) -> Position {
        position(lane, if self.twins { row & !1 } else { row }, b'r')
    }
}

/// Returns the position of a row, or the one after it that comes without a record.
pub fn position(lane: usize, row: u32, kind: u8) -> Position {
    let [a, b, c, d] = row.to_be_bytes();
    Position::copy_from(&[lane as u8, a, b, c, d, kind])
}

fn row_of(position: &Position) -> Option<u32> {
    let [_, a, b, c, d, _] = position.0[..] else { return None };
    Some(u32::from_be_bytes([a, b, c, d]))
}

/// Returns the record of a row.
pub fn first(lane: usize, row: u32) -> Copy {
    let id = mix(lane as u64 + 1, u64::from(row) + 1);
    Copy { id, mark: (id % 3) as u8 }
}

impl World {
    /// Revokes a partition.
    pub fn revoked(&self, lane: usize) -> Partition {
        let mut state = self.lock();
        state.note(|| format!("lane {lane} is assigned to another consumer"));
        let lane = &mut state.lanes[lane];
        lane.revoked = Some(Instant::now());
        let partition = lane.id.partition.clone();
        if state.nothing_to_do() {
            self.orders.notify_one();
        }
        partition
    }

    /// Counts rows that are read of a lane, with this weight each.
    pub fn holds(&self, lane: usize, rows: usize, weight: usize) {
        let mut state = self.lock();
        state.lanes[lane].read += rows;
        let scenario = state.scenario.clone();
        let Some(progress) = state.progress.clone().filter(|_| scenario.held_bytes < 1 << 20) else { return };
        let settled: u64 = progress.lanes().iter().map(|lane| lane.settled).sum();
        let open = state.lanes.iter().map(|lane| lane.read).sum::<usize>() - settled as usize;
        // Each source can fill the free space and add one larger row.
        let most = scenario.sources.len() * (scenario.held_bytes + weight);
        if open * weight > most {
            self.broken(&mut state, || format!("{open} rows of {weight} bytes are held, {most} bytes may be"));
        }
    }

    /// Returns the marks of all lanes.
    pub fn marks(&self) -> BTreeMap<LaneId, Mark> {
        self.lock().marks.clone()
    }

    /// Returns the confirmations of transactional destinations.
    pub fn receipts(&self) -> Vec<Receipt> {
        self.lock().receipts.clone()
    }

    /// Stores marks.
    pub fn store(&self, moves: &[(LaneId, Mark)], receipts: &[Receipt]) {
        let mut state = self.lock();
        let state = &mut *state;
        for receipt in receipts {
            state.receipts.retain(|old| (&old.destination, &old.lane) != (&receipt.destination, &receipt.lane));
            state.receipts.push(receipt.clone());
        }
        for (id, mark) in moves {
            let Some(lane) = state.lanes.iter().position(|lane| lane.id == *id) else {
                return self.broken(state, || format!("a mark of lane {id:?}, which does not exist"));
            };
            let mut before = state.lanes[lane].stored;
            if state
                .destinations
                .iter()
                .any(|destination| destination.went_back && destination.marks.get(id) == Some(mark))
            {
                // The source resumes from the marks of such a destination; no other destination may have less.
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

    /// Adds positions that are read.
    pub fn read(&self, lane: usize, positions: impl IntoIterator<Item = Position>) {
        self.lock().lanes[lane].unacked.extend(positions);
    }

    /// Resumes a returned partition after a mark.
    pub fn resumes(&self, lane: usize, mark: Option<&Mark>) {
        let mut state = self.lock();
        state.note(|| format!("lane {lane} resumes after {mark:?}"));
        let stored = state.marks.get(&state.lanes[lane].id).cloned();
        let at = &mut state.lanes[lane];
        let from = mark.map_or(Some(0), |mark| at.rows_upto(mark));
        if !at.returning || mark != stored.as_ref() || from != Some(at.acked) {
            let acked = at.acked;
            return self.broken(&mut state, || {
                format!("lane {lane} resumes after {mark:?}, {stored:?} is stored, {acked} rows are acknowledged")
            });
        }
        at.again |= at.next > at.acked;
        (at.next, at.revoked, at.returning) = (at.acked, None, false);
        at.unacked.clear();
    }

    /// Acknowledges positions to a source.
    pub fn acked(&self, source: usize, partition: &Partition, positions: &[Position]) {
        let mut state = self.lock();
        if state.fence_reported {
            return self.broken(&mut state, || "a run that another run has fenced acknowledges".to_owned());
        }
        let lanes = &mut state.lanes;
        let Some(lane) = lanes.iter_mut().find(|lane| lane.source == source && lane.id.partition == *partition) else {
            return self.broken(&mut state, || format!("an acknowledgement for partition {partition:?}"));
        };
        // With threads, the paused clock advances independently of the work, so its times mean nothing.
        let late = lane.revoked.is_some_and(|since| since.elapsed() > REVOKED) && !self.scenario.has_threads();
        if late && !lane.returning {
            return self.broken(&mut state, || format!("{positions:?} are assigned to another consumer for long"));
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
    /// Returns `true` if everything that was read is acknowledged, and no source has more.
    pub fn all_acknowledged(&self) -> bool {
        self.lanes.iter().all(|lane| lane.stored as usize == lane.fates.len() && lane.unacked.is_empty())
    }

    /// Returns a row that is stored as settled but not durable.
    pub fn unsafe_row(&self) -> Option<(usize, u32)> {
        let rows = self.lanes.iter().enumerate().flat_map(|(at, lane)| (0..lane.stored).map(move |row| (at, row)));
        rows.into_iter().find(|(lane, row)| !self.is_durable(&self.lanes[*lane].fates[*row as usize], &[]))
    }

    /// Like [`State::all_acknowledged`], without revoked partitions.
    pub fn nothing_to_do(&self) -> bool {
        let mut ours = self.lanes.iter().filter(|lane| lane.revoked.is_none());
        ours.all(|lane| lane.stored as usize == lane.fates.len() && lane.unacked.is_empty())
    }

    /// Returns lanes with positions that were read and not acknowledged.
    pub fn unacknowledged(&self) -> Vec<usize> {
        let unacknowledged =
            |lane: &usize| !self.lanes[*lane].unacked.is_empty() && self.lanes[*lane].revoked.is_none();
        (0..self.lanes.len()).filter(unacknowledged).collect()
    }

    /// Returns `true` if rows were read more than once in this run.
    pub fn reads_again(&self) -> bool {
        self.lanes.iter().any(|lane| lane.again)
    }

    /// Assigns a revoked partition again.
    pub fn returns(&mut self, lane: usize) -> Partition {
        self.note(|| format!("lane {lane} comes back"));
        let lane = &mut self.lanes[lane];
        lane.returning = true;
        lane.id.partition.clone()
    }
}
