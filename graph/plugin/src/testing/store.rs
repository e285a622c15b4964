//! An in-memory store that can be fenced, fail and hang.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use async_trait::async_trait;

use super::{Event, Journal, locked};
use crate::state::{Commit, Epoch, Receipt, StateStore, StoreError, Unit};

#[derive(Default)]
struct State {
    epochs: BTreeMap<Unit, u64>,
    marks: BTreeMap<(Unit, LaneId), Mark>,
    receipts: BTreeMap<(Unit, Str, LaneId), Mark>,
    commits: usize,
    failing: Option<usize>,
    hanging: bool,
}

impl State {
    /// Fails unless the epoch is that of the latest claim.
    fn check(&self, epoch: &Epoch) -> Result<(), StoreError> {
        match self.epochs.get(&epoch.unit).copied().unwrap_or_default() {
            theirs if theirs == epoch.number => Ok(()),
            theirs => Err(StoreError::Fenced { unit: epoch.unit.clone(), ours: epoch.number, theirs }),
        }
    }
}

/// An in-memory state store. Marks survive runs.
#[derive(Default)]
pub struct MemoryStore {
    journal: Journal,
    state: Mutex<State>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new(journal: &Journal) -> Self {
        MemoryStore { journal: journal.clone(), state: Mutex::default() }
    }

    /// Simulates that another run takes over the pipeline.
    pub fn fence(&self, pipeline: &str) {
        *locked(&self.state).epochs.entry(Unit::whole(pipeline)).or_default() += 1;
    }

    /// Simulates a mark of an earlier run.
    pub fn set_mark(&self, pipeline: &str, lane: LaneId, mark: Mark) {
        locked(&self.state).marks.insert((Unit::whole(pipeline), lane), mark);
    }

    /// Simulates a receipt of an earlier run.
    pub fn set_receipt(&self, pipeline: &str, destination: &str, lane: LaneId, mark: Mark) {
        locked(&self.state).receipts.insert((Unit::whole(pipeline), destination.into(), lane), mark);
    }

    /// Returns the position of a lane that a destination has confirmed.
    pub fn receipt(&self, pipeline: &str, destination: &str, lane: &LaneId) -> Option<Mark> {
        locked(&self.state).receipts.get(&(Unit::whole(pipeline), destination.into(), lane.clone())).cloned()
    }

    /// Fails all commits after the given number of further commits.
    pub fn fail_after(&self, commits: usize) {
        let mut state = locked(&self.state);
        state.failing = Some(state.commits + commits);
    }

    /// Makes commits succeed again.
    pub fn heal(&self) {
        locked(&self.state).failing = None;
    }

    /// Makes commits never return.
    pub fn hang(&self) {
        locked(&self.state).hanging = true;
    }

    /// Returns the number of commits.
    pub fn commits(&self) -> usize {
        locked(&self.state).commits
    }

    /// Returns all marks of a pipeline.
    pub fn marks(&self, pipeline: &str) -> BTreeMap<LaneId, Mark> {
        let state = locked(&self.state);
        let ours = state.marks.iter().filter(|((unit, _), _)| unit.pipeline == pipeline);
        ours.map(|((_, lane), mark)| (lane.clone(), mark.clone())).collect()
    }

    /// Returns the mark of a lane.
    pub fn mark(&self, pipeline: &str, lane: &LaneId) -> Option<Mark> {
        locked(&self.state).marks.get(&(Unit::whole(pipeline), lane.clone())).cloned()
    }
}

#[async_trait]
impl StateStore for MemoryStore {
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError> {
        let mut state = locked(&self.state);
        let number = state.epochs.entry(unit.clone()).or_default();
        *number += 1;
        Ok(Epoch { unit: unit.clone(), number: *number })
    }

    async fn load(&self, epoch: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        let state = locked(&self.state);
        state.check(epoch)?;
        let ours = state.marks.iter().filter(|((unit, _), _)| *unit == epoch.unit);
        Ok(ours.map(|((_, lane), mark)| (lane.clone(), mark.clone())).collect())
    }

    async fn receipts(&self, epoch: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        let state = locked(&self.state);
        state.check(epoch)?;
        let ours = state.receipts.iter().filter(|((unit, ..), _)| *unit == epoch.unit);
        let receipt = |((_, destination, lane), mark): (&(Unit, Str, LaneId), &Mark)| Receipt {
            destination: destination.clone(),
            lane: lane.clone(),
            mark: mark.clone(),
        };
        Ok(ours.map(receipt).collect())
    }

    async fn commit(&self, epoch: &Epoch, commit: Commit<'_>) -> Result<(), StoreError> {
        // A commit takes time, so that a crash may happen before or after it.
        tokio::task::yield_now().await;
        if locked(&self.state).hanging {
            std::future::pending::<()>().await;
        }
        {
            let mut state = locked(&self.state);
            state.check(epoch)?;
            if state.failing.is_some_and(|at| state.commits >= at) {
                return Err(StoreError::Unavailable("the disk is full".into()));
            }
            state.commits += 1;
            for (lane, mark) in commit.moves {
                state.marks.insert((epoch.unit.clone(), lane.clone()), mark.clone());
                self.journal.note(Event::Committed(lane.clone(), mark.clone()));
            }
            for Receipt { destination, lane, mark } in commit.receipts {
                state.receipts.insert((epoch.unit.clone(), destination.clone(), lane.clone()), mark.clone());
            }
            for lane in commit.drops {
                state.marks.remove(&(epoch.unit.clone(), lane.clone()));
                self.journal.note(Event::Forgotten(lane.clone()));
            }
            if !commit.drops.is_empty() {
                let dropped: BTreeSet<&LaneId> = commit.drops.iter().collect();
                state.receipts.retain(|(unit, _, lane), _| *unit != epoch.unit || !dropped.contains(lane));
            }
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn survey(&self, pipeline: &Str) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(self.marks(pipeline))
    }
}
