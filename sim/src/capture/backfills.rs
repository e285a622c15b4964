//! The rows that are to be read beside the changes, as the position of a lane of their own.

use std::sync::Arc;

use anabranch_plugin::source::Read;
use anabranch_record::Position;
use anabranch_record::mark::Partition;
use tokio::sync::{Mutex, Notify};

use super::acknowledged::Acknowledged;
use super::driver::{Ended, Events};
use super::position::{BACKFILL, decode, encode};

/// How far the rows of the table are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backfill {
    /// Number of the lane.
    pub(super) attempt: u64,
    /// The key from which on rows are left; `None` if all rows are read.
    pub(super) next: Option<u32>,
}

impl Backfill {
    fn encode(self) -> Position {
        encode(&[self.attempt, self.next.map_or(0, |key| u64::from(key) + 1)])
    }

    pub(super) fn decode(position: &Position) -> Backfill {
        let [attempt, next] = decode(position)[..] else { return Backfill::default() };
        Backfill { attempt, next: next.checked_sub(1).map(|key| key as u32) }
    }

    /// Returns the lane of the rows.
    pub(super) fn lane(self) -> Partition {
        Partition(format!("backfill/{}", self.attempt).into())
    }
}

/// What is to be read.
pub(super) struct Backfills {
    /// Held while a state is being stored, so that states are stored in their order.
    state: Mutex<Backfill>,
    added: Notify,
    events: Events,
    acknowledged: Arc<Acknowledged>,
}

impl Backfills {
    /// Creates it with that of the last run.
    pub(super) fn new(state: Backfill, events: Events, acknowledged: Arc<Acknowledged>) -> Backfills {
        Backfills { state: Mutex::new(state), added: Notify::new(), events, acknowledged }
    }

    /// Waits until rows were added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Returns what is left; `None` if it is nothing.
    pub(super) async fn next(&self) -> Option<Backfill> {
        Some(*self.state.lock().await).filter(|state| state.next.is_some())
    }

    /// Has all rows read from the first on, and returns when that is stored.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn add(&self) -> Result<(), Ended> {
        let mut state = self.state.lock().await;
        *state = Backfill { attempt: state.attempt + 1, next: Some(0) };
        self.store(&state).await?;
        self.added.notify_one();
        Ok(())
    }

    /// Begins what an earlier run did not complete, in a new lane.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn resume(&self) -> Result<(), Ended> {
        let mut state = self.state.lock().await;
        if state.next.is_none() {
            return Ok(());
        }
        state.attempt += 1;
        self.store(&state).await
    }

    /// Notes that a chunk is delivered, after which `next` is the first key that is left. Returns `true` if no row is left.
    /// Does nothing if the rows were added again meanwhile.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn note(&self, read: Backfill, next: Option<u32>) -> Result<bool, Ended> {
        let mut state = self.state.lock().await;
        if *state != read {
            return Ok(false);
        }
        state.next = next;
        self.store(&state).await?;
        Ok(next.is_none())
    }

    async fn store(&self, state: &Backfill) -> Result<(), Ended> {
        let position = state.encode();
        self.events.send(Read::Progress(BACKFILL, position.clone())).await?;
        self.events.unless_closed(self.acknowledged.reaches(&BACKFILL, &position)).await?;
        if state.next.is_none() {
            self.acknowledged.forget(&BACKFILL);
            self.events.send(Read::Finished(BACKFILL)).await?;
        }
        Ok(())
    }
}
