//! A store of positions in memory.

use std::collections::BTreeMap;
use std::sync::Mutex;

use anabranch_plugin::state::{Commit, Epoch, Receipt, StateStore, StoreError, Unit};
use anabranch_record::mark::{LaneId, Mark};
use async_trait::async_trait;

use super::locked;

/// Positions in memory. They survive restarts of the pipeline.
#[derive(Default)]
pub(in crate::testing) struct Marks(Mutex<(u64, BTreeMap<LaneId, Mark>)>);

#[async_trait]
impl StateStore for Marks {
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError> {
        let mut marks = locked(&self.0);
        marks.0 += 1;
        Ok(Epoch { unit: unit.clone(), number: marks.0 })
    }

    async fn load(&self, _: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(locked(&self.0).1.clone())
    }

    /// Empty: the scripted destinations have no transactions.
    async fn receipts(&self, _: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        Ok(Vec::new())
    }

    async fn commit(&self, epoch: &Epoch, commit: Commit<'_>) -> Result<(), StoreError> {
        let mut marks = locked(&self.0);
        if marks.0 != epoch.number {
            let (unit, theirs) = (epoch.unit.clone(), marks.0);
            return Err(StoreError::Fenced { unit, ours: epoch.number, theirs });
        }
        marks.1.extend(commit.moves.iter().cloned());
        marks.1.retain(|lane, _| !commit.drops.contains(lane));
        Ok(())
    }
}
