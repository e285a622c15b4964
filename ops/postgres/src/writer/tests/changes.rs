//! Changes of another database: keys that change, and updates without the columns that stay.

use super::*;
use crate::row::{TRUNCATE, UNCHANGED};

fn update(key: &str, before: &str, after: &str) -> Record {
    let mut record = record("update", key, after);
    record.payload.before = match json::parse_value(before.as_bytes()).unwrap() {
        Value::Map(object) => Data::Structured(object),
        _ => Data::Absent,
    };
    record
}

/// An update that does not repeat a column that it does not change.
fn partial(mut record: Record) -> Record {
    record.metadata.insert(UNCHANGED, "body");
    record
}

/// Writes each row in a batch of its own, or all in one.
async fn in_batches(writer: &mut Box<dyn Writer>, rows: &[Record], size: usize) {
    for rows in rows.chunks(size) {
        all_good(&write(writer, rows).await);
    }
}

#[tokio::test]
async fn a_change_of_the_key_moves_the_row() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int, body text, theirs int)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    for size in [1, 9] {
        db.query("TRUNCATE t; INSERT INTO t SELECT n, n, 'b' || n, n FROM generate_series(1, 5) n");
        let rows = [
            update(r#"{"id":10}"#, r#"{"id":1}"#, r#"{"id":10,"n":100,"body":"new"}"#),
            // Without a column that stays.
            partial(update(r#"{"id":20}"#, r#"{"id":2}"#, r#"{"id":20,"n":200}"#)),
            // On and back, after another row took the key.
            partial(update(r#"{"id":30}"#, r#"{"id":3}"#, r#"{"id":30,"n":300}"#)),
            create(r#"{"id":3}"#, r#"{"n":-3,"body":"other"}"#),
            partial(update(r#"{"id":31}"#, r#"{"id":30}"#, r#"{"id":31,"n":301}"#)),
            record("delete", r#"{"id":3}"#, "null"),
            partial(update(r#"{"id":3}"#, r#"{"id":31}"#, r#"{"id":3,"n":302}"#)),
            // The key is the same, and so is its other form.
            update(r#"{"id":4}"#, r#"{"id":4,"n":4,"body":"b4"}"#, r#"{"id":4,"n":40,"body":"B4"}"#),
            update(r#"{"id":5}"#, r#"{"id":"5"}"#, r#"{"id":5,"n":50}"#),
        ];
        in_batches(&mut writer, &rows, size).await;
        let expected = ["3|302|b3|3", "4|40|B4|4", "5|50|b5|5", "10|100|new|1", "20|200|b2|2"];
        assert_eq!(db.query("SELECT * FROM t ORDER BY id"), expected, "in batches of {size}");
    }
}

/// After a crash, a source delivers changes again to a table that has them, and later ones.
#[tokio::test]
async fn changes_that_are_repeated_end_as_they_ended() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, body text NOT NULL)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let changes = [
        create(r#"{"id":1}"#, r#"{"n":1,"body":"one"}"#),
        create(r#"{"id":2}"#, r#"{"n":2,"body":"two"}"#),
        create(r#"{"id":3}"#, r#"{"n":3,"body":"three"}"#),
        partial(update(r#"{"id":1}"#, "null", r#"{"id":1,"n":10}"#)),
        partial(update(r#"{"id":5}"#, r#"{"id":1}"#, r#"{"id":5,"n":11}"#)),
        update(r#"{"id":6}"#, r#"{"id":2}"#, r#"{"id":6,"n":21,"body":"six"}"#),
        partial(update(r#"{"id":5}"#, "null", r#"{"id":5,"n":12}"#)),
        create(r#"{"id":1}"#, r#"{"n":-1,"body":"another"}"#),
        partial(update(r#"{"id":3}"#, "null", r#"{"id":3,"n":30}"#)),
        record("delete", r#"{"id":3}"#, "null"),
        partial(update(r#"{"id":7}"#, r#"{"id":6}"#, r#"{"id":7,"n":22}"#)),
        record("delete", r#"{"id":7}"#, "null"),
        create(r#"{"id":6}"#, r#"{"n":-6,"body":"last"}"#),
    ];
    let all = "SELECT * FROM t ORDER BY id";
    let expected = ["1|-1|another", "5|12|one", "6|-6|last"];
    in_batches(&mut writer, &changes, 1).await;
    assert_eq!(db.query(all), expected);
    for size in 1..=changes.len() {
        for from in 0..changes.len() {
            in_batches(&mut writer, &changes[from..], size).await;
            assert_eq!(db.query(all), expected, "again from {from} in batches of {size}");
        }
    }
}

#[tokio::test]
async fn a_partial_update_does_not_invent_a_row() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int, body text)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    for rows in [
        vec![partial(update(r#"{"id":1}"#, "null", r#"{"id":1,"n":1}"#))],
        vec![partial(update(r#"{"id":1}"#, r#"{"id":2}"#, r#"{"id":1,"n":1}"#))],
        vec![
            partial(update(r#"{"id":1}"#, r#"{"id":2}"#, r#"{"id":1}"#)),
            partial(update(r#"{"id":3}"#, "null", "{}")),
        ],
    ] {
        all_good(&write(&mut writer, &rows).await);
        assert_eq!(db.query("SELECT count(*) FROM t"), ["0"]);
    }
    // One that has all columns inserts its row.
    all_good(&write(&mut writer, &[update(r#"{"id":1}"#, r#"{"id":2}"#, r#"{"id":1,"n":1,"body":"b"}"#)]).await);
    assert_eq!(db.query("SELECT * FROM t"), ["1|1|b"]);
}

#[tokio::test]
async fn many_rows_move_at_once() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (part text, id bigint, n int, body text, PRIMARY KEY (part, id))");
    // By parameters, and by a copy.
    for count in [100, 1500] {
        db.query(&format!("TRUNCATE t; INSERT INTO t SELECT 'a', n, n, 'b' || n FROM generate_series(1, {count}) n"));
        let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
        let rows: Vec<Record> = (1..=count)
            .map(|n| {
                let (key, before) = (format!(r#"{{"id":{n},"part":"b"}}"#), format!(r#"{{"id":{n},"part":"a"}}"#));
                partial(update(&key, &before, &format!(r#"{{"id":{n},"part":"b","n":{}}}"#, n + 1)))
            })
            .collect();
        all_good(&write(&mut writer, &rows).await);
        assert_eq!(
            db.query("SELECT count(*), count(*) FILTER (WHERE n = id + 1 AND body = 'b' || id), min(part) FROM t"),
            [format!("{count}|{count}|b")]
        );
    }
}

/// Only PostgreSQL finds these keys equal.
#[tokio::test]
async fn a_key_that_changes_its_form_stays() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE TABLE t (id numeric PRIMARY KEY, n int, body text); INSERT INTO t VALUES (1.0, 1, 'b'), (2, 2, 'c')",
    );
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let rows = [
        partial(update(r#"{"id":"1.00"}"#, r#"{"id":"1.0"}"#, r#"{"id":"1.00","n":10}"#)),
        partial(update(r#"{"id":"3.00"}"#, r#"{"id":"1.000"}"#, r#"{"id":"3.00","n":11}"#)),
        partial(update(r#"{"id":"4.5"}"#, r#"{"id":"3.000"}"#, r#"{"id":"4.5","n":12}"#)),
    ];
    all_good(&write(&mut writer, &rows).await);
    assert_eq!(db.query("SELECT * FROM t ORDER BY id"), ["2|2|c", "4.5|12|b"]);
}

/// Rows that refer to a row follow its key.
#[tokio::test]
async fn a_row_moves_with_those_that_refer_to_it() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE TABLE t (id int PRIMARY KEY, n int);
         CREATE TABLE r (id int PRIMARY KEY, t int REFERENCES t ON UPDATE CASCADE ON DELETE CASCADE);
         INSERT INTO t VALUES (1, 1); INSERT INTO r VALUES (7, 1)",
    );
    let mut writer = open(&db.url(), &[]).await.unwrap();
    let rows = [
        to("t", update(r#"{"id":2}"#, r#"{"id":1}"#, r#"{"id":2,"n":2}"#)),
        to("r", update(r#"{"id":7}"#, "null", r#"{"id":7,"t":2}"#)),
    ];
    all_good(&write(&mut writer, &rows).await);
    assert_eq!(db.query("SELECT * FROM t, r"), ["2|2|7|2"]);
}

/// Without a key in the fields after the change, a field before it need not be the column of the key.
#[tokio::test]
async fn only_the_columns_of_the_key_move_a_row() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1), (2, 2)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let rows = [
        update(r#"{"id":1}"#, r#"{"id":9,"n":1}"#, r#"{"n":10}"#),
        update(r#"{"id":2}"#, r#"{"id":null,"n":2}"#, r#"{"id":2,"n":20}"#),
        // A snapshot has no row before it.
        record("snapshot", r#"{"id":3}"#, r#"{"id":3,"n":30}"#),
    ];
    all_good(&write(&mut writer, &rows).await);
    assert_eq!(db.query("SELECT * FROM t ORDER BY id"), ["1|10", "2|20", "3|30"]);
    // A value of the old key that does not fit is the fault of its record.
    let outcomes = write(&mut writer, &[update(r#"{"id":4}"#, r#"{"id":"x"}"#, r#"{"id":4,"n":4}"#)]).await;
    assert!(outcomes[0].starts_with("value_mismatch: "), "{outcomes:?}");
}

#[tokio::test]
async fn a_truncation_removes_what_was_there_before() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE other (id int PRIMARY KEY, n int)");
    let truncate = || {
        let mut record = record("delete", "null", "null");
        record.metadata.insert(TRUNCATE, "true");
        record
    };
    let rows = [
        to("t", create(r#"{"id":1}"#, r#"{"n":1}"#)),
        to("other", create(r#"{"id":1}"#, r#"{"n":1}"#)),
        to("t", truncate()),
        to("t", create(r#"{"id":2}"#, r#"{"n":2}"#)),
        to("t", record("update", r#"{"id":2}"#, r#"{"n":3}"#)),
        to("t", create("{}", r#"{"id":3,"n":3}"#)),
    ];
    let copied: Vec<Record> = (10..700).map(|n| to("t", create(&format!(r#"{{"id":{n}}}"#), r#"{"n":1}"#))).collect();
    for size in [1, 2, 6] {
        db.query("TRUNCATE t, other; INSERT INTO t VALUES (0, 0), (2, 0)");
        let mut writer = open(&db.url(), &[]).await.unwrap();
        in_batches(&mut writer, &rows, size).await;
        assert_eq!(db.query("SELECT * FROM t ORDER BY id"), ["2|3", "3|3"], "in batches of {size}");
        assert_eq!(db.query("SELECT * FROM other"), ["1|1"]);
        // After rows that are copied, and again.
        let all: Vec<Record> = copied.iter().cloned().chain([to("t", truncate()), to("t", truncate())]).collect();
        all_good(&write(&mut writer, &all).await);
        assert_eq!(db.query("SELECT count(*) FROM t"), ["0"]);
    }
    // Without the metadata, a deletion needs a key.
    let mut writer = open(&db.url(), &[]).await.unwrap();
    let outcomes = write(&mut writer, &[to("t", record("delete", "null", "null"))]).await;
    assert!(outcomes[0].starts_with("key_missing: "), "{outcomes:?}");
}
