mod cluster;
mod copies;
mod hints;
mod sets;
mod silence;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_plugin::state::{Commit, Epoch, ResultCache as _, StateStore as _, Unit};
use anabranch_record::Position;
use anabranch_record::mark::{LaneId, Mark, Partition};
use bytes::Bytes;

use super::server::{Database, Server};
use super::*;
use crate::error::OpenError;
use crate::store::Store;

fn open(url: String, table: &str) -> Result<Store, OpenError> {
    Store::open(&anabranch_settings::Database::Postgres(PostgresDatabase {
        connection: url.into(),
        table: table.to_owned(),
    }))
}

fn lane() -> LaneId {
    LaneId { connector: "in".into(), partition: Partition("0".into()) }
}

fn mark(seq: u64) -> Mark {
    Mark { generation: 1, seq, position: Position::copy_from(b"\0\xff") }
}

fn refused(result: Result<Store, OpenError>) -> PostgresError {
    match result {
        Err(OpenError::Postgres(refused)) => refused,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[tokio::test]
async fn a_claim_of_another_process_fences_this_one() {
    let Some(database) = Database::create() else { return };
    let (here, there) = (open(database.url(), "kv").unwrap(), open(database.url(), "kv").unwrap());
    let ours = here.claim(&Unit::whole("p")).await.unwrap();
    here.commit(&ours, Commit::of(&[(lane(), mark(1))])).await.unwrap();
    let theirs = there.claim(&Unit::whole("p")).await.unwrap();
    assert_eq!(there.load(&theirs).await.unwrap()[&lane()], mark(1));
    let fenced = here.commit(&ours, Commit::of(&[(lane(), mark(2))])).await.unwrap_err();
    assert!(matches!(fenced, StoreError::Fenced { ours: 1, theirs: 2, .. }), "{fenced}");
    assert_eq!(there.load(&theirs).await.unwrap()[&lane()], mark(1));
}

/// Whatever the order of claims and commits of two processes: a commit that succeeds is not older than the latest claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_owners_never_overwrite_a_later_one() {
    let Some(database) = Database::create() else { return };
    let stores = [open(database.url(), "kv").unwrap(), open(database.url(), "kv").unwrap()];
    for round in 0..20 {
        let claims = futures::future::join_all(stores.iter().map(|store| async {
            let epoch = store.claim(&Unit::whole("p")).await.unwrap();
            let stored = store.commit(&epoch, Commit::of(&[(lane(), mark(epoch.number))])).await;
            (epoch.number, stored.is_ok())
        }));
        let claims = claims.await;
        let latest = claims.iter().map(|(number, _)| *number).max().unwrap();
        assert_eq!(latest, 3 * round + 2);
        assert!(claims.contains(&(latest, true)), "{claims:?}");
        let epoch = stores[0].claim(&Unit::whole("p")).await.unwrap();
        assert_eq!(stores[1].load(&epoch).await.unwrap()[&lane()], mark(latest));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_made_anew() {
    let Some(server) = Server::start(&[]) else { return };
    let server = Arc::new(server);
    let store = open(server.url(), "kv").unwrap();
    let epoch = store.claim(&Unit::whole("p")).await.unwrap();
    let away = server.clone();
    let restart = tokio::task::spawn_blocking(move || {
        for _ in 0..2 {
            away.kill();
            away.resume();
        }
    });
    let mut seq = 0;
    while !restart.is_finished() || seq < 50 {
        seq += 1;
        // The server may be away for longer than it is waited for; the pipeline would recover then.
        while let Err(error) = store.commit(&epoch, Commit::of(&[(lane(), mark(seq))])).await {
            assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        }
        assert_eq!(loaded(&store, &epoch).await, mark(seq));
    }
    restart.await.unwrap();
    server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'anabranch'");
    assert_eq!(store.load(&epoch).await.unwrap()[&lane()], mark(seq));
    store.commit(&epoch, Commit::of(&[(lane(), mark(seq + 1))])).await.unwrap();
    server.stop();
    let error = store.commit(&epoch, Commit::of(&[(lane(), mark(seq + 2))])).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    server.resume();
    assert_eq!(loaded(&store, &epoch).await, mark(seq + 1));
}

/// The mark, once the server answers: for a second after it was found away, reads are refused at once.
async fn loaded(store: &Store, epoch: &Epoch) -> Mark {
    let started = std::time::Instant::now();
    loop {
        match store.load(epoch).await {
            Ok(mut loaded) => return loaded.remove(&lane()).unwrap(),
            Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "the server is not found again");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn other_tables_and_later_versions_are_refused_and_left_alone() {
    let Some(database) = Database::create() else { return };
    database.query("CREATE TABLE cats (name text); CREATE SCHEMA other; CREATE VIEW seen AS SELECT 1 AS number");
    for table in ["cats", "seen"] {
        let error = refused(open(database.url(), table));
        assert!(matches!(&error, PostgresError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains(table), "{error}");
    }
    assert_eq!(database.query("SELECT count(*) FROM cats"), ["0"]);
    drop(open(database.url(), "other.kv").unwrap());
    drop(open(database.url(), "other.kv").unwrap());
    database.query("UPDATE other.kv SET number = 3 WHERE kind = 'schema'");
    let error = refused(open(database.url(), "other.kv"));
    assert!(matches!(error, PostgresError::Newer { found: 3, .. }), "{error}");
    database.query("DELETE FROM other.kv");
    assert!(matches!(refused(open(database.url(), "other.kv")), PostgresError::Foreign { .. }));
    for table in ["", "a.b.c", "a.", &"x".repeat(59)] {
        assert!(matches!(refused(open(database.url(), table)), PostgresError::Setting { .. }), "{table}");
    }
    let error = refused(open(database.url(), "nowhere.kv"));
    assert!(matches!(&error, PostgresError::Server { what, .. } if what.contains("nowhere")), "{error}");
}

#[tokio::test]
async fn damage_is_an_error_and_never_a_restart_from_nothing() {
    let Some(database) = Database::create() else { return };
    let store = open(database.url(), "kv").unwrap();
    let epoch = store.claim(&Unit::whole("p")).await.unwrap();
    store.commit(&epoch, Commit::of(&[(lane(), mark(5))])).await.unwrap();
    database.query("UPDATE kv SET value = substr(value, 1, 15) WHERE kind = 'mark'");
    let error = store.load(&epoch).await.unwrap_err();
    assert!(matches!(&error, StoreError::Damaged(what) if what.contains("p:in")), "{error}");
    database.query("INSERT INTO kv VALUES ('pipeline', 'p', '', '', 0, 'x')");
    assert!(matches!(store.pipelines().await, Err(StoreError::Damaged(_))));
    assert!(matches!(
        store
            .provision(crate::Provision {
                good: vec![],
                invalid: vec![],
                complete: false,
                at: crate::Moment(1),
                texts: vec![]
            })
            .await,
        Err(StoreError::Damaged(_))
    ));
    database.query("DROP TABLE kv");
    let error = store.commit(&epoch, Commit::of(&[(lane(), mark(6))])).await.unwrap_err();
    assert!(error.to_string().contains("42P01"), "{error}");
}

#[tokio::test]
async fn the_oldest_results_are_forgotten() {
    let Some(database) = Database::create() else { return };
    let store = open(database.url(), "kv").unwrap();
    for n in 0..4u8 {
        store.keep("s", vec![([n; 32], Bytes::from(vec![0; 1000]))]).await.unwrap();
    }
    store.keep("s", vec![([0; 32], Bytes::from(vec![1; 1000]))]).await.unwrap();
    let Ok(table) = Table::parse("kv") else { panic!("a name") };
    let Ok(address) = Address::parse(&database.url().into()) else { panic!("an address") };
    let mut session = address.connect().await.unwrap();
    let transaction = session.client().transaction().await.unwrap();
    table.forget(&transaction, 2100).await.unwrap();
    transaction.commit().await.unwrap();
    let there: Vec<bool> =
        store.recall("s", &[[0; 32], [1; 32], [2; 32], [3; 32]]).await.unwrap().iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, false, true]);
}

#[test]
fn a_server_that_is_not_there_is_named_without_the_password() {
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let url = format!("postgresql://u:hunter2@127.0.0.1:{free}/d");
    let error = refused(open(url, "kv"));
    let text = format!("{error} {error:?}");
    assert!(text.contains(&format!("127.0.0.1:{free}")) && !text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn an_upgrade_that_is_interrupted_changes_nothing_and_is_repeated() {
    let Some(database) = Database::create() else { return };
    let database = Arc::new(database);
    database.query(include_str!("../../fixtures/postgres-1.sql"));
    let all = "SELECT * FROM state ORDER BY kind, pipeline, connector, partition";
    let before = database.query(all);
    let Ok(table) = Table::parse("state") else { panic!("a name") };
    let Ok(address) = Address::parse(&database.url().into()) else { panic!("an address") };
    let mut session = address.connect().await.unwrap();
    // The upgrade waits for this session in the middle, and its own is cut.
    let held = database.hold("LOCK TABLE state IN ACCESS SHARE MODE");
    let over = Arc::new(AtomicBool::new(false));
    let (server, is_over) = (database.clone(), over.clone());
    let cut = tokio::task::spawn_blocking(move || {
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                   AND query LIKE 'ALTER TABLE%' AND datname = current_database()";
        while server.query(cut).is_empty() && !is_over.load(Ordering::Relaxed) {}
    });
    let outcome = table.upgrade(session.client()).await;
    over.store(true, Ordering::Relaxed);
    cut.await.unwrap();
    assert!(outcome.is_err());
    drop(held);
    assert_eq!(database.query(all), before);
    let store = open(database.url(), "state").unwrap();
    assert_eq!(store.claim(&Unit::whole("feed")).await.unwrap().number, 3);
    assert_eq!(database.query("SELECT number FROM state WHERE kind = 'schema'"), ["2"]);
}
