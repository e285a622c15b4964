//! Servers that fail while they are read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_plugin::testing::host;
use anabranch_record::fault::FaultClass;
use anabranch_record::mark::Partition;

use crate::engine::{Came, Run, Store, source};
use crate::proxy::{Proxy, SILENT};
use crate::server::{Database, LOGICAL, Release, Server};

const PATIENCE: Duration = Duration::from_secs(60);

/// Reads until so many rows of the table were seen, over failures of the server, and returns how often each was read.
async fn read_through(
    source: &dyn anabranch_plugin::source::Source,
    store: &mut Store,
    rows: usize,
    mut meanwhile: impl FnMut(usize),
) -> BTreeMap<i64, usize> {
    let mut seen: BTreeMap<i64, usize> = BTreeMap::new();
    let begun = Instant::now();
    while seen.len() < rows {
        assert!(begun.elapsed() < PATIENCE * 2, "{} of {rows} rows", seen.len());
        let mut run = match Run::open(source, store).await {
            Ok(run) => run,
            Err(fault) => {
                assert_eq!(fault.class(), FaultClass::Transient, "{fault:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        loop {
            let came = run.read(1, Duration::from_millis(500)).await;
            for (_, record) in std::mem::take(&mut run.records) {
                let id = record.key.fields().unwrap().get("id").unwrap().as_i64().unwrap();
                *seen.entry(id).or_default() += 1;
            }
            meanwhile(seen.len());
            *store = run.store.clone();
            match came {
                Err(fault) => {
                    assert_eq!(fault.class(), FaultClass::Transient, "{fault:?}");
                    break;
                }
                Ok(_) if seen.len() >= rows => break,
                Ok(_) => {}
            }
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_loses_no_change() {
    for release in [Release::Installed, Release::V17] {
        let Some(server) = Server::of(release, &LOGICAL) else { continue };
        let db = Arc::new(server).database();
        db.query("CREATE TABLE t (id int PRIMARY KEY, v text)");
        let source = source(&db, "t", &[]);
        let mut store = Store::default();
        let mut run = Run::open(&*source, &store).await.unwrap();
        run.catch_up().await.unwrap();
        store = run.close().await;
        db.query("INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 2000) n; CHECKPOINT");
        let mut kills = 0;
        let seen = read_through(&*source, &mut store, 2000, |seen| {
            if seen >= 500 * (kills + 1) && kills < 3 {
                kills += 1;
                match kills {
                    1 => db.server.kill(),
                    2 => db.server.stop(),
                    _ => {
                        db.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active");
                        return;
                    }
                }
                db.server.resume();
            }
        })
        .await;
        assert_eq!(kills, 3);
        // All positions were stored, so that nothing is read twice.
        assert!(seen.values().all(|count| *count == 1), "{release:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_says_nothing_is_given_up() {
    let Some(server) = Server::of(Release::Installed, &["wal_level = logical", "wal_sender_timeout = 1s"]) else {
        return;
    };
    let db = Arc::new(server).database();
    db.query("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let proxy = Proxy::start(db.server.port());
    let url = format!("postgresql://postgres@127.0.0.1:{}/{}", proxy.port, db.name());
    let source = source(&db, "t", &[("url", &url)]);
    let mut run = Run::open(&*source, &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    proxy.set(SILENT);
    let begun = Instant::now();
    let fault = run.fail().await;
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "connection_lost"));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_the_server_invalidates_is_a_gap() {
    let settings =
        ["wal_level = logical", "max_slot_wal_keep_size = 16MB", "max_wal_size = 32MB", "min_wal_size = 32MB"];
    for release in [Release::Installed, Release::V18] {
        let Some(server) = Server::of(release, &settings) else { continue };
        let db = Arc::new(server).database();
        db.query("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (0, '')");
        let mut run = Run::open(&*source(&db, "t", &[]), &Store::default()).await.unwrap();
        run.catch_up().await.unwrap();
        let store = run.close().await;
        db.query("INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 60000) n; CHECKPOINT");
        db.query("SELECT pg_switch_wal(); CHECKPOINT");
        let fault = Run::open(&*source(&db, "t", &[]), &store).await.err().unwrap();
        assert_eq!(fault.code().name(), "postgres.slot_gap");
        assert!(
            fault.message().contains("invalidated") && fault.message().contains("max_slot_wal_keep_size"),
            "{fault}"
        );
        db.query("DELETE FROM t WHERE id > 10");
        let mut run = Run::open(&*source(&db, "t", &[("onGap", "snapshot")]), &store).await.unwrap();
        run.catch_up().await.unwrap();
        assert_eq!(run.take().len(), 11, "{release:?}");
        run.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_with_the_slot_continues() {
    let Some(primary) = Server::of(Release::V17, &LOGICAL) else { return };
    let primary = Arc::new(primary);
    let db = primary.database();
    db.query("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let slot = db.name().to_owned();
    let from = |server: &Server, name: &str| format!("postgresql://postgres@127.0.0.1:{}/{name}", server.port());
    let mut run = Run::open(&*source(&db, "t", &[]), &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    let standby = primary.standby();
    db.query("INSERT INTO t VALUES (1, 'a')");
    run.until(1).await;
    standby.await_slot(&slot, &primary, || {
        db.query("SELECT pg_logical_emit_message(true, 'move', '')");
        let read = run.read(usize::MAX, Duration::from_millis(100));
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(read)).unwrap();
    });
    let store = run.close().await;
    db.query("INSERT INTO t VALUES (2, 'b'); SELECT pg_logical_emit_message(true, 'flush', '')");
    let end = db.query("SELECT pg_current_wal_flush_lsn()").remove(0);
    let begun = Instant::now();
    while standby.query(&format!("SELECT pg_last_wal_replay_lsn() >= '{end}'")) != ["t"] {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    primary.kill();
    standby.promote();
    let url = from(&standby, db.name());
    let more = [("url", url.as_str())];
    let mut run = Run::open(&*source(&db, "t", &more), &store).await.unwrap();
    run.until(1).await;
    assert_eq!(run.take(), [r#"create t {"id":2} - {"id":2,"v":"b"}"#]);
    standby.query("SELECT 1");
    let later = run.close().await;
    // The old primary has another history from there on.
    primary.resume();
    let fault = Run::open(&*source(&db, "t", &[]), &later).await.err().unwrap();
    assert_eq!(fault.code().name(), "postgres.history_differs", "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_rewritten_during_a_snapshot_is_read_again() {
    let Some(db) = Database::logical(Release::Installed) else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE PLAIN");
    db.query("INSERT INTO t SELECT n, repeat('x', 7000) FROM generate_series(1, 6000) n");
    let source = source(&db, "t", &[("snapshot.parallel", "1")]);
    let mut run = Run::open(&*source, &Store::default()).await.unwrap();
    run.until(3000).await;
    let store = run.store.clone();
    drop(run);
    db.query("DELETE FROM t WHERE id % 2 = 0");
    db.query("VACUUM FULL t");
    let mut run = Run::open(&*source, &store).await.unwrap();
    run.catch_up().await.unwrap();
    let snapshot: Vec<i64> = run
        .records
        .iter()
        .filter(|(_, record)| record.operation == anabranch_record::Operation::Snapshot)
        .map(|(_, record)| record.key.fields().unwrap().get("id").unwrap().as_i64().unwrap())
        .collect();
    assert_eq!(snapshot.len(), 3000, "the whole table is read again");
    assert!(run.records.iter().all(|(_, record)| {
        record.operation != anabranch_record::Operation::Snapshot
            || record.metadata.get("postgres.snapshot.resumed").is_some()
    }));
    assert_eq!(run.store.marks.keys().cloned().collect::<Vec<_>>(), [Partition::ONLY]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_waits_for_transactions_that_write() {
    let Some(db) = Database::logical(Release::Installed) else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let open = db.hold("INSERT INTO t VALUES (1, 'a')");
    let source = source(&db, "t", &[]);
    let mut run = Run::open(&*source, &Store::default()).await.unwrap();
    assert_eq!(run.read(usize::MAX, Duration::from_millis(500)).await.unwrap(), Came::Waits);
    drop(open);
    run.catch_up().await.unwrap();
    assert_eq!(run.take(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_name_the_schemas_of_their_tables() {
    let Some(db) = Database::logical(Release::V18) else { return };
    db.query("CREATE TABLE t (id bigint PRIMARY KEY, n numeric(10,2)); INSERT INTO t VALUES (1, 1.50)");
    let source = source(&db, "t", &[("logrepl.withAvroSchema", "true"), ("sdk.schema.context.enabled", "false")]);
    let host = host();
    let mut run = Run::open_with(&*source, &Store::default(), &host).await.unwrap();
    run.catch_up().await.unwrap();
    db.query("INSERT INTO t VALUES (2, 2); ALTER TABLE t ADD w text; INSERT INTO t VALUES (3, 3, 'c')");
    run.until(3).await;
    let name = |at: usize, key: &str| run.records[at].1.metadata.get(key).unwrap().to_string();
    let versions: Vec<String> = (0..3).map(|at| name(at, "recfmt.payload.schema.version")).collect();
    assert_eq!(versions, ["1", "1", "2"]);
    assert_eq!(name(0, "recfmt.payload.schema.subject"), "t_payload");
    assert_eq!(
        (name(2, "recfmt.key.schema.subject"), name(2, "recfmt.key.schema.version")),
        ("t_key".into(), "1".into())
    );
    let second = anabranch_plugin::schema::SchemaVersion::new(2).unwrap();
    let schema = host.schemas.get(&"t_payload".into(), second).await.unwrap();
    assert!(
        schema.text.contains(r#""sqlType":"numeric(10,2)""#) && schema.text.contains(r#""name":"w""#),
        "{}",
        schema.text
    );
    let halting = source_that_halts(&db);
    let mut run = Run::open(&*halting, &run.close().await).await.unwrap();
    db.query("INSERT INTO t VALUES (4, 4, 'd')");
    db.query("ALTER TABLE t DROP w; INSERT INTO t VALUES (5, 5)");
    let fault = run.fail().await;
    assert_eq!((run.take().len(), fault.code().name()), (1, "postgres.schema_drift"));
    // A run after it takes the columns as they are.
    let store = run.store.clone();
    drop(run);
    let mut run = Run::open(&*halting, &store).await.unwrap();
    run.until(1).await;
    assert_eq!(run.take(), [r#"create t {"id":5} - {"id":5,"n":"5.00"}"#]);
}

fn source_that_halts(db: &Database) -> Arc<dyn anabranch_plugin::source::Source> {
    source(db, "t", &[("schemaDrift", "halt")])
}
