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
        // A run has at least one claim. Without a slot, it claims one of another run, which the store of a cluster refuses.
        let slots = if slots.is_empty() { slots.with(0) } else { slots };
        let units: Vec<Unit> = slots.iter().map(|slot| Unit { pipeline: pipeline.clone(), slot }).collect();
        let epochs = try_join_all(units.iter().map(|unit| store.claim(unit))).await?;
        Ok(Claims { slots, epochs })
    }

    /// Returns the claim of a slot. A slot of another run has none here: the first claim stands for it, so that what a source
    /// reads by mistake is not lost.
    pub(super) fn of_slot(&self, slot: u32) -> &Epoch {
        &self.epochs[self.place_of_slot(slot)]
    }

    fn place_of_slot(&self, slot: u32) -> usize {
        self.epochs.iter().position(|epoch| epoch.unit.slot == slot).unwrap_or(0)
    }

    fn place(&self, partition: &Partition) -> usize {
        self.place_of_slot(self.slots.slot_of(partition))
    }

    /// Returns the number of the claim of the unit that a partition belongs to.
    pub(super) fn number(&self, partition: &Partition) -> u64 {
        self.epochs[self.place(partition)].number
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
        let parts = self.parts(&commit);
        let changed = self.epochs.iter().zip(&parts).filter(|(_, part)| !part.is_empty());
        let stored = changed.map(|(epoch, Part { moves, receipts, drops })| {
            store.commit(epoch, Commit::of(moves).with_receipts(receipts).with_drops(drops))
        });
        try_join_all(stored).await.map(drop)
    }

    /// Returns the changes of each unit, in the order of the claims.
    fn parts(&self, commit: &Commit<'_>) -> Vec<Part> {
        let mut parts: Vec<Part> = self.epochs.iter().map(|_| Part::default()).collect();
        for (lane, mark) in commit.moves {
            parts[self.place(&lane.partition)].moves.push((lane.clone(), mark.clone()));
        }
        for receipt in commit.receipts {
            parts[self.place(&receipt.lane.partition)].receipts.push(receipt.clone());
        }
        for lane in commit.drops {
            parts[self.place(&lane.partition)].drops.push(lane.clone());
        }
        parts
    }
}

/// The changes of one unit.
#[derive(Default)]
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

#[cfg(test)]
mod tests {
    use anabranch_plugin::testing::{Journal, MemoryStore};

    use super::*;

    fn lane(number: u32) -> LaneId {
        LaneId { connector: "in".into(), partition: Partition(number.to_string().into()) }
    }

    fn moves(numbers: std::ops::Range<u32>) -> Vec<(LaneId, Mark)> {
        numbers.map(|number| (lane(number), Mark::beginning(1))).collect()
    }

    fn slots(of: u32, some: impl IntoIterator<Item = u32>) -> Slots {
        some.into_iter().fold(Slots::none(of), Slots::with)
    }

    #[tokio::test]
    async fn each_lane_is_stored_in_its_unit_and_siblings_do_not_fence_each_other() {
        let store = MemoryStore::new(&Journal::default());
        let pipeline = Str::from("p");
        let even = Claims::make(&store, &pipeline, slots(4, [0, 2])).await.unwrap();
        let odd = Claims::make(&store, &pipeline, slots(4, [1, 3])).await.unwrap();
        let all = moves(0..8);
        for claims in [&even, &odd] {
            let own: Vec<_> = all.iter().filter(|(lane, _)| claims.slots.has(&lane.partition)).cloned().collect();
            assert_eq!(own.len(), 4);
            claims.commit(&store, Commit::of(&own)).await.unwrap();
            assert_eq!(claims.load(&store).await.unwrap(), own.into_iter().collect());
        }
        // Another run takes one of the units over.
        let heir = Claims::make(&store, &pipeline, slots(4, [2])).await.unwrap();
        let (lost, kept): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|(lane, _)| even.slots.has(&lane.partition))
            .cloned()
            .partition(|(lane, _)| heir.slots.has(&lane.partition));
        assert!(!lost.is_empty() && !kept.is_empty());
        let fenced = even.commit(&store, Commit::of(&lost)).await;
        assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
        even.commit(&store, Commit::of(&kept)).await.unwrap();
        odd.commit(&store, Commit::default()).await.unwrap();
        assert_eq!(heir.load(&store).await.unwrap(), lost.into_iter().collect());
    }

    #[tokio::test]
    async fn what_is_dropped_leaves_the_unit_of_its_lane_only() {
        let store = MemoryStore::new(&Journal::default());
        let claims = Claims::make(&store, &"p".into(), slots(2, [0, 1])).await.unwrap();
        claims.commit(&store, Commit::of(&moves(0..4))).await.unwrap();
        claims.commit(&store, Commit::default().with_drops(&[lane(1)])).await.unwrap();
        let left = claims.load(&store).await.unwrap();
        assert_eq!(left.into_keys().collect::<Vec<_>>(), [lane(0), lane(2), lane(3)]);
    }
}
