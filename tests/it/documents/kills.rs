//! SIGKILL at random moments; `ANABRANCH_SEED` repeats those of another time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::{Library, RUN, assert_exact, database, embed, keys, partition, pipeline, rows, wait};

const KILLS: usize = 22;
const DOCUMENTS: usize = 720;
const CHUNKS: usize = 3;
/// `engine.replay-rows`: few, so that the bound says something.
const REPLAY: usize = 8;

/// Commits are slow: many a kill comes when rows are on their way and nobody knows whether they will be there.
const SLOW: &str = "
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.004); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON file_workspaces DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION slow();";

/// Runs the service, kills it so many times, and lets it come to its end. Gives how often it was killed at work.
fn survive(library: &mut Library) -> usize {
    let seed =
        std::env::var("ANABRANCH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("ANABRANCH_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    library.workspace.env("ANABRANCH_ENGINE_REPLAY_ROWS", &REPLAY.to_string());
    // Two thirds are there at first, the others come while the service is killed.
    let old = DOCUMENTS * 2 / 3;
    for n in 0..old {
        library.add(&format!("papers/{n:03}.pdf"), CHUNKS, false);
    }
    let mut at_work = 0;
    for kill in 0..KILLS {
        let added = old + (DOCUMENTS - old) * kill / KILLS..old + (DOCUMENTS - old) * (kill + 1) / KILLS;
        let before = library.asked();
        let mut process = library.workspace.start(RUN);
        // Mostly while documents are on their way, now and then while it starts.
        if random.u32(..5) == 0 {
            std::thread::sleep(Duration::from_millis(random.u64(..300)));
        } else {
            // All the more when the last documents are done before: then there is nothing to wait for.
            let asked = before + random.usize(1..40);
            wait(Duration::from_secs(1), || library.asked() >= asked || !process.is_running());
            std::thread::sleep(Duration::from_millis(random.u64(..40)));
        }
        for n in added {
            library.add(&format!("papers/{n:03}.pdf"), CHUNKS, true);
        }
        at_work += usize::from(process.is_running());
        process.signal("KILL");
        let output = process.finish();
        assert!(!output.both().contains("panic"), "{}", output.both());
    }
    library.workspace.once();
    assert_eq!(at_work, KILLS, "it was killed while it ran");
    at_work
}

/// The replay bound of the only route, as `pipelines plan` prints it.
fn promised(library: &Library) -> (u64, Value) {
    let plan = ["pipelines", "plan", "pipelines/documents.yaml", "--preview.pipeline-arch-v2", "--format", "json"];
    let plan: Value = serde_json::from_str(&library.workspace.run(&plan).expect_code(0).stdout).unwrap();
    let routes = plan["routes"].as_array().unwrap();
    assert_eq!(routes.len(), 1);
    (routes[0]["replay"]["records"].as_u64().unwrap(), routes[0]["delivery"].clone())
}

/// Both services answer late, so that several documents are on their way when the kill comes.
fn slow<A>(
    answer: impl Fn(&A) -> anabranch_ops_http::testing::Reply,
) -> impl Fn(&A) -> anabranch_ops_http::testing::Reply {
    move |request| {
        std::thread::sleep(Duration::from_millis(2));
        answer(request)
    }
}

#[test]
fn nothing_is_lost_or_doubled_with_exactly_once() {
    let Some(db) = database() else { return };
    db.query(SLOW);
    let mut library = Library::new(&pipeline(), &db.url(), slow(partition), slow(embed));
    survive(&mut library);
    assert_eq!(promised(&library), (0, "effectively-once".into()));
    let counts = ["file_items", "files", "collection_files", "file_workspaces"]
        .map(|table| db.query(&format!("SELECT count(*) FROM {table}"))[0].parse::<usize>().unwrap());
    assert_eq!(counts, [DOCUMENTS * CHUNKS, DOCUMENTS, DOCUMENTS, DOCUMENTS]);
    assert_exact(&library, &db);
}

#[test]
fn nothing_is_lost_and_little_comes_again_without() {
    let Some(db) = database() else { return };
    db.query(SLOW);
    let pipeline = pipeline().replace("exactlyOnce: \"true\"", "exactlyOnce: \"false\"");
    let mut library = Library::new(&pipeline, &db.url(), slow(partition), slow(embed));
    let killed = survive(&mut library);
    let (bound, delivery) = promised(&library);
    assert_eq!(delivery, "at-least-once");
    let rows = rows(&db);
    let keys = keys(&rows);
    // Of every document there is at least one id with all of its rows.
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (table, id, columns) in &rows {
        let key = keys.get(id.as_str()).copied().unwrap_or("of no file");
        found.entry(id).or_default().push(format!("{table}|{key}|{columns}"));
    }
    let mut whole: BTreeSet<Vec<String>> = BTreeSet::new();
    for rows in found.values() {
        let mut rows = rows.clone();
        rows.sort();
        whole.insert(rows);
    }
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in library.expected() {
        expected.entry(row.split('|').nth(1).unwrap().to_owned()).or_default().push(row);
    }
    for (key, rows) in &expected {
        assert!(whole.contains(rows), "{key} is not whole: {:#?}", found.values().find(|f| f[0].contains(key)));
    }
    // An id is drawn each time a document is read: those too many came again.
    let again = found.len() - DOCUMENTS;
    // Not to be captured: whoever reads the output of a check wants to know what was checked.
    let said = format!("killed {killed} times: no document lost, {again} came again, {bound} may at each kill");
    let _ = writeln!(std::io::stderr(), "{said}");
    assert!(bound > 0 && again as u64 <= killed as u64 * bound, "{again} after {killed} kills, {bound} may at each");
}
