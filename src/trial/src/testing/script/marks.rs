//! A store of positions in memory.

use std::collections::BTreeMap;
use std::sync::Mutex;

use anabranch_plugin::state::{Epoch, Receipt, StateStore, StoreError};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use async_trait::async_trait;

use super::locked;

/// Positions in memory. They survive restarts of the pipeline.
#[derive(Default)]
pub(in crate::testing) struct Marks(Mutex<(u64, BTreeMap<LaneId, Mark>)>);

#[async_trait]
impl StateStore for Marks {
    async fn claim(&self, pipeline: &Str) -> Result<Epoch, StoreError> {
        let mut marks = locked(&self.0);
        marks.0 += 1;
        Ok(Epoch { pipeline: pipeline.clone(), number: marks.0 })
    }

    async fn load(&self, _: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(locked(&self.0).1.clone())
    }

    /// Empty: the scripted destinations have no transactions.
    async fn receipts(&self, _: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        Ok(Vec::new())
    }

    async fn commit_with_receipts(
        &self,
        epoch: &Epoch,
        moves: &[(LaneId, Mark)],
        _: &[Receipt],
    ) -> Result<(), StoreError> {
        let mut marks = locked(&self.0);
        if marks.0 != epoch.number {
            let (pipeline, theirs) = (epoch.pipeline.clone(), marks.0);
            return Err(StoreError::Fenced { pipeline, ours: epoch.number, theirs });
        }
        marks.1.extend(moves.iter().cloned());
        Ok(())
    }
}
