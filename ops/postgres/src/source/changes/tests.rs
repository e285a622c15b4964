use anabranch_record::text::Str;
use bytes::Bytes;

use super::*;
use crate::source::backfill::window::tests::chunk;
use crate::source::pgoutput::{Cell, RelationColumn, Tuple};
use crate::source::position::{Server, Stage, StoredPosition};
use crate::source::record::SentColumn;
use crate::source::tables::tests::keyed;

fn at(end: u64, commit: u64, ordinal: u64) -> ChangePosition {
    let server = Server { system: "1".into(), timeline: 1 };
    let position = ChangePosition::at(&server, "s", Stage::Changes, Lsn(end));
    ChangePosition { commit: Lsn(commit), ordinal, ..position }
}

fn relation(id: u32) -> Relation {
    let column = RelationColumn { identifies: true, name: "id".into(), type_id: 23, modifier: -1 };
    Relation { id, schema: "public".into(), name: format!("t{id}"), identity: b'd', columns: vec![column] }
}

fn layout(id: u32) -> Seen {
    let table = keyed(id, &format!("t{id}"));
    let column = SentColumn { name: "id".into(), type_id: 23, identifies: true };
    Seen::Read(Box::new(Layout::new(&table, &[column], &[])))
}

fn begin(commit: u64) -> Change {
    Change::Begin(Begin { commit: Lsn(commit), time: 0, xid: 1 })
}

fn commit(commit: u64) -> Change {
    Change::Commit(Commit { commit: Lsn(commit), end: Lsn(commit + 8) })
}

fn insert(relation: u32, id: &'static str) -> Change {
    Change::Insert { relation, new: Tuple(vec![Cell::Text(Bytes::from_static(id.as_bytes()))]) }
}

/// A stream of two transactions, the second with an ignored table.
fn stream() -> Vec<Change> {
    vec![
        begin(100),
        insert(1, "1"),
        insert(1, "2"),
        insert(1, "3"),
        commit(100),
        begin(200),
        insert(2, "4"),
        insert(1, "5"),
        insert(2, "6"),
        commit(200),
    ]
}

fn changes(from: &ChangePosition, on_truncate: OnTruncate) -> Changes {
    let mut changes = Changes::new(from, None, on_truncate);
    changes.install(relation(1), layout(1));
    changes.install(relation(2), Seen::Ignored);
    changes
}

/// Returns the ids of the records with their positions: end, commit, ordinal.
fn shown(records: &[Record]) -> Vec<(String, u64, u64, u64)> {
    let show = |record: &Record| {
        let Ok(StoredPosition::Ours(at)) = StoredPosition::decode(record.position()) else { panic!("a position") };
        let id = record.payload.after.fields().and_then(|fields| fields.get("id")?.as_i64());
        (id.map_or("-".to_owned(), |id| id.to_string()), at.end.0, at.commit.0, at.ordinal)
    };
    records.iter().map(show).collect()
}

fn read(from: &ChangePosition) -> Vec<Record> {
    let mut changes = changes(from, OnTruncate::Fail);
    let mut records = Vec::new();
    // The server sends the transactions that were committed at the start or later.
    let begun = |change: &Change| matches!(change, Change::Begin(begin) if begin.commit >= from.end);
    for change in stream().into_iter().skip_while(|change| !begun(change)) {
        assert_eq!(changes.take(change, &mut records).unwrap(), Taken::More);
    }
    records
}

#[test]
fn a_position_says_how_much_of_which_transaction_is_read() {
    let records = read(&at(50, 0, 0));
    let expected = [("1", 100, 100, 1), ("2", 100, 100, 2), ("3", 108, 0, 0), ("5", 208, 0, 0)];
    let expected: Vec<_> = expected.into_iter().map(|(id, end, commit, n)| (id.to_owned(), end, commit, n)).collect();
    assert_eq!(shown(&records), expected);
}

#[test]
fn a_stream_that_resumes_after_any_record_has_the_rest() {
    let all = read(&at(50, 0, 0));
    for (read_before, record) in all.iter().enumerate() {
        let Ok(StoredPosition::Ours(from)) = StoredPosition::decode(record.position()) else { panic!("a position") };
        assert_eq!(shown(&read(&from)), shown(&all[read_before + 1..]), "after {read_before}");
    }
}

#[test]
fn a_position_does_not_depend_on_what_a_quiet_server_says() {
    let mut changes = changes(&at(50, 0, 0), OnTruncate::Fail);
    let mut records = Vec::new();
    for change in stream() {
        if matches!(change, Change::Begin(_)) {
            changes.heard(Lsn(changes.end().0 + 1));
        }
        changes.take(change, &mut records).unwrap();
    }
    assert_eq!(shown(&records), shown(&read(&at(50, 0, 0))));
}

#[test]
fn a_quiet_server_moves_the_position_only_between_transactions() {
    let mut changes = changes(&at(50, 0, 0), OnTruncate::Fail);
    assert_eq!(changes.progress(), None);
    changes.heard(Lsn(60));
    let progress = changes.progress().unwrap();
    assert_eq!(progress, at(60, 0, 0).encode());
    assert_eq!(changes.progress(), None);
    let mut records = Vec::new();
    changes.take(begin(100), &mut records).unwrap();
    changes.take(insert(1, "1"), &mut records).unwrap();
    changes.heard(Lsn(500));
    assert_eq!((changes.progress(), changes.end()), (None, Lsn(60)));
    changes.take(commit(100), &mut records).unwrap();
    assert_eq!((changes.progress(), changes.end()), (None, Lsn(108)));
    assert_eq!(records.len(), 1);
}

#[test]
fn a_quiet_server_does_not_move_a_position_within_a_transaction() {
    let mut changes = changes(&at(50, 100, 2), OnTruncate::Fail);
    assert_eq!(changes.heard(Lsn(90)), Taken::More);
    assert_eq!(changes.progress(), None);
    let mut records = Vec::new();
    for change in stream().into_iter().take(5) {
        changes.take(change, &mut records).unwrap();
    }
    assert_eq!(shown(&records), [("3".to_owned(), 108, 0, 0)]);
    // Nothing of the transaction is published any more.
    let mut changes = self::changes(&at(50, 100, 2), OnTruncate::Fail);
    changes.heard(Lsn(101));
    assert_eq!(changes.progress(), Some(at(101, 0, 0).encode()));
}

#[test]
fn a_limit_excludes_the_transactions_of_a_snapshot() {
    for (limit, ids) in [(100, vec![]), (101, vec!["1", "2", "3"]), (108, vec!["1", "2", "3"])] {
        let mut changes = Changes::new(&at(50, 0, 0), Some(Lsn(limit)), OnTruncate::Fail);
        changes.install(relation(1), layout(1));
        let mut records = Vec::new();
        let reached = stream()
            .into_iter()
            .find_map(|change| Some(changes.take(change, &mut records).unwrap()).filter(|t| *t == Taken::Reached));
        assert_eq!(reached, Some(Taken::Reached));
        assert_eq!(shown(&records).into_iter().map(|(id, ..)| id).collect::<Vec<_>>(), ids, "{limit}");
        assert!(changes.end() >= Lsn(limit));
    }
    let mut changes = Changes::new(&at(50, 0, 0), Some(Lsn(70)), OnTruncate::Fail);
    assert_eq!(changes.heard(Lsn(69)), Taken::More);
    assert_eq!((changes.heard(Lsn(500)), changes.end()), (Taken::Reached, Lsn(70)));
}

#[test]
fn a_truncated_table_is_a_fault_a_record_or_nothing() {
    let truncate = || vec![begin(100), insert(1, "1"), Change::Truncate { relations: vec![2, 1] }, commit(100)];
    for (on_truncate, ids) in [(OnTruncate::Ignore, vec!["1"]), (OnTruncate::Record, vec!["1", "-"])] {
        let mut changes = changes(&at(50, 0, 0), on_truncate);
        let mut records = Vec::new();
        for change in truncate() {
            changes.take(change, &mut records).unwrap();
        }
        assert_eq!(shown(&records).into_iter().map(|(id, ..)| id).collect::<Vec<_>>(), ids);
        assert_eq!(
            records.last().and_then(|last| last.metadata.get("postgres.truncate")).map(Str::as_str),
            (on_truncate == OnTruncate::Record).then_some("true")
        );
    }
    let mut changes = changes(&at(50, 0, 0), OnTruncate::Fail);
    let fault = truncate().into_iter().find_map(|change| changes.take(change, &mut Vec::new()).err()).unwrap();
    assert_eq!(fault.code(), codes::TRUNCATED);
}

#[test]
fn a_stream_that_contradicts_itself_is_refused() {
    for stream in
        [vec![commit(100)], vec![insert(1, "1")], vec![begin(100), begin(200)], vec![begin(100), insert(9, "1")]]
    {
        let mut changes = changes(&at(50, 0, 0), OnTruncate::Fail);
        let fault = stream.into_iter().find_map(|change| changes.take(change, &mut Vec::new()).err()).unwrap();
        assert_eq!(fault.code(), codes::STREAM_UNSUPPORTED);
    }
}

fn open(changes: &mut Changes) {
    changes.open_window(&TableBackfill::new(1, "public.t1".into(), vec!["id".into()], 0));
}

fn begin_of(xid: u32, commit: u64) -> Change {
    Change::Begin(Begin { commit: Lsn(commit), time: 0, xid })
}

/// Takes a transaction that inserts a row.
fn take(changes: &mut Changes, xid: u32, at: u64, id: &'static str) {
    let mut records = Vec::new();
    for change in [begin_of(xid, at), insert(1, id), commit(at)] {
        changes.take(change, &mut records).unwrap();
    }
}

fn closed(changes: &mut Changes) -> Option<Vec<String>> {
    if !changes.is_at_chunk() {
        return None;
    }
    let rows = changes.close_window()?.rows.into_iter().filter_map(|(_, row)| row);
    Some(rows.map(|row| String::from_utf8_lossy(&row.position().0).into_owned()).collect())
}

#[test]
fn a_chunk_is_passed_on_when_the_stream_has_come_to_its_place() {
    let mut changes = changes(&at(10, 0, 0), OnTruncate::Fail);
    open(&mut changes);
    take(&mut changes, 7, 20, "a");
    assert_eq!(closed(&mut changes), None, "it is being read");
    // It contains 7, and not 8 and 9. Its place is 50.
    assert!(changes.merge(chunk("8:10:8,9", &["a", "b", "c", "d"])));
    take(&mut changes, 8, 30, "b");
    assert_eq!(closed(&mut changes), None, "the stream is at {:?}", changes.end());
    let mut records = Vec::new();
    changes.take(begin_of(9, 60), &mut records).unwrap();
    changes.take(insert(1, "c"), &mut records).unwrap();
    assert_eq!(closed(&mut changes), None, "a transaction is being read");
    changes.take(commit(60), &mut records).unwrap();
    assert_eq!(closed(&mut changes).unwrap(), ["a", "d"]);
    assert_eq!(closed(&mut changes), None);
}

#[test]
fn a_chunk_without_a_transaction_that_was_streamed_before_is_read_again() {
    let mut changes = changes(&at(10, 0, 0), OnTruncate::Fail);
    open(&mut changes);
    take(&mut changes, 8, 20, "a");
    assert!(changes.merge(chunk("8:9:8", &["b"])));
    changes.heard(Lsn(50));
    assert_eq!(closed(&mut changes).unwrap(), ["b"]);
    // 8 is in the log, and the server shows it to nobody.
    open(&mut changes);
    assert!(!changes.merge(chunk("8:9:8", &["a"])));
    changes.heard(Lsn(90));
    assert_eq!(closed(&mut changes), None);
    open(&mut changes);
    assert!(changes.merge(chunk("9:9:", &["a"])));
    assert_eq!(closed(&mut changes).unwrap(), ["a"]);
}

#[test]
fn changes_that_were_read_before_a_restart_count_for_a_chunk() {
    // Two changes of the transaction at 40 were read before.
    let mut changes = changes(&at(30, 40, 2), OnTruncate::Fail);
    open(&mut changes);
    let mut records = Vec::new();
    changes.take(begin_of(9, 40), &mut records).unwrap();
    for id in ["a", "b", "c"] {
        changes.take(insert(1, id), &mut records).unwrap();
    }
    assert!(changes.merge(chunk("9:10:9", &["a", "b", "c", "d"])));
    changes.take(commit(40), &mut records).unwrap();
    assert_eq!(records.len(), 1);
    changes.heard(Lsn(50));
    assert_eq!(closed(&mut changes).unwrap(), ["d"]);
}

#[test]
fn a_row_with_a_new_key_of_which_the_stream_has_a_part_is_read_again() {
    let mut changes = changes(&at(10, 0, 0), OnTruncate::Fail);
    let text = |text: &'static str| Cell::Text(Bytes::from_static(text.as_bytes()));
    let table = keyed(1, "t1");
    let column = |name: &'static str| SentColumn { name: name.into(), type_id: 25, identifies: name == "id" };
    let layout = Layout::new(&table, &[column("id"), column("body")], &[]);
    changes.install(relation(1), Seen::Read(Box::new(layout)));
    let update =
        |old: Option<OldTuple>, id, body| Change::Update { relation: 1, old, new: Tuple(vec![text(id), body]) };
    let key = |id| Some(OldTuple::Key(Tuple(vec![text(id), Cell::Null])));
    let full = |id| Some(OldTuple::Full(Tuple(vec![text(id), text("long")])));
    open(&mut changes);
    let mut records = Vec::new();
    for change in [
        begin_of(7, 20),
        update(None, "a", Cell::Unchanged),
        update(key("b"), "c", Cell::Unchanged),
        update(key("d"), "e", text("short")),
        update(full("f"), "g", Cell::Unchanged),
        // The server sends a key that is stored apart although it did not change.
        update(key("h"), "h", Cell::Unchanged),
        commit(20),
    ] {
        changes.take(change, &mut records).unwrap();
    }
    let again = |ids: &[&str]| ids.iter().map(|id| vec![(*id).to_owned()]).collect::<Vec<_>>();
    assert_eq!(changes.take_again(), Some(("public.t1".into(), again(&["c"]))));
    assert_eq!(changes.take_again(), None);

    // All rows were read, but for one that is read again: the destination has the values of the others.
    let mut read = TableBackfill::new(1, "public.t1".into(), vec!["id".into()], 0);
    (read.is_read, read.again) = (true, again(&["c"]));
    changes.open_window(&read);
    for change in [
        begin_of(8, 40),
        update(key("k"), "l", Cell::Unchanged),
        update(key("c"), "m", Cell::Unchanged),
        update(key("m"), "n", Cell::Unchanged),
        commit(40),
    ] {
        changes.take(change, &mut records).unwrap();
    }
    assert_eq!(changes.take_again(), Some(("public.t1".into(), again(&["m", "n"]))));
}
