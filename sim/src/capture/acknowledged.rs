//! What the engine has acknowledged: the gate of what the source confirms to the database.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_record::Position;
use anabranch_record::mark::Partition;
use tokio::sync::Notify;

use super::position::{CHANGES, ChangePosition};

#[derive(Default)]
struct State {
    latest: BTreeMap<Partition, Position>,
    confirmed: u64,
    is_streaming: bool,
}

/// The acknowledged positions.
#[derive(Default)]
pub(super) struct Acknowledged {
    state: Mutex<State>,
    changed: Notify,
}

impl Acknowledged {
    /// Creates it. All changes before `confirmed` count as delivered.
    pub(super) fn new(confirmed: u64) -> Acknowledged {
        let state = State { confirmed, ..State::default() };
        Acknowledged { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that positions of a lane are delivered and stored.
    pub(super) fn note(&self, partition: &Partition, positions: &[Position]) {
        let Some(last) = positions.last() else { return };
        let mut state = self.state();
        if *partition == CHANGES
            && let Some(position) = ChangePosition::decode(last)
        {
            state.confirmed = state.confirmed.max(position.end);
        }
        state.latest.insert(partition.clone(), last.clone());
        drop(state);
        self.changed.notify_waiters();
    }

    /// Forgets a lane that is finished.
    pub(super) fn forget(&self, partition: &Partition) {
        self.state().latest.remove(partition);
    }

    /// Returns the last acknowledged position of a lane.
    pub(super) fn of(&self, partition: &Partition) -> Option<Position> {
        self.state().latest.get(partition).cloned()
    }

    /// Returns the place up to which all changes are delivered and stored.
    pub(super) fn confirmed(&self) -> u64 {
        self.state().confirmed
    }

    /// Notes whether changes are streamed.
    pub(super) fn set_streaming(&self, is_streaming: bool) {
        self.state().is_streaming = is_streaming;
    }

    /// Returns `true` if changes are streamed.
    pub(super) fn is_streaming(&self) -> bool {
        self.state().is_streaming
    }

    /// Waits for acknowledgements until `look` returns something.
    pub(super) async fn when<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change is missed.
            changed.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            changed.await;
        }
    }

    /// Waits until the last acknowledged position of a lane is this one.
    pub(super) async fn reaches(&self, partition: &Partition, position: &Position) {
        self.when(|| (self.of(partition).as_ref() == Some(position)).then_some(())).await;
    }
}
