//! Partitions that are revoked, lost, assigned again or finished, and lanes that begin a new generation.

use anabranch_plugin::source::Release;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use tokio::sync::oneshot;

use super::{Due, LaneOwnership, Lanes, State};
use crate::ack::LaneIndex;

/// Maximum number of finished lanes whose marks are not removed yet. A source that finishes partitions faster waits.
const FINISHING: usize = 1024;

/// A change of the stored marks that no row causes.
pub(in crate::exec) enum Change {
    /// A lane begins a new generation with this mark.
    Begin {
        id: LaneId,
        mark: Mark,
        /// Informed when the mark is stored.
        stored: oneshot::Sender<()>,
    },
    /// The mark of a partition that was not read in this run is removed.
    Remove(LaneId),
}

/// A partition that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::exec) struct Released {
    pub(in crate::exec) source: usize,
    pub(in crate::exec) partition: Partition,
    pub(in crate::exec) release: Release,
}

impl State {
    /// Returns `true` if everything that was read in a lane is settled, stored and acknowledged.
    fn is_drained(&self, lane: LaneIndex) -> bool {
        let lane = &self.lanes[usize::from(lane.0)];
        lane.ledger.is_empty() && lane.ledger.unpersisted() == 0 && !lane.committing
    }

    /// Returns `true` if a lane is drained and no writer refers to it.
    pub(super) fn is_over(&self, index: LaneIndex) -> bool {
        let lane = &self.lanes[usize::from(index.0)];
        lane.pins == 0 && lane.writing == 0 && self.is_drained(index)
    }

    fn is_reported_later(&self, source: usize, partition: &Partition) -> bool {
        let mut released = self.released.iter().chain(&self.reporting);
        released.any(|released| released.source == source && released.partition == *partition)
    }

    fn release(&mut self, lane: LaneIndex, release: Release) {
        let lane = &self.lanes[usize::from(lane.0)];
        let (source, partition) = (lane.source, lane.id.partition.clone());
        self.released.push(Released { source, partition, release });
    }
}

impl Lanes {
    /// Requests a change with the next commit.
    pub(in crate::exec) fn change(&self, change: Change) {
        let mut state = self.lock();
        state.changes.push(change);
        self.raise(&mut state, Due::Now);
    }

    /// Removes and returns the requested changes.
    pub(in crate::exec) fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.lock().changes)
    }

    /// Reports the release of a partition of which nothing was read in this run.
    pub(in crate::exec) fn released(&self, source: usize, partition: Partition, release: Release) {
        let mut state = self.lock();
        state.released.push(Released { source, partition, release });
        self.raise(&mut state, Due::Now);
    }

    /// Removes and returns the partitions that were given up. [`Lanes::end_report`] follows.
    pub(in crate::exec) fn take_released(&self) -> Vec<Released> {
        let mut state = self.lock();
        let released = std::mem::take(&mut state.released);
        state.reporting.clone_from(&released);
        released
    }

    /// Notes that the sources know of the partitions that were given up.
    pub(in crate::exec) fn end_report(&self) {
        self.lock().reporting.clear();
        self.room.notify_waiters();
    }

    /// Returns `true` if the source does not know yet that a partition was given up.
    pub(in crate::exec) fn is_reported_later(&self, source: usize, partition: &Partition) -> bool {
        self.lock().is_reported_later(source, partition)
    }

    /// Completes when the source knows of every release of a partition.
    pub(in crate::exec) async fn is_reported(&self, source: usize, partition: &Partition) {
        self.when_room(|state| (!state.is_reported_later(source, partition)).then_some(())).await;
    }

    /// Notes that a partition was revoked: [`Lanes::give_up_lane`] follows.
    pub(in crate::exec) fn leaves(&self, lane: LaneIndex) {
        self.lock().lanes[usize::from(lane.0)].leaving = true;
        // Nothing waits for room in it any more.
        self.room.notify_waiters();
    }

    /// Notes that rows that were read are not taken, because their partition was taken away meanwhile.
    pub(in crate::exec) fn leaves_rows(&self, lane: LaneIndex) {
        let mut state = self.lock();
        let lane = &mut state.lanes[usize::from(lane.0)];
        lane.left_rows |= lane.leaving;
    }

    /// Completes when everything that was read in a lane that leaves is settled, stored and acknowledged, or when the
    /// lane is given up.
    pub(in crate::exec) async fn has_left(&self, lane: LaneIndex) {
        self.when_room(|state| {
            let left = !state.lanes[usize::from(lane.0)].leaving || state.is_drained(lane);
            left.then_some(())
        })
        .await;
    }

    /// Gives up a lane that leaves: abandons its open rows. Nothing if it was given up meanwhile.
    pub(in crate::exec) fn give_up_lane(&self, lane: LaneIndex) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let drained = state.is_drained(lane) && !state.lanes[usize::from(lane.0)].left_rows;
        let given_up = &mut state.lanes[usize::from(lane.0)];
        if std::mem::replace(&mut given_up.leaving, false) {
            // If the partition is taken away again before it resumes, they are still left.
            given_up.left_rows = !drained;
            if !mutant!(RevokedLingers) {
                // A lost lane that was being assigned again stays lost.
                if given_up.hold != LaneOwnership::Lost || mutant!(LostIsForgotten) {
                    given_up.hold = LaneOwnership::Abandoned;
                }
                given_up.show_unstored();
                // The rows may wait for a new assignment indefinitely, so they must not count towards the bytes held.
                let released = given_up.release(usize::MAX);
                state.held -= released;
            }
            state.release(lane, if drained { Release::Drained } else { Release::Abandoned });
            self.raise(state, Due::Now);
        }
        drop(guard);
        self.room.notify_waiters();
        self.gathered.notify_waiters();
    }

    /// Gives up a lane whose partition another instance may own already. Nothing of it is stored or acknowledged.
    pub(in crate::exec) fn lose(&self, index: LaneIndex) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let lane = &mut state.lanes[usize::from(index.0)];
        (lane.hold, lane.leaving, lane.left_rows) = (LaneOwnership::Lost, false, true);
        lane.show_unstored();
        let released = lane.release(usize::MAX);
        state.held -= released;
        state.release(index, Release::Abandoned);
        self.raise(state, Due::Now);
        drop(guard);
        self.room.notify_waiters();
        self.gathered.notify_waiters();
    }

    /// Returns `true` if stored positions of a lane may be acknowledged.
    pub(in crate::exec) fn may_acknowledge(&self, lane: LaneIndex) -> bool {
        self.lock().lanes[usize::from(lane.0)].hold != LaneOwnership::Lost || mutant!(LostIsAcknowledged)
    }

    /// Reopens the lane of a partition that is assigned again. Returns the lane, or the lane that replaces it, and the
    /// mark after which it continues. Waits until the lane is given up, the source knows that, no transaction holds its
    /// rows, and a commit of it has ended; if the partition was not lost, also until all settled rows are stored. Rows that are still open are abandoned and will be read again.
    pub(in crate::exec) async fn renew(&self, lane: LaneIndex) -> Result<(LaneIndex, Option<Mark>), Fault> {
        let index = usize::from(lane.0);
        self.when_room(|state| {
            let old = &state.lanes[index];
            // The source could take the release for that of a later event.
            let is_early = old.leaving || state.is_reported_later(old.source, &old.id.partition);
            if is_early && !mutant!(ReturnsTooSoon) {
                return None;
            }
            let old = &mut state.lanes[index];
            if old.hold == LaneOwnership::Abandoned {
                old.hold = LaneOwnership::Returning;
                self.gathered.notify_waiters();
            }
            if (old.writing > 0 || old.committing) && !mutant!(ReturnsTooSoon) {
                return None;
            }
            let stores = old.hold != LaneOwnership::Lost && old.ledger.advances_below(old.given_up);
            if stores && !mutant!(ReturnsTooSoon) {
                self.raise(state, Due::Now);
                return None;
            }
            let mark = old.stored.clone();
            if old.ledger.is_empty() {
                (old.hold, old.left_rows) = (LaneOwnership::Ours, false);
                old.show_unstored();
                return Some(Ok((lane, mark)));
            }
            Some(state.replace(lane, mark.clone(), !mutant!(RevokedLingers)).map(|lane| (lane, mark)))
        })
        .await
    }

    /// Returns the generation of a lane.
    pub(in crate::exec) fn generation(&self, lane: LaneIndex) -> u64 {
        self.lock().lanes[usize::from(lane.0)].ledger.generation()
    }

    /// Continues a lane that holds no rows after a stored mark of a later generation, in a lane that replaces it.
    /// Writers may still refer to rows of the earlier generation.
    pub(in crate::exec) fn restart(&self, lane: LaneIndex, mark: Mark) -> Result<LaneIndex, Fault> {
        self.lock().replace(lane, Some(mark), true)
    }

    /// Sets whether the source replays the partition of a lane exactly.
    pub(in crate::exec) fn set_exact(&self, lane: LaneIndex, exact: bool) {
        self.lock().lanes[usize::from(lane.0)].exact = exact;
    }

    /// Notes that the source has no more records of a partition. When its rows are settled, stored and acknowledged,
    /// the mark is removed and the lane is freed. Waits as long as too many lanes are in this state.
    pub(in crate::exec) async fn finish(&self, lane: LaneIndex) {
        {
            let mut state = self.lock();
            let finished = &mut state.lanes[usize::from(lane.0)];
            finished.finished = true;
            finished.idle = true;
            let id = finished.id.clone();
            state.finishing.insert(id, lane);
            let many = state.finishing.len() * 2 >= FINISHING;
            let due = match state.is_over(lane) || many {
                true => Due::Now,
                false => Due::Idle,
            };
            self.raise(&mut state, due);
        }
        self.when_room(|state| (state.finishing.len() < FINISHING).then_some(())).await;
    }

    /// Makes a commit due.
    pub(in crate::exec) fn commit_soon(&self) {
        self.raise(&mut self.lock(), Due::Soon);
    }

    /// Makes a commit due if a finished lane is over.
    pub(super) fn raise_if_over(&self, state: &mut State) {
        if state.finishing.values().any(|lane| state.is_over(*lane)) {
            self.raise(state, Due::Soon);
        }
    }

    /// Completes when no lane of this id is being finished.
    pub(in crate::exec) async fn no_longer_finishing(&self, id: &LaneId) {
        self.when_room(|state| (!state.finishing.contains_key(id)).then_some(())).await;
    }

    /// Returns the finished lanes that are over, whose marks may be removed.
    pub(in crate::exec) fn over(&self) -> Vec<(LaneIndex, LaneId)> {
        let state = self.lock();
        let is_over = |lane: LaneIndex| match () {
            () if mutant!(FinishedTooSoon) => true,
            () if mutant!(FinishedLingers) => false,
            () => state.is_over(lane),
        };
        let over = state.finishing.iter().filter(|(_, lane)| is_over(**lane));
        over.map(|(id, lane)| (*lane, id.clone())).collect()
    }

    /// Frees finished lanes whose marks are removed.
    pub(in crate::exec) fn free_finished(&self, over: &[(LaneIndex, LaneId)]) {
        let mut guard = self.lock();
        let state = &mut *guard;
        for (index, id) in over {
            state.finishing.remove(id);
            state.release(*index, Release::Finished);
            let lane = &mut state.lanes[usize::from(index.0)];
            lane.hold = LaneOwnership::Replaced;
            self.progress.retire_lane(&lane.progress);
            state.clear_replaced(*index);
        }
        drop(guard);
        self.room.notify_waiters();
    }
}

impl State {
    /// Opens a lane in place of another, which is freed when its rows are settled (if `frees`).
    fn replace(&mut self, old: LaneIndex, mark: Option<Mark>, frees: bool) -> Result<LaneIndex, Fault> {
        let lane = &mut self.lanes[usize::from(old.0)];
        if frees {
            lane.hold = LaneOwnership::Replaced;
        }
        let (source, id, exact, progress) = (lane.source, lane.id.clone(), lane.exact, lane.progress.clone());
        self.clear_replaced(old);
        self.add(source, id, mark, exact, progress)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use anabranch_plugin::testing::{Downstream, Journal, position};

    use super::*;
    use crate::batch::{Alarm, Lineage};
    use crate::exec::progress::Progress;
    use crate::testing::Pipeline;

    fn releases(lanes: &Lanes) -> Vec<Release> {
        let released = lanes.take_released();
        lanes.end_report();
        released.into_iter().map(|released| released.release).collect()
    }

    /// The rows of a partition settle after it was given up, and are stored while it returns, without an acknowledgement.
    #[tokio::test]
    async fn rows_that_were_left_are_still_left_when_the_partition_is_taken_away_again() {
        let letters = Arc::new(Downstream::new("letters", &Journal::default()));
        let progress = Arc::new(Progress::new(&Pipeline::new(&letters, 1, 0).plan(), Arc::new([])));
        let (lanes, alarm) = (Lanes::new(1000, 1 << 20, false, progress), Arc::new(Alarm::default()));
        let lane = lanes.add(0, Lanes::lane_id(&"in".into(), &Partition("x".into())), None, false).unwrap();
        let mut lineage = Lineage::none(&alarm);
        let strip = std::iter::once((vec![position(0), position(1)], 2));
        lanes.open(lane, strip, |run| lineage.append(Lineage::of(run, &alarm)));
        lanes.leaves(lane);
        lanes.give_up_lane(lane);
        assert_eq!(releases(&lanes), [Release::Abandoned]);

        lanes.settle(lineage).unwrap();
        let mut returning = std::pin::pin!(lanes.renew(lane));
        assert!(tokio::time::timeout(Duration::ZERO, &mut returning).await.is_err(), "it waits for the store");
        lanes.persisted(&lanes.advance());
        lanes.told(&[lane]);
        lanes.leaves(lane);
        lanes.give_up_lane(lane);
        assert_eq!(releases(&lanes), [Release::Abandoned]);

        // It returns, nothing is read, and it is taken away.
        assert_eq!(lanes.renew(lane).await.unwrap().1.map(|mark| mark.seq), Some(2));
        lanes.leaves(lane);
        lanes.give_up_lane(lane);
        assert_eq!(releases(&lanes), [Release::Drained]);
    }
}
