//! A source whose nodes read the snapshot of tables side by side.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::split::shares;
use super::{Node, wait_for};
use crate::api::{ask, end, get};
use crate::process::{PATIENCE, Workspace};
use crate::servers::postgres::{Database, Release};

/// Four rows have a page, and bodies that are stored elsewhere: an update does not repeat them in the log.
const TABLES: &str = "
    CREATE TABLE bulk (id int PRIMARY KEY, n int NOT NULL, filler text, body text);
    ALTER TABLE bulk ALTER filler SET STORAGE PLAIN, ALTER body SET STORAGE EXTERNAL;
    CREATE TABLE small (id int PRIMARY KEY, n int NOT NULL)";
const ROWS: usize = 20_000;
/// Everything about the rows.
const STATE: &str = "SELECT count(*), sum(n), md5(string_agg(md5(bulk::text), '' ORDER BY id)), \
                     count(*) FILTER (WHERE body IS NULL), (SELECT sum(id * n) FROM small) FROM bulk";

/// Source, copy and store.
struct Databases {
    source: Database,
    copy: Database,
    store: Database,
}

impl Databases {
    fn create() -> Option<Databases> {
        let (source, copy) = (Database::logical(Release::V17)?, Database::create()?);
        for database in [&source, &copy] {
            database.query(TABLES);
        }
        source.query(&format!(
            "INSERT INTO bulk SELECT n, 0, repeat('x', 1700), repeat(md5(n::text), 70) FROM generate_series(1, {ROWS}) n;
             DELETE FROM bulk WHERE id % 7 = 0; INSERT INTO small SELECT n, n FROM generate_series(1, 500) n"
        ));
        // From now on, rows move to the places that are free, in other ranges.
        source.query("VACUUM bulk");
        Some(Databases { source, copy, store: Database::create()? })
    }

    fn pipelines(&self, of_copy: &str) -> String {
        let name = self.source.name();
        format!(
            r#"  - id: p
    connectors:
      - id: in
        type: source
        plugin: postgres
        settings: {{ url: '{}', tables: '*', logrepl.slotName: {name}, logrepl.publicationName: {name}, snapshot.parts: 4 }}
      - id: out
        type: destination
        plugin: postgres
        settings: {{ url: '{}'{of_copy} }}
"#,
            self.source.url(),
            self.copy.url(),
        )
    }

    fn nodes<const N: usize>(&self, names: [&str; N], of_copy: &str) -> [Node; N] {
        let pipelines = self.pipelines(of_copy);
        names.map(|name| Node::new(name, &self.store, &pipelines))
    }

    /// Changes the rows while `act` runs: rows are updated, get other keys and are deleted.
    fn changing<T>(&self, act: impl FnOnce() -> T) -> T {
        let mut session = self.source.session();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let mut random = fastrand::Rng::with_seed(7);
                let mut round = 0;
                while !is_over.load(Ordering::Relaxed) {
                    round += 1;
                    let (from, key) = (random.usize(1..ROWS), ROWS + round);
                    session.run(&format!(
                        "UPDATE bulk SET n = n + 1 WHERE id IN (SELECT {from} + 97 * g FROM generate_series(0, 5) g);
                         UPDATE bulk SET id = {key}, n = n + 1 WHERE id = (SELECT min(id) FROM bulk WHERE id >= {from});
                         DELETE FROM bulk WHERE id = (SELECT max(id) FROM bulk WHERE id < {from});
                         UPDATE small SET n = n + 1 WHERE id = {}",
                        random.usize(1..500)
                    ));
                    std::thread::sleep(Duration::from_millis(50));
                }
                round
            });
            // Changes end if `act` fails, too.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            is_over.store(true, Ordering::Relaxed);
            assert!(changes.join().unwrap() > 5, "too few changes");
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn rows(&self) -> usize {
        self.copy.query("SELECT count(*) FROM bulk")[0].parse().unwrap()
    }

    /// Waits until the copy is the same as the source.
    #[track_caller]
    fn wait_for_copy(&self, nodes: &[Node]) {
        let expected = self.source.query(STATE);
        let begun = Instant::now();
        loop {
            let found = self.copy.query(STATE);
            if found == expected {
                return;
            }
            if begun.elapsed() > PATIENCE {
                let printed: Vec<String> = nodes.iter().map(|node| node.process.printed()()).collect();
                panic!("{found:?}, expected {expected:?}: {}", printed.join("\n\n"));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The numbers of the parts that have a plan in the store, and whether their shares are delivered.
    fn parts(&self) -> Vec<String> {
        self.store.query(
            "SELECT DISTINCT partition FROM anabranch_kv_store WHERE kind = 'mark' AND partition LIKE 'snapshot@part-%' \
             ORDER BY partition",
        )
    }
}

/// Returns the parts that a node has read or begun to read.
fn begun(node: &Node) -> BTreeSet<String> {
    let printed = node.process.printed()();
    let lines = printed.lines().filter(|line| line.contains("reading a part of the snapshot"));
    let parts = lines.filter_map(|line| line.split_once("part=")?.1.split(' ').next().map(ToOwned::to_owned));
    parts.collect()
}

#[test]
fn nodes_read_parts_of_a_snapshot_side_by_side_and_then_changes() {
    let Some(databases) = Databases::create() else { return };
    // Slow enough that the units are spread before the snapshot is read.
    let nodes = databases.changing(|| {
        let nodes = databases.nodes(["a", "b"], ", sdk.rate.perSecond: 2500, sdk.batch.size: 100");
        wait_for("rows of both", || nodes.iter().all(|node| !begun(node).is_empty()) && databases.rows() > 1_000);
        nodes
    });
    databases.wait_for_copy(&nodes);
    let shares: Vec<BTreeSet<String>> = nodes.iter().map(begun).collect();
    assert!(!shares[0].is_empty() && !shares[1].is_empty(), "{shares:?}");
    wait_for("the end of the parts", || databases.parts().is_empty());
    // Only one node reads the changes.
    databases.source.query("UPDATE small SET n = -1");
    databases.wait_for_copy(&nodes);
    nodes.into_iter().for_each(|node| end(node.process));
}

#[test]
fn nodes_that_are_killed_within_a_snapshot_of_parts_lose_nothing() {
    let Some(databases) = Databases::create() else { return };
    let nodes = databases.changing(|| {
        // The slot waits for the end of this transaction, so that the units are spread before the snapshot is read.
        let waits = databases.source.hold("CREATE TABLE later (id int)");
        let mut nodes = databases.nodes(["a", "b", "c"], ", sdk.rate.perSecond: 300, sdk.batch.size: 100");
        wait_for("slots of each node", || {
            let shares = shares(&databases.store, "p");
            shares.len() == 3 && shares.iter().all(|share| share.ends_with(":2") || share.ends_with(":3"))
        });
        drop(waits);
        wait_for("the first rows", || databases.rows() > 0 && !databases.parts().is_empty());
        for victim in [0, 1, 2] {
            let (before, since) = (databases.rows(), Instant::now());
            while databases.rows() < before + 300 {
                // The rows of a table that is complete become fewer.
                let found = (databases.rows(), databases.parts());
                assert!(!found.1.is_empty(), "the snapshot is complete before node {victim} is struck: {found:?}");
                let printed = || nodes.iter().map(|node| node.process.printed()()).collect::<Vec<_>>().join("\n\n");
                assert!(since.elapsed() < PATIENCE, "no rows before node {victim}: {before}, {found:?}: {}", printed());
                std::thread::sleep(Duration::from_millis(50));
            }
            nodes[victim].process.signal(if victim == 1 { "STOP" } else { "KILL" });
            if victim == 1 {
                // It wakes up when others have its units.
                std::thread::sleep(Duration::from_secs(7));
                nodes[victim].process.signal("CONT");
            } else {
                nodes[victim].restart();
            }
        }
        assert!(!databases.parts().is_empty(), "the snapshot is complete: nothing was killed within it");
        nodes
    });
    databases.wait_for_copy(&nodes);
    nodes.into_iter().for_each(|node| end(node.process));
}

#[test]
fn a_snapshot_of_parts_that_is_stopped_and_started_goes_on() {
    let Some(databases) = Databases::create() else { return };
    let nodes = databases.changing(|| {
        let mut nodes = databases.nodes(["a"], ", exactlyOnce: true, sdk.rate.perSecond: 2500, sdk.batch.size: 100");
        wait_for("rows", || databases.rows() > 2_000);
        let at = nodes[0].process.address();
        assert_eq!(ask(at, "POST", "/v1/pipelines/p/stop", "", "{}").status, 200);
        let word = || get(at, "/v1/pipelines/p").json()["status"]["word"].clone();
        wait_for("the stop", || word() == "stopped");
        assert!(!databases.parts().is_empty(), "the snapshot is complete");
        assert_eq!(ask(at, "POST", "/v1/pipelines/p/start", "", "{}").status, 200);
        nodes
    });
    databases.wait_for_copy(&nodes);
    nodes.into_iter().for_each(|node| end(node.process));
}

#[test]
fn the_plan_says_what_the_nodes_share() {
    let workspace = Workspace::new();
    let url = "postgresql://a:b@127.0.0.1:1";
    let text = |settings: &str| {
        format!(
            "version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, plugin: postgres, \
             settings: {{ url: '{url}/x', tables: '*'{settings} }} }}\n      - {{ id: out, type: destination, plugin: \
             postgres, settings: {{ url: '{url}/y' }} }}\n"
        )
    };
    let plan = |settings: &str| {
        workspace.write("pipelines/p.yaml", text(settings));
        workspace.run(&["pipelines", "plan", "--cluster.url", &format!("{url}/z")])
    };
    let printed = plan(", snapshot.parts: 4").expect_code(0).both();
    let shares = "the nodes share the partitions\n    in: parts of the snapshot; one node reads the changes";
    assert!(printed.contains(shares), "{printed}");
    let printed = plan("").expect_code(0).both();
    assert!(printed.contains("one node at a time runs the whole pipeline"), "{printed}");
    for settings in [", snapshotMode: incremental", ", maxSnapshotTime: 1h"] {
        let printed = plan(&format!(", snapshot.parts: 4{settings}")).both();
        assert!(printed.contains("settings.invalid"), "{settings}: {printed}");
    }
}
