//! What has arrived at the destinations, for those that write whole source rows in one transaction.
//!
//! A transaction may hold a row, and a mark that covers it, once the row and all rows of its lane before it are
//! *gathered*: everything they owe is at some destination. A piece that is still on its way, at an operator or in a
//! queue, owes credit that has not landed, and so does a copy whose letter is not durable yet, wherever it failed. So a
//! mark never covers a row of which something is to come, and none that was dead-lettered before its letter is durable.
//! No destination waits for another one to write, only for what was read to arrive: they cannot wait for each other.

use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};
use smallvec::SmallVec;

use super::{Hold, Lanes, overdrawn};
use crate::ack::{LaneIndex, Ledger, Run};
use crate::batch::Lineage;
use crate::sync::Notified;

/// A row of some lanes each, by number.
pub(in crate::exec) type LastRows = SmallVec<[(LaneIndex, u64); 2]>;

/// Where the rows of a run are in their lane.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec) struct Place {
    /// The lane.
    pub(in crate::exec) lane: LaneIndex,
    /// Number of the row that the first is a copy of.
    pub(in crate::exec) first: u64,
    /// Number of rows of the batch.
    pub(in crate::exec) rows: usize,
    /// Whether all are pieces of one row, or each is of the next one.
    pub(in crate::exec) pieces: bool,
    /// Rows below this number are gathered.
    pub(in crate::exec) gathered: u64,
    /// Rows below this number are not to be written: the destination has them.
    pub(in crate::exec) had: u64,
    /// Whether rows of the lane may be written: it is not somebody else's, and not to be read again.
    pub(in crate::exec) ours: bool,
}

impl Lanes {
    /// Notes rows that arrived at a destination. O(1) where no destination is transactional, else O(runs) while rows
    /// stay together.
    pub(in crate::exec) fn land(&self, lineage: &Lineage) -> Result<(), Fault> {
        if !self.landing {
            return Ok(());
        }
        let mut state = self.lock();
        for run in lineage.runs() {
            state.lanes[usize::from(run.lane().0)].ledger.land(run).map_err(overdrawn)?;
        }
        drop(state);
        self.gathered.notify_waiters();
        Ok(())
    }

    /// Notes rows that a destination refused: they are on their way to the dead letters.
    pub(in crate::exec) fn take_off(&self, lineage: &Lineage) -> Result<(), Fault> {
        if !self.landing {
            return Ok(());
        }
        let mut state = self.lock();
        for run in lineage.runs() {
            state.lanes[usize::from(run.lane().0)].ledger.take_off(run).map_err(overdrawn)?;
        }
        Ok(())
    }

    /// Gives back all credit of a lineage that was delivered.
    pub(in crate::exec) fn deliver(&self, lineage: Lineage) -> Result<(), Fault> {
        self.take_back(lineage, if self.landing { Ledger::settle_landed } else { Ledger::settle })
    }

    /// Where every run of a lineage is; `known`: the mark of a lane at the destination, which says which rows it has
    /// where the numbers of rows that come again mean the same rows. O(runs).
    pub(in crate::exec) fn places<'a>(
        &self,
        lineage: &Lineage,
        known: impl Fn(&LaneId) -> Option<&'a Mark>,
    ) -> Vec<Place> {
        let mut state = self.lock();
        let mut place = |run: &Run| {
            let lane = &mut state.lanes[usize::from(run.lane().0)];
            let gathered = lane.ledger.gathered();
            let generation = lane.ledger.generation();
            let had = known(&lane.id).filter(|had| lane.exact && had.generation == generation);
            let (had, ours) = (had.map_or(0, |had| had.seq), lane.hold == Hold::Ours);
            let first = lane.ledger.seq_of_row(run, 0);
            Place { lane: run.lane(), first, rows: run.rows(), pieces: run.is_pieces(), gathered, had, ours }
        };
        lineage.runs().iter().map(&mut place).collect()
    }

    /// The last row of each lane in a lineage.
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

    /// Keeps the places of these lanes from being given to others, until [`Lanes::unpin`].
    pub(in crate::exec) fn pin(&self, lanes: &LastRows) {
        let mut state = self.lock();
        lanes.iter().for_each(|(lane, _)| state.lanes[usize::from(lane.0)].pins += 1);
    }

    /// The opposite of [`Lanes::pin`].
    pub(in crate::exec) fn unpin(&self, lanes: &LastRows) {
        let mut state = self.lock();
        for (lane, _) in lanes {
            state.lanes[usize::from(lane.0)].pins -= 1;
            state.clear_replaced(*lane);
        }
    }

    /// The marks with which these rows are the last that are settled. They are open still.
    pub(in crate::exec) fn marks(&self, last: &LastRows) -> Result<Vec<(LaneId, Mark)>, Fault> {
        let state = self.lock();
        let mark = |(index, seq): &(LaneIndex, u64)| {
            let lane = &state.lanes[usize::from(index.0)];
            let missing =
                || Fault::fatal("mark_missing", format!("row {seq} has left the ledger before it was written"));
            Ok((lane.id.clone(), lane.ledger.mark_at(*seq).ok_or_else(missing)?))
        };
        last.iter().map(mark).collect()
    }

    /// Whether these rows and all before them are gathered.
    pub(in crate::exec) fn are_gathered(&self, last: &LastRows) -> bool {
        let mut state = self.lock();
        last.iter().all(|(index, seq)| {
            let lane = &mut state.lanes[usize::from(index.0)];
            lane.hold != Hold::Ours || lane.ledger.gathered() > *seq
        })
    }

    /// A transaction that holds rows of these lanes is under way until [`Lanes::end_transaction`]; `false`, and it is
    /// not, where one of them is not ours any more.
    pub(in crate::exec) fn begin_transaction(&self, last: &LastRows) -> bool {
        let mut state = self.lock();
        let ours = last.iter().all(|(lane, _)| state.lanes[usize::from(lane.0)].hold == Hold::Ours);
        if ours {
            last.iter().for_each(|(lane, _)| state.lanes[usize::from(lane.0)].writing += 1);
        }
        ours
    }

    /// The transaction is over, whatever became of it.
    pub(in crate::exec) fn end_transaction(&self, last: &LastRows) {
        let mut state = self.lock();
        for (lane, _) in last {
            state.lanes[usize::from(lane.0)].writing -= 1;
            state.clear_replaced(*lane);
        }
        drop(state);
        self.room.notify_waiters();
    }

    /// Those of the lanes that are not ours any more.
    pub(in crate::exec) fn gone(&self, last: &LastRows) -> Vec<LaneIndex> {
        let state = self.lock();
        let lanes = last.iter().map(|(lane, _)| *lane);
        lanes.filter(|lane| state.lanes[usize::from(lane.0)].hold != Hold::Ours).collect()
    }

    /// Notes rows that are not written because their lane is not ours: they, and what follows, are never stored.
    pub(in crate::exec) fn give_up(&self, lineage: &Lineage) {
        let mut state = self.lock();
        for run in lineage.runs() {
            let lane = &mut state.lanes[usize::from(run.lane().0)];
            if !mutant!(GivenUpIsStored) {
                lane.given_up = lane.given_up.min(lane.ledger.seq_of_row(run, 0));
            }
        }
    }

    /// Completes when more rows may be gathered than when it was enabled.
    pub(in crate::exec) fn more_gathered(&self) -> Notified<'_> {
        self.gathered.notified()
    }
}
