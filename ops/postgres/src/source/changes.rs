//! The changes of transactions as records.
//!
//! The server sends each transaction after its commit, in the order of the commits. The last record of a transaction waits
//! for its commit, so that its position says that the transaction is complete.

use std::collections::{HashMap, HashSet};

use anabranch_plugin::parameters::Choice;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_record::{Position, Record};

use super::backfill::window::{RowChange, row_key};
use super::backfill::{Chunk, KeyTexts, TableBackfill, Visible, Window};
use super::lsn::Lsn;
use super::pgoutput::{Begin, Cell, Change, Commit, OldTuple, Relation, Tuple};
use super::position::{ChangePosition, PositionEncoder};
use super::record::{Layout, Origin};
use crate::codes;

/// What happens if all rows of a table are removed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnTruncate {
    /// The pipeline stops.
    Fail,
    /// Nothing.
    Ignore,
    /// A record says so.
    Record,
}

impl Choice for OnTruncate {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("fail", OnTruncate::Fail), ("ignore", OnTruncate::Ignore), ("record", OnTruncate::Record)];
}

/// A table in the stream.
#[derive(Debug)]
pub(super) enum Seen {
    /// Its changes are read.
    Read(Box<Layout>),
    /// Its changes are not read.
    Ignored,
}

/// What the driver does after a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It takes the next one.
    More,
    /// It looks up a table, and calls [`Changes::install`].
    Relation(Relation),
    /// It stops: all transactions before the limit are read.
    Reached,
}

/// The transaction that is being read.
struct Transaction {
    begin: Begin,
    /// Number of changes so far.
    ordinal: u64,
    /// Number of changes that were read before.
    skip: u64,
    /// True if the encoder has the place of the transaction.
    is_encoded: bool,
}

impl Transaction {
    fn origin(&self) -> Origin {
        Origin::Transaction { commit: self.begin.commit, time: self.begin.time, xid: self.begin.xid }
    }

    /// Counts a change. Returns `true` if it was not read before.
    fn count(&mut self) -> bool {
        self.ordinal += 1;
        self.ordinal > self.skip
    }
}

/// Makes records of the messages of a stream.
pub(super) struct Changes {
    tables: HashMap<u32, (Relation, Seen)>,
    on_truncate: OnTruncate,
    encoder: PositionEncoder,
    transaction: Option<Transaction>,
    /// The last record of the transaction, with its ordinal.
    pending: Option<(u64, Record, Option<Fault>)>,
    /// The changes of all transactions that were committed before this place are read.
    end: Lsn,
    /// The place that the last position has.
    said: Lsn,
    /// The end of the last transaction with a record.
    recorded: Lsn,
    /// A transaction of which a part was read before, and the number of changes.
    partial: Option<(Lsn, u64)>,
    /// Transactions that were committed here or later are not read.
    limit: Option<Lsn>,
    /// Ids of the transactions that a chunk may not contain although the stream had them; `None` if nothing is read beside
    /// the changes.
    streamed: Option<Vec<u32>>,
    /// The chunk that is merged with the changes, and the number of `streamed` when it was begun.
    window: Option<(Window, usize)>,
    /// The table that is read beside the changes.
    filled: Option<FilledTable>,
    /// Tables whose rows fail, by the ids of the stream.
    failing: HashMap<u32, Fault>,
    /// Records that fail: their places among those that were appended since the last [`Changes::take_failed`].
    failed: Vec<(usize, Fault)>,
}

/// A table whose rows are read beside the changes.
struct FilledTable {
    title: Str,
    /// The columns of its key.
    key: Vec<Str>,
    /// True if all its rows were read.
    is_read: bool,
    /// Keys of rows that are to be read again, as far as that is stored.
    pending: HashSet<KeyTexts>,
    /// Those that are to be stored.
    again: Vec<KeyTexts>,
}

impl FilledTable {
    /// Notes that a row has a new key, and that the stream does not have all its values. The destination has them under the
    /// old key, unless that row is still to be read: then the new one is.
    fn note_moved(&mut self, old: Option<KeyTexts>, new: KeyTexts) {
        // Before all rows are read, it is not known here which are: keys are compared by the server.
        if !self.is_read || old.is_none_or(|old| self.pending.contains(&old)) {
            self.pending.insert(new.clone());
            self.again.push(new);
        }
    }
}

impl Changes {
    /// Creates it for a stream that starts at `from`.
    pub(super) fn new(from: &ChangePosition, limit: Option<Lsn>, on_truncate: OnTruncate) -> Changes {
        Changes {
            tables: HashMap::new(),
            on_truncate,
            encoder: PositionEncoder::new(from),
            transaction: None,
            pending: None,
            end: from.end,
            said: from.end,
            recorded: Lsn::ZERO,
            partial: Some((from.commit, from.ordinal)).filter(|(commit, _)| *commit != Lsn::ZERO),
            limit,
            streamed: None,
            window: None,
            filled: None,
            failing: HashMap::new(),
            failed: Vec::new(),
        }
    }

    /// Begins a chunk of a table, which is being read from now on. See [`Window`].
    pub(super) fn open_window(&mut self, table: &TableBackfill) {
        let again = self.filled.take().filter(|filled| filled.title == table.title).map(|filled| filled.again);
        self.filled = Some(FilledTable {
            title: table.title.clone(),
            key: table.key.clone(),
            is_read: table.is_read,
            pending: table.again.iter().cloned().collect(),
            again: again.unwrap_or_default(),
        });
        let window = Window::open(table.title.clone(), table.key.clone());
        let streamed = self.streamed.get_or_insert_with(Vec::new).len();
        self.window = Some((window, streamed));
    }

    /// Takes the chunk that was read. Returns `false` if it does not contain a transaction that the stream had before the
    /// chunk was begun: then it has to be read again.
    pub(super) fn merge(&mut self, chunk: Chunk) -> bool {
        let (Some((mut window, before)), Some(streamed)) = (self.window.take(), &mut self.streamed) else {
            return false;
        };
        let is_complete = streamed.iter().take(before).all(|xid| chunk.visible.sees(*xid));
        forget_visible(streamed, &chunk.visible);
        if is_complete {
            window.merge(chunk);
            self.window = Some((window, 0));
        }
        is_complete
    }

    /// Ends a chunk that was not read.
    pub(super) fn drop_window(&mut self) {
        self.window = None;
    }

    /// Returns `true` if the rows of the chunk are to be passed on here, before the next transaction.
    pub(super) fn is_at_chunk(&self) -> bool {
        let until = self.window.as_ref().and_then(|(window, _)| window.until());
        self.transaction.is_none() && self.partial.is_none() && until.is_some_and(|until| self.end >= until)
    }

    /// Returns the chunk without the rows that changed; `None` if it is to be read again.
    pub(super) fn close_window(&mut self) -> Option<Chunk> {
        self.window.take()?.0.close()
    }

    /// Returns the table with rows that are to be read again, and their keys, once.
    pub(super) fn take_again(&mut self) -> Option<(Str, Vec<KeyTexts>)> {
        let filled = self.filled.as_mut().filter(|filled| !filled.again.is_empty())?;
        Some((filled.title.clone(), std::mem::take(&mut filled.again)))
    }

    /// Returns `true` if the stream is to wait until a chunk is read.
    pub(super) fn waits_for_chunk(&self) -> bool {
        self.window.as_ref().is_some_and(|(window, _)| window.is_full())
    }

    /// Ends the reading of rows beside the changes.
    pub(super) fn end_windows(&mut self) {
        (self.streamed, self.window, self.filled) = (None, None, None);
    }

    /// Returns the end of the last transaction of which a record was made; [`Lsn::ZERO`] if there is none.
    pub(super) fn recorded(&self) -> Lsn {
        self.recorded
    }

    /// Returns the place up to which all transactions are read.
    pub(super) fn end(&self) -> Lsn {
        self.end
    }

    /// Returns `true` if no transaction is being read.
    pub(super) fn is_between(&self) -> bool {
        self.transaction.is_none()
    }

    /// Returns the layout of a table that was sent before, if it is the same.
    pub(super) fn knows(&self, relation: &Relation) -> bool {
        self.tables.get(&relation.id).is_some_and(|(known, _)| known == relation)
    }

    /// Returns the layout with which a table was read before.
    pub(super) fn layout(&self, id: u32) -> Option<&Layout> {
        match &self.tables.get(&id)?.1 {
            Seen::Read(layout) => Some(layout),
            Seen::Ignored => None,
        }
    }

    /// Has the rows of a table fail that follow.
    pub(super) fn fail_rows_of(&mut self, id: u32, fault: Fault) {
        self.failing.insert(id, fault);
    }

    /// Returns the records that fail, by their places among those that were appended since the last call.
    pub(super) fn take_failed(&mut self) -> Vec<(usize, Fault)> {
        std::mem::take(&mut self.failed)
    }

    /// Sets the layout of a table for the rows that follow.
    pub(super) fn install(&mut self, relation: Relation, seen: Seen) {
        self.failing.remove(&relation.id);
        self.tables.insert(relation.id, (relation, seen));
    }

    /// Returns the position that moved without a record, if there is one. It is said once.
    pub(super) fn progress(&mut self) -> Option<Position> {
        // Until a transaction of which a part was read before has arrived, its position counts.
        if self.transaction.is_some() || self.partial.is_some() || self.end <= self.said {
            return None;
        }
        self.said = self.end;
        Some(self.encoder.end(self.end))
    }

    /// Notes that the server has sent all transactions that were committed before `sent`.
    pub(super) fn heard(&mut self, sent: Lsn) -> Taken {
        if self.transaction.is_none() {
            self.partial = self.partial.filter(|(commit, _)| *commit >= sent);
            self.end = self.end.max(self.limit.map_or(sent, |limit| limit.min(sent)));
        }
        self.taken()
    }

    fn taken(&self) -> Taken {
        match self.limit {
            Some(limit) if self.transaction.is_none() && self.end >= limit => Taken::Reached,
            _ => Taken::More,
        }
    }

    /// Takes a message, and appends the records that are complete.
    ///
    /// # Errors
    /// The messages contradict each other, or a table was truncated and the pipeline shall stop.
    pub(super) fn take(&mut self, change: Change, records: &mut Vec<Record>) -> Result<Taken, Fault> {
        match change {
            Change::Begin(begin) => return self.begin(begin),
            Change::Commit(commit) => return self.commit(commit, records),
            Change::Relation(relation) => return Ok(Taken::Relation(relation)),
            Change::Insert { relation, new } => {
                self.watch(relation, None, Some(&new));
                self.row(relation, records, |layout, origin| layout.insert(origin, &new))?;
            }
            Change::Update { relation, old, new } => {
                self.watch(relation, old.as_ref(), Some(&new));
                self.row(relation, records, |layout, origin| layout.update(origin, old.as_ref(), new))?;
            }
            Change::Delete { relation, old } => {
                self.watch(relation, Some(&old), None);
                self.row(relation, records, |layout, origin| layout.delete(origin, &old))?;
            }
            Change::Truncate { relations } => {
                for relation in relations {
                    self.truncate(relation, records)?;
                }
            }
            Change::Message | Change::Other => {}
        }
        Ok(Taken::More)
    }

    fn begin(&mut self, begin: Begin) -> Result<Taken, Fault> {
        if self.transaction.is_some() {
            return Err(contradiction("a transaction begins before the previous one has ended"));
        }
        if let Some(limit) = self.limit.filter(|limit| begin.commit >= *limit) {
            self.end = self.end.max(limit);
            return Ok(Taken::Reached);
        }
        let partial = self.partial.filter(|(commit, _)| *commit == begin.commit);
        let skip = partial.map_or(0, |(_, read)| read);
        // It does not arrive if none of its changes is published any more.
        self.partial = self.partial.filter(|(commit, _)| *commit > begin.commit);
        if let Some(streamed) = &mut self.streamed {
            streamed.push(begin.xid);
        }
        self.transaction = Some(Transaction { begin, ordinal: 0, skip, is_encoded: false });
        Ok(Taken::More)
    }

    fn commit(&mut self, commit: Commit, records: &mut Vec<Record>) -> Result<Taken, Fault> {
        match self.transaction.take() {
            Some(transaction) if transaction.begin.commit == commit.commit => {}
            _ => return Err(contradiction("a transaction ends that has not begun")),
        }
        self.end = self.end.max(commit.end);
        if let Some((_, record, fault)) = self.pending.take() {
            (self.said, self.recorded) = (self.end, self.end);
            let position = self.encoder.end(self.end);
            self.append(record.with_position(position), fault, records);
        }
        Ok(self.taken())
    }

    /// Notes that a row changed, for a chunk that is being read. Changes that were read before count too.
    fn watch(&mut self, relation: u32, old: Option<&OldTuple>, new: Option<&Tuple>) {
        let (Some(filled), Some(transaction)) = (&mut self.filled, &self.transaction) else { return };
        let Some((_, Seen::Read(layout))) = self.tables.get(&relation) else { return };
        if *layout.table() != filled.title {
            return;
        }
        let before = old.map(|(OldTuple::Key(row) | OldTuple::Full(row))| row);
        let is_partial =
            !matches!(old, Some(OldTuple::Full(_))) && new.is_some_and(|row| row.0.contains(&Cell::Unchanged));
        if let (true, Some(before), Some(after)) = (is_partial, before, new) {
            // Whether the rows around the new key are read already is not known here.
            let key = |row, other| row_key(layout, &filled.key, row, Some(other));
            let old = key(before, after);
            if let Some(new) = key(after, before)
                && old.as_ref() != Some(&new)
                && let Some(new) = new.texts()
            {
                filled.note_moved(old.and_then(|old| old.texts()), new);
            }
        }
        if let Some((window, _)) = &mut self.window {
            window.note(layout, RowChange { xid: transaction.begin.xid, before, after: new, is_partial });
        }
    }

    /// Takes a change of a row.
    fn row(
        &mut self,
        relation: u32,
        records: &mut Vec<Record>,
        make: impl FnOnce(&mut Layout, Origin) -> Record,
    ) -> Result<(), Fault> {
        let Some(transaction) = &mut self.transaction else {
            return Err(contradiction("a change is outside of a transaction"));
        };
        if !transaction.count() {
            return Ok(());
        }
        let origin = transaction.origin();
        let record = match self.tables.get_mut(&relation) {
            Some((_, Seen::Read(layout))) => make(layout, origin),
            Some((_, Seen::Ignored)) => return Ok(()),
            None => return Err(contradiction("a change is in a table without a layout")),
        };
        let fault = if self.failing.is_empty() { None } else { self.failing.get(&relation).cloned() };
        self.deliver(record, fault, records);
        Ok(())
    }

    fn truncate(&mut self, relation: u32, records: &mut Vec<Record>) -> Result<(), Fault> {
        let on_truncate = self.on_truncate;
        let table = self.layout(relation).map(|layout| layout.table().clone());
        let Some(transaction) = &mut self.transaction else {
            return Err(contradiction("a change is outside of a transaction"));
        };
        if let (Some((window, _)), Some(table)) = (&mut self.window, &table) {
            window.note_truncated(transaction.begin.xid, table);
        }
        let (Some(table), true) = (table, transaction.count()) else { return Ok(()) };
        let origin = transaction.origin();
        match (on_truncate, self.tables.get_mut(&relation)) {
            (OnTruncate::Fail, _) => {
                let text = format!(
                    "all rows of the table {table} were removed with TRUNCATE, in the transaction that was committed at \
                     {}; to go on, set truncate: ignore (the rows stay at the destination) or truncate: record",
                    transaction.begin.commit
                );
                Err(Fault::fatal(codes::TRUNCATED, text))
            }
            (OnTruncate::Record, Some((_, Seen::Read(layout)))) => {
                let record = layout.truncate(origin);
                self.deliver(record, None, records);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Keeps a record until the next one or the commit, and appends the previous one.
    fn deliver(&mut self, record: Record, fault: Option<Fault>, records: &mut Vec<Record>) {
        let Some(transaction) = &mut self.transaction else { return };
        let pending = self.pending.replace((transaction.ordinal, record, fault));
        let Some((ordinal, previous, fault)) = pending else { return };
        if !std::mem::replace(&mut transaction.is_encoded, true) {
            // Not the end of the transaction before: the server moves that if it is quiet, and the position of a change is
            // always the same. All transactions that were committed before this one are read.
            self.encoder.begin(transaction.begin.commit, transaction.begin.commit);
        }
        let position = self.encoder.change(ordinal);
        self.append(previous.with_position(position), fault, records);
    }

    fn append(&mut self, record: Record, fault: Option<Fault>, records: &mut Vec<Record>) {
        self.failed.extend(fault.map(|fault| (records.len(), fault)));
        records.push(record);
    }
}

/// Forgets the transactions that every later chunk contains.
fn forget_visible(streamed: &mut Vec<u32>, visible: &Visible) {
    streamed.retain(|xid| !visible.sees(*xid));
}

fn contradiction(what: &str) -> Fault {
    Fault::fatal(codes::STREAM_UNSUPPORTED, format!("the stream of changes cannot be read: {what}"))
}

#[cfg(test)]
mod tests;
