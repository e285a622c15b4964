//! Runs that end at any place under load, judged by the history of each key.

use std::time::Duration;

use anabranch_record::json;
use serde_json::Value;

use crate::checker::{History, Observed, observed};
use crate::engine::{Came, Run, Store, source};
use crate::load::{Load, TABLES, source_tables};
use crate::server::{Database, Release};

/// Most records that a run reads and does not store before it ends.
const UNSTORED: usize = 40;

fn observe(run: &mut Run, seen: &mut Vec<Observed>) {
    for (_, record) in std::mem::take(&mut run.records) {
        let mut out = Vec::new();
        json::write_record(&record, &mut out).unwrap();
        let record: Value = serde_json::from_slice(&out).unwrap();
        seen.extend(observed(&record));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_under_load_neither_loses_nor_reorders_a_change() {
    for (release, seed) in [(Release::Installed, 1), (Release::V17, 2), (Release::V18, 3)] {
        let Some(db) = Database::logical(release) else { continue };
        db.query(&source_tables());
        let mut random = fastrand::Rng::with_seed(seed);
        let mut load = Load::connect(&db.url(), seed).unwrap();
        load.run(400).unwrap();
        load.commit().unwrap();
        let running = load.spawn(300);
        let source = source(&db, &TABLES.join(","), &[("snapshot.parallel", "2")]);
        // The snapshot is read under load, too. What a resumed one comes to is the subject of another test.
        let (mut seen, mut ends) = (Vec::new(), 0);
        let mut run = Run::open(&*source, &Store::default()).await.unwrap();
        run.catch_up().await.unwrap();
        observe(&mut run, &mut seen);
        let mut store = run.close().await;
        let folded = History::last(&mut db.session());
        for _ in 0..30 {
            let mut run = Run::open(&*source, &store).await.unwrap();
            let stored = random.usize(1..100);
            run.stores = stored;
            run.read(stored + random.usize(..UNSTORED), Duration::from_millis(400)).await.unwrap();
            let read = run.records.len();
            observe(&mut run, &mut seen);
            ends += usize::from(read > stored);
            store = match random.bool() {
                true => run.close().await,
                // Without a word to the server.
                false => run.store.clone(),
            };
        }
        running.finish();
        let mut run = Run::open(&*source, &store).await.unwrap();
        while run.read(usize::MAX, Duration::from_secs(60)).await.unwrap() != Came::CaughtUp {}
        observe(&mut run, &mut seen);
        run.close().await;
        let mut session = db.session();
        let compared = History::read(&mut session).compare(seen, folded);
        println!("{release:?}: {} repeated, {ends} ends before the last position", compared.repeated);
        assert!(ends > 5, "{ends} runs ended before the last position");
        compared.check(30 * (UNSTORED + 100), "under load");
    }
}
