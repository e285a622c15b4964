//! The store.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_graph::source::Mark;
use anabranch_graph::state::{Epoch, LaneId, StateStore, StoreError};
use anabranch_graph::text::Str;
use async_trait::async_trait;

use crate::scenario::{hits, mix};
use crate::world::World;

/// The store.
pub struct SimStore(pub Arc<World>);

#[async_trait]
impl StateStore for SimStore {
    async fn claim(&self, pipeline: &Str) -> Result<Epoch, StoreError> {
        self.0.tick().await;
        // It may have been claimed all the same.
        let mut state = self.0.lock();
        state.epoch += 1;
        let call = state.next_call();
        if state.is_troubled() && hits(7, call, self.0.scenario.open_fails) {
            return Err(StoreError::Unavailable("the store is away".into()));
        }
        Ok(Epoch { pipeline: pipeline.clone(), number: state.epoch })
    }

    async fn load(&self, _: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(self.0.marks())
    }

    async fn commit(&self, epoch: &Epoch, moves: &[(LaneId, Mark)]) -> Result<(), StoreError> {
        let world = &self.0;
        let (call, troubled) = {
            let mut state = world.lock();
            (state.next_call(), state.is_troubled())
        };
        world.tick().await;
        tokio::task::yield_now().await;
        if let Some(theirs) = world.refuses(epoch.number) {
            return Err(StoreError::Fenced { pipeline: epoch.pipeline.clone(), ours: epoch.number, theirs });
        }
        let fails = troubled && hits(5, call, world.scenario.store_fails);
        // It may have been stored all the same.
        if !fails || mix(call, 1).is_multiple_of(2) {
            world.lock().note(|| format!("stored {moves:?}"));
            world.store(moves);
        }
        world.tick().await;
        tokio::task::yield_now().await;
        if fails { Err(StoreError::Unavailable("the store is away".into())) } else { Ok(()) }
    }
}
