//! Columns of tables that change.

use std::time::Duration;

use crate::engine::{Run, Store, source};
use crate::server::{Database, Release};

#[tokio::test]
async fn a_change_of_columns_is_noticed_although_nothing_was_read_meanwhile() {
    let Some(db) = Database::logical(Release::V17) else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)");
    let halting = source(&db, "t", &[("schemaDrift", "halt")]);
    let mut run = Run::open(&*halting, &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    let store = run.close().await;
    db.query("INSERT INTO t VALUES (2, 2)");
    db.query("ALTER TABLE t ADD w text; INSERT INTO t VALUES (3, 3, 'c')");
    let mut run = Run::open(&*halting, &store).await.unwrap();
    let fault = run.fail().await;
    assert_eq!((run.take().len(), fault.code().name()), (1, "postgres.schema_drift"));
    assert!(fault.message().contains("columns of the table public.t changed (new: w)"), "{}", fault.message());
    let mut run = Run::open(&*halting, &run.close().await).await.unwrap();
    run.until(1).await;
    assert_eq!(run.take(), [r#"create t {"id":3} - {"id":3,"n":3,"w":"c"}"#]);
}

#[tokio::test]
async fn rows_with_other_columns_fail_until_they_are_accepted() {
    let Some(db) = Database::logical(Release::V18) else { return };
    db.query(
        "CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE u (id int PRIMARY KEY); INSERT INTO t VALUES (1, 1)",
    );
    let both = |drift| source(&db, "t,u", &[("schemaDrift", drift)]);
    let mut run = Run::open(&*both("dead-letter"), &Store::default()).await.unwrap();
    run.catch_up().await.unwrap();
    run.take();
    db.query(
        "BEGIN; INSERT INTO t VALUES (2, 2); ALTER TABLE t DROP n, ADD w text; INSERT INTO t VALUES (3, 'c');
         INSERT INTO u VALUES (1); UPDATE t SET w = 'd' WHERE id = 2; COMMIT",
    );
    let failed = |text: &str| (text.to_owned(), "postgres.schema_drift");
    let expected = [r#"create t {"id":3} - {"id":3,"w":"c"}"#, r#"update t {"id":2} - {"id":2,"w":"d"}"#].map(failed);
    assert_eq!(run.failures(2).await, expected);
    assert_eq!(run.take(), [r#"create t {"id":2} - {"id":2,"n":2}"#, r#"create u {"id":1} - {"id":1}"#]);
    // A restart does not accept them.
    let mut run = Run::open(&*both("dead-letter"), &run.close().await).await.unwrap();
    db.query("INSERT INTO t VALUES (4, 'e')");
    assert_eq!(run.failures(1).await, [failed(r#"create t {"id":4} - {"id":4,"w":"e"}"#)]);
    // Rows that are read again neither.
    let stored = run.backfill("public.t").await;
    let (stored, failed) = tokio::join!(stored, run.failures(4));
    stored.unwrap();
    assert_eq!(failed.len(), 4);
    run.read(usize::MAX, Duration::from_secs(1)).await.unwrap();
    let mut run = Run::open(&*both("evolve"), &run.close().await).await.unwrap();
    db.query("INSERT INTO t VALUES (5, 'f')");
    run.until(1).await;
    assert_eq!(run.take(), [r#"create t {"id":5} - {"id":5,"w":"f"}"#]);
    // What evolve has accepted stays so.
    let mut run = Run::open(&*both("dlq"), &run.close().await).await.unwrap();
    db.query("INSERT INTO t VALUES (6, 'g')");
    run.until(1).await;
    assert_eq!(run.take().len(), 1);
}
