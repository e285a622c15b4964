//! Nodes of a cluster: real processes that share a store in PostgreSQL.

mod applied;
mod copied;
mod failover;
mod files;
mod objects;
mod placed;
mod pooled;
mod shared;
mod snapshot;
#[cfg(feature = "kafka")]
mod soak;
mod split;
mod transactions;

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::api::{ask, end, get};
use crate::process::{PATIENCE, Process, Workspace};
use crate::servers::postgres::Database;

/// Lines of JSON to a table of the same name, at most 1,000 in a second.
fn pipeline(id: &str, file: &Path, settings: &str) -> String {
    format!(
        r#"  - id: {id}
    placement: shared
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: "{}" }} }}
      - id: out
        type: destination
        plugin: postgres
        settings: {{ url: "${{DATABASE}}", table: {id}, sdk.rate.perSecond: 1000, sdk.batch.size: 50, {settings} }}
    processors:
      - {{ id: decode, plugin: json.decode, settings: {{ field: .Payload.After }} }}
      - {{ id: bare, plugin: field.exclude, settings: {{ fields: .Key }} }}
"#,
        file.display()
    )
}

fn lines(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, id| {
        writeln!(text, r#"{{"id":{id}}}"#).unwrap();
        text
    })
}

/// Lines such as those of [`lines`], appended to a file as long as a test needs the load: at most 600 in a second.
struct Feed {
    end: Sender<()>,
    thread: JoinHandle<usize>,
}

impl Feed {
    /// Starts to append to an empty file.
    fn start(file: &Path) -> Feed {
        const PIECE: usize = 60;
        let mut file = File::options().append(true).open(file).unwrap();
        let (end, ended) = channel();
        let append = move || {
            let mut count = 0;
            // A test that fails drops the sender.
            while ended.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                let piece: String = (count..count + PIECE).map(|id| format!("{{\"id\":{id}}}\n")).collect();
                file.write_all(piece.as_bytes()).unwrap();
                count += PIECE;
            }
            count
        };
        Feed { end, thread: std::thread::spawn(append) }
    }

    /// Ends, and returns the number of lines.
    fn end(self) -> usize {
        drop(self.end);
        self.thread.join().unwrap()
    }
}

/// A node and what it runs in.
struct Node {
    workspace: Workspace,
    process: Process,
}

impl Node {
    fn new(name: &str, database: &Database, pipelines: &str) -> Node {
        Node::with_store(name, &database.url(), database, pipelines)
    }

    /// A node that reaches its store at another address than `database`, for example through a proxy.
    fn with_store(name: &str, store: &str, database: &Database, pipelines: &str) -> Node {
        Node::start(Node::workspace(name, store, database, pipelines))
    }

    fn workspace(name: &str, store: &str, database: &Database, pipelines: &str) -> Workspace {
        let mut workspace = Workspace::new();
        workspace.env("ANABRANCH_CLUSTER_URL", store);
        workspace.env("ANABRANCH_CLUSTER_NODE", name);
        workspace.env("DATABASE", &database.url());
        workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "100ms");
        workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{pipelines}"));
        workspace
    }

    fn start(workspace: Workspace) -> Node {
        let process = workspace.start(&["run"]);
        Node { workspace, process }
    }

    /// Ends what is left of the process, and starts another one.
    fn restart(&mut self) {
        self.process.wait_for_end();
        self.process = self.workspace.start(&["run"]);
    }
}

/// Name of the node of each pipeline, in the order of their ids; empty without a node.
fn places(database: &Database) -> Vec<String> {
    // The first node makes the tables.
    if database.query("SELECT to_regclass('anabranch_kv_store_unit')") == [""] {
        return Vec::new();
    }
    database.query(
        "SELECT coalesce(n.name, '') FROM anabranch_kv_store_unit u LEFT JOIN anabranch_kv_store_node n \
         ON n.id = u.owner ORDER BY u.pipeline",
    )
}

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a table has rows with so many ids. Fails if none is added for long.
#[track_caller]
fn wait_for_ids(count: usize, table: &str, database: &Database, nodes: &[Node]) {
    let (mut there, mut since) = (0, Instant::now());
    while there < count {
        let before = there;
        there = counts(database, table).1;
        if there > before {
            since = Instant::now();
        }
        if since.elapsed() > PATIENCE {
            let printed: Vec<String> = nodes.iter().map(|node| node.process.printed()()).collect();
            panic!("{table} has {there} of {count} ids: {}", printed.join("\n\n"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn each_has(database: &Database, nodes: &[(&str, usize)]) -> bool {
    let places = places(database);
    nodes.iter().all(|(name, count)| places.iter().filter(|place| place == name).count() == *count)
}

fn counts(database: &Database, table: &str) -> (usize, usize) {
    let row = database.query(&format!("SELECT count(*), count(DISTINCT id) FROM {table}")).remove(0);
    let (all, distinct) = row.split_once('|').unwrap();
    (all.parse().unwrap(), distinct.parse().unwrap())
}

#[test]
fn nodes_that_are_killed_and_paused_lose_nothing_and_double_nothing_where_it_is_fenced() {
    let Some(database) = Database::create() else { return };
    let input = Workspace::new();
    let file = input.write("in.txt", "");
    let feed = Feed::start(&file);
    let mut pipelines = String::new();
    for id in ["once1", "once2", "once3"] {
        database.query(&format!("CREATE TABLE {id} (id int)"));
        pipelines += &pipeline(id, &file, "exactlyOnce: \"true\"");
    }
    for id in ["some1", "some2", "some3"] {
        database.query(&format!("CREATE TABLE {id} (id int)"));
        pipelines += &pipeline(id, &file, "");
    }
    let mut nodes = ["a", "b", "c"].map(|name| Node::new(name, &database, &pipelines));
    wait_for("equal shares", || each_has(&database, &[("a", 2), ("b", 2), ("c", 2)]));

    nodes[0].process.signal("KILL");
    wait_for("the units of a", || each_has(&database, &[("a", 0), ("b", 3), ("c", 3)]));
    nodes[0].restart();
    wait_for("equal shares again", || each_has(&database, &[("a", 2), ("b", 2), ("c", 2)]));
    // It wakes up when others have its units.
    nodes[1].process.signal("STOP");
    wait_for("the units of b", || each_has(&database, &[("a", 3), ("b", 0), ("c", 3)]));
    nodes[1].process.signal("CONT");
    wait_for("the return of b", || each_has(&database, &[("a", 2), ("b", 2), ("c", 2)]));
    nodes[2].process.signal("TERM");
    wait_for("the units of c", || each_has(&database, &[("a", 3), ("b", 3), ("c", 0)]));
    nodes[2].restart();

    let rows = feed.end();
    for table in ["once1", "once2", "once3", "some1", "some2", "some3"] {
        wait_for_ids(rows, table, &database, &nodes);
        if table.starts_with("once") {
            assert_eq!(counts(&database, table), (rows, rows), "{table}");
        }
    }
    let printed = nodes[1].process.printed()();
    assert!(printed.contains("this node has lost the pipeline"), "{printed}");
    nodes.into_iter().for_each(|node| end(node.process));
    assert_eq!(database.query("SELECT count(*) FROM anabranch_kv_store_node"), ["0"], "every node has left");
}

#[test]
fn a_pipeline_that_is_handed_over_repeats_no_record() {
    let Some(database) = Database::create() else { return };
    let input = Workspace::new();
    let file = input.write("in.txt", "");
    let feed = Feed::start(&file);
    let mut pipelines = String::new();
    // Without a key and without exactly once: a record that is delivered again is there twice.
    for id in ["p1", "p2"] {
        database.query(&format!("CREATE TABLE {id} (id int)"));
        pipelines += &pipeline(id, &file, "");
    }
    let a = Node::new("a", &database, &pipelines);
    wait_for("the first rows", || counts(&database, "p1").0 > 500 && counts(&database, "p2").0 > 500);
    let b = [Node::new("b", &database, &pipelines)];
    wait_for("a share for b", || each_has(&database, &[("a", 1), ("b", 1)]));
    end(a.process);
    let rows = feed.end();
    for table in ["p1", "p2"] {
        wait_for_ids(rows, table, &database, &b);
        assert_eq!(counts(&database, table), (rows, rows), "{table}");
    }
    b.into_iter().for_each(|node| end(node.process));
}

#[test]
fn any_node_starts_pipelines_and_old_files_stay_old() {
    let Some(database) = Database::create() else { return };
    let input = Workspace::new();
    let file = input.write("in.txt", lines(10));
    database.query("CREATE TABLE p1 (id int); CREATE TABLE p2 (id int)");
    let old = pipeline("p1", &file, "");
    let new = format!("{old}{}", pipeline("p2", &file, ""));
    let mut a = Node::new("a", &database, &old);
    wait_for("the rows", || counts(&database, "p1").0 == 10);
    // A second node with more files: both nodes know them.
    let mut b = Node::new("b", &database, &new);
    wait_for("the new pipeline", || counts(&database, "p2").0 == 10);
    wait_for("a place for each", || each_has(&database, &[("a", 1), ("b", 1)]));
    let (at_a, at_b) = (a.process.address(), b.process.address());
    for address in [at_a, at_b] {
        for id in ["p1", "p2"] {
            let word = || get(address, &format!("/v1/pipelines/{id}")).json()["status"]["word"].clone();
            wait_for("the status at each node", || word() == "running");
        }
    }
    // The first node restarts with its old file, which does not detach what came later.
    a.process.signal("TERM");
    a.restart();
    let printed = a.process.printed();
    wait_for("the word about the old files", || printed().contains("are not imported"));
    wait_for("a place for each again", || each_has(&database, &[("a", 1), ("b", 1)]));
    let at_a = a.process.address();

    // Any node stops a pipeline, wherever it runs, and starts it.
    let (here, there) = match places(&database)[0].as_str() {
        "a" => ("p1", "p2"),
        _ => ("p2", "p1"),
    };
    let stop = |id: &str| ask(at_b, "POST", &format!("/v1/pipelines/{id}/stop"), "", "{}");
    // It may not have begun yet.
    wait_for("the stop of what runs here", || stop(here).status == 200);
    wait_for("the stop", || places(&database).len() == 1);
    for at in [at_a, at_b] {
        let status = || get(at, &format!("/v1/pipelines/{here}")).json()["status"]["word"].clone();
        wait_for("the status at each node", || status() == "stopped");
    }
    input.append("in.txt", "{\"id\":10}\n");
    wait_for("the pipeline that runs", || counts(&database, there).0 == 11);
    assert_eq!(counts(&database, here).0, 10);
    assert_eq!(ask(at_b, "POST", &format!("/v1/pipelines/{here}/start"), "", "{}").status, 200);
    wait_for("the start", || counts(&database, here).0 == 11);
    end(a.process);
    end(b.process);
}

#[test]
fn settings_that_contradict_the_cluster_are_refused() {
    let workspace = Workspace::new();
    let url = "postgresql://localhost:1/x";
    for (flags, what) in [
        (&["--db.type", "embedded"][..], "db.type contradicts cluster.url"),
        (&["--db.path", "x.db"], "db.path contradicts cluster.url"),
        (&["--db.postgres.connection-string", "postgresql://other/x"], "db.postgres.connection-string contradicts"),
    ] {
        let arguments = [&["run", "--cluster.url", url], flags].concat();
        let printed = workspace.run(&arguments).expect_code(2).both();
        assert!(printed.contains(what), "{printed}");
    }
    let printed = workspace.run(&["run", "--once", "--cluster.url", url]).expect_code(2).both();
    assert!(printed.contains("--once"), "{printed}");
}

#[test]
fn the_example_runs_and_checks() {
    // Without a server the script says what to install.
    let Some(_) = Database::create() else { return };
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cluster/run.sh");
    let mut command = std::process::Command::new(script);
    let output =
        command.arg("--check").env("ANABRANCH", env!("CARGO_BIN_EXE_anabranch")).current_dir("/").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("each of 40000 orders is in the table once"), "{text}");
}
