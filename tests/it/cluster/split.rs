//! Pipelines whose partitions spread over nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::{Node, counts, each_has, places, wait_for};
use crate::api::{ask, end, get};
use crate::process::{Workspace, base64_decode};
use crate::servers::Port;
use crate::servers::postgres::Database;

/// Records of 16 partitions to a table, with their numbers as ids. `of_source` are further settings in lines of their own.
pub fn generated(id: &str, of_source: &str, settings: &str) -> String {
    format!(
        r#"  - id: {id}
    connectors:
      - id: in
        type: source
        plugin: generator
        settings:
          partitions: "16"
          {of_source}
          seed: "1"
          format.type: structured
          format.options.v: int
      - id: out
        type: destination
        plugin: postgres
        settings: {{ url: "${{DATABASE}}", table: {id}, {settings} }}
    processors:
      - {{ id: number, plugin: field.set, settings: {{ field: .Payload.After.id, value: '{{{{ printf "%s" .Position }}}}' }} }}
      - {{ id: bare, plugin: field.exclude, settings: {{ fields: .Key }} }}
"#
    )
}

/// The rate of a source that does not end.
const FAST: &str = "rate: \"3000\"";

/// Returns how many records are missing before the last one that is there of each partition.
fn gaps(database: &Database) -> usize {
    let missing = "SELECT count(*) FROM (SELECT id::int % 16 AS of, max(id::int) AS top FROM p GROUP BY of) tops, \
                   generate_series(CASE of WHEN 0 THEN 16 ELSE of END, top, 16) n WHERE n::text NOT IN (SELECT id FROM p)";
    database.query(missing)[0].parse().unwrap()
}

/// Numbers of slots of a pipeline, by the nodes that have them.
pub fn shares(database: &Database, pipeline: &str) -> Vec<String> {
    if places(database).is_empty() {
        return Vec::new();
    }
    database.query(&format!(
        "SELECT n.name || ':' || count(*) FROM anabranch_kv_store_unit u JOIN anabranch_kv_store_node n ON n.id = u.owner \
         WHERE u.pipeline = '{pipeline}' GROUP BY n.name ORDER BY n.name"
    ))
}

#[test]
fn the_partitions_of_a_pipeline_spread_and_nothing_is_lost_or_doubled() {
    let Some(database) = Database::create() else { return };
    database.query("CREATE TABLE p (id text, v bigint)");
    let pipelines = generated("p", FAST, "exactlyOnce: \"true\"");
    let mut nodes = ["a", "b", "c"].map(|name| Node::new(name, &database, &pipelines));
    let spread = || {
        let shares = shares(&database, "p");
        shares.len() == 3 && shares.iter().all(|share| share.ends_with(":2") || share.ends_with(":3"))
    };
    wait_for("slots of each node", spread);
    nodes[0].process.signal("KILL");
    wait_for("the slots of a", || each_has(&database, &[("a", 0), ("b", 4), ("c", 4)]));
    nodes[0].restart();
    wait_for("slots of each node again", spread);
    // It wakes up when others have its slots.
    nodes[1].process.signal("STOP");
    wait_for("the slots of b", || each_has(&database, &[("b", 0)]));
    nodes[1].process.signal("CONT");
    wait_for("the return of b", spread);
    nodes[2].process.signal("TERM");
    wait_for("the slots of c", || each_has(&database, &[("a", 4), ("b", 4), ("c", 0)]));
    nodes[2].restart();
    wait_for("slots of each node at last", spread);
    let before = counts(&database, "p").1;
    wait_for("further rows", || counts(&database, "p").1 > before + 1_000);
    nodes.into_iter().for_each(|node| end(node.process));
    let (all, distinct) = counts(&database, "p");
    assert_eq!(all, distinct, "no record is there twice");
    assert_eq!(gaps(&database), 0);
}

#[test]
fn any_node_stops_and_starts_all_shares_and_a_planned_move_repeats_nothing() {
    let Some(database) = Database::create() else { return };
    // Without a key and without exactly once: a record that is delivered again is there twice.
    database.query("CREATE TABLE p (id text, v bigint)");
    let pipelines = generated("p", FAST, "sdk.batch.size: \"500\"");
    let mut a = Node::new("a", &database, &pipelines);
    wait_for("the first rows", || counts(&database, "p").0 > 500);
    let mut b = Node::new("b", &database, &pipelines);
    wait_for("shares of both", || shares(&database, "p") == ["a:4", "b:4"]);
    wait_for("more rows", || counts(&database, "p").0 > 6_000);
    let (at_a, at_b) = (a.process.address(), b.process.address());
    let word = |at| get(at, "/v1/pipelines/p").json()["status"]["word"].clone();
    // A node stops the shares of all nodes.
    assert_eq!(ask(at_b, "POST", "/v1/pipelines/p/stop", "", "{}").status, 200);
    wait_for("the stop", || places(&database).is_empty());
    wait_for("the status at each node", || word(at_a) == "stopped" && word(at_b) == "stopped");
    let (all, distinct) = counts(&database, "p");
    assert_eq!(all, distinct, "no record is delivered twice");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(counts(&database, "p").0, all, "nothing runs");
    let again = ask(at_a, "POST", "/v1/pipelines/p/stop", "", "{}");
    assert_eq!(again.reason(), "pipeline.not_running");
    assert_eq!(ask(at_a, "POST", "/v1/pipelines/p/start", "", "{}").status, 200);
    wait_for("the start", || counts(&database, "p").0 > all + 3_000);
    wait_for("shares of both again", || shares(&database, "p") == ["a:4", "b:4"]);
    end(a.process);
    wait_for("all shares", || shares(&database, "p") == ["b:8"]);
    end(b.process);
    let (all, distinct) = counts(&database, "p");
    assert_eq!(all, distinct, "no record is delivered twice");
    assert_eq!(gaps(&database), 0);
}

#[test]
fn a_forced_stop_waits_for_the_destination_of_no_node() {
    let Some(database) = Database::create() else { return };
    database.query("CREATE TABLE p (id text, v bigint)");
    let pipelines = generated("p", FAST, "sdk.batch.size: \"500\"");
    let mut a = Node::new("a", &database, &pipelines);
    let b = Node::new("b", &database, &pipelines);
    wait_for("shares of both", || shares(&database, "p") == ["a:4", "b:4"]);
    wait_for("the first rows", || counts(&database, "p").0 > 500);
    let locked = database.hold("LOCK TABLE p IN ACCESS EXCLUSIVE MODE");
    let waits = "SELECT count(DISTINCT pid) >= 2 FROM pg_locks WHERE NOT granted AND relation = 'p'::regclass";
    wait_for("writes of both", || database.query(waits) == ["t"]);
    assert_eq!(ask(a.process.address(), "POST", "/v1/pipelines/p/stop", "", r#"{"force": true}"#).status, 200);
    wait_for("the stop", || places(&database).is_empty());
    drop(locked);
    end(a.process);
    end(b.process);
}

#[test]
fn the_failure_of_one_share_is_the_status_of_the_pipeline() {
    let Some(database) = Database::create() else { return };
    database.query("CREATE TABLE p (id text, v bigint)");
    let pipelines = generated("p", FAST, "sdk.batch.size: \"500\"");
    let mut a = Node::new("a", &database, &pipelines);
    let mut b = Node::new("b", &database, &pipelines);
    wait_for("shares of both", || shares(&database, "p") == ["a:4", "b:4"]);
    // The table refuses the records of one partition, which one node reads.
    database.query("ALTER TABLE p ADD CONSTRAINT without_three CHECK (id::int % 16 <> 3) NOT VALID");
    wait_for("the end of all shares", || places(&database).is_empty());
    let at = [a.process.address(), b.process.address()];
    let word = |at| get(at, "/v1/pipelines/p").json()["status"]["word"].clone();
    wait_for("the failure at each node", || at.iter().all(|at| word(*at) == "degraded"));
    let stored = get(at[0], "/v1/pipelines/p").json();
    assert!(stored.to_string().contains("without_three"), "{stored}");
    end(a.process);
    end(b.process);
}

#[test]
fn a_pipeline_that_cannot_be_split_any_more_runs_on_one_node() {
    let Some(database) = Database::create() else { return };
    database.query("CREATE TABLE p (id text, v bigint)");
    let split = generated("p", FAST, "sdk.batch.size: \"500\"");
    let mut a = Node::new("a", &database, &split);
    let b = Node::new("b", &database, &split);
    wait_for("shares of both", || shares(&database, "p") == ["a:4", "b:4"]);
    // Files are not written by several runs.
    let file = a.workspace.path("out.ndjson");
    let text = split.replace("plugin: postgres", "plugin: file");
    let text = text.lines().map(|line| match line.contains("table: p") {
        true => format!("        settings: {{ path: \"{}\" }}\n", file.display()),
        false => format!("{line}\n"),
    });
    let whole = text.collect::<String>().replacen("    connectors:", "    placement: shared\n    connectors:", 1);
    a.workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{whole}"));
    a.process.signal("TERM");
    a.restart();
    wait_for("one unit", || places(&database).len() == 1 && !places(&database)[0].is_empty());
    wait_for("lines of the file", || file.exists() && a.workspace.lines("out.ndjson").len() > 100);
    let kinds = database.query("SELECT DISTINCT slot FROM anabranch_kv_store WHERE kind = 'mark'");
    assert_eq!(kinds, ["0"], "the marks moved to the only unit");
    let at_a = a.process.address();
    let cluster = get(at_a, "/v1/cluster").json();
    assert_eq!(cluster["units"].as_array().map(Vec::len), Some(1), "{cluster}");
    assert_eq!(cluster["units"][0]["slot"], json!(0));
    end(a.process);
    end(b.process);
}

#[test]
fn an_inspection_shows_the_records_of_all_nodes_also_of_one_that_joins_later() {
    let Some(database) = Database::create() else { return };
    database.query("CREATE TABLE p (id text, v bigint)");
    let pipelines = generated("p", "rate: \"200\"", "");
    let ports = [Port::hold(), Port::hold()];
    let start = |name: &str, port: &Port| {
        let mut workspace = Workspace::new();
        let address = format!("127.0.0.1:{}", port.number());
        workspace.env("ANABRANCH_CLUSTER_URL", &database.url());
        workspace.env("ANABRANCH_CLUSTER_NODE", name);
        workspace.env("ANABRANCH_CLUSTER_ADDRESS", &format!("http://{address}"));
        workspace.env("ANABRANCH_API_HTTP_ADDRESS", &address);
        workspace.env("DATABASE", &database.url());
        workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{pipelines}"));
        Node::start(workspace)
    };
    let mut first = start("a", &ports[0]);
    wait_for("the first rows", || counts(&database, "p").0 > 100);
    let mut inspecting = first.workspace.start(&["pipelines", "inspect", "p", "--sample=1000"]);
    let inspected = inspecting.printed();
    let numbers = || -> Vec<u64> {
        let of_line = |line: &str| {
            let record: serde_json::Value = serde_json::from_str(line).ok()?;
            String::from_utf8(base64_decode(record["position"].as_str()?)).ok()?.parse().ok()
        };
        inspected().lines().filter_map(of_line).collect()
    };
    wait_for("the first records", || !numbers().is_empty());

    let second = start("b", &ports[1]);
    wait_for("shares of both", || shares(&database, "p") == ["a:4", "b:4"]);
    let address = first.process.address();
    let live = || get(address, "/v1/pipelines/p/live").json();
    wait_for("numbers of both", || live()["runBy"] == json!(["a", "b"]));
    wait_for("the partitions of both", || live()["lanes"].as_array().map(Vec::len) == Some(16));
    // Of later records, each node reads those of eight partitions.
    let stored: u64 = database.query("SELECT max(id::bigint) FROM p")[0].parse().unwrap();
    let later = || -> BTreeSet<u64> { numbers().iter().filter(|n| **n > stored + 16).map(|n| n % 16).collect() };
    wait_for("records of both", || later().len() == 16);
    assert!(inspecting.is_running());
    inspecting.signal("INT");
    inspecting.finish();
    end(first.process);
    end(second.process);
}
