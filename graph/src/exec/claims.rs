//! The units that a run owns: one for each of its slots, with a claim of its own.

use std::collections::BTreeMap;

use anabranch_plugin::state::{Commit, Epoch, Receipt, Slots, StateStore, StoreError, Unit};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use futures::future::try_join_all;

/// The claims of a run, of which there is at least one.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    slots: Slots,
    /// In the order of the slots.
    epochs: Vec<Epoch>,
}

impl Claims {
    /// Claims the units of a pipeline. Earlier runs of these units are fenced.
    pub(super) async fn make(store: &dyn StateStore, pipeline: &Str, slots: Slots) -> Result<Claims, StoreError> {
        // A run without a slot has nothing to read. It claims one that it does not have, which the store refuses.
        let slots = if slots.is_empty() { slots.with(0) } else { slots };
        let units: Vec<Unit> = slots.iter().map(|slot| Unit { pipeline: pipeline.clone(), slot }).collect();
        let epochs = try_join_all(units.iter().map(|unit| store.claim(unit))).await?;
        Ok(Claims { slots, epochs })
    }

    /// Returns the claim of the unit that a partition belongs to. A partition of another run has none here: it is stored
    /// under the first claim, so that it is not lost.
    fn of(&self, partition: &Partition) -> &Epoch {
        let slot = self.slots.slot_of(partition);
        self.epochs.iter().find(|epoch| epoch.unit.slot == slot).unwrap_or(&self.epochs[0])
    }

    /// Returns the number of the claim of the unit that a partition belongs to.
    pub(super) fn number(&self, partition: &Partition) -> u64 {
        self.of(partition).number
    }

    /// Returns the claim under which dead letters are stored. If another run takes one of the other units over, this run
    /// ends as well.
    pub(super) fn any(&self) -> &Epoch {
        &self.epochs[0]
    }

    /// Returns the marks of all units.
    pub(super) async fn load(&self, store: &dyn StateStore) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        let loaded = try_join_all(self.epochs.iter().map(|epoch| store.load(epoch))).await?;
        Ok(loaded.into_iter().flatten().collect())
    }

    /// Returns the receipts of all units.
    pub(super) async fn receipts(&self, store: &dyn StateStore) -> Result<Vec<Receipt>, StoreError> {
        let loaded = try_join_all(self.epochs.iter().map(|epoch| store.receipts(epoch))).await?;
        Ok(loaded.into_iter().flatten().collect())
    }

    /// Stores changes, those of each unit under its claim, all or none of a unit. Fails if one of them fails.
    pub(super) async fn commit(&self, store: &dyn StateStore, commit: Commit<'_>) -> Result<(), StoreError> {
        if let [only] = self.epochs.as_slice() {
            return store.commit(only, commit).await;
        }
        let parts: Vec<(&Epoch, Part)> = self.epochs.iter().map(|epoch| (epoch, self.part(epoch, &commit))).collect();
        let changed = parts.iter().filter(|(_, part)| !part.is_empty());
        let stored = changed.map(|(epoch, Part { moves, receipts, drops })| {
            store.commit(epoch, Commit::of(moves).with_receipts(receipts).with_drops(drops))
        });
        try_join_all(stored).await.map(drop)
    }

    fn part(&self, epoch: &Epoch, commit: &Commit<'_>) -> Part {
        let is_its = |lane: &LaneId| self.of(&lane.partition).unit == epoch.unit;
        Part {
            moves: commit.moves.iter().filter(|(lane, _)| is_its(lane)).cloned().collect(),
            receipts: commit.receipts.iter().filter(|receipt| is_its(&receipt.lane)).cloned().collect(),
            drops: commit.drops.iter().filter(|lane| is_its(lane)).cloned().collect(),
        }
    }
}

/// The changes of one unit.
struct Part {
    moves: Vec<(LaneId, Mark)>,
    receipts: Vec<Receipt>,
    drops: Vec<LaneId>,
}

impl Part {
    fn is_empty(&self) -> bool {
        self.moves.is_empty() && self.receipts.is_empty() && self.drops.is_empty()
    }
}
