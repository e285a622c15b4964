//! Tables, partitions and users that change while they are read.

use std::time::Duration;

use anabranch_record::fault::FaultClass;

use crate::engine::{Run, Store, configure, source};
use crate::server::{Database, LOGICAL, Release, Server};

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_created_again_stops_the_source() {
    let Some(db) = Database::logical(Release::V18) else { return };
    let table = "CREATE TABLE t (id int PRIMARY KEY, v text)";
    db.query(&format!("{table}; INSERT INTO t VALUES (1, 'a')"));
    let more = [("checkInterval", "100ms")];
    let mut run = Run::open(&*source(&db, "t", &more), &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    run.take();
    db.query("INSERT INTO t VALUES (2, 'b')");
    run.until(1).await;
    assert_eq!(run.take(), [r#"create t {"id":2} - {"id":2,"v":"b"}"#]);
    // The publication loses the table with it.
    db.query(&format!("DROP TABLE t; {table}; INSERT INTO t VALUES (3, 'c')"));
    let fault = run.fail().await;
    assert_eq!((fault.code().name(), fault.class()), ("postgres.publication_narrowed", FaultClass::Fatal), "{fault:?}");
    assert!(fault.message().contains("ADD TABLE"), "{}", fault.message());
    assert_eq!(run.take(), [""; 0], "the new table is another one");
    let store = run.close().await;
    let fault = Run::open(&*source(&db, "t", &more), &store).await.err().unwrap();
    assert_eq!(fault.code().name(), "postgres.publication_narrowed", "also after a restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_attached_is_read() {
    for release in Release::ALL {
        let Some(db) = Database::logical(release) else { continue };
        db.query(
            "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
            CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        );
        let mut run = Run::open(&*source(&db, "t", &[("checkInterval", "100ms")]), &Store::default()).await.unwrap();
        run.catch_up().await.unwrap();
        db.query(
            "CREATE TABLE t2 (v text, gone int, id int NOT NULL PRIMARY KEY); ALTER TABLE t2 DROP gone;
            BEGIN; ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20); INSERT INTO t VALUES (11, 'a');
            INSERT INTO t VALUES (1, 'b'); COMMIT; INSERT INTO t2 VALUES ('c', 12); UPDATE t SET id = 13 WHERE id = 1",
        );
        run.until(5).await;
        let expected = [
            r#"create t {"id":11} - {"id":11,"v":"a"}"#,
            r#"create t {"id":1} - {"id":1,"v":"b"}"#,
            r#"create t {"id":12} - {"id":12,"v":"c"}"#,
            // The row moves to another partition.
            r#"delete t {"id":1} {"id":1} -"#,
            r#"create t {"id":13} - {"id":13,"v":"b"}"#,
        ];
        assert_eq!(run.take(), expected, "{release:?}");
        run.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_changes_is_named_and_the_source_goes_on_with_the_new_one() {
    let Some(server) = Server::of(Release::V17, &LOGICAL) else { return };
    server.query(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION conduitpub FOR TABLE t;
        CREATE USER ada REPLICATION PASSWORD 'first-hunter'; GRANT SELECT ON t TO ada",
    );
    std::fs::write(
        server.data().join("pg_hba.conf"),
        "local all all trust\nhost all postgres all trust\nhost all ada all scram-sha-256\n",
    )
    .unwrap();
    server.query("SELECT pg_reload_conf()");
    let port = server.port();
    let with = |password: &str| {
        let url = format!("postgresql://ada:{password}@127.0.0.1:{port}/postgres?sslmode=disable");
        configure(&[("url", url.as_str()), ("tables", "t"), ("logrepl.withAvroSchema", "false")]).unwrap()
    };
    let mut run = Run::open(&*with("first-hunter"), &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    assert_eq!(run.take(), [r#"snapshot t {"id":1} - {"id":1}"#]);
    // Connections stay until they break.
    server.query("ALTER USER ada PASSWORD 'second-hunter'; INSERT INTO t VALUES (2)");
    run.until(1).await;
    server.query("INSERT INTO t VALUES (3)");
    server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ada'");
    // The change may have arrived before.
    let fault = tokio::time::timeout(Duration::from_secs(60), run.fail()).await.unwrap();
    assert_eq!(fault.class(), FaultClass::Transient, "{fault:?}");
    let mut seen = run.take();
    let store = run.close().await;
    let fault = Run::open(&*with("first-hunter"), &store).await.err().unwrap();
    assert!(fault.is_of_login(), "{fault:?}");
    assert!(fault.message().contains("password authentication failed"), "{}", fault.message());
    assert!(!fault.message().contains("hunter"), "{}", fault.message());
    let mut run = Run::open(&*with("second-hunter"), &store).await.unwrap();
    run.catch_up().await.unwrap();
    seen.extend(run.take());
    assert_eq!(seen, [r#"create t {"id":2} - {"id":2}"#, r#"create t {"id":3} - {"id":3}"#]);
    run.close().await;
}
