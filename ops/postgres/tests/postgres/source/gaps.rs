//! Changes that are missing, or would be: each is a fault that says so.

use std::time::Duration;

use anabranch_record::mark::{Mark, Partition};

use crate::engine::{Run, Store, source};
use crate::server::{Database, Release};

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')";

/// Reads everything once, and returns what is stored.
async fn stored(db: &Database, more: &[(&str, &str)]) -> Store {
    let mut run = Run::open(&*source(db, "t", more), &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    run.close().await
}

/// Returns code and message of the fault with which a source does not open.
async fn refused(db: &Database, store: &Store, more: &[(&str, &str)]) -> (&'static str, String) {
    match Run::open(&*source(db, "t", more), store).await {
        Ok(_) => panic!("it opens"),
        Err(fault) => (fault.code().name(), fault.message()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_gone_moved_or_foreign_is_a_fault() {
    for release in Release::ALL {
        let Some(db) = Database::logical(release) else { continue };
        db.query(TABLES);
        let slot = db.name().to_owned();
        let store = stored(&db, &[]).await;
        db.query("INSERT INTO t VALUES (2, 'b')");
        let moved = format!("SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())");
        db.query(&moved);
        let (code, message) = refused(&db, &store, &[]).await;
        assert_eq!(code, "postgres.slot_gap");
        assert!(message.contains("another program moved the slot"), "{message}");
        db.query(&format!("SELECT pg_drop_replication_slot('{slot}')"));
        let (code, message) = refused(&db, &store, &[]).await;
        assert_eq!(code, "postgres.slot_gap");
        assert!(message.contains("does not exist any more"), "{message}");
        // A slot that another program created is never read by accident.
        db.query(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
        assert_eq!(refused(&db, &store, &[]).await.0, "postgres.slot_gap");
        assert_eq!(refused(&db, &Store::default(), &[]).await.0, "postgres.slot_foreign");
        let mut run = Run::open(&*source(&db, "t", &[("logrepl.adoptSlot", "true")]), &Store::default()).await.unwrap();
        run.catch_up().await.unwrap();
        assert_eq!(run.take().len(), 2);
        run.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_rows_are_read_again_after_a_gap_if_it_is_allowed() {
    let Some(db) = Database::logical(Release::V17) else { return };
    db.query(TABLES);
    let store = stored(&db, &[]).await;
    db.query(&format!("SELECT pg_drop_replication_slot('{}'); INSERT INTO t VALUES (2, 'b')", db.name()));
    let mut run = Run::open(&*source(&db, "t", &[("onGap", "snapshot")]), &store).await.unwrap();
    assert!(run.starts[&Partition::ONLY].is_elsewhere());
    run.catch_up().await.unwrap();
    // A transactional destination knows the lanes of the first snapshot.
    assert!(run.records.iter().all(|(lane, _)| !["snapshot/public.t/0"].contains(&lane.0.as_str())));
    assert_eq!(run.take(), [r#"snapshot t {"id":1} - {"id":1,"v":"a"}"#, r#"snapshot t {"id":2} - {"id":2,"v":"b"}"#]);
    db.query("DELETE FROM t WHERE id = 1");
    run.until(1).await;
    assert_eq!(run.take(), [r#"delete t {"id":1} {"id":1} -"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_the_slot_is_stored_creates_no_second_one() {
    let Some(db) = Database::logical(Release::Installed) else { return };
    db.query(TABLES);
    let source = source(&db, "t", &[]);
    // Only the intent is stored.
    let mut run = Run::open(&*source, &Store::default()).await.unwrap();
    run.until(1).await;
    let intent = {
        let mark = &run.store.marks[&Partition::ONLY];
        let text = String::from_utf8(mark.position.0.to_vec()).unwrap();
        let mut position: serde_json::Value = serde_json::from_str(&text).unwrap();
        position["stage"] = "intent".into();
        position["end"] = "0/0".into();
        Mark { position: anabranch_record::Position::copy_from(position.to_string().as_bytes()), ..mark.clone() }
    };
    drop(run);
    db.query("DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (2, 'b')");
    let store = Store { marks: [(Partition::ONLY, intent)].into() };
    let mut run = Run::open(&*source, &store).await.unwrap();
    run.catch_up().await.unwrap();
    // The deletion of a row that may have been delivered is not lost.
    assert_eq!(
        run.take(),
        [
            r#"delete t {"id":1} {"id":1} -"#,
            r#"create t {"id":2} - {"id":2,"v":"b"}"#,
            r#"snapshot t {"id":2} - {"id":2,"v":"b"}"#
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_another_program_reads_is_named() {
    let Some(db) = Database::logical(Release::Installed) else { return };
    db.query(TABLES);
    let store = stored(&db, &[]).await;
    let mut first = Run::open(&*source(&db, "t", &[]), &store).await.unwrap();
    first.catch_up().await.unwrap();
    let mut second = Run::open(&*source(&db, "t", &[]), &first.store).await.unwrap();
    let fault = second.fail().await;
    assert_eq!(fault.code().name(), "postgres.slot_in_use");
    assert!(fault.message().contains("is active for PID"), "{}", fault.message());
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_that_hides_changes_stops_the_pipeline() {
    for release in [Release::Installed, Release::V18] {
        let Some(db) = Database::logical(release) else { continue };
        db.query(TABLES);
        let more = [("checkInterval", "100ms")];
        let mut store = stored(&db, &more).await;
        for (narrow, restore, part) in [
            ("ALTER PUBLICATION p SET TABLE u", "ALTER PUBLICATION p SET TABLE t", "is not in the publication p"),
            ("ALTER PUBLICATION p SET TABLE t WHERE (id > 5)", "ALTER PUBLICATION p SET TABLE t", "id > 5"),
            ("ALTER PUBLICATION p SET TABLE t (id)", "ALTER PUBLICATION p SET TABLE t", "the columns v of public.t"),
            (
                "ALTER PUBLICATION p SET (publish = 'insert')",
                "ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')",
                "update, delete, truncate",
            ),
            ("DROP PUBLICATION p", "CREATE PUBLICATION p FOR TABLE t", "`CREATE PUBLICATION \"p\" FOR TABLE"),
        ] {
            db.query("CREATE TABLE IF NOT EXISTS u (id int PRIMARY KEY)");
            let mut run = Run::open(&*source(&db, "t", &more), &store).await.unwrap();
            run.catch_up().await.unwrap();
            db.query(narrow);
            let fault = run.fail().await;
            store = run.store.clone();
            assert_eq!(fault.code().name(), "postgres.publication_narrowed", "{narrow}");
            assert!(fault.message().contains(part), "{}", fault.message());
            let (code, message) = refused(&db, &store, &more).await;
            assert_eq!(code, "postgres.publication_narrowed");
            assert!(message.contains(part), "{message}");
            db.query(restore);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_dropped_while_it_is_read_is_a_fault() {
    let Some(db) = Database::logical(Release::V17) else { return };
    db.query(TABLES);
    let more = [("checkInterval", "100ms")];
    let store = stored(&db, &more).await;
    let mut run = Run::open(&*source(&db, "t", &more), &store).await.unwrap();
    run.catch_up().await.unwrap();
    let slot = db.name();
    let sql = format!(
        "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE slot_name = '{slot}';
        SELECT pg_drop_replication_slot('{slot}')"
    );
    db.query(&sql);
    let fault = run.fail().await;
    assert!(["postgres.slot_gap", "connection_lost", "server_unavailable"].contains(&fault.code().name()), "{fault:?}");
    assert_eq!(refused(&db, &store, &more).await.0, "postgres.slot_gap");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_whose_changes_cannot_be_read_are_refused() {
    let Some(db) = Database::logical(Release::Installed) else { return };
    db.query(
        "CREATE TABLE t (v text); CREATE VIEW w AS SELECT 1; CREATE UNLOGGED TABLE u (id int PRIMARY KEY);
        CREATE TABLE k (id int PRIMARY KEY)",
    );
    for (tables, code, part) in [
        ("t", "postgres.identity_missing", "`ALTER TABLE \"public\".\"t\" REPLICA IDENTITY FULL`"),
        ("w", "postgres.source_table", "is a view"),
        ("u", "postgres.source_table", "unlogged"),
        ("nothing", "postgres.source_table", "does not exist"),
        ("none.*", "postgres.source_table", "no table matches"),
    ] {
        let fault = Run::open(&*source(&db, tables, &[]), &Store::default()).await.err().unwrap();
        assert_eq!(fault.code().name(), code, "{tables}");
        assert!(fault.message().contains(part), "{}", fault.message());
    }
    assert_eq!(db.query("SELECT count(*) FROM pg_publication"), ["0"], "updates of the tables still work");
    let warnings = source(&db, "k", &[]).examine().await.unwrap();
    assert!(warnings.iter().any(|warning| warning.contains("the source creates it")), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_went_back_in_time_is_a_fault() {
    let Some(server) = crate::server::Server::of(Release::Installed, &["wal_level = logical"]) else { return };
    let db = std::sync::Arc::new(server).database();
    db.query(TABLES);
    let first = stored(&db, &[]).await;
    db.server.stop();
    let backup = db.server.back_up();
    db.server.resume();
    db.query("INSERT INTO t SELECT n, 'lost' FROM generate_series(2, 5000) n");
    let mut run = Run::open(&*source(&db, "t", &[]), &first).await.unwrap();
    run.until(4999).await;
    let later = run.close().await;
    db.server.stop();
    db.server.restore(&backup);
    db.server.resume();
    let (code, message) = refused(&db, &later, &[]).await;
    assert_eq!(code, "postgres.history_differs");
    assert!(message.contains("before the stored position"), "{message}");
    // The position from before the backup continues.
    let mut run = Run::open(&*source(&db, "t", &[]), &first).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), run.catch_up()).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_examination_names_every_problem() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (v text); CREATE VIEW w AS SELECT 1; CREATE TABLE k (id int PRIMARY KEY)");
    let fault = source(&db, "t, w, k, nothing, none.*", &[]).examine().await.unwrap_err();
    assert_eq!(fault.code().name(), "postgres.source_table", "{fault:?}");
    for part in ["w is a view", "public.nothing does not exist", "wal_level is replica", "\"t\" REPLICA IDENTITY FULL"]
    {
        assert_eq!(fault.message().matches(part).count(), 1, "{part}: {}", fault.message());
    }
    assert!(!fault.message().contains("public.k"), "{}", fault.message());
}
