//! Changes: what they become, and where reading resumes.

use std::time::Duration;

use anabranch_plugin::testing::check_source;
use anabranch_record::Position;
use anabranch_record::mark::{Mark, Partition};
use serde_json::{Value, json};

use crate::engine::{Came, Run, Store, source};
use crate::server::{Database, Release};

const KEYED: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

#[tokio::test(flavor = "multi_thread")]
async fn rows_and_changes_become_records() {
    for release in Release::ALL {
        let Some(db) = Database::logical(release) else { continue };
        db.query(&format!("{KEYED}; INSERT INTO t VALUES (1, 'a'), (2, NULL)"));
        let source = source(&db, "t", &[]);
        let mut run = Run::open(&*source, &Store::default()).await.unwrap();
        run.catch_up().await.unwrap();
        assert_eq!(
            run.take(),
            [r#"snapshot t {"id":1} - {"id":1,"v":"a"}"#, r#"snapshot t {"id":2} - {"id":2,"v":null}"#],
            "{release:?}"
        );
        db.query("INSERT INTO t VALUES (3, 'c'); UPDATE t SET v = 'b' WHERE id = 2; UPDATE t SET id = 4 WHERE id = 3");
        db.query("DELETE FROM t WHERE id = 1");
        run.until(4).await;
        assert_eq!(
            run.take(),
            [
                r#"create t {"id":3} - {"id":3,"v":"c"}"#,
                r#"update t {"id":2} - {"id":2,"v":"b"}"#,
                r#"update t {"id":4} {"id":3} {"id":4,"v":"c"}"#,
                r#"delete t {"id":1} {"id":1} -"#,
            ],
            "{release:?}"
        );
        let store = run.close().await;
        // Nothing is read twice, and nothing is left out.
        db.query("INSERT INTO t VALUES (5, 'e')");
        let mut run = Run::open(&*source, &store).await.unwrap();
        run.until(1).await;
        assert_eq!(run.take(), [r#"create t {"id":5} - {"id":5,"v":"e"}"#]);
        assert!(run.starts.is_empty());
        run.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_promises_of_a_source_are_kept() {
    for release in Release::ALL {
        let Some(db) = Database::logical(release) else { continue };
        db.query(&format!("{KEYED}; CREATE PUBLICATION p FOR TABLE t"));
        let slot = db.name();
        db.query(&format!("SELECT pg_create_logical_replication_slot('{slot}_first', 'pgoutput')"));
        interleave(&db);
        db.query("UPDATE t SET v = 'b' WHERE id < 4");
        db.query("DELETE FROM t WHERE id > 6");
        let records = check_source(async || {
            // The same changes, at the same places.
            db.query(&format!(
                "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE slot_name = '{slot}' AND active;
                SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}';
                SELECT pg_copy_logical_replication_slot('{slot}_first', '{slot}')"
            ));
            source(&db, "t", &[("snapshotMode", "never"), ("logrepl.adoptSlot", "true")])
        })
        .await
        .unwrap();
        assert_eq!(records.len(), 12, "{release:?}");
    }
}

/// Transactions that overlap and a COPY, whose rows have one place in the log.
fn interleave(db: &Database) -> Vec<String> {
    let (mut first, mut second) = (db.session(), db.session());
    first.run("BEGIN; INSERT INTO t VALUES (1, 'first')");
    second.run("BEGIN; INSERT INTO t VALUES (2, 'second'), (3, 'second')");
    first.run("SAVEPOINT s; INSERT INTO t VALUES (4, 'rolled back'); ROLLBACK TO s; INSERT INTO t VALUES (5, 'first')");
    second.run("COMMIT");
    first.run("COMMIT");
    second.run("COPY t FROM STDIN;\n6\tcopied\n7\tcopied\n8\tcopied\n\\.");
    [2, 3, 1, 5, 6, 7, 8].map(|id| id.to_string()).to_vec()
}

fn ids(records: &[String]) -> Vec<String> {
    let id = |record: &String| {
        let start = record.find(r#"{"id":"#).unwrap() + 6;
        record[start..].split(['}', ',']).next().unwrap().to_owned()
    };
    records.iter().map(id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_after_any_record_continues_with_the_next() {
    for release in Release::ALL {
        let Some(db) = Database::logical(release) else { continue };
        db.query(KEYED);
        let source = source(&db, "t", &[]);
        let mut run = Run::open(&*source, &Store::default()).await.unwrap();
        run.catch_up().await.unwrap();
        let mut store = run.close().await;
        let expected = interleave(&db);
        let mut found = Vec::new();
        for _ in 0..expected.len() {
            let mut run = Run::open(&*source, &store).await.unwrap();
            run.until(1).await;
            found.extend(ids(&run.take()));
            store = run.close().await;
        }
        assert_eq!(found, expected, "{release:?}");
        let mut run = Run::open(&*source, &store).await.unwrap();
        run.catch_up().await.unwrap();
        assert_eq!(run.take(), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_of_the_reference_service_are_taken_over() {
    let Some(db) = Database::logical(Release::Installed) else { return };
    db.query(&format!("{KEYED}; CREATE PUBLICATION p FOR TABLE t"));
    let slot = db.name();
    db.query(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
    let expected = interleave(&db);
    let adopting = source(&db, "t", &[("snapshotMode", "never"), ("logrepl.adoptSlot", "true")]);
    let mut run = Run::open(&*adopting, &Store::default()).await.unwrap();
    run.stores = 0;
    run.until(1).await;
    let position: Value = serde_json::from_slice(&run.records[0].1.position().0).unwrap();
    drop(run);
    let place = |name: &str| position[name].as_str().unwrap().to_owned();
    let (commit, end) = (place("commit"), place("end"));
    for (text, left) in [
        // Of the first transaction, one of two changes is read.
        (json!({"version": 2, "type": 2, "last_lsn": end, "tx_commit_lsn": commit, "tx_seq": 1}), 1),
        // The place of a change says less: its transaction is read again.
        (json!({"type": 2, "last_lsn": end}), 0),
    ] {
        let position = Position::copy_from(text.to_string().as_bytes());
        let mark = Mark { generation: 1, seq: 5, position };
        let store = Store { marks: [(Partition::ONLY, mark)].into() };
        let mut run = Run::open(&*source(&db, "t", &[]), &store).await.unwrap();
        run.stores = 0;
        run.until(expected.len() - left).await;
        assert_eq!(ids(&run.take()), expected[left..], "{text}");
    }
    // A snapshot that is not complete is read again, and then the changes since the slot exists.
    let position = Position::copy_from(br#"{"type": 1, "snapshots": {"t": {"last_read": 1, "snapshot_end": 9}}}"#);
    let store = Store { marks: [(Partition::ONLY, Mark { generation: 1, seq: 5, position })].into() };
    let mut run = Run::open(&*source(&db, "t", &[]), &store).await.unwrap();
    run.catch_up().await.unwrap();
    let (changes, snapshot): (Vec<String>, Vec<String>) =
        run.take().into_iter().partition(|record| record.starts_with("create"));
    assert_eq!((ids(&changes), snapshot.len()), (expected, 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_keeps_what_is_not_acknowledged() {
    let Some(db) = Database::logical(Release::Installed) else { return };
    db.query(KEYED);
    let source = source(&db, "t", &[]);
    let mut run = Run::open(&*source, &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    let store = run.close().await;
    let expected = interleave(&db);
    // The run reads everything, and stores nothing after the second record.
    let mut run = Run::open(&*source, &store).await.unwrap();
    run.until(2).await;
    run.stores = 2;
    run.until(expected.len()).await;
    db.query("SELECT pg_logical_emit_message(true, 'other', 'x')");
    assert_eq!(run.read(usize::MAX, Duration::from_secs(3)).await.unwrap(), Came::CaughtUp);
    let store = run.close().await;
    let mut run = Run::open(&*source, &store).await.unwrap();
    run.until(5).await;
    assert_eq!(ids(&run.take()), expected[2..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_table_does_not_keep_the_log() {
    let Some(db) = Database::logical(Release::V17) else { return };
    db.query(&format!("{KEYED}; CREATE TABLE other (v text)"));
    let source = source(&db, "t", &[]);
    let mut run = Run::open(&*source, &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    let lag = || {
        let sql = "SELECT pg_current_wal_flush_lsn() - confirmed_flush_lsn FROM pg_replication_slots \
                   WHERE slot_name = current_database()";
        db.query(sql)[0].parse::<u64>().unwrap()
    };
    db.query("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 20000)");
    assert!(lag() > 10 << 20);
    let begun = std::time::Instant::now();
    while lag() > 1 << 20 {
        assert!(begun.elapsed() < Duration::from_secs(40), "{} bytes are kept", lag());
        run.read(usize::MAX, Duration::from_millis(300)).await.unwrap();
    }
    assert_eq!(run.take(), Vec::<String>::new());
    assert!(run.backlog().await < 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_were_not_changed_are_named() {
    let Some(db) = Database::logical(Release::Installed) else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int, v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL");
    db.query("INSERT INTO t VALUES (1, 1, repeat('x', 10000))");
    let source = source(&db, "t", &[("snapshotMode", "never")]);
    let mut run = Run::open(&*source, &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    db.query("UPDATE t SET n = 2");
    run.until(1).await;
    let unchanged = run.records[0].1.metadata.get("postgres.unchanged").map(ToString::to_string);
    assert_eq!(unchanged.as_deref(), Some("v"));
    assert_eq!(run.take(), [r#"update t {"id":1} - {"id":1,"n":2}"#]);
    db.query("ALTER TABLE t REPLICA IDENTITY FULL; UPDATE t SET n = 3");
    run.until(1).await;
    let record = run.records.remove(0).1;
    assert_eq!(record.payload.after.fields().unwrap().get("v").unwrap().as_str().unwrap().len(), 10000);
    assert_eq!(record.payload.before.fields().unwrap().get("n").unwrap().as_i64(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_may_change_within_a_transaction() {
    let Some(db) = Database::logical(Release::V18) else { return };
    db.query(KEYED);
    let source = source(&db, "t", &[("snapshotMode", "never")]);
    let mut run = Run::open(&*source, &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    db.query(
        "BEGIN; INSERT INTO t VALUES (1, 'a'); ALTER TABLE t ADD w int; INSERT INTO t VALUES (2, 'b', 3);
        ALTER TABLE t DROP v; ALTER TABLE t RENAME w TO x; UPDATE t SET x = 4 WHERE id = 2; COMMIT",
    );
    run.until(3).await;
    assert_eq!(
        run.take(),
        [
            r#"create t {"id":1} - {"id":1,"v":"a"}"#,
            r#"create t {"id":2} - {"id":2,"v":"b","w":3}"#,
            r#"update t {"id":2} - {"id":2,"x":4}"#,
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_read_as_their_table() {
    for release in Release::ALL {
        let Some(db) = Database::logical(release) else { continue };
        db.query(
            "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
            CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10);
            CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20); INSERT INTO t VALUES (1, 'a'), (11, 'b')",
        );
        // The second publication sends changes under the names of the partitions.
        db.query("CREATE PUBLICATION leaves FOR TABLE t");
        for publication in ["p", "leaves"] {
            let slot = format!("{}_{publication}", db.name());
            let source = source(&db, "t", &[("logrepl.publicationName", publication), ("logrepl.slotName", &slot)]);
            let mut run = Run::open(&*source, &Store::default()).await.unwrap();
            run.catch_up().await.unwrap();
            let mut rows = run.take();
            rows.sort();
            assert_eq!(
                rows,
                [r#"snapshot t {"id":11} - {"id":11,"v":"b"}"#, r#"snapshot t {"id":1} - {"id":1,"v":"a"}"#]
            );
            db.query("INSERT INTO t VALUES (12, 'c')");
            run.until(1).await;
            assert_eq!(run.take(), [r#"create t {"id":12} - {"id":12,"v":"c"}"#], "{release:?} {publication}");
            db.query("DELETE FROM t WHERE id = 12");
            run.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pipeline_keeps_the_connection() {
    let Some(server) =
        crate::server::Server::of(Release::Installed, &["wal_level = logical", "wal_sender_timeout = 2s"])
    else {
        return;
    };
    let db = std::sync::Arc::new(server).database();
    db.query(KEYED);
    let source = source(&db, "t", &[("snapshotMode", "never")]);
    let mut run = Run::open(&*source, &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    db.query("INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, 100000) n");
    run.until(1).await;
    // Nothing is read for more than twice the time after which the server gives up a silent connection.
    tokio::time::sleep(Duration::from_secs(5)).await;
    run.until(100_000).await;
    assert!(!db.server.log().contains("terminating walsender"), "{}", db.server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn types_keep_their_values() {
    for release in Release::ALL {
        let Some(db) = Database::logical(release) else { continue };
        db.query(
            "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN positive AS int CHECK (VALUE > 0);
            CREATE TYPE pair AS (a int, b text);
            CREATE TABLE t (id int PRIMARY KEY, bo bool, i8 bigint, f4 real, f8 double precision, n numeric,
                tx text, c char(3), by bytea, j jsonb, d date, ts timestamp, tz timestamptz, tm time, iv interval,
                u uuid, ai int[], at text[], m mood, p positive, c2 pair, r int4range, ip inet, x xml, am mood[],
                g int GENERATED ALWAYS AS (id * 2) STORED)",
        );
        db.query(
            r#"INSERT INTO t VALUES (1, true, 9007199254740993, 0.1, 'NaN', '123456789012345678901234567890.10',
            E'a\tb\\c\nd', 'x', '\x00ff', '{"a": 1e100}', '0044-03-15 BC', '2026-11-26 05:00:00.123456', 'infinity',
            '23:59:59', '1 day 2 hours', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{{1,2},{3,NULL}}', '{"a,b",NULL}',
            'ok', 5, '(1,"x y")', '[1,5)', '10.0.0.1/8', '<a/>', '{sad,ok}')"#,
        );
        let source = source(&db, "t", &[]);
        let mut run = Run::open(&*source, &Store::default()).await.unwrap();
        run.catch_up().await.unwrap();
        let snapshot = run.take().remove(0);
        assert_eq!(
            snapshot,
            concat!(
                r#"snapshot t {"id":1} - {"ai":[[1,2],[3,null]],"am":["sad","ok"],"at":["a,b",null],"bo":true,"by":"AP8=","#,
                r#""c":"x  ","c2":"(1,\"x y\")","d":"0044-03-15 BC","f4":0.1,"f8":"NaN","i8":9007199254740993,"id":1,"#,
                r#""ip":"10.0.0.1/8","iv":"P1DT2H","j":"{\"a\": 1"#,
            )
            .to_owned()
                + &"0".repeat(100)
                + concat!(
                    r#"}","m":"ok","n":"123456789012345678901234567890.10","p":5,"r":"[1,5)","tm":"23:59:59","#,
                    r#""ts":"2026-11-26T05:00:00.123456Z","tx":"a\tb\\c\nd","tz":"infinity","#,
                    r#""u":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11","x":"<a/>"}"#
                ),
            "{release:?}"
        );
        db.query("UPDATE t SET i8 = i8");
        run.until(1).await;
        assert_eq!(run.take().remove(0).replace("update", "snapshot"), snapshot, "{release:?}");
    }
}
