//! Snapshots: in ranges, resumed, and with the changes that follow.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anabranch_record::Operation;
use anabranch_record::mark::Partition;

use crate::engine::{Came, Run, Store, source};
use crate::server::{Database, Release};

const PATIENCE: Duration = Duration::from_secs(60);

/// What a destination has after records: rows by id.
#[derive(Default)]
struct Copy {
    rows: BTreeMap<i64, String>,
}

impl Copy {
    fn take(&mut self, run: &mut Run) {
        for (_, record) in std::mem::take(&mut run.records) {
            let field =
                |data: &anabranch_record::Data, name: &str| data.fields().and_then(|fields| fields.get(name).cloned());
            let id = field(&record.key, "id").and_then(|id| id.as_i64()).unwrap();
            if let Some(old) = field(&record.payload.before, "id").and_then(|id| id.as_i64()) {
                self.rows.remove(&old);
            }
            match (record.operation, field(&record.payload.after, "v")) {
                (Operation::Delete, _) => {
                    self.rows.remove(&id);
                }
                (_, Some(value)) => {
                    self.rows.insert(id, value.as_str().unwrap_or_default().to_owned());
                }
                // A value that was not changed.
                (_, None) => assert!(self.rows.contains_key(&id)),
            }
        }
    }

    fn check(&self, db: &Database) {
        let found = db.query("SELECT id || ' ' || length(v) || ' ' || left(v, 20) FROM t ORDER BY id");
        let shown = |(id, value): (&i64, &String)| format!("{id} {} {}", value.len(), &value[..value.len().min(20)]);
        assert_eq!(self.rows.iter().map(shown).collect::<Vec<_>>(), found);
    }
}

/// A table of about 10 MiB per 1000 rows, so that it has several ranges.
fn fill(db: &Database, rows: usize) {
    db.query("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE PLAIN");
    db.query(&format!("INSERT INTO t SELECT n, repeat('x', 7000) FROM generate_series(1, {rows}) n; ANALYZE t"));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_during_a_snapshot_follow_it() {
    for release in Release::ALL {
        let Some(db) = Database::logical(release) else { continue };
        fill(&db, 6000);
        let source = source(&db, "t", &[("snapshot.parallel", "3")]);
        let mut run = Run::open(&*source, &Store::default()).await.unwrap();
        run.until(100).await;
        db.query("UPDATE t SET v = 'changed' WHERE id % 10 = 0; DELETE FROM t WHERE id % 10 = 1");
        db.query("INSERT INTO t SELECT n, 'new' FROM generate_series(10001, 10100) n; UPDATE t SET id = id + 20000 WHERE id = 5");
        let mut copy = Copy::default();
        let begun = Instant::now();
        while copy.rows.len() != 5500 || !copy.rows.contains_key(&20005) {
            assert!(begun.elapsed() < PATIENCE, "{} rows", copy.rows.len());
            run.read(usize::MAX, Duration::from_millis(200)).await.unwrap();
            copy.take(&mut run);
        }
        copy.check(&db);
        let lanes: Vec<Partition> = run.store.marks.keys().cloned().collect();
        assert_eq!(lanes, [Partition::ONLY], "the lanes of the snapshot are finished");
        run.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_resumes_after_a_crash_at_any_place() {
    for release in [Release::Installed, Release::V18] {
        for settings in [
            [("snapshot.parallel", "2"), ("snapshotMode", "initial")],
            [("snapshot.fetchSize", "150"), ("snapshotMode", "incremental")],
            // The first range is read before the changes, and then all rows beside them.
            [("snapshot.parallel", "1"), ("maxSnapshotTime", "1ms")],
        ] {
            resume_at_any_place(release, &settings).await;
        }
    }
}

async fn resume_at_any_place(release: Release, settings: &[(&str, &str)]) {
    let Some(db) = Database::logical(release) else { return };
    fill(&db, 4000);
    let source = source(&db, "t", settings);
    let mut store = Store::default();
    let mut copy = Copy::default();
    let mut read = 0;
    for crash in 1..=12 {
        let mut run = Run::open(&*source, &store).await.unwrap();
        let most = crash * 350;
        let came = run.read(most, PATIENCE).await.unwrap();
        assert!(matches!(came, Came::Records | Came::CaughtUp), "{came:?}");
        read += run.records.len();
        copy.take(&mut run);
        // Without a word to the server.
        store = run.store.clone();
        drop(run);
        db.query(&format!(
            "UPDATE t SET v = 'crash {crash}' WHERE id % 13 = {crash}; DELETE FROM t WHERE id % 101 = {crash};
                INSERT INTO t VALUES (10000 + {crash}, 'new'); UPDATE t SET id = -id WHERE id = 500 + {crash}"
        ));
    }
    let mut run = Run::open(&*source, &store).await.unwrap();
    run.catch_up().await.unwrap();
    read += run.records.len();
    copy.take(&mut run);
    copy.check(&db);
    assert!(read < 40_000, "{read} records");
    assert_eq!(run.store.marks.keys().cloned().collect::<Vec<_>>(), [Partition::ONLY]);
    run.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_without_changes_ends() {
    let Some(db) = Database::logical(Release::Installed) else { return };
    db.query("CREATE TABLE t (v text); INSERT INTO t VALUES ('a'), ('b')");
    let source = source(&db, "t", &[("snapshotMode", "only")]);
    let mut run = Run::open(&*source, &Store::default()).await.unwrap();
    assert_eq!(run.read(usize::MAX, PATIENCE).await.unwrap(), Came::End);
    assert_eq!(run.take(), [r#"snapshot t - - {"v":"a"}"#, r#"snapshot t - - {"v":"b"}"#]);
    let store = run.close().await;
    let mut run = Run::open(&*source, &store).await.unwrap();
    assert_eq!(run.read(usize::MAX, PATIENCE).await.unwrap(), Came::End);
    assert_eq!(run.take(), Vec::<String>::new());
    assert_eq!(db.query("SELECT count(*) FROM pg_publication"), ["0"]);
}
