//! A chunk that is merged with the changes that arrive while it is read.

use std::collections::HashMap;

use anabranch_record::Record;
use anabranch_record::text::Str;

use super::super::lsn::Lsn;
use super::super::pgoutput::{Cell, Tuple};
use super::super::record::Layout;
use super::{Chunk, KeyTexts};

/// Changes that are kept until the chunk is read. If there are more, the stream waits for the chunk.
const CHANGES: usize = 100_000;

/// The transactions that a statement sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Visible {
    /// All transactions before this one have ended.
    pub(in super::super) oldest: u64,
    /// No transaction from this one on had ended.
    pub(in super::super) next: u64,
    /// Transactions between them that had not ended.
    running: Vec<u64>,
}

impl Visible {
    /// Parses the text of a `pg_snapshot`, such as `10:20:10,14`.
    pub(in super::super) fn parse(text: &str) -> Option<Visible> {
        let mut parts = text.split(':');
        let (oldest, next) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let running = parts.next()?.split(',').filter(|id| !id.is_empty());
        let running = running.map(|id| id.parse().ok()).collect::<Option<Vec<u64>>>()?;
        Some(Visible { oldest, next, running })
    }

    /// Returns `true` if the statement sees a committed transaction. The stream names it by the low 32 bits of its id.
    pub(in super::super) fn sees(&self, xid: u32) -> bool {
        let id = widened(xid, self.next);
        id < self.oldest || (id < self.next && !self.running.contains(&id))
    }
}

/// Returns the id with these low 32 bits that is nearest to another id.
fn widened(xid: u32, near: u64) -> u64 {
    let distance = xid.wrapping_sub(near as u32).cast_signed();
    near.saturating_add_signed(i64::from(distance))
}

/// The key of a row, as texts of the server: each with its length before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct RowKey(Vec<u8>);

impl RowKey {
    /// Returns the values as texts; `None` if they are not in UTF-8.
    pub(in super::super) fn texts(&self) -> Option<KeyTexts> {
        let (mut texts, mut rest) = (Vec::new(), &self.0[..]);
        while let Some((length, more)) = rest.split_first_chunk() {
            let (text, more) = more.split_at_checked(usize::from_be_bytes(*length))?;
            texts.push(String::from_utf8(text.to_vec()).ok()?);
            rest = more;
        }
        Some(texts)
    }

    /// Returns the key of a row. `None` if the row does not have it, because the log contains only what changed.
    pub(in super::super) fn of<'a>(cells: impl Iterator<Item = Option<&'a Cell>>) -> Option<RowKey> {
        let mut key = Vec::new();
        for cell in cells {
            let Some(Cell::Text(text)) = cell else { return None };
            key.extend_from_slice(&text.len().to_be_bytes());
            key.extend_from_slice(text);
        }
        Some(RowKey(key))
    }
}

/// What a transaction changed.
#[derive(Debug)]
enum Changed {
    /// A row, with all values in the stream.
    Row(RowKey),
    /// A row, without the values that were not changed.
    Part(RowKey),
    /// All rows.
    All,
    /// A row that is not known.
    Unknown,
}

/// A change of a row in the stream.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct RowChange<'a> {
    /// The transaction.
    pub(in super::super) xid: u32,
    /// The row before, if the server sent its key.
    pub(in super::super) before: Option<&'a Tuple>,
    /// The row after; `None` if it was deleted.
    pub(in super::super) after: Option<&'a Tuple>,
    /// True if the stream does not have all values of the row after.
    pub(in super::super) is_partial: bool,
}

/// The time from the start of the reading of a chunk until its rows are passed on.
#[derive(Debug)]
pub(in super::super) struct Window {
    table: Str,
    key: Vec<Str>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The chunk is being read: the ids of transactions, and what they changed.
    Reading(Vec<(u32, Changed)>),
    /// The chunk is read, and waits until the stream has come to its place.
    Merging(Merging),
}

#[derive(Debug)]
struct Merging {
    chunk: Chunk,
    /// Where the rows are in the chunk.
    rows: HashMap<RowKey, usize>,
    /// True if the chunk is of no use, because a row changed that is not known.
    is_spoiled: bool,
}

impl Window {
    /// Opens the window of a chunk of a table.
    pub(in super::super) fn open(table: Str, key: Vec<Str>) -> Window {
        Window { table, key, state: State::Reading(Vec::new()) }
    }

    /// Returns `true` if the stream is to wait for the chunk.
    pub(in super::super) fn is_full(&self) -> bool {
        matches!(&self.state, State::Reading(changes) if changes.len() >= CHANGES)
    }

    /// Notes a change.
    pub(in super::super) fn note(&mut self, layout: &Layout, change: RowChange<'_>) {
        if *layout.table() != self.table {
            return;
        }
        let RowChange { xid, before, after, is_partial } = change;
        for (row, other, is_partial) in [(before, after, false), (after, before, is_partial)] {
            let Some(row) = row else { continue };
            let changed = match row_key(layout, &self.key, row, other) {
                Some(key) if is_partial => Changed::Part(key),
                Some(key) => Changed::Row(key),
                None => Changed::Unknown,
            };
            self.state.note(xid, changed);
        }
    }

    /// Notes that a transaction removed all rows of a table.
    pub(in super::super) fn note_truncated(&mut self, xid: u32, table: &Str) {
        if *table == self.table {
            self.state.note(xid, Changed::All);
        }
    }

    /// Takes the chunk, when it is read.
    pub(in super::super) fn merge(&mut self, chunk: Chunk) {
        let rows = chunk.rows.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
        let merging = State::Merging(Merging { chunk, rows, is_spoiled: false });
        if let State::Reading(changes) = std::mem::replace(&mut self.state, merging) {
            changes.into_iter().for_each(|(xid, changed)| self.state.note(xid, changed));
        }
    }

    /// Returns the place in the log up to which all transactions are to be read before the rows are passed on; `None` until
    /// the chunk is read.
    pub(in super::super) fn until(&self) -> Option<Lsn> {
        match &self.state {
            State::Reading(_) => None,
            State::Merging(merging) => Some(merging.chunk.until),
        }
    }

    /// Returns the chunk without the rows whose changes the stream has; `None` if it is to be read again.
    pub(in super::super) fn close(self) -> Option<Chunk> {
        match self.state {
            State::Merging(Merging { chunk, is_spoiled: false, .. }) => Some(chunk),
            State::Reading(_) | State::Merging(_) => None,
        }
    }
}

impl State {
    fn note(&mut self, xid: u32, changed: Changed) {
        let merging = match self {
            State::Reading(changes) => return changes.push((xid, changed)),
            State::Merging(merging) => merging,
        };
        if merging.chunk.visible.sees(xid) {
            return;
        }
        let (key, is_partial) = match changed {
            Changed::Row(key) => (key, false),
            Changed::Part(key) => (key, true),
            Changed::All => return merging.chunk.rows.iter_mut().for_each(|(_, row)| *row = None),
            Changed::Unknown => {
                merging.is_spoiled = true;
                return;
            }
        };
        let Some(at) = merging.rows.get(&key) else { return };
        merging.chunk.rows[*at].1 = None;
        if is_partial {
            match key.texts() {
                Some(key) => merging.chunk.again.push(key),
                None => merging.is_spoiled = true,
            }
        }
    }
}

/// Returns the key of a row. A value that was not changed and is stored apart is in the row before or after.
pub(in super::super) fn row_key(layout: &Layout, key: &[Str], row: &Tuple, other: Option<&Tuple>) -> Option<RowKey> {
    RowKey::of(key.iter().map(|name| match layout.cell(row, name) {
        Some(Cell::Unchanged) => other.and_then(|other| layout.cell(other, name)),
        cell => cell,
    }))
}

/// A row of a chunk; without a record if the stream has a change of it.
pub(in super::super) type ChunkRow = (RowKey, Option<Record>);

#[cfg(test)]
pub(in super::super) mod tests {
    use anabranch_record::Position;
    use bytes::Bytes;

    use super::super::stored::Part;
    use super::*;
    use crate::source::record::SentColumn;
    use crate::source::tables::tests::keyed;

    fn layout(name: &'static str) -> Layout {
        let table = keyed(1, name);
        let column = |name: &'static str| SentColumn { name: name.into(), type_id: 25, identifies: name == "id" };
        Layout::new(&table, &[column("note"), column("id")], &[])
    }

    fn row(id: Cell) -> Tuple {
        Tuple(vec![Cell::Text(Bytes::from_static(b"text")), id])
    }

    fn text(id: &'static str) -> Cell {
        Cell::Text(Bytes::from_static(id.as_bytes()))
    }

    pub(in super::super::super) fn chunk(visible: &str, ids: &[&'static str]) -> Chunk {
        let rows = ids.iter().map(|id| {
            let key = RowKey::of([Some(&text(id))].into_iter()).unwrap();
            (key, Some(Record::at(Position::copy_from(id.as_bytes()))))
        });
        Chunk {
            rows: rows.collect(),
            visible: Visible::parse(visible).unwrap(),
            until: Lsn(50),
            part: Part::Rest,
            again: Vec::new(),
            fault: None,
        }
    }

    fn note(window: &mut Window, xid: u32, before: Option<&Tuple>, after: Option<&Tuple>) {
        window.note(&layout("t"), RowChange { xid, before, after, is_partial: false });
    }

    fn left(chunk: Chunk) -> Vec<String> {
        let rows = chunk.rows.into_iter().filter_map(|(_, row)| row);
        rows.map(|row| String::from_utf8_lossy(&row.position().0).into_owned()).collect()
    }

    #[test]
    fn a_snapshot_sees_what_had_ended() {
        let visible = Visible::parse("10:20:12,15").unwrap();
        for (xid, sees) in [(3, true), (10, true), (12, false), (14, true), (15, false), (19, true), (20, false)] {
            assert_eq!(visible.sees(xid), sees, "{xid}");
        }
        // Ids of the stream have 32 bits, and wrap.
        let later = Visible::parse("4294967290:4294967306:4294967300").unwrap();
        for (xid, sees) in [(4_294_967_280, true), (3, true), (4, false), (9, true), (10, false)] {
            assert_eq!(later.sees(xid), sees, "{xid}");
        }
        assert!(Visible::parse("5:5:").unwrap().running.is_empty());
        assert!(["", "5", "5:6", "a:6:", "5:6:x"].iter().all(|text| Visible::parse(text).is_none()));
    }

    #[test]
    fn keys_are_texts() {
        let texts = |cells: &[Cell]| RowKey::of(cells.iter().map(Some)).map(|key| key.texts());
        assert_eq!(texts(&[text("a"), text(""), text("é")]), Some(Some(vec!["a".into(), String::new(), "é".into()])));
        assert_eq!(texts(&[Cell::Text(Bytes::from_static(b"\xff"))]), Some(None));
        assert_eq!(texts(&[text("a"), Cell::Null]), None);
    }

    #[test]
    fn rows_that_the_stream_has_in_a_newer_form_are_left_out() {
        let mut window = Window::open("public.t".into(), vec!["id".into()]);
        assert_eq!(window.until(), None);
        // The chunk contains 11, and not 12.
        note(&mut window, 11, None, Some(&row(text("a"))));
        note(&mut window, 12, None, Some(&row(text("b"))));
        let other = RowChange { xid: 12, before: None, after: Some(&row(text("a"))), is_partial: false };
        window.note(&layout("other"), other);
        window.merge(chunk("12:20:12", &["a", "b", "c", "d", "e", "f"]));
        assert_eq!(window.until(), Some(Lsn(50)));
        // A changed key removes both rows.
        note(&mut window, 21, Some(&row(text("c"))), Some(&row(text("d"))));
        // A value of the key that the log does not contain.
        note(&mut window, 22, Some(&row(text("e"))), Some(&row(Cell::Unchanged)));
        assert_eq!(left(window.close().unwrap()), ["a", "f"]);
    }

    #[test]
    fn rows_whose_changes_are_partial_are_read_again() {
        let mut window = Window::open("public.t".into(), vec!["id".into()]);
        let note = |window: &mut Window, xid, id| {
            let after = row(text(id));
            window.note(&layout("t"), RowChange { xid, before: None, after: Some(&after), is_partial: true });
        };
        note(&mut window, 11, "a");
        note(&mut window, 12, "b");
        window.merge(chunk("12:20:12", &["a", "b", "c"]));
        note(&mut window, 30, "c");
        note(&mut window, 30, "z");
        let chunk = window.close().unwrap();
        assert_eq!(chunk.again, [["b"], ["c"]]);
        assert_eq!(left(chunk), ["a"]);
    }

    #[test]
    fn a_removal_of_all_rows_leaves_all_out() {
        for (xid, table, expected) in
            [(19, "public.t", &["a", "b"][..]), (20, "public.other", &["a", "b"]), (20, "public.t", &[])]
        {
            let mut window = Window::open("public.t".into(), vec!["id".into()]);
            window.merge(chunk("12:20:", &["a", "b"]));
            window.note_truncated(xid, &table.into());
            assert_eq!(left(window.close().unwrap()), expected);
        }
    }

    #[test]
    fn a_change_of_a_row_that_is_not_known_spoils_the_chunk() {
        let mut window = Window::open("public.t".into(), vec!["id".into()]);
        window.merge(chunk("12:20:", &["a", "b"]));
        note(&mut window, 20, None, Some(&row(Cell::Unchanged)));
        assert!(window.close().is_none());
    }

    #[test]
    fn the_stream_waits_if_too_much_changes() {
        let mut window = Window::open("public.t".into(), vec!["id".into()]);
        for _ in 0..CHANGES {
            assert!(!window.is_full());
            note(&mut window, 30, None, Some(&row(text("a"))));
        }
        assert!(window.is_full());
        window.merge(chunk("12:20:", &["a", "b"]));
        assert!(!window.is_full());
        assert_eq!(left(window.close().unwrap()), ["b"]);
    }
}
