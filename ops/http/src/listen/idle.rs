//! Connections that wait for a request. If there are too many connections, one of them gives its place to another client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The idle connections of a source.
#[derive(Default)]
pub(super) struct IdleConnections {
    waiting: Mutex<IdleTurns>,
    arrived: Notify,
}

#[derive(Default)]
struct IdleTurns {
    /// Number of the times that a connection became idle.
    turns: u64,
    /// The idle connections by the turn since which they are idle.
    connections: BTreeMap<u64, Arc<Notify>>,
}

/// A connection, which is idle from its start until its first request, and between two requests.
pub(super) struct IdleState {
    all: Arc<IdleConnections>,
    close: Arc<Notify>,
    /// Turn since which the connection is idle; `None` while a request is answered.
    turn: Mutex<Option<u64>>,
}

/// A request of a connection. Dropping it makes the connection idle.
pub(super) struct BusyConnection(Arc<IdleState>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IdleConnections {
    /// Adds a connection, which is idle.
    pub(super) fn connect(self: &Arc<Self>) -> Arc<IdleState> {
        let activity = IdleState { all: self.clone(), close: Arc::default(), turn: Mutex::default() };
        activity.rest();
        Arc::new(activity)
    }

    /// Asks the connection that is idle for the longest time to close.
    pub(super) fn close_longest(&self) {
        if let Some((_, close)) = locked(&self.waiting).connections.pop_first() {
            close.notify_one();
        }
    }

    /// Waits until another connection becomes idle.
    pub(super) async fn arrival(&self) {
        self.arrived.notified().await;
    }
}

impl IdleState {
    fn rest(&self) {
        let mut waiting = locked(&self.all.waiting);
        waiting.turns += 1;
        let turn = waiting.turns;
        waiting.connections.insert(turn, self.close.clone());
        drop(waiting);
        *locked(&self.turn) = Some(turn);
        self.all.arrived.notify_one();
    }

    fn leave(&self) {
        if let Some(turn) = locked(&self.turn).take() {
            locked(&self.all.waiting).connections.remove(&turn);
        }
    }

    /// Begins a request.
    pub(super) fn begin(self: &Arc<Self>) -> BusyConnection {
        self.leave();
        BusyConnection(self.clone())
    }

    /// Returns `true` while a request is answered.
    pub(super) fn is_busy(&self) -> bool {
        locked(&self.turn).is_none()
    }

    /// Waits until the connection has to close for another one.
    pub(super) async fn closing(&self) {
        self.close.notified().await;
    }
}

impl Drop for IdleState {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Drop for BusyConnection {
    fn drop(&mut self) {
        self.0.rest();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn the_connection_that_is_idle_for_the_longest_time_gives_its_place() {
        let idle = Arc::new(IdleConnections::default());
        let (a, b, c) = (idle.connect(), idle.connect(), idle.connect());
        let is_asked = |connection: &IdleState| connection.closing().now_or_never().is_some();
        let request = a.begin();
        assert!(a.is_busy() && !b.is_busy());
        idle.close_longest();
        assert_eq!([&a, &b, &c].map(|connection| is_asked(connection)), [false, true, false]);
        // A request that is answered makes its connection the last in the row.
        drop(request);
        idle.close_longest();
        assert_eq!([&a, &c].map(|connection| is_asked(connection)), [false, true]);
        drop(a);
        idle.close_longest();
        assert!(idle.arrival().now_or_never().is_some());
    }
}
