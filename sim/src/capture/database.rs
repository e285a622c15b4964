//! A model of a database: transactions that run side by side, a log of what they commit, and a replication slot.
//!
//! As in PostgreSQL, a transaction is in the log before others see it, the changes of a transaction arrive together in the
//! order of the commits, and the log is removed up to the place that the slot confirms.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

/// Id of a transaction, in the order of their beginnings.
pub(super) type Xid = u64;

/// Maximum number of transactions that write at the same time.
const WRITERS: usize = 3;

/// A change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Change {
    /// The key of the row.
    pub(super) key: u32,
    /// Number of the change. Later changes of a row have higher numbers.
    pub(super) version: u64,
    /// False if the row was deleted.
    pub(super) exists: bool,
}

/// A form of a row, as stored.
#[derive(Clone, Copy, Debug)]
struct Version {
    change: Change,
    writer: Xid,
    page: u32,
}

/// A row, as a snapshot sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) change: Change,
    /// The transaction that wrote it.
    pub(super) writer: Xid,
    /// The page on which it is.
    pub(super) page: u32,
}

/// A transaction that has not ended for others.
#[derive(Clone, Debug)]
struct Writer {
    xid: Xid,
    changes: Vec<Change>,
}

/// A transaction in the log.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) xid: Xid,
    /// The place of its commit.
    pub(super) commit: u64,
    pub(super) changes: Vec<Change>,
}

/// The committed transactions that a reader sees.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    seen: BTreeSet<Xid>,
    /// All transactions before this one have ended.
    pub(super) oldest: Xid,
}

impl Snapshot {
    /// Returns `true` if it contains a transaction.
    pub(super) fn sees(&self, xid: Xid) -> bool {
        self.seen.contains(&xid)
    }
}

/// What the server sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    Begin {
        xid: Xid,
        /// The place of the commit.
        commit: u64,
    },
    Row(Change),
    Commit {
        /// The place after the commit.
        end: u64,
    },
    /// All transactions that were committed before this place were sent.
    Sent(u64),
}

/// Where the server is in the log.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    transaction: usize,
    /// Number of the next message of the transaction.
    part: usize,
    /// The place of the last [`Message::Sent`].
    sent: u64,
}

/// The database.
pub(super) struct Database {
    rng: Rng,
    keys: u32,
    pages: u32,
    versions: BTreeMap<u32, Vec<Version>>,
    writers: Vec<Writer>,
    /// Transactions that are in the log, and that nobody sees yet.
    committing: Vec<Writer>,
    /// All transactions that were committed.
    log: Vec<Logged>,
    /// The end of the log.
    end: u64,
    next_xid: Xid,
    next_version: u64,
    /// Number of transactions that are still to begin.
    left: u32,
    /// The place up to which the slot has confirmed; `None` if there is no slot.
    confirmed: Option<u64>,
    /// The place from which the slot has all changes.
    pub(super) slot_from: u64,
}

impl Database {
    /// Creates a database with rows for half of `keys` keys, and which executes so many transactions.
    pub(super) fn new(mut rng: Rng, keys: u32, pages: u32, transactions: u32) -> Database {
        let mut database = Database {
            keys,
            pages,
            versions: BTreeMap::new(),
            writers: Vec::new(),
            committing: Vec::new(),
            log: Vec::new(),
            end: 100,
            next_xid: 1,
            next_version: 1,
            left: transactions,
            confirmed: None,
            slot_from: 0,
            rng: rng.fork(),
        };
        database.begin();
        for key in 0..keys {
            if rng.bool() {
                database.write(0, key);
            }
        }
        database.commit(0);
        database.committing.clear();
        database
    }

    /// Executes a part of a transaction. Returns `false` if nothing is left.
    pub(super) fn step(&mut self) -> bool {
        if self.is_quiet() {
            return false;
        }
        let action = self.rng.u32(..10);
        let writer = self.rng.usize(..self.writers.len().max(1));
        match action {
            0 | 1 if self.left > 0 && self.writers.len() < WRITERS => {
                self.left -= 1;
                self.begin();
            }
            2..6 if writer < self.writers.len() => {
                let key = self.rng.u32(..self.keys);
                self.write(writer, key);
            }
            6 | 7 if writer < self.writers.len() => match self.rng.u32(..6) {
                0 => self.roll_back(writer),
                _ => self.commit(writer),
            },
            8 if !self.committing.is_empty() => {
                let at = self.rng.usize(..self.committing.len());
                self.committing.remove(at);
            }
            // Something that the slot does not publish.
            9 => self.end += self.rng.u64(1..4),
            _ => {}
        }
        true
    }

    /// Returns `true` if no transaction runs or is still to begin.
    pub(super) fn is_quiet(&self) -> bool {
        self.left == 0 && self.writers.is_empty() && self.committing.is_empty()
    }

    fn begin(&mut self) {
        let xid = self.begin_reading();
        self.writers.push(Writer { xid, changes: Vec::new() });
    }

    /// Assigns the id of a transaction that writes nothing and ends at once.
    pub(super) fn begin_reading(&mut self) -> Xid {
        self.next_xid += 1;
        self.next_xid - 1
    }

    fn write(&mut self, writer: usize, key: u32) {
        let xid = self.writers[writer].xid;
        let last = self.versions.get(&key).and_then(|versions| versions.last()).copied();
        let is_locked =
            |version: &Version| version.writer != xid && self.running().any(|other| other == version.writer);
        if last.as_ref().is_some_and(is_locked) {
            return;
        }
        let existed = last.is_some_and(|last| last.change.exists);
        let exists = !existed || self.rng.u32(..5) > 0;
        let page = match last {
            // An update leaves the row on its page if there is room.
            Some(last) if self.rng.bool() => last.page,
            _ => self.rng.u32(..self.pages),
        };
        let change = Change { key, version: self.next_version, exists };
        self.next_version += 1;
        self.end += 1;
        self.versions.entry(key).or_default().push(Version { change, writer: xid, page });
        self.writers[writer].changes.push(change);
    }

    fn roll_back(&mut self, writer: usize) {
        let Writer { xid, .. } = self.writers.remove(writer);
        self.versions.values_mut().for_each(|versions| versions.retain(|version| version.writer != xid));
    }

    fn commit(&mut self, writer: usize) {
        let writer = self.writers.remove(writer);
        if !writer.changes.is_empty() {
            self.log.push(Logged { xid: writer.xid, commit: self.end, changes: writer.changes.clone() });
        }
        self.end += 1;
        if self.rng.u32(..3) == 0 {
            self.committing.push(writer);
        }
    }

    /// Returns the transactions that have not ended for others.
    pub(super) fn running(&self) -> impl Iterator<Item = Xid> {
        self.writers.iter().chain(&self.committing).map(|writer| writer.xid)
    }

    /// Returns the end of the log.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns what a statement sees now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let running: BTreeSet<Xid> = self.running().collect();
        let seen = self.log.iter().map(|logged| logged.xid).filter(|xid| !running.contains(xid)).collect();
        Snapshot { seen, oldest: running.first().copied().unwrap_or(self.next_xid) }
    }

    /// Returns the snapshot of a slot that is created now: all transactions in the log.
    pub(super) fn snapshot_of_slot(&self) -> Snapshot {
        let oldest = self.writers.iter().map(|writer| writer.xid).min().unwrap_or(self.next_xid);
        Snapshot { seen: self.log.iter().map(|logged| logged.xid).collect(), oldest }
    }

    /// Returns the rows that a snapshot sees, in the order of their keys.
    pub(super) fn rows(&self, snapshot: &Snapshot) -> Vec<Row> {
        let row = |versions: &Vec<Version>| {
            let version = versions.iter().rev().find(|version| snapshot.sees(version.writer))?;
            version.change.exists.then_some(Row { change: version.change, writer: version.writer, page: version.page })
        };
        self.versions.values().filter_map(row).collect()
    }

    /// Returns the last committed change of each row.
    pub(super) fn committed(&self) -> BTreeMap<u32, Change> {
        self.log.iter().flat_map(|logged| &logged.changes).map(|change| (change.key, *change)).collect()
    }

    /// Returns the committed transactions, in the order of the log.
    pub(super) fn log(&self) -> &[Logged] {
        &self.log
    }

    /// Creates the slot.
    pub(super) fn create_slot(&mut self) {
        self.confirmed = Some(self.end);
        self.slot_from = self.end;
    }

    /// Returns the place up to which the slot has confirmed; `None` if there is no slot.
    pub(super) fn confirmed(&self) -> Option<u64> {
        self.confirmed
    }

    /// Lets the server remove the log before a place.
    pub(super) fn confirm(&mut self, place: u64) {
        self.confirmed = self.confirmed.map(|confirmed| confirmed.max(place));
    }

    /// Begins to send the transactions that were committed at a place or later, and that the log still has.
    pub(super) fn send_from(&self, place: u64) -> Cursor {
        let place = place.max(self.confirmed.unwrap_or(u64::MAX));
        Cursor { transaction: self.log.partition_point(|logged| logged.commit < place), part: 0, sent: 0 }
    }

    /// Returns the next message; `None` if there is none yet.
    pub(super) fn send(&mut self, cursor: &mut Cursor) -> Option<Message> {
        let Some(logged) = self.log.get(cursor.transaction) else {
            let is_news = self.end > cursor.sent;
            cursor.sent = self.end;
            return is_news.then_some(Message::Sent(self.end));
        };
        // The server also says how far it is while transactions are left.
        if cursor.part == 0 && logged.commit > cursor.sent && self.rng.u32(..4) == 0 {
            cursor.sent = logged.commit;
            return Some(Message::Sent(logged.commit));
        }
        let message = match cursor.part.checked_sub(1) {
            None => Message::Begin { xid: logged.xid, commit: logged.commit },
            Some(row) => match logged.changes.get(row) {
                Some(change) => Message::Row(*change),
                None => {
                    (cursor.transaction, cursor.part) = (cursor.transaction + 1, 0);
                    return Some(Message::Commit { end: logged.commit + 1 });
                }
            },
        };
        cursor.part += 1;
        Some(message)
    }
}
