//! Rows that have arrived at the destinations, tracked for destinations that write whole source rows in one
//! transaction.
//!
//! A transaction may contain a row, and a mark that covers it, once the row and all rows of its lane before it are
//! *gathered*: all of the credit that they owe is at some destination. A piece that is still at an operator or in a
//! queue owes credit that has not landed. So does a copy whose dead letter is not durable yet, wherever it failed.
//! Therefore a mark never covers a row with pieces still to arrive, or a dead-lettered row before its dead letter is
//! durable. Destinations do not wait for each other to write, only for rows that were read to arrive, so they cannot
//! deadlock.

use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use smallvec::SmallVec;

use super::{LaneOwnership, Lanes};
use crate::ack::{LaneIndex, Ledger, Run};
use crate::batch::Lineage;
use crate::codes;
use crate::sync::Notified;

/// One row number per lane.
pub(in crate::exec) type LastRows = SmallVec<[(LaneIndex, u64); 2]>;

/// Location of the rows of a run in their lane.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec) struct RunLocation {
    /// The lane.
    pub(in crate::exec) lane: LaneIndex,
    /// Number of the source row of the first row.
    pub(in crate::exec) first: u64,
    /// Number of rows in the batch.
    pub(in crate::exec) rows: usize,
    /// True if all rows are pieces of one source row; false if each is a copy of the next one.
    pub(in crate::exec) pieces: bool,
    /// Rows below this number are gathered.
    pub(in crate::exec) gathered: u64,
    /// Rows below this number must not be written, since the destination has them.
    pub(in crate::exec) had: u64,
    /// True if rows of the lane may be written: the run owns it, and they will not be read again.
    pub(in crate::exec) ours: bool,
}

impl Lanes {
    /// Registers rows that arrived at a destination. O(1) if no destination is transactional, else O(runs) as long as
    /// rows stay together.
    pub(in crate::exec) fn land(&self, lineage: &Lineage) -> Result<(), Fault> {
        if !self.landing {
            return Ok(());
        }
        let mut state = self.lock();
        for run in lineage.runs() {
            state.lanes[usize::from(run.lane().0)].ledger.land(run)?;
        }
        drop(state);
        self.gathered.notify_waiters();
        Ok(())
    }

    /// Registers rows that a destination rejected, which become dead letters.
    pub(in crate::exec) fn take_off(&self, lineage: &Lineage) -> Result<(), Fault> {
        if !self.landing {
            return Ok(());
        }
        let mut state = self.lock();
        for run in lineage.runs() {
            state.lanes[usize::from(run.lane().0)].ledger.take_off(run)?;
        }
        Ok(())
    }

    /// Takes back all credit of a lineage that was delivered.
    pub(in crate::exec) fn deliver(&self, lineage: Lineage) -> Result<(), Fault> {
        self.take_back(lineage, if self.landing { Ledger::settle_landed } else { Ledger::settle })
    }

    /// Returns the location of every run of a lineage. `known` returns the mark of a lane at the destination. If the
    /// source replays exactly, the mark determines which rows the destination has. O(runs).
    pub(in crate::exec) fn places<'a>(
        &self,
        lineage: &Lineage,
        known: impl Fn(&LaneId) -> Option<&'a Mark>,
    ) -> Vec<RunLocation> {
        let mut state = self.lock();
        let mut place = |run: &Run| {
            let lane = &mut state.lanes[usize::from(run.lane().0)];
            let gathered = lane.ledger.gathered();
            let generation = lane.ledger.generation();
            let is_same = |had: &&Mark| had.generation == generation || mutant!(OldGenerationCounts);
            let had = known(&lane.id).filter(|had| lane.exact && is_same(had));
            let (had, ours) = (had.map_or(0, |had| had.seq), lane.hold == LaneOwnership::Ours);
            let first = lane.ledger.seq_of_row(run, 0);
            RunLocation { lane: run.lane(), first, rows: run.rows(), pieces: run.is_pieces(), gathered, had, ours }
        };
        lineage.runs().iter().map(&mut place).collect()
    }

    /// Returns the number of rows of each run of a lineage, and the result of `of` for its partition. O(runs).
    pub(in crate::exec) fn by_partition<T>(
        &self,
        lineage: &Lineage,
        of: impl Fn(&Partition) -> T,
    ) -> SmallVec<[(usize, T); 2]> {
        let state = self.lock();
        let runs = lineage.runs().iter();
        runs.map(|run| (run.rows(), of(&state.lanes[usize::from(run.lane().0)].id.partition))).collect()
    }

    /// Returns the last row of each lane in a lineage.
    pub(in crate::exec) fn last_rows(&self, lineage: &Lineage) -> LastRows {
        let state = self.lock();
        let mut last = LastRows::new();
        for run in lineage.runs() {
            let seq = state.lanes[usize::from(run.lane().0)].ledger.seq_of_row(run, run.rows().saturating_sub(1));
            match last.iter_mut().find(|(lane, _)| *lane == run.lane()) {
                Some((_, last)) => *last = seq.max(*last),
                None => last.push((run.lane(), seq)),
            }
        }
        last
    }

    /// Prevents the indices of these lanes from being reused until [`Lanes::unpin`].
    pub(in crate::exec) fn pin(&self, lanes: &LastRows) {
        let mut state = self.lock();
        lanes.iter().for_each(|(lane, _)| state.lanes[usize::from(lane.0)].pins += 1);
    }

    /// Reverses [`Lanes::pin`].
    pub(in crate::exec) fn unpin(&self, lanes: &LastRows) {
        let mut state = self.lock();
        for (lane, _) in lanes {
            state.lanes[usize::from(lane.0)].pins -= 1;
            state.clear_replaced(*lane);
        }
        self.raise_if_over(&mut state);
    }

    /// Returns the marks for which these rows are the last settled ones. The rows are still open.
    pub(in crate::exec) fn marks(&self, last: &LastRows) -> Result<Vec<(LaneId, Mark)>, Fault> {
        let state = self.lock();
        let mark = |(index, seq): &(LaneIndex, u64)| {
            let lane = &state.lanes[usize::from(index.0)];
            let missing =
                || Fault::fatal(codes::MARK_MISSING, format!("row {seq} has left the ledger before it was written"));
            Ok((lane.id.clone(), lane.ledger.mark_at(*seq).ok_or_else(missing)?))
        };
        last.iter().map(mark).collect()
    }

    /// Returns `true` if these rows and all rows before them are gathered.
    pub(in crate::exec) fn are_gathered(&self, last: &LastRows) -> bool {
        let mut state = self.lock();
        last.iter().all(|(index, seq)| {
            let lane = &mut state.lanes[usize::from(index.0)];
            lane.hold != LaneOwnership::Ours || lane.ledger.gathered() > *seq
        })
    }

    /// Registers a transaction with rows of these lanes, until [`Lanes::end_transaction`]. Returns `false` without
    /// registering it if the run does not own one of the lanes.
    pub(in crate::exec) fn begin_transaction(&self, last: &LastRows) -> bool {
        let mut state = self.lock();
        let ours = last.iter().all(|(lane, _)| state.lanes[usize::from(lane.0)].hold == LaneOwnership::Ours);
        if ours {
            last.iter().for_each(|(lane, _)| state.lanes[usize::from(lane.0)].writing += 1);
        }
        ours
    }

    /// Ends a transaction, whatever its outcome.
    pub(in crate::exec) fn end_transaction(&self, last: &LastRows) {
        let mut state = self.lock();
        for (lane, _) in last {
            state.lanes[usize::from(lane.0)].writing -= 1;
            state.clear_replaced(*lane);
        }
        self.raise_if_over(&mut state);
        drop(state);
        self.room.notify_waiters();
    }

    /// Returns the lanes among these that the run does not own.
    pub(in crate::exec) fn gone(&self, last: &LastRows) -> Vec<LaneIndex> {
        let state = self.lock();
        let lanes = last.iter().map(|(lane, _)| *lane);
        lanes.filter(|lane| state.lanes[usize::from(lane.0)].hold != LaneOwnership::Ours).collect()
    }

    /// Abandons rows that are not written because the run does not own their lane. These and later rows are never
    /// stored.
    pub(in crate::exec) fn give_up(&self, lineage: &Lineage) {
        let mut state = self.lock();
        for run in lineage.runs() {
            let lane = &mut state.lanes[usize::from(run.lane().0)];
            if !mutant!(GivenUpIsStored) {
                lane.given_up = lane.given_up.min(lane.ledger.seq_of_row(run, 0));
            }
        }
    }

    /// Completes when more rows may have been gathered since it was enabled.
    pub(in crate::exec) fn more_gathered(&self) -> Notified<'_> {
        self.gathered.notified()
    }
}
