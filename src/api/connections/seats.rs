//! Open connections, and the choice of the one to close if there are too many.
//!
//! Connections of authenticated callers and all others are counted apart, so that no number of others takes the API away.
//! A connection counts as authenticated from its first request with the token on. When the others are too many, the one
//! that keeps the service waiting longest is closed for the next: first one of the address with the most of them. When one
//! address has too many, its oldest makes room for its newest, whatever its age: many clients that come at once do not keep
//! out the probe that comes after them. A connection that is being answered is never closed for another.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Most connections that no request with the token came over.
pub(super) const OTHERS: usize = 256;
/// Most of these from one address.
pub(super) const OTHERS_OF_ONE: usize = 192;
/// Most connections of authenticated callers. With the others this is a bound on open files: a pipeline must not lack them.
pub(super) const AUTHENTICATED: usize = 256;
/// A connection over which nothing came for so long, although a request is awaited, may be closed for another.
const SILENT: Duration = Duration::from_millis(250);
/// One whose request is not complete after this may be closed for another, even if more of it comes.
const SLOW: Duration = Duration::from_secs(5);
/// One whose client has taken nothing for so long may be closed for another.
const STALLED: Duration = Duration::from_secs(1);

/// How many connections there may be.
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
pub(super) struct Seats {
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    limits: Limits,
    seats: BTreeMap<u64, Entry>,
    next: u64,
    /// Connections that were closed for others and not told of, and an address with the most of them.
    closed: u64,
}

#[derive(Debug)]
struct Entry {
    peer: IpAddr,
    authenticated: bool,
    does: Does,
    leave: Arc<Notify>,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// A request is awaited, or the rest of one.
    Waits {
        /// Since when.
        since: Instant,
        /// When bytes came last, or since when.
        heard: Instant,
    },
    /// A request is being answered.
    Answers,
    /// The client does not take what is written.
    Stalls {
        /// Since when.
        since: Instant,
    },
}

impl Entry {
    /// How long it has kept the service waiting, where that is long enough to be closed for another.
    fn overdue(&self, now: Instant) -> Option<Duration> {
        let waited = |since: Instant| now.saturating_duration_since(since);
        let (since, overdue) = match self.does {
            Does::Waits { since, heard } => (since, waited(heard) >= SILENT || waited(since) >= SLOW),
            Does::Stalls { since } => (since, waited(since) >= STALLED),
            Does::Answers => return None,
        };
        overdue.then(|| waited(since))
    }
}

/// The seat of one connection; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Seat {
    book: Arc<Mutex<Book>>,
    number: u64,
    leave: Arc<Notify>,
}

fn locked(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    // Every change is whole.
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seats {
    /// For a process that may have so many files open: half of them at most are connections, one quarter those of
    /// authenticated callers.
    pub(super) fn within(files: u64) -> Self {
        let quarter = usize::try_from(files / 4).unwrap_or(usize::MAX).max(4);
        let others = OTHERS.min(quarter);
        let limits = Limits {
            others,
            others_of_one: OTHERS_OF_ONE.min(others / 4 * 3),
            authenticated: AUTHENTICATED.min(quarter),
        };
        Seats { book: Arc::new(Mutex::new(Book { limits, ..Book::default() })) }
    }

    /// Closes a connection that is overdue, where there is one: there are no files left.
    pub(super) fn close_one(&self, now: Instant) {
        locked(&self.book).close_one(false, None, now);
    }

    /// Whether one more connection may be accepted; closes one that is overdue for it.
    pub(super) fn has_room(&self, now: Instant) -> bool {
        let mut book = locked(&self.book);
        book.count(false) < book.limits.others || book.close_one(false, None, now)
    }

    /// A seat for a connection that was accepted. `None`: its address has too many, and all of them are being answered.
    pub(super) fn take(&self, peer: IpAddr, now: Instant) -> Option<Seat> {
        let mut book = locked(&self.book);
        let of_peer = book.seats.values().filter(|entry| !entry.authenticated && entry.peer == peer).count();
        if of_peer >= book.limits.others_of_one && !book.close_one(false, Some(peer), now) && !book.close_oldest(peer) {
            book.closed += 1;
            return None;
        }
        let number = book.next;
        book.next += 1;
        let leave = Arc::new(Notify::new());
        let does = Does::Waits { since: now, heard: now };
        book.seats.insert(number, Entry { peer, authenticated: false, does, leave: leave.clone() });
        Some(Seat { book: self.book.clone(), number, leave })
    }

    /// How many connections were closed for others since this was last asked, with the address that most of those come
    /// from that are open now.
    pub(super) fn take_closed(&self) -> Option<(u64, Option<IpAddr>)> {
        let mut book = locked(&self.book);
        let closed = std::mem::take(&mut book.closed);
        (closed > 0).then(|| (closed, book.most(None)))
    }
}

impl Book {
    fn count(&self, authenticated: bool) -> usize {
        self.seats.values().filter(|entry| entry.authenticated == authenticated).count()
    }

    /// The address with the most connections that are not authenticated, of those with one that is overdue if `now` is
    /// given.
    fn most(&self, now: Option<Instant>) -> Option<IpAddr> {
        let mut counts = BTreeMap::<IpAddr, (usize, bool)>::new();
        for entry in self.seats.values().filter(|entry| !entry.authenticated) {
            let (count, has_overdue) = counts.entry(entry.peer).or_default();
            *count += 1;
            *has_overdue |= now.is_none_or(|now| entry.overdue(now).is_some());
        }
        let eligible = counts.into_iter().filter(|(_, (_, has_overdue))| *has_overdue);
        eligible.max_by_key(|(_, (count, _))| *count).map(|(peer, _)| peer)
    }

    /// Closes the connection that is overdue longest: of one address, or of the one with the most.
    fn close_one(&mut self, authenticated: bool, peer: Option<IpAddr>, now: Instant) -> bool {
        let peer = if authenticated { None } else { peer.or_else(|| self.most(Some(now))) };
        let candidates = self
            .seats
            .iter()
            .filter(|(_, entry)| entry.authenticated == authenticated && peer.is_none_or(|peer| entry.peer == peer));
        let overdue = candidates.filter_map(|(number, entry)| Some((entry.overdue(now)?, Reverse(*number))));
        let Some((_, Reverse(number))) = overdue.max() else { return false };
        self.close(number);
        true
    }

    /// Closes the connection of `peer` that was accepted first of those that are neither authenticated nor being answered.
    fn close_oldest(&mut self, peer: IpAddr) -> bool {
        let may_go = |entry: &Entry| !entry.authenticated && entry.peer == peer && entry.does != Does::Answers;
        let Some(number) = self.seats.iter().find(|(_, entry)| may_go(entry)).map(|(number, _)| *number) else {
            return false;
        };
        self.close(number);
        true
    }

    fn close(&mut self, number: u64) {
        if let Some(entry) = self.seats.remove(&number) {
            entry.leave.notify_one();
            self.closed += u64::from(!entry.authenticated);
        }
    }
}

impl Seat {
    /// Returns when the connection has to be closed for another.
    pub(super) async fn left(&self) {
        self.leave.notified().await;
    }

    /// A request came over it with the token. It counts with those of authenticated callers from now on, if there is room
    /// among them.
    pub(crate) fn authenticated(&self) {
        let mut book = locked(&self.book);
        if book.count(true) >= book.limits.authenticated && !book.close_one(true, None, Instant::now()) {
            return;
        }
        if let Some(entry) = book.seats.get_mut(&self.number) {
            entry.authenticated = true;
        }
    }

    /// The head of a request is there. The client has time for its body from now on.
    pub(super) fn awaits_body(&self) {
        self.change(|_, now| Does::Waits { since: now, heard: now });
    }

    /// A request is complete, and is being answered.
    pub(super) fn answers(&self) {
        self.change(|_, _| Does::Answers);
    }

    /// The answer is made.
    pub(super) fn answered(&self) {
        self.change(|_, now| Does::Waits { since: now, heard: now });
    }

    /// Bytes came.
    pub(super) fn heard(&self) {
        self.change(|does, now| match does {
            Does::Waits { since, .. } => Does::Waits { since, heard: now },
            does => does,
        });
    }

    /// The client takes nothing more for now.
    pub(super) fn stalls(&self) {
        self.change(|does, now| match does {
            Does::Waits { .. } => Does::Stalls { since: now },
            does => does,
        });
    }

    /// The client has taken something.
    pub(super) fn written(&self) {
        self.change(|does, now| match does {
            Does::Stalls { .. } => Does::Waits { since: now, heard: now },
            does => does,
        });
    }

    fn change(&self, change: impl FnOnce(Does, Instant) -> Does) {
        let mut book = locked(&self.book);
        if let Some(entry) = book.seats.get_mut(&self.number) {
            entry.does = change(entry.does, Instant::now());
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        locked(&self.book).seats.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// So many connections of an address that wait for nothing.
    fn open(seats: &Seats, last: u8, count: usize, now: Instant) -> Vec<Seat> {
        (0..count).map(|_| seats.take(address(last), now).unwrap()).collect()
    }

    fn is_open(seats: &Seats, seat: &Seat) -> bool {
        locked(&seats.book).seats.contains_key(&seat.number)
    }

    #[test]
    fn the_address_with_the_most_gives_way_and_of_it_what_waits_longest() {
        let seats = Seats::default();
        let start = Instant::now();
        let few = open(&seats, 1, 64, start);
        let many = open(&seats, 2, OTHERS_OF_ONE, start + Duration::from_millis(1));
        assert!(!seats.has_room(start + Duration::from_millis(2)), "none has had time to send its request");
        let later = start + Duration::from_secs(1);
        assert!(seats.has_room(later));
        assert!(!is_open(&seats, &many[0]) && is_open(&seats, &many[1]));
        assert!(few.iter().all(|seat| is_open(&seats, seat)));
        assert_eq!(seats.take_closed(), Some((1, Some(address(2)))));
        assert_eq!(seats.take_closed(), None);
    }

    #[test]
    fn one_address_has_not_all() {
        let seats = Seats::default();
        let start = Instant::now();
        let mut open = open(&seats, 1, OTHERS_OF_ONE, start);
        let other = seats.take(address(2), start).unwrap();
        // Its own oldest makes room, and not that of another.
        open.push(seats.take(address(1), start + Duration::from_secs(1)).unwrap());
        assert!(!is_open(&seats, &open[0]) && is_open(&seats, &other));
        open[1..].iter().for_each(Seat::answers);
        assert!(seats.take(address(1), start + Duration::from_secs(2)).is_none());
    }

    #[test]
    fn a_process_that_may_open_few_files_has_few_connections() {
        let now = Instant::now();
        let most = |files: u64| {
            let seats = Seats::within(files);
            let _open: Vec<Seat> = (0..600).filter_map(|_| seats.take(address(1), now)).collect();
            locked(&seats.book).count(false)
        };
        assert_eq!([most(u64::MAX), most(1024), most(128), most(64)], [192, 192, 24, 12]);
        let seats = Seats::within(128);
        let open: Vec<Seat> = (1..=8).flat_map(|last| open(&seats, last, 4, now)).collect();
        assert!(!seats.has_room(now), "a quarter of the files");
        open.iter().for_each(Seat::authenticated);
        assert!(seats.has_room(now) && locked(&seats.book).count(true) == 32);
    }

    #[test]
    fn what_comes_after_many_at_once_is_served() {
        let seats = Seats::default();
        let now = Instant::now();
        let many: Vec<Seat> = (0..2 * OTHERS_OF_ONE).filter_map(|_| seats.take(address(1), now)).collect();
        let probe = seats.take(address(1), now).unwrap();
        assert!(is_open(&seats, &probe));
        assert!(!is_open(&seats, &many[OTHERS_OF_ONE]) && is_open(&seats, &many[OTHERS_OF_ONE + 1]));
    }

    #[test]
    fn what_is_answered_stays() {
        let seats = Seats::default();
        let start = Instant::now();
        let open: Vec<Seat> =
            (1..=2).flat_map(|last| open(&seats, last, OTHERS / 2, start)).inspect(Seat::answers).collect();
        let hour = Duration::from_secs(3600);
        assert!(!seats.has_room(start + hour));
        // Its client does not read the answer.
        open[7].answered();
        open[7].stalls();
        assert!(!seats.has_room(start));
        assert!(seats.has_room(start + hour));
        assert!(!is_open(&seats, &open[7]));
        // A free seat is one.
        open[8].answered();
        drop(open);
        assert!(seats.has_room(start) && locked(&seats.book).seats.is_empty());
    }

    #[test]
    fn a_request_that_trickles_in_is_overdue_at_last() {
        let start = Instant::now();
        let entry = |since, heard| Entry {
            peer: address(1),
            authenticated: false,
            does: Does::Waits { since, heard },
            leave: Arc::default(),
        };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(entry(start, at(4)).overdue(at(4)), None);
        assert_eq!(entry(start, at(5)).overdue(at(5)), Some(Duration::from_secs(5)));
    }

    #[test]
    fn authenticated_callers_have_seats_of_their_own() {
        let seats = Seats::default();
        let start = Instant::now();
        let mut known = Vec::new();
        for last in 0..4 {
            known.extend(open(&seats, last, AUTHENTICATED / 4, start));
            known.iter().for_each(Seat::authenticated);
        }
        let others: Vec<Seat> = (0..4).flat_map(|last| open(&seats, last, OTHERS / 4, start)).collect();
        let hour = start + Duration::from_secs(3600);
        assert!(seats.has_room(hour), "one of the others goes");
        assert!(known.iter().all(|seat| is_open(&seats, seat)));
        // There is no room among them, and all are busy: it is answered as one of the others.
        known.iter().for_each(Seat::answers);
        others[9].authenticated();
        assert_eq!(locked(&seats.book).count(true), AUTHENTICATED);
    }
}
