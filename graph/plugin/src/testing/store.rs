//! An in-memory store that can be fenced, fail and hang.

use std::collections::BTreeMap;
use std::sync::Mutex;

use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use async_trait::async_trait;

use super::{Event, Journal, locked};
use crate::state::{Epoch, Receipt, StateStore, StoreError};

#[derive(Default)]
struct State {
    epochs: BTreeMap<Str, u64>,
    marks: BTreeMap<(Str, LaneId), Mark>,
    receipts: BTreeMap<(Str, Str, LaneId), Mark>,
    commits: usize,
    failing: Option<usize>,
    hanging: bool,
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
        *locked(&self.state).epochs.entry(pipeline.into()).or_default() += 1;
    }

    /// Simulates a mark of an earlier run.
    pub fn set_mark(&self, pipeline: &str, lane: LaneId, mark: Mark) {
        locked(&self.state).marks.insert((pipeline.into(), lane), mark);
    }

    /// Simulates a receipt of an earlier run.
    pub fn set_receipt(&self, pipeline: &str, destination: &str, lane: LaneId, mark: Mark) {
        locked(&self.state).receipts.insert((pipeline.into(), destination.into(), lane), mark);
    }

    /// Returns the position of a lane that a destination has confirmed.
    pub fn receipt(&self, pipeline: &str, destination: &str, lane: &LaneId) -> Option<Mark> {
        locked(&self.state).receipts.get(&(pipeline.into(), destination.into(), lane.clone())).cloned()
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

    /// Returns the mark of a lane.
    pub fn mark(&self, pipeline: &str, lane: &LaneId) -> Option<Mark> {
        locked(&self.state).marks.get(&(pipeline.into(), lane.clone())).cloned()
    }
}

#[async_trait]
impl StateStore for MemoryStore {
    async fn claim(&self, pipeline: &Str) -> Result<Epoch, StoreError> {
        let mut state = locked(&self.state);
        let number = state.epochs.entry(pipeline.clone()).or_default();
        *number += 1;
        Ok(Epoch { pipeline: pipeline.clone(), number: *number })
    }

    async fn load(&self, epoch: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        let state = locked(&self.state);
        let ours = state.marks.iter().filter(|((pipeline, _), _)| *pipeline == epoch.pipeline);
        Ok(ours.map(|((_, lane), mark)| (lane.clone(), mark.clone())).collect())
    }

    async fn receipts(&self, epoch: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        let state = locked(&self.state);
        let ours = state.receipts.iter().filter(|((pipeline, ..), _)| *pipeline == epoch.pipeline);
        let receipt = |((_, destination, lane), mark): (&(Str, Str, LaneId), &Mark)| Receipt {
            destination: destination.clone(),
            lane: lane.clone(),
            mark: mark.clone(),
        };
        Ok(ours.map(receipt).collect())
    }

    async fn commit_with_receipts(
        &self,
        epoch: &Epoch,
        moves: &[(LaneId, Mark)],
        receipts: &[Receipt],
    ) -> Result<(), StoreError> {
        // A commit takes time, so that a crash may happen before or after it.
        tokio::task::yield_now().await;
        if locked(&self.state).hanging {
            std::future::pending::<()>().await;
        }
        {
            let mut state = locked(&self.state);
            let theirs = state.epochs.get(&epoch.pipeline).copied().unwrap_or_default();
            if theirs != epoch.number {
                let pipeline = epoch.pipeline.clone();
                return Err(StoreError::Fenced { pipeline, ours: epoch.number, theirs });
            }
            if state.failing.is_some_and(|at| state.commits >= at) {
                return Err(StoreError::Unavailable("the disk is full".into()));
            }
            state.commits += 1;
            for (lane, mark) in moves {
                state.marks.insert((epoch.pipeline.clone(), lane.clone()), mark.clone());
                self.journal.note(Event::Committed(lane.clone(), mark.clone()));
            }
            for Receipt { destination, lane, mark } in receipts {
                state.receipts.insert((epoch.pipeline.clone(), destination.clone(), lane.clone()), mark.clone());
            }
        }
        tokio::task::yield_now().await;
        Ok(())
    }
}
