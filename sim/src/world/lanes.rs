//! Partitions of sources: what was read of them, is stored and acknowledged, and whether they are revoked.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_graph::mutant::Mutant;
use anabranch_plugin::source::Release;
use anabranch_plugin::state::{Commit, Receipt};
use anabranch_record::Position;
use anabranch_record::mark::{LaneId, Mark, Partition};
use tokio::time::Instant;

use super::group::{Generation, GroupPartition};
use super::{State, World};
use crate::oracle::{Copy, RequiredOutcome};
use crate::scenario::{Upstream, hits, mix};

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
    /// The end of the rows that were ever read.
    pub(super) high: u32,
    /// Number of rows that are stored as settled.
    pub stored: u32,
    /// Highest `stored` in this run, if a later generation began at an earlier row.
    pub(super) stored_before: u32,
    /// Number of rows that are acknowledged.
    pub acked: u32,
    /// Number of rows read in this run, including rows that were read again.
    read: usize,
    /// Number of these rows that were read before the partition was last given up, and do not count as held.
    given_up: usize,
    /// Number of rows of the lane that were settled in this run at that time.
    settled_then: usize,
    /// Positions read in this run and not acknowledged.
    pub(super) unacked: VecDeque<Position>,
    /// Time at which the partition was revoked.
    pub(super) revoked: Option<Instant>,
    /// `true` if the partition was lost and did not resume.
    pub(super) lost: bool,
    /// `true` if the source must learn that the partition was given up.
    pub(super) release_due: bool,
    /// `true` if the source knows that the partition was given up, and has not resumed it.
    pub(super) let_go: bool,
    /// Number of times that the partition was assigned to this process.
    pub(super) assignment: u64,
    /// Generations of the marks.
    pub(super) generations: BTreeMap<u64, Generation>,
    /// The generation that the engine has to begin, because the source does not start after the mark.
    pub(super) elsewhere: Option<Generation>,
    /// The partition in its consumer group.
    pub(super) group: GroupPartition,
    /// `true` if the source has reported the partition as finished in this run.
    finished: bool,
    /// `true` if the source knows that all rows of the finished partition are acknowledged.
    complete: bool,
    /// `true` if the partition is assigned again and waits for the position to resume from.
    pub(super) returning: bool,
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
            high: 0,
            stored: 0,
            stored_before: 0,
            acked: 0,
            read: 0,
            given_up: 0,
            settled_then: 0,
            unacked: VecDeque::new(),
            revoked: None,
            lost: false,
            release_due: false,
            let_go: false,
            assignment: 0,
            generations: BTreeMap::from([(1, Generation::default())]),
            elsewhere: None,
            group: GroupPartition::default(),
            finished: false,
            complete: false,
            returning: false,
            again: false,
        }
    }

    pub(super) fn end_run(&mut self) {
        self.unacked.clear();
        (self.revoked, self.returning, self.again, self.read) = (None, false, false, 0);
        (self.lost, self.finished, self.given_up, self.settled_then) = (false, false, 0, 0);
        (self.release_due, self.let_go, self.elsewhere, self.stored_before) = (false, false, None, 0);
    }

    /// Notes that the rows before `upto` are read.
    pub fn gives(&mut self, upto: u32) {
        self.next = upto;
        self.high = self.high.max(upto);
    }

    /// Opens a partition without a group after a mark. Returns `false` if it does not exist any more.
    pub(super) fn opens(&mut self, mark: Option<&Mark>, finishes: bool) -> bool {
        let exists = !self.complete || mark.is_some();
        self.next = match mark {
            Some(mark) => self.rows_upto(mark).unwrap_or(0),
            None if exists => 0,
            None => self.fates.len() as u32,
        };
        self.acked = self.next;
        // A mark counts as an acknowledgement.
        self.complete |= finishes && mark.is_some() && self.is_read();
        exists
    }

    /// Returns `true` if all rows are read.
    pub fn is_read(&self) -> bool {
        self.next as usize == self.fates.len()
    }

    /// Returns the number of rows that a mark covers; `None` if its count and position do not match in its generation.
    pub fn rows_upto(&self, mark: &Mark) -> Option<u32> {
        let base = self.generations.get(&mark.generation)?.base;
        if mark.seq == 0 {
            return Some(base);
        }
        let row = row_of(&mark.position)?;
        let rows = base + mark.seq as u32;
        // Two rows may have the same position.
        (row + 1 == rows || row + 2 == rows && row.is_multiple_of(2)).then_some(rows)
    }
}

/// Returns the first row to check when a lane moves to a mark: row 0 if the lane goes back.
fn lane_start(lane: &SourcePartition, mark: &Mark) -> u32 {
    lane.rows_upto(mark).filter(|upto| *upto < lane.stored).map_or(lane.stored, |_| 0)
}

impl Upstream {
    /// Returns `true` if the source itself fails a row.
    pub fn fails(&self, row: Copy) -> bool {
        hits(41, row.id, self.fails_rows)
    }

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

pub(super) fn row_of(position: &Position) -> Option<u32> {
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
        lane.revoked.get_or_insert_with(Instant::now);
        lane.returning = false;
        lane.release_due |= !lane.let_go;
        let partition = lane.id.partition.clone();
        if state.nothing_to_do() {
            self.orders.notify_one();
        }
        partition
    }

    /// Takes a partition away without notice. Another member may already read it.
    pub fn lost(&self, lane: usize) -> Partition {
        let partition = self.revoked(lane);
        let mut state = self.lock();
        state.note(|| format!("lane {lane} is lost"));
        let settled = state.settled(lane);
        let at = &mut state.lanes[lane];
        (at.lost, at.given_up, at.settled_then) = (true, at.read, settled);
        self.is_away(&mut state, lane);
        partition
    }

    /// Returns `true` if a partition was lost and did not resume.
    pub fn is_lost(&self, source: usize, partition: &Partition) -> bool {
        let state = self.lock();
        state.lane_of(source, partition).is_some_and(|lane| state.lanes[lane].lost)
    }

    /// Checks marks that are about to be stored: none is of a lost partition. With threads, the partition can be lost
    /// between the decision and the call.
    pub fn check_stored(&self, moves: &[(LaneId, Mark)]) {
        let mut state = self.lock();
        let lost = state.lanes.iter().position(|lane| lane.lost && moves.iter().any(|(id, _)| *id == lane.id));
        if let Some(lane) = lost.filter(|_| !state.threaded && !self.scenario.has_threads()) {
            self.broken(&mut state, || format!("positions of lane {lane} are stored, which is lost"));
        }
    }

    /// Checks an acknowledgement that is about to be sent, like [`World::check_stored`].
    pub fn check_acknowledged(&self, source: usize, partition: &Partition) {
        let mut state = self.lock();
        let lost = state.lane_of(source, partition).filter(|lane| state.lanes[*lane].lost);
        if let Some(lane) = lost.filter(|_| !state.threaded && !self.scenario.has_threads()) {
            self.broken(&mut state, || format!("positions of lane {lane} are acknowledged, which is lost"));
        }
    }

    /// Checks lanes whose marks are about to be removed: all rows are stored and acknowledged.
    pub fn check_removed(&self, drops: &[LaneId]) {
        let mut state = self.lock();
        let is_over = |id: &LaneId| state.lanes.iter().any(|lane| lane.id == *id && lane.finished && lane.complete);
        if let Some(id) = drops.iter().find(|id| !is_over(id)) {
            self.broken(&mut state, || format!("the mark of {id:?} is removed, and not all its rows are acknowledged"));
        }
    }

    /// Checks that a partition is released after its last acknowledgement.
    pub fn check_released(&self, source: usize, partition: &Partition, release: Release) {
        let mut state = self.lock();
        let Some(index) = state.lane_of(source, partition) else { return };
        let settled = state.settled(index);
        let lane = &mut state.lanes[index];
        if release == Release::Abandoned && lane.given_up < lane.read {
            (lane.given_up, lane.settled_then) = (lane.read, settled);
        }
        let is_wrong = match release {
            Release::Finished => !lane.finished || !lane.complete,
            Release::Drained => lane.revoked.is_some() && !lane.returning && !lane.lost && !lane.unacked.is_empty(),
            _ => false,
        };
        if is_wrong {
            return self.broken(&mut state, || format!("lane {index} is released ({release:?}), and rows are open"));
        }
        if release == Release::Finished {
            return;
        }
        if lane.revoked.is_none() {
            return self.broken(&mut state, || format!("lane {index} is released ({release:?}), and this run owns it"));
        }
        (lane.release_due, lane.let_go) = (false, true);
        // A partition that is assigned again during the drain goes to nobody else.
        if !lane.returning {
            self.is_away(&mut state, index);
        }
    }

    /// Counts rows that are read of a lane, with this weight each.
    pub fn holds(&self, lane: usize, rows: usize, weight: usize) {
        let mut state = self.lock();
        state.lanes[lane].read += rows;
        let scenario = state.scenario.clone();
        let Some(progress) = state.progress.clone().filter(|_| scenario.held_bytes < 1 << 20) else { return };
        let counts = progress.lanes();
        let settled: BTreeMap<&LaneId, usize> = counts.iter().map(|lane| (&lane.id, lane.settled as usize)).collect();
        let held = |lane: &SourcePartition| match settled.get(&lane.id) {
            // Rows that were given up may still settle, so there may be more open rows than that.
            Some(settled) => (lane.read - lane.given_up).saturating_sub(settled.saturating_sub(lane.settled_then)),
            // A lane of which the engine removed the mark has no counters any more.
            None if lane.finished && lane.complete => 0,
            None => lane.read - lane.given_up,
        };
        let open: usize = state.lanes.iter().map(held).sum();
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

    /// Stores and removes marks.
    pub fn store(&self, commit: Commit<'_>) {
        let mut state = self.lock();
        let state = &mut *state;
        for receipt in commit.receipts {
            state.receipts.retain(|old| (&old.destination, &old.lane) != (&receipt.destination, &receipt.lane));
            state.receipts.push(receipt.clone());
        }
        for (id, mark) in commit.moves {
            let Some(lane) = state.lanes.iter().position(|lane| lane.id == *id) else {
                return self.broken(state, || format!("a mark of lane {id:?}, which does not exist"));
            };
            if !state.lanes[lane].generations.contains_key(&mark.generation) {
                if let Err(broken) = state.begins(lane, mark) {
                    return self.broken(state, || broken);
                }
                // It may begin at the end of the partition: nothing is read or acknowledged then.
                if state.nothing_to_do() && !state.dead {
                    self.orders.notify_one();
                }
                continue;
            }
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
            let missing = (before..upto).find(|row| !state.is_safe(lane, *row, &confirmed));
            if let Some(row) = missing {
                return self.broken(state, || format!("row {row} of lane {lane} is stored as settled and is not safe"));
            }
            state.lanes[lane].stored = upto;
            state.marks.insert(id.clone(), mark.clone());
        }
        for id in commit.drops {
            state.note(|| format!("the mark of {id:?} is removed"));
            state.marks.remove(id);
            state.receipts.retain(|receipt| receipt.lane != *id);
        }
    }

    /// Adds positions that are read.
    pub fn read(&self, lane: usize, positions: impl IntoIterator<Item = Position>) {
        let mut state = self.lock();
        if state.lanes[lane].elsewhere.is_some() {
            return self.broken(&mut state, || format!("lane {lane} is read before its generation is stored"));
        }
        let positions: Vec<Position> = positions.into_iter().collect();
        state.counts_read(lane, &positions);
        state.lanes[lane].unacked.extend(positions);
    }

    /// Acknowledges positions to a source, in a call that began in this assignment of the partition.
    pub fn acked(&self, source: usize, partition: &Partition, positions: &[Position], assignment: u64) {
        let mut state = self.lock();
        if state.fence_reported {
            return self.broken(&mut state, || "a run that another run has fenced acknowledges".to_owned());
        }
        if anabranch_graph::mutant::is_active(Mutant::AcksCounted) {
            return self.acks_counted(&mut state, source, positions.len());
        }
        let Some(index) = state.lane_of(source, partition) else {
            return self.broken(&mut state, || format!("an acknowledgement for partition {partition:?}"));
        };
        let lane = &mut state.lanes[index];
        if lane.lost {
            // The source drops what arrives while the partition is lost.
            return;
        }
        if lane.assignment != assignment {
            let what = || format!("{positions:?} of an earlier assignment are acknowledged in the current one");
            return self.broken(&mut state, what);
        }
        if lane.let_go {
            return self
                .broken(&mut state, || format!("{positions:?} are acknowledged, and the partition is given up"));
        }
        // With threads, the paused clock advances independently of the work, so its times mean nothing.
        let delay =
            self.scenario.store_delay + 4 * self.scenario.sources[source].group.map_or(0, |group| group.ack_delay);
        let allowed = REVOKED + Duration::from_millis(delay);
        let late = lane.revoked.is_some_and(|since| since.elapsed() > allowed) && !self.scenario.has_threads();
        if late {
            return self.broken(&mut state, || format!("{positions:?} are assigned to another consumer for long"));
        }
        for position in positions {
            let lane = &mut state.lanes[index];
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
            if let Err(broken) = state.commits_offset(index, row_of(position).map_or(0, |row| row + 1)) {
                return self.broken(&mut state, || broken);
            }
        }
        let lane = &mut state.lanes[index];
        lane.complete |= lane.finished && lane.unacked.is_empty();
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
        rows.into_iter().find(|(lane, row)| !self.is_safe(*lane, *row, &[]))
    }

    /// Returns the number of rows of a lane that are settled in this run.
    fn settled(&self, lane: usize) -> usize {
        let counts = self.progress.as_ref().map(|progress| progress.lanes()).unwrap_or_default();
        let count = counts.iter().find(|count| count.id == self.lanes[lane].id);
        count.map_or(0, |count| count.settled as usize)
    }

    /// Returns the index of a partition.
    pub(super) fn lane_of(&self, source: usize, partition: &Partition) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.source == source && lane.id.partition == *partition)
    }

    /// Returns `true` if all rows of a source that were read and not acknowledged are of this lane.
    pub fn holds_only(&self, source: usize, only: usize) -> bool {
        let mut lanes = self.lanes.iter().enumerate().filter(|(_, lane)| lane.source == source);
        lanes.all(|(index, lane)| index == only || lane.unacked.is_empty())
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

    /// Finishes a partition.
    pub fn finishes(&mut self, lane: usize) -> Partition {
        self.note(|| format!("lane {lane} is finished"));
        let lane = &mut self.lanes[lane];
        lane.finished = true;
        lane.complete |= lane.unacked.is_empty();
        lane.id.partition.clone()
    }

    /// Returns a finished partition whose mark is stored.
    pub fn remembered(&self) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.finished && self.marks.contains_key(&lane.id))
    }

    /// Assigns a revoked partition again.
    pub fn returns(&mut self, lane: usize) -> Partition {
        self.note(|| format!("lane {lane} comes back"));
        let lane = &mut self.lanes[lane];
        lane.returning = true;
        lane.id.partition.clone()
    }
}
