//! What the engine has acknowledged: the gate of all confirmations to the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_plugin::source::Retention;
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use tokio::sync::{Notify, watch};

use super::lsn::Lsn;
use super::position::{CHANGES, StoredPosition};

/// The acknowledged positions, and what the parts of a source know of each other.
pub(super) struct Acknowledged {
    /// The last position of each lane that was acknowledged in this run.
    latest: Mutex<BTreeMap<Partition, Position>>,
    changed: Notify,
    /// The place up to which all changes are delivered and stored.
    confirmed: watch::Sender<u64>,
    /// True when the source is being closed.
    closing: watch::Sender<bool>,
    /// True while changes are streamed.
    pub(super) streaming: watch::Sender<bool>,
    /// The end of the server's log, as far as it is known.
    server_end: AtomicU64,
    /// The place up to which changes were read.
    read_end: AtomicU64,
    /// Estimated number of rows that are not read, by the lanes of the plans that they belong to.
    rows_left: Mutex<BTreeMap<Partition, u64>>,
    /// Data that the server retained for the slot at the last check.
    retention: Mutex<Option<Retention>>,
}

impl Acknowledged {
    /// Creates it. All changes before `confirmed` count as delivered.
    pub(super) fn new(confirmed: Lsn) -> Acknowledged {
        Acknowledged {
            latest: Mutex::default(),
            changed: Notify::new(),
            confirmed: watch::Sender::new(confirmed.0),
            closing: watch::Sender::new(false),
            streaming: watch::Sender::new(false),
            server_end: AtomicU64::new(0),
            read_end: AtomicU64::new(confirmed.0),
            rows_left: Mutex::default(),
            retention: Mutex::default(),
        }
    }

    fn latest(&self) -> MutexGuard<'_, BTreeMap<Partition, Position>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that positions of a lane are delivered and stored.
    ///
    /// # Errors
    /// The last one is not a position of this source.
    pub(super) fn note(&self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        let Some(last) = positions.last() else { return Ok(()) };
        if *partition == CHANGES
            && let StoredPosition::Ours(position) = StoredPosition::decode(last)?
        {
            self.confirm(position.end);
        }
        self.latest().insert(partition.clone(), last.clone());
        self.changed.notify_waiters();
        Ok(())
    }

    /// Lets the server forget what was committed before a place.
    pub(super) fn confirm(&self, end: Lsn) {
        self.confirmed.send_if_modified(|confirmed| {
            let moved = end.0 > *confirmed;
            *confirmed = end.0.max(*confirmed);
            moved
        });
    }

    /// Forgets a lane that is finished.
    pub(super) fn forget(&self, partition: &Partition) {
        self.latest().remove(partition);
    }

    /// Returns the last acknowledged position of a lane.
    pub(super) fn of(&self, partition: &Partition) -> Option<Position> {
        self.latest().get(partition).cloned()
    }

    /// Waits until the last acknowledged position of a lane is this one.
    pub(super) async fn reaches(&self, partition: &Partition, position: &Position) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change is missed.
            changed.as_mut().enable();
            if self.latest().get(partition) == Some(position) {
                return;
            }
            changed.await;
        }
    }

    /// Waits for the next acknowledgement after `look` has returned `None`.
    pub(super) async fn when<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            changed.await;
        }
    }

    /// Returns the place up to which all changes are delivered and stored.
    pub(super) fn confirmed(&self) -> Lsn {
        Lsn(*self.confirmed.borrow())
    }

    /// Returns a receiver of the confirmed place.
    pub(super) fn watch_confirmed(&self) -> watch::Receiver<u64> {
        self.confirmed.subscribe()
    }

    /// Has the tasks of the source end.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Returns a receiver that becomes `true` when the source is being closed.
    pub(super) fn watch_closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Notes the end of the server's log.
    pub(super) fn note_server_end(&self, end: Lsn) {
        self.server_end.fetch_max(end.0, Ordering::Relaxed);
    }

    /// Notes the place up to which changes were read.
    pub(super) fn note_read_end(&self, end: Lsn) {
        self.read_end.fetch_max(end.0, Ordering::Relaxed);
    }

    /// Returns the bytes of the log that are not read.
    pub(super) fn bytes_left(&self) -> u64 {
        let (end, read) = (self.server_end.load(Ordering::Relaxed), self.read_end.load(Ordering::Relaxed));
        end.saturating_sub(read)
    }

    /// Notes the data that the server retains for the slot.
    pub(super) fn note_retention(&self, retention: Retention) {
        *self.retention.lock().unwrap_or_else(PoisonError::into_inner) = Some(retention);
    }

    /// Returns the data that the server retained for the slot at the last check; `None` before the first check.
    pub(super) fn retention(&self) -> Option<Retention> {
        self.retention.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn left(&self) -> MutexGuard<'_, BTreeMap<Partition, u64>> {
        self.rows_left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the estimated number of rows of a plan that are not read.
    pub(super) fn set_rows_left(&self, plan: &Partition, rows: u64) {
        self.left().insert(plan.clone(), rows);
    }

    /// Returns the estimated number of rows that are not read.
    pub(super) fn rows_left(&self) -> u64 {
        self.left().values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::position::{ChangePosition, PLAN, Server, Stage};

    #[tokio::test]
    async fn the_confirmed_place_is_the_end_of_the_last_complete_transaction() {
        let server = Server { system: "1".into(), timeline: 1 };
        let at = |end| ChangePosition::at(&server, "s", Stage::Changes, Lsn(end));
        let partial = ChangePosition { commit: Lsn(90), ordinal: 3, ..at(50) };
        let acknowledged = Acknowledged::new(Lsn(10));
        acknowledged.note(&CHANGES, &[at(40).encode(), partial.encode()]).unwrap();
        assert_eq!(acknowledged.confirmed(), Lsn(50));
        acknowledged.note(&PLAN, &[Position::copy_from(b"{}")]).unwrap();
        acknowledged.note(&CHANGES, &[at(20).encode()]).unwrap();
        assert_eq!(acknowledged.confirmed(), Lsn(50));
        assert!(acknowledged.note(&CHANGES, &[Position::copy_from(b"x")]).is_err());
        let other = Position::copy_from(b"no");
        let reached = tokio::time::timeout(std::time::Duration::ZERO, acknowledged.reaches(&CHANGES, &other)).await;
        assert!(reached.is_err());
        acknowledged.reaches(&PLAN, &Position::copy_from(b"{}")).await;
    }
}
