//! Open connections, and the choice of the one to close if there are too many.
//!
//! Connections of authenticated callers are counted separately from all others, so that others cannot use up the
//! connections of the API. A connection counts as authenticated from its first request with the token. If there are too
//! many others, the service closes the one that has kept it waiting longest, starting with the address that has the
//! most connections. If one address has too many, its oldest connection is closed for its newest, regardless of age: a
//! burst of clients does not keep out a probe that comes after them. A connection is never closed while its request is
//! being answered.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of connections without a request that had the token.
pub(super) const OTHERS: usize = 256;
/// Maximum number of these from one address.
pub(super) const OTHERS_OF_ONE: usize = 192;
/// Maximum number of connections of authenticated callers. Together with the others this limits open files, which
/// pipelines need.
pub(super) const AUTHENTICATED: usize = 256;
/// A connection that waits for a request and was silent for this long may be closed for another.
const SILENT: Duration = Duration::from_millis(250);
/// A connection whose request is not complete after this time may be closed for another, even if data still arrives.
const SLOW: Duration = Duration::from_secs(5);
/// A connection whose client has received nothing for this long may be closed for another.
const STALLED: Duration = Duration::from_secs(1);

/// Maximum numbers of connections.
#[derive(Clone, Copy, Debug)]
struct Limits {
    others: usize,
    others_of_one: usize,
    authenticated: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { others: OTHERS, others_of_one: OTHERS_OF_ONE, authenticated: AUTHENTICATED }
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Slots {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    limits: Limits,
    slots: BTreeMap<u64, SlotEntry>,
    next: u64,
    /// Connections that were closed for others and not logged yet.
    closed: u64,
}

#[derive(Debug)]
struct SlotEntry {
    peer: IpAddr,
    authenticated: bool,
    activity: ConnectionActivity,
    leave: Arc<Notify>,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionActivity {
    /// The service waits for a request, or for the rest of one.
    Waits {
        /// Start of the wait.
        since: Instant,
        /// When bytes last arrived, or the start of the wait.
        heard: Instant,
    },
    /// The service is answering a request.
    Answers,
    /// The client does not receive what is written.
    Stalls {
        /// Start of the wait.
        since: Instant,
    },
}

impl SlotEntry {
    /// Returns how long the connection has kept the service waiting, if that is long enough to close it for another.
    fn overdue(&self, now: Instant) -> Option<Duration> {
        let waited = |since: Instant| now.saturating_duration_since(since);
        let (since, overdue) = match self.activity {
            ConnectionActivity::Waits { since, heard } => (since, waited(heard) >= SILENT || waited(since) >= SLOW),
            ConnectionActivity::Stalls { since } => (since, waited(since) >= STALLED),
            ConnectionActivity::Answers => return None,
        };
        overdue.then(|| waited(since))
    }
}

/// The slot of one connection; dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Slot {
    state: Arc<Mutex<State>>,
    number: u64,
    leave: Arc<Notify>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Every change is complete before a panic could happen.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slots {
    /// Creates slots for a process with this limit of open files. At most half of the files are used for connections,
    /// and a quarter for those of authenticated callers.
    pub(super) fn within(files: u64) -> Self {
        let quarter = usize::try_from(files / 4).unwrap_or(usize::MAX).max(4);
        let others = OTHERS.min(quarter);
        let limits = Limits {
            others,
            others_of_one: OTHERS_OF_ONE.min(others / 4 * 3),
            authenticated: AUTHENTICATED.min(quarter),
        };
        Slots { state: Arc::new(Mutex::new(State { limits, ..State::default() })) }
    }

    /// Closes an overdue connection, if there is one, because the process has no files left.
    pub(super) fn close_one(&self, now: Instant) {
        locked(&self.state).close_one(false, None, now);
    }

    /// Returns `true` if another connection may be accepted; closes an overdue one if necessary.
    pub(super) fn has_room(&self, now: Instant) -> bool {
        let mut state = locked(&self.state);
        state.count(false) < state.limits.others || state.close_one(false, None, now)
    }

    /// Returns a slot for an accepted connection, or `None` if its address has too many connections that are all being
    /// answered.
    pub(super) fn take(&self, peer: IpAddr, now: Instant) -> Option<Slot> {
        let mut state = locked(&self.state);
        let of_peer = state.slots.values().filter(|entry| !entry.authenticated && entry.peer == peer).count();
        if of_peer >= state.limits.others_of_one
            && !state.close_one(false, Some(peer), now)
            && !state.close_oldest(peer)
        {
            state.closed += 1;
            return None;
        }
        let number = state.next;
        state.next += 1;
        let leave = Arc::new(Notify::new());
        let activity = ConnectionActivity::Waits { since: now, heard: now };
        state.slots.insert(number, SlotEntry { peer, authenticated: false, activity, leave: leave.clone() });
        Some(Slot { state: self.state.clone(), number, leave })
    }

    /// Returns the number of connections that were closed for others since the last call, and the address that has the
    /// most open connections.
    pub(super) fn take_closed(&self) -> Option<(u64, Option<IpAddr>)> {
        let mut state = locked(&self.state);
        let closed = std::mem::take(&mut state.closed);
        (closed > 0).then(|| (closed, state.most(None)))
    }
}

impl State {
    fn count(&self, authenticated: bool) -> usize {
        self.slots.values().filter(|entry| entry.authenticated == authenticated).count()
    }

    /// Returns the address with the most unauthenticated connections. If `now` is given, only addresses with an overdue
    /// connection count.
    fn most(&self, now: Option<Instant>) -> Option<IpAddr> {
        let mut counts = BTreeMap::<IpAddr, (usize, bool)>::new();
        for entry in self.slots.values().filter(|entry| !entry.authenticated) {
            let (count, has_overdue) = counts.entry(entry.peer).or_default();
            *count += 1;
            *has_overdue |= now.is_none_or(|now| entry.overdue(now).is_some());
        }
        let eligible = counts.into_iter().filter(|(_, (_, has_overdue))| *has_overdue);
        eligible.max_by_key(|(_, (count, _))| *count).map(|(peer, _)| peer)
    }

    /// Closes the connection that is overdue longest: of `peer`, or of the address with the most connections.
    fn close_one(&mut self, authenticated: bool, peer: Option<IpAddr>, now: Instant) -> bool {
        let peer = if authenticated { None } else { peer.or_else(|| self.most(Some(now))) };
        let candidates = self
            .slots
            .iter()
            .filter(|(_, entry)| entry.authenticated == authenticated && peer.is_none_or(|peer| entry.peer == peer));
        let overdue = candidates.filter_map(|(number, entry)| Some((entry.overdue(now)?, Reverse(*number))));
        let Some((_, Reverse(number))) = overdue.max() else { return false };
        self.close(number);
        true
    }

    /// Closes the oldest connection of `peer` that is neither authenticated nor being answered.
    fn close_oldest(&mut self, peer: IpAddr) -> bool {
        let may_go = |entry: &SlotEntry| {
            !entry.authenticated && entry.peer == peer && entry.activity != ConnectionActivity::Answers
        };
        let Some(number) = self.slots.iter().find(|(_, entry)| may_go(entry)).map(|(number, _)| *number) else {
            return false;
        };
        self.close(number);
        true
    }

    fn close(&mut self, number: u64) {
        if let Some(entry) = self.slots.remove(&number) {
            entry.leave.notify_one();
            self.closed += u64::from(!entry.authenticated);
        }
    }
}

impl Slot {
    /// Returns when the connection has to be closed for another.
    pub(super) async fn left(&self) {
        self.leave.notified().await;
    }

    /// Marks the connection as authenticated after a request with the token, if there is room among the authenticated
    /// ones.
    pub(crate) fn authenticated(&self) {
        let mut state = locked(&self.state);
        if state.count(true) >= state.limits.authenticated && !state.close_one(true, None, Instant::now()) {
            return;
        }
        if let Some(entry) = state.slots.get_mut(&self.number) {
            entry.authenticated = true;
        }
    }

    /// Records that the head of a request is complete. The time for its body starts.
    pub(super) fn awaits_body(&self) {
        self.change(|_, now| ConnectionActivity::Waits { since: now, heard: now });
    }

    /// Records that a request is complete and is being answered.
    pub(super) fn answers(&self) {
        self.change(|_, _| ConnectionActivity::Answers);
    }

    /// Records that the response is complete.
    pub(super) fn answered(&self) {
        self.change(|_, now| ConnectionActivity::Waits { since: now, heard: now });
    }

    /// Records that bytes arrived.
    pub(super) fn heard(&self) {
        self.change(|activity, now| match activity {
            ConnectionActivity::Waits { since, .. } => ConnectionActivity::Waits { since, heard: now },
            activity => activity,
        });
    }

    /// Records that the client does not receive data.
    pub(super) fn stalls(&self) {
        self.change(|activity, now| match activity {
            ConnectionActivity::Waits { .. } => ConnectionActivity::Stalls { since: now },
            activity => activity,
        });
    }

    /// Records that the client received data.
    pub(super) fn written(&self) {
        self.change(|activity, now| match activity {
            ConnectionActivity::Stalls { .. } => ConnectionActivity::Waits { since: now, heard: now },
            activity => activity,
        });
    }

    fn change(&self, change: impl FnOnce(ConnectionActivity, Instant) -> ConnectionActivity) {
        let mut state = locked(&self.state);
        if let Some(entry) = state.slots.get_mut(&self.number) {
            entry.activity = change(entry.activity, Instant::now());
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        locked(&self.state).slots.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// Opens this many idle connections of an address.
    fn open(slots: &Slots, last: u8, count: usize, now: Instant) -> Vec<Slot> {
        (0..count).map(|_| slots.take(address(last), now).unwrap()).collect()
    }

    fn is_open(slots: &Slots, slot: &Slot) -> bool {
        locked(&slots.state).slots.contains_key(&slot.number)
    }

    #[test]
    fn the_address_with_the_most_gives_way_and_of_it_what_waits_longest() {
        let slots = Slots::default();
        let start = Instant::now();
        let few = open(&slots, 1, 64, start);
        let many = open(&slots, 2, OTHERS_OF_ONE, start + Duration::from_millis(1));
        assert!(!slots.has_room(start + Duration::from_millis(2)), "none has had time to send its request");
        let later = start + Duration::from_secs(1);
        assert!(slots.has_room(later));
        assert!(!is_open(&slots, &many[0]) && is_open(&slots, &many[1]));
        assert!(few.iter().all(|slot| is_open(&slots, slot)));
        assert_eq!(slots.take_closed(), Some((1, Some(address(2)))));
        assert_eq!(slots.take_closed(), None);
    }

    #[test]
    fn one_address_has_not_all() {
        let slots = Slots::default();
        let start = Instant::now();
        let mut open = open(&slots, 1, OTHERS_OF_ONE, start);
        let other = slots.take(address(2), start).unwrap();
        // The oldest connection of the same address makes room, not that of another address.
        open.push(slots.take(address(1), start + Duration::from_secs(1)).unwrap());
        assert!(!is_open(&slots, &open[0]) && is_open(&slots, &other));
        open[1..].iter().for_each(Slot::answers);
        assert!(slots.take(address(1), start + Duration::from_secs(2)).is_none());
    }

    #[test]
    fn a_process_that_may_open_few_files_has_few_connections() {
        let now = Instant::now();
        let most = |files: u64| {
            let slots = Slots::within(files);
            let _open: Vec<Slot> = (0..600).filter_map(|_| slots.take(address(1), now)).collect();
            locked(&slots.state).count(false)
        };
        assert_eq!([most(u64::MAX), most(1024), most(128), most(64)], [192, 192, 24, 12]);
        let slots = Slots::within(128);
        let open: Vec<Slot> = (1..=8).flat_map(|last| open(&slots, last, 4, now)).collect();
        assert!(!slots.has_room(now), "a quarter of the files");
        open.iter().for_each(Slot::authenticated);
        assert!(slots.has_room(now) && locked(&slots.state).count(true) == 32);
    }

    #[test]
    fn what_comes_after_many_at_once_is_served() {
        let slots = Slots::default();
        let now = Instant::now();
        let many: Vec<Slot> = (0..2 * OTHERS_OF_ONE).filter_map(|_| slots.take(address(1), now)).collect();
        let probe = slots.take(address(1), now).unwrap();
        assert!(is_open(&slots, &probe));
        assert!(!is_open(&slots, &many[OTHERS_OF_ONE]) && is_open(&slots, &many[OTHERS_OF_ONE + 1]));
    }

    #[test]
    fn what_is_answered_stays() {
        let slots = Slots::default();
        let start = Instant::now();
        let open: Vec<Slot> =
            (1..=2).flat_map(|last| open(&slots, last, OTHERS / 2, start)).inspect(Slot::answers).collect();
        let hour = Duration::from_secs(3600);
        assert!(!slots.has_room(start + hour));
        // Its client does not read the answer.
        open[7].answered();
        open[7].stalls();
        assert!(!slots.has_room(start));
        assert!(slots.has_room(start + hour));
        assert!(!is_open(&slots, &open[7]));
        // A free slot is one.
        open[8].answered();
        drop(open);
        assert!(slots.has_room(start) && locked(&slots.state).slots.is_empty());
    }

    #[test]
    fn a_request_that_trickles_in_is_overdue_at_last() {
        let start = Instant::now();
        let entry = |since, heard| SlotEntry {
            peer: address(1),
            authenticated: false,
            activity: ConnectionActivity::Waits { since, heard },
            leave: Arc::default(),
        };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(entry(start, at(4)).overdue(at(4)), None);
        assert_eq!(entry(start, at(5)).overdue(at(5)), Some(Duration::from_secs(5)));
    }

    #[test]
    fn authenticated_callers_have_slots_of_their_own() {
        let slots = Slots::default();
        let start = Instant::now();
        let mut known = Vec::new();
        for last in 0..4 {
            known.extend(open(&slots, last, AUTHENTICATED / 4, start));
            known.iter().for_each(Slot::authenticated);
        }
        let others: Vec<Slot> = (0..4).flat_map(|last| open(&slots, last, OTHERS / 4, start)).collect();
        let hour = start + Duration::from_secs(3600);
        assert!(slots.has_room(hour), "one of the others goes");
        assert!(known.iter().all(|slot| is_open(&slots, slot)));
        // All slots for authenticated clients are busy: the connection takes one of the others.
        known.iter().for_each(Slot::answers);
        others[9].authenticated();
        assert_eq!(locked(&slots.state).count(true), AUTHENTICATED);
    }
}
