//! The lanes of a pipeline: their ledgers behind one lock, notifications for readers, and the schedule of commits.

mod handover;
mod landing;
mod unstored;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anabranch_plugin::source::Room;
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};

use super::progress::{LaneProgress, Progress};
use crate::ack::{Advance, LaneIndex, Ledger, Overdrawn, Run, Settlement};
use crate::batch::Lineage;
use crate::codes;
use crate::sync::{Mutex, MutexGuard, Notify};

pub(super) use handover::{Change, Released};
pub(super) use landing::RunLocation;
use unstored::Unstored;

/// Urgency of storing the settled prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// Nothing was settled since the last commit.
    Never,
    /// A commit is due within the commit interval.
    Soon,
    /// A source has nothing more to read at present: a commit is due after the minimum interval since the last one.
    Idle,
    /// Half of a window is used: a commit is due immediately.
    Now,
}

/// Ownership of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneOwnership {
    /// The run owns the lane: its rows are delivered, stored and acknowledged. This also holds for a limited time after
    /// the partition is revoked.
    Ours,
    /// Another instance owns the partition: the run does not write its rows in a transaction, store its positions or
    /// acknowledge them. A commit that has begun is completed.
    Abandoned,
    /// Like `Abandoned`, and positions that a running commit has stored are not acknowledged either.
    Lost,
    /// The partition is being assigned again: rows are not written in a transaction; settled rows are stored, and not
    /// acknowledged, because the source knows that the partition was given up.
    Returning,
    /// The partition was assigned again and continues in another lane.
    Replaced,
}

struct Lane {
    /// Number of lanes opened by the run, up to and including this one. Identifies the lane.
    opened: u64,
    id: LaneId,
    source: usize,
    /// True if the source replays exactly.
    exact: bool,
    ledger: Ledger,
    /// True if the source has nothing more to read at present.
    idle: bool,
    hold: LaneOwnership,
    /// Number of running transactions with rows of the lane.
    writing: usize,
    /// Number of writers that may still refer to the lane although its rows are settled.
    pins: usize,
    /// Bytes of positions that were read and are not stored, as far as they count towards the bytes held.
    positions: usize,
    /// True while a part of the lane is being stored and acknowledged.
    committing: bool,
    /// True from the revocation of the partition until the lane is given up.
    leaving: bool,
    /// True if rows of the partition that was taken away are left to its next owner: they were read and not taken, or
    /// abandoned.
    left_rows: bool,
    /// True if the source has no more records of the partition.
    finished: bool,
    /// Number of the first abandoned row: settled but not written. This row and later rows are never stored.
    given_up: u64,
    stored: Option<Mark>,
    /// Read times of the positions that are not stored.
    unstored: Unstored,
    progress: Arc<LaneProgress>,
}

/// Returns the total size of positions in bytes.
fn weight(positions: &[Position]) -> usize {
    positions.iter().map(|position| position.0.len()).sum()
}

impl Lane {
    /// Returns `true` if nothing refers to the lane, so that its index can be reused.
    fn is_gone(&self) -> bool {
        self.hold == LaneOwnership::Replaced
            && self.ledger.is_empty()
            && self.pins == 0
            && self.writing == 0
            && !self.committing
    }

    /// Removes up to `bytes` bytes of positions from the bytes held, and returns the number removed.
    fn release(&mut self, bytes: usize) -> usize {
        let released = bytes.min(self.positions);
        self.positions -= released;
        released
    }

    /// Publishes the read time of the oldest position that is not stored.
    fn show_unstored(&self) {
        let since = if self.hold == LaneOwnership::Ours { self.unstored.since() } else { 0 };
        self.progress.unstored_since.store(since, Ordering::Relaxed);
    }
}

struct State {
    lanes: Vec<Lane>,
    /// Finished lanes whose marks are not removed yet.
    finishing: BTreeMap<LaneId, LaneIndex>,
    /// Changes that the next commit carries out.
    changes: Vec<Change>,
    /// Partitions that were given up, to be reported to their sources.
    released: Vec<Released>,
    /// Partitions whose release is being reported.
    reporting: Vec<Released>,
    /// Indices in `lanes` that can be reused.
    free: Vec<LaneIndex>,
    /// Number of lanes opened so far.
    opened: u64,
    /// Bytes of segments with open rows, and of positions that are not stored.
    held: usize,
    due: Due,
}

/// The settled prefix of a lane, to be stored and acknowledged.
pub(super) struct SettledPrefix {
    pub(super) lane: LaneIndex,
    pub(super) id: LaneId,
    pub(super) source: usize,
    pub(super) advance: Advance,
    /// True if the source knows that the lane was given up, so that nothing is acknowledged.
    pub(super) released: bool,
}

/// Identification of a failed copy of a row.
pub(super) struct CopyOrigin {
    pub(super) lane: LaneIndex,
    /// Distinguishes the lane from earlier lanes with the same index.
    pub(super) opened: u64,
    pub(super) id: LaneId,
    pub(super) generation: u64,
    /// Number of the row in its lane.
    pub(super) seq: u64,
}

pub(super) struct Lanes {
    state: Mutex<State>,
    commit: Notify,
    room: Notify,
    /// True if the ledgers track which rows are at a destination, that is, if a destination is transactional.
    landing: bool,
    /// Notified when more rows may be gathered.
    gathered: Notify,
    replay_rows: usize,
    held_bytes: usize,
    progress: Arc<Progress>,
}

impl State {
    fn add(
        &mut self,
        source: usize,
        id: LaneId,
        resume: Option<Mark>,
        exact: bool,
        progress: Arc<LaneProgress>,
    ) -> Result<LaneIndex, Fault> {
        let free = self.free.pop();
        let index = match free {
            Some(index) => index.0,
            None => u16::try_from(self.lanes.len()).map_err(|_| {
                Fault::fatal(codes::TOO_MANY_LANES, "a pipeline can have at most 65536 partitions in a run")
            })?,
        };
        self.opened += 1;
        let lane = Lane {
            opened: self.opened,
            ledger: Ledger::new(LaneIndex(index), resume.as_ref()),
            progress,
            id,
            source,
            exact,
            idle: false,
            hold: LaneOwnership::Ours,
            writing: 0,
            pins: 0,
            positions: 0,
            committing: false,
            leaving: false,
            left_rows: false,
            finished: false,
            given_up: u64::MAX,
            stored: resume,
            unstored: Unstored::default(),
        };
        match free {
            Some(_) => self.lanes[usize::from(index)] = lane,
            None => self.lanes.push(lane),
        }
        Ok(LaneIndex(index))
    }

    /// Removes settled rows of a replaced lane without storing their positions. Frees the index of a lane without rows.
    fn clear_replaced(&mut self, index: LaneIndex) {
        let lane = &mut self.lanes[usize::from(index.0)];
        if lane.hold != LaneOwnership::Replaced {
            return;
        }
        if let Some(advance) = lane.ledger.advance() {
            self.held -= lane.release(weight(&advance.positions));
        }
        if lane.is_gone() && !self.free.contains(&index) {
            self.held -= lane.release(usize::MAX);
            self.free.push(index);
        }
    }
}

impl Lanes {
    pub(super) fn new(replay_rows: usize, held_bytes: usize, landing: bool, progress: Arc<Progress>) -> Self {
        let state = State {
            lanes: Vec::new(),
            finishing: BTreeMap::new(),
            changes: Vec::new(),
            released: Vec::new(),
            reporting: Vec::new(),
            free: Vec::new(),
            opened: 0,
            held: 0,
            due: Due::Never,
        };
        Lanes {
            state: Mutex::new(state),
            commit: Notify::new(),
            room: Notify::new(),
            landing,
            gathered: Notify::new(),
            replay_rows: if mutant!(WindowUnbounded) { usize::MAX >> 1 } else { replay_rows.max(1) },
            held_bytes,
            progress,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn raise(&self, state: &mut State, due: Due) {
        if due > state.due {
            state.due = due;
            self.commit.notify_one();
        }
    }

    /// Adds a lane that continues after `resume`. `exact` is `true` if its source replays exactly.
    pub(super) fn add(
        &self,
        source: usize,
        id: LaneId,
        resume: Option<&Mark>,
        exact: bool,
    ) -> Result<LaneIndex, Fault> {
        let progress = self.progress.add_lane(id.clone(), resume.map_or(0, |mark| mark.seq));
        self.lock().add(source, id, resume.cloned(), exact, progress)
    }

    /// Opens one segment per strip, under one lock. The bytes of a strip include those of its positions.
    pub(super) fn open(
        &self,
        lane: LaneIndex,
        strips: impl Iterator<Item = (Vec<Position>, usize)>,
        mut take: impl FnMut(Run),
    ) {
        let now = self.progress.clock.now();
        let mut state = self.lock();
        let state = &mut *state;
        let lane = &mut state.lanes[usize::from(lane.0)];
        lane.idle = false;
        for (positions, bytes) in strips {
            lane.unstored.add(positions.len() as u64, now);
            // The bytes of the content are released when the rows are settled, those of the positions when they are
            // stored.
            let of_positions = weight(&positions);
            let content = bytes.saturating_sub(of_positions);
            lane.positions += of_positions;
            state.held += content + of_positions;
            lane.progress.read.fetch_add(positions.len() as u64, Ordering::Relaxed);
            take(lane.ledger.open(positions, content));
        }
        lane.show_unstored();
    }

    /// Registers a position that moved without a record.
    pub(super) fn progress(&self, lane: LaneIndex, position: Position) {
        let now = self.progress.clock.now();
        let mut state = self.lock();
        let of_position = position.0.len();
        let lane = &mut state.lanes[usize::from(lane.0)];
        lane.ledger.open_progress(position);
        lane.positions += of_position;
        lane.unstored.add(1, now);
        lane.show_unstored();
        state.held += of_position;
        self.raise(&mut state, Due::Soon);
    }

    /// Notes that the source has nothing more to read at present.
    pub(super) fn caught_up(&self, source: usize) {
        let mut state = self.lock();
        let mut waiting = false;
        for lane in state.lanes.iter_mut().filter(|lane| lane.source == source) {
            lane.idle = true;
            waiting |= lane.ledger.in_flight() == 0 && lane.ledger.unpersisted() > 0;
        }
        if waiting {
            self.raise(&mut state, Due::Idle);
        }
    }

    /// Adds the growth of rows to the bytes held, until the segments of the rows are settled. Does not wait for room:
    /// the rows already exist, and only a source can be made to wait.
    pub(super) fn grow(&self, lineage: &Lineage, bytes: usize) -> Result<(), Fault> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let (mut rows, mut left) = (lineage.rows(), bytes);
        for run in lineage.runs() {
            let share = left / rows.max(1) * run.rows() + left % rows.max(1);
            let ledger = &mut state.lanes[usize::from(run.lane().0)].ledger;
            ledger.grow(run, share)?;
            state.held += share;
            (rows, left) = (rows - run.rows(), left - share);
        }
        Ok(())
    }

    /// Takes back all credit of a lineage whose copies were filtered or dead-lettered.
    pub(super) fn settle(&self, lineage: Lineage) -> Result<(), Fault> {
        self.take_back(lineage, Ledger::settle)
    }

    fn take_back(
        &self,
        lineage: Lineage,
        settle: fn(&mut Ledger, Run) -> Result<Settlement, Overdrawn>,
    ) -> Result<(), Fault> {
        if lineage.is_empty() {
            return Ok(());
        }
        let mut guard = self.lock();
        let state = &mut *guard;
        let held_before = state.held;
        let mut due = Due::Never;
        for run in lineage.settle_runs() {
            let index = run.lane();
            let lane = &mut state.lanes[usize::from(index.0)];
            let settlement = settle(&mut lane.ledger, run)?;
            state.held -= if mutant!(BytesLeak) { 0 } else { settlement.bytes };
            if settlement.rows > 0 {
                lane.progress.settled.fetch_add(settlement.rows as u64, Ordering::Relaxed);
                if lane.hold == LaneOwnership::Replaced {
                    state.clear_replaced(index);
                    continue;
                }
                due = due.max(if lane.ledger.unpersisted() * 2 >= self.replay_rows {
                    Due::Now
                } else if lane.idle && lane.ledger.in_flight() == 0 {
                    Due::Idle
                } else {
                    Due::Soon
                });
            }
        }
        self.raise(state, due);
        let room = held_before >= self.held_bytes && state.held < self.held_bytes;
        drop(guard);
        if room {
            self.room.notify_waiters();
        }
        if self.landing {
            self.gathered.notify_waiters();
        }
        Ok(())
    }

    /// Registers rows that a destination accepted and will make durable when it is flushed.
    pub(super) fn accepted(&self, lineage: &Lineage) {
        let mut state = self.lock();
        let mut due = Due::Soon;
        for run in lineage.runs() {
            let lane = &state.lanes[usize::from(run.lane().0)];
            if lane.ledger.unpersisted() * 2 >= self.replay_rows {
                due = Due::Now;
            } else if lane.idle {
                due = due.max(Due::Idle);
            }
        }
        self.raise(&mut state, due);
    }

    /// Tops up the credit of a run.
    pub(super) fn lend(&self, run: &mut Run) -> Result<(), Overdrawn> {
        self.lock().lanes[usize::from(run.lane().0)].ledger.lend(run)
    }

    /// Returns the origin of every row of a lineage.
    pub(super) fn origins(&self, lineage: &Lineage) -> Vec<CopyOrigin> {
        let state = self.lock();
        let mut origins = Vec::with_capacity(lineage.rows());
        for run in lineage.runs() {
            let lane = &state.lanes[usize::from(run.lane().0)];
            origins.extend((0..run.rows()).map(|row| CopyOrigin {
                lane: run.lane(),
                opened: lane.opened,
                id: lane.id.clone(),
                generation: lane.ledger.generation(),
                seq: lane.ledger.seq_of_row(run, row),
            }));
        }
        origins
    }

    /// Returns the number of the first row of a lineage in its lane.
    pub(super) fn first_row(&self, lineage: &Lineage) -> u64 {
        let state = self.lock();
        let first = lineage.runs().first();
        first.map_or(0, |run| state.lanes[usize::from(run.lane().0)].ledger.seq_of_row(run, 0))
    }

    /// Waits for room, and returns how much the source may read.
    pub(super) async fn room(&self, source: usize) -> Room {
        self.when_room(|state| {
            let window = |lane: &Lane| self.replay_rows.saturating_sub(lane.ledger.unpersisted());
            let is_read = |lane: &&Lane| {
                lane.source == source && lane.hold == LaneOwnership::Ours && !lane.finished && !lane.leaving
            };
            let lanes = state.lanes.iter().filter(is_read);
            // A source with several partitions may read as long as one of them has room.
            let rows = lanes.map(window).max().unwrap_or(self.replay_rows);
            let bytes =
                if state.held == 0 { self.held_bytes.max(1) } else { self.held_bytes.saturating_sub(state.held) };
            let bytes = if mutant!(BytesUnbounded) { usize::MAX } else { bytes };
            (rows > 0 && bytes > 0).then_some(Room { rows, bytes })
        })
        .await
    }

    /// Waits until the window of a lane has room for this many rows, or its partition is taken away. An empty window
    /// accepts any number.
    pub(super) async fn lane_room(&self, lane: LaneIndex, rows: usize) {
        self.when_room(|state| {
            let lane = &state.lanes[usize::from(lane.0)];
            let is_away = (lane.leaving || lane.hold != LaneOwnership::Ours) && !mutant!(RoomOfLostAwaited);
            let unpersisted = lane.ledger.unpersisted();
            (is_away || unpersisted == 0 || unpersisted + rows <= self.replay_rows).then_some(())
        })
        .await;
    }

    async fn when_room<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if let Some(found) = ready(&mut self.lock()) {
                return found;
            }
            room.await;
        }
    }

    /// Waits until a commit is due with a higher urgency than `than`, and returns the urgency.
    pub(super) async fn due(&self, than: Due) -> Due {
        loop {
            let due = self.lock().due;
            if due > than {
                return due;
            }
            self.commit.notified().await;
        }
    }

    /// Resets the urgency, so that rows settled from here on make the next commit due.
    pub(super) fn begin_commit(&self) {
        self.lock().due = Due::Never;
    }

    /// Removes and returns the settled prefix of every lane.
    pub(super) fn advance(&self) -> Vec<SettledPrefix> {
        let mut state = self.lock();
        let held = |lane: &Lane| match lane.hold {
            LaneOwnership::Ours | LaneOwnership::Returning => true,
            LaneOwnership::Lost => mutant!(LostIsStored),
            LaneOwnership::Abandoned | LaneOwnership::Replaced => false,
        };
        let lanes = state.lanes.iter_mut().enumerate().filter(|(_, lane)| held(lane));
        lanes
            .filter_map(|(index, lane)| {
                let advance = lane.ledger.advance_below(lane.given_up)?;
                lane.committing = true;
                let released = lane.hold == LaneOwnership::Returning;
                let (id, source) = (lane.id.clone(), lane.source);
                Some(SettledPrefix { lane: LaneIndex(index as u16), id, source, advance, released })
            })
            .collect()
    }

    /// Notes that these prefixes are stored, which makes room for the same number of rows.
    pub(super) fn persisted(&self, settled: &[SettledPrefix]) {
        let now = self.progress.clock.now();
        self.progress.note_stored(now);
        let mut guard = self.lock();
        let state = &mut *guard;
        for settled in settled {
            let lane = &mut state.lanes[usize::from(settled.lane.0)];
            lane.ledger.persist(settled.advance.positions.len());
            state.held -= lane.release(weight(&settled.advance.positions));
            lane.stored = Some(settled.advance.mark.clone());
            lane.progress.persisted.fetch_add(settled.advance.positions.len() as u64, Ordering::Relaxed);
            lane.unstored.store(settled.advance.positions.len() as u64, |rows, read| {
                self.progress.latency.add(Duration::from_nanos(now.saturating_sub(read)), rows);
            });
            lane.show_unstored();
        }
        drop(guard);
        self.room.notify_waiters();
    }

    /// Notes that the stored positions of these lanes are acknowledged.
    pub(super) fn told(&self, lanes: &[LaneIndex]) {
        let mut state = self.lock();
        for lane in lanes {
            state.lanes[usize::from(lane.0)].committing = false;
        }
        self.raise_if_over(&mut state);
        drop(state);
        self.room.notify_waiters();
    }

    /// Returns the connectors of the lanes with open or unstored rows.
    pub(super) fn left(&self) -> Vec<anabranch_record::text::Str> {
        let state = self.lock();
        let open = |lane: &&Lane| {
            lane.hold == LaneOwnership::Ours && (!lane.ledger.is_empty() || lane.ledger.unpersisted() > 0)
        };
        let mut left: Vec<_> = state.lanes.iter().filter(open).map(|lane| lane.id.connector.clone()).collect();
        left.sort();
        left.dedup();
        left
    }

    /// Returns `true` if a lane was abandoned with open rows.
    pub(super) fn any_abandoned(&self) -> bool {
        self.lock().lanes.iter().any(|lane| lane.hold != LaneOwnership::Ours && !lane.ledger.is_empty())
    }

    /// Returns `true` if everything read in a lane is settled and stored.
    #[cfg(all(test, feature = "loom"))]
    pub(super) fn is_stored(&self, lane: LaneIndex) -> bool {
        let state = self.lock();
        let ledger = &state.lanes[usize::from(lane.0)].ledger;
        ledger.is_empty() && ledger.unpersisted() == 0
    }

    /// Returns `true` if the counters of every ledger match its open rows. O(segments).
    pub(super) fn conserved(&self) -> bool {
        self.lock().lanes.iter().all(|lane| lane.ledger.in_flight() == lane.ledger.open_rows())
    }

    /// Returns the maximum number of lanes at a time.
    #[cfg(test)]
    pub(super) fn places_taken(&self) -> usize {
        self.lock().lanes.len()
    }

    /// Returns the lane id of a partition of a connector.
    pub(super) fn lane_id(connector: &anabranch_record::text::Str, partition: &Partition) -> LaneId {
        LaneId { connector: connector.clone(), partition: partition.clone() }
    }
}
