//! Converts what the server sends to records, and merges a chunk of rows with it.

use anabranch_graph::mutant::{Mutant, is_active};

use super::database::{Change, Message, Snapshot, Xid};
use super::position::{ChangePosition, Stage};

/// Rows that are read beside the changes.
pub(super) struct Chunk {
    /// The rows; `None` for one whose change the stream has.
    pub(super) rows: Vec<Option<Change>>,
    pub(super) snapshot: Snapshot,
    /// All transactions that it contains were committed before this place.
    pub(super) until: u64,
    /// The key of the last row; `None` if it is the last chunk.
    pub(super) last: Option<u32>,
}

enum Window {
    Closed,
    /// The chunk is being read. What arrives meanwhile, and the number of transactions that had arrived before.
    Reading(Vec<(Xid, u32)>, usize),
    /// The chunk waits until the stream has come to its place.
    Merging(Chunk),
}

struct Transaction {
    xid: Xid,
    commit: u64,
    ordinal: u64,
    /// Number of changes that were read before.
    skip: u64,
}

/// The state of a stream.
pub(super) struct Changes {
    stage: Stage,
    transaction: Option<Transaction>,
    /// The last change, until it is known whether it is the last of its transaction.
    pending: Option<(u64, Change)>,
    /// The changes of all transactions that were committed before this place are read.
    pub(super) end: u64,
    /// The place that the last position has.
    said: u64,
    /// The end of the last transaction with a record.
    pub(super) recorded: u64,
    partial: Option<(u64, u64)>,
    /// Transactions that were committed here or later are not read.
    limit: Option<u64>,
    /// Transactions that arrived since chunks are read; `None` if none are.
    streamed: Option<Vec<Xid>>,
    window: Window,
}

/// A record of the stream.
pub(super) type Streamed = (Change, ChangePosition);

impl Changes {
    pub(super) fn new(from: ChangePosition, limit: Option<u64>) -> Changes {
        Changes {
            stage: if limit.is_some() { Stage::Snapshot } else { Stage::Changes },
            transaction: None,
            pending: None,
            end: from.end,
            said: from.end,
            recorded: 0,
            partial: Some((from.commit, from.ordinal)).filter(|(commit, _)| *commit > 0),
            limit,
            streamed: None,
            window: Window::Closed,
        }
    }

    /// Takes a message, and appends the records that are complete. Returns `true` if the limit is reached.
    pub(super) fn take(&mut self, message: Message, records: &mut Vec<Streamed>) -> bool {
        match message {
            Message::Begin { commit, .. } if self.limit.is_some_and(|limit| commit >= limit) => {
                self.end = self.end.max(self.limit.unwrap_or_default());
            }
            Message::Begin { xid, commit } => {
                let skip = match self.partial.filter(|(partial, _)| *partial == commit) {
                    Some(_) if is_active(Mutant::PlaceAloneIsIdentity) => u64::MAX,
                    partial => partial.map_or(0, |(_, read)| read),
                };
                self.partial = self.partial.filter(|(partial, _)| *partial > commit);
                if let Some(streamed) = &mut self.streamed {
                    streamed.push(xid);
                }
                self.transaction = Some(Transaction { xid, commit, ordinal: 0, skip });
                return false;
            }
            Message::Row(change) => {
                self.row(change, records);
                return false;
            }
            Message::Commit { end } => {
                self.transaction = None;
                self.end = self.end.max(end);
                if let Some((_, change)) = self.pending.take() {
                    (self.said, self.recorded) = (self.end, self.end);
                    records.push((change, ChangePosition::at(self.stage, self.end)));
                }
            }
            Message::Sent(place) => {
                self.partial = self.partial.filter(|(commit, _)| *commit >= place);
                self.end = self.end.max(self.limit.map_or(place, |limit| limit.min(place)));
            }
        }
        self.limit.is_some_and(|limit| self.end >= limit)
    }

    fn row(&mut self, change: Change, records: &mut Vec<Streamed>) {
        let Some(transaction) = &mut self.transaction else { return };
        let xid = transaction.xid;
        match &mut self.window {
            Window::Closed => {}
            Window::Reading(changes, _) => changes.push((xid, change.key)),
            Window::Merging(chunk) => chunk.leave_out(xid, change.key),
        }
        transaction.ordinal += 1;
        if transaction.ordinal <= transaction.skip {
            return;
        }
        let commit = transaction.commit;
        if let Some((ordinal, previous)) = self.pending.replace((transaction.ordinal, change)) {
            records.push((previous, ChangePosition { stage: self.stage, end: commit, commit, ordinal }));
        }
    }

    /// Returns a position that moved without a record, once.
    pub(super) fn progress(&mut self) -> Option<ChangePosition> {
        if self.transaction.is_some() || self.partial.is_some() || self.end <= self.said {
            return None;
        }
        self.said = self.end;
        Some(ChangePosition::at(self.stage, self.end))
    }

    /// Begins a chunk, which is being read from now on.
    pub(super) fn open_window(&mut self) {
        let before = self.streamed.get_or_insert_default().len();
        self.window = Window::Reading(Vec::new(), before);
    }

    /// Ends a chunk that was not read.
    pub(super) fn drop_window(&mut self) {
        self.window = Window::Closed;
    }

    /// Takes the chunk that was read. Returns `false` if it does not contain a transaction that had arrived before.
    pub(super) fn merge(&mut self, mut chunk: Chunk) -> bool {
        let window = std::mem::replace(&mut self.window, Window::Closed);
        let (Window::Reading(changes, before), Some(streamed)) = (window, &mut self.streamed) else { return false };
        let is_complete = streamed.iter().take(before).all(|xid| chunk.snapshot.sees(*xid));
        streamed.retain(|xid| !chunk.snapshot.sees(*xid));
        let is_complete = is_complete || is_active(Mutant::ChunkMissesTransaction);
        if is_complete {
            changes.into_iter().for_each(|(xid, key)| chunk.leave_out(xid, key));
            self.window = Window::Merging(chunk);
        }
        is_complete
    }

    /// Returns the chunk, if its rows are to be passed on here.
    pub(super) fn close_window(&mut self) -> Option<Chunk> {
        let is_between = self.transaction.is_none() && self.partial.is_none();
        match std::mem::replace(&mut self.window, Window::Closed) {
            Window::Merging(chunk)
                if is_between && self.end >= chunk.until || is_active(Mutant::ChunkOvertakesStream) =>
            {
                Some(chunk)
            }
            window => {
                self.window = window;
                None
            }
        }
    }

    /// Ends the reading of rows beside the changes.
    pub(super) fn end_windows(&mut self) {
        (self.streamed, self.window) = (None, Window::Closed);
    }
}

impl Chunk {
    /// Leaves out a row that a transaction changed which the chunk does not contain.
    fn leave_out(&mut self, xid: Xid, key: u32) {
        if !self.snapshot.sees(xid) {
            self.rows.iter_mut().filter(|row| row.is_some_and(|row| row.key == key)).for_each(|row| *row = None);
        }
    }
}
