//! The positions of a pipeline as a whole, in all its units.

use std::collections::BTreeMap;

use anabranch_plugin::state::{Commit, Epoch, Receipt, StateStore as _, StoreError, Unit};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;

use super::Store;
use crate::request::{Read, ReadResult, contradiction};

impl Store {
    /// Returns the marks of the lanes of a pipeline, for display: nothing is claimed, so a run of the pipeline may move
    /// them at any time.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn positions(&self, pipeline: &Str) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        self.marks(Read::Positions(pipeline.clone())).await
    }

    /// Returns the marks of detached connectors.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn detached_marks(&self, pipeline: &Str) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        self.marks(Read::DetachedMarks(pipeline.clone())).await
    }

    pub(super) async fn marks(&self, read: Read) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        match self.read(read).await? {
            ReadResult::Marks(marks) => Ok(marks),
            other => Err(contradiction(&other)),
        }
    }

    /// Changes the marks of a pipeline that does not run. `change` gets the marks of all lanes and returns the new ones.
    /// Each is stored in the unit that has the mark of the lane; a new lane gets slot 0. Returns the previous marks of
    /// all lanes. Runs of the pipeline that hang in other processes are fenced.
    ///
    /// # Errors
    /// The store cannot be written. All marks of a unit are changed or none.
    pub async fn change_positions(
        &self,
        pipeline: &Str,
        change: impl FnOnce(&BTreeMap<LaneId, Mark>) -> Vec<(LaneId, Mark)>,
    ) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        let epochs = self.claim_all(pipeline).await?;
        let mut units = Vec::with_capacity(epochs.len());
        for epoch in &epochs {
            units.push((epoch, self.load(epoch).await?, Vec::new()));
        }
        let before = self.positions(pipeline).await?;
        for (lane, mark) in change(&before) {
            let latest = before.get(&lane);
            let owner = units.iter().position(|(_, marks, _)| latest.is_some() && marks.get(&lane) == latest);
            if let Some((.., moves)) = units.get_mut(owner.unwrap_or(0)) {
                moves.push((lane, mark));
            }
        }
        for (epoch, _, moves) in units.iter().filter(|(.., moves)| !moves.is_empty()) {
            self.commit(epoch, Commit::of(moves)).await?;
        }
        Ok(before)
    }

    /// Begins a generation of each lane for which a transactional destination has confirmed a mark. Otherwise the mark
    /// of the destination would outlive the mark of the store, and a source with the same id would resume from it.
    pub(super) async fn start_anew(
        &self,
        pipeline: &Str,
        concerned: impl Fn(&LaneId) -> bool,
    ) -> Result<(), StoreError> {
        let (epochs, mut confirmed) = (self.claim_all(pipeline).await?, Vec::new());
        for epoch in &epochs {
            let mut receipts = self.receipts(epoch).await?;
            receipts.retain(|receipt| concerned(&receipt.lane));
            confirmed.push(receipts);
        }
        if confirmed.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let (stored, set_aside) = (self.positions(pipeline).await?, self.detached_marks(pipeline).await?);
        for (epoch, receipts) in epochs.iter().zip(&confirmed) {
            let mut anew: BTreeMap<LaneId, Mark> = BTreeMap::new();
            for Receipt { lane, mark, .. } in receipts {
                let marks = [Some(mark), stored.get(lane), set_aside.get(lane)];
                let latest = marks.into_iter().flatten().map(|mark| mark.generation).max().unwrap_or_default();
                let begun = anew.entry(lane.clone()).or_insert_with(|| Mark::beginning(0));
                begun.generation = begun.generation.max(latest + 1);
            }
            let moves: Vec<_> = anew.into_iter().collect();
            self.commit(epoch, Commit::of(&moves)).await?;
        }
        Ok(())
    }

    /// Claims all units of a pipeline; the first has slot 0.
    async fn claim_all(&self, pipeline: &Str) -> Result<Vec<Epoch>, StoreError> {
        // Also upgrades a store of an earlier version, which has no slots.
        let mut epochs = vec![self.claim(&Unit::whole(pipeline.clone())).await?];
        let slots = match self.read(Read::Slots(pipeline.clone())).await? {
            ReadResult::Slots(slots) => slots,
            other => return Err(contradiction(&other)),
        };
        for slot in slots.into_iter().filter(|slot| *slot != 0) {
            epochs.push(self.claim(&Unit { pipeline: pipeline.clone(), slot }).await?);
        }
        Ok(epochs)
    }
}
