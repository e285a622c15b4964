//! Numbers of a running service: over HTTP, for a monitoring system, in a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::api::{ask, end, get};
use crate::process::{NOBODY, Process, Workspace, file_to_file, numbered_lines, skip};

/// From a file of 1000 lines to two files: one in ten lines fails, one in ten of the others is filtered.
const PIPELINE: &str = r#"version: "2.2"
pipelines:
  - id: p
    name: numbers
    status: running
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.txt } }
      - { id: a, type: destination, plugin: file, settings: { path: a.ndjson } }
      - { id: b, type: destination, plugin: file, settings: { path: b.ndjson } }
    processors:
      - id: picky
        plugin: error
        condition: '{{ hasSuffix "7" (printf "%s" .Payload.After) }}'
        settings: { message: ends with seven }
      - id: drop
        plugin: filter
        condition: '{{ hasSuffix "3" (printf "%s" .Payload.After) }}'
    dead-letter-queue:
      plugin: file
      window-size: 0
      settings: { path: letters.ndjson }
"#;

/// A service that has delivered what `PIPELINE` reads.
fn delivered(workspace: &Workspace, more: &[&str]) -> (Process, SocketAddr) {
    workspace.write("in.txt", numbered_lines(1000));
    workspace.write("pipelines/p.yaml", PIPELINE);
    let mut process = workspace.start(&[&["run"], more].concat());
    let address = process.address();
    process.wait_until("the last letter and line, and their acknowledgement", || {
        let answer = ask(address, "GET", "/v1/pipelines/p/live", "Authorization: Bearer secret-token\r\n", "");
        answer.status == 200 && at_rest(&answer.json())
    });
    (process, address)
}

/// Returns `true` if each counter of `PIPELINE` has its last value: they are written one by one, and so are they read.
fn at_rest(live: &Value) -> bool {
    let totals = &live["totals"];
    let counts = ["read", "settled", "delivered", "filtered", "failed", "deadLettered", "inFlight"];
    let every = |list: &str, holds: fn(&Value) -> bool| live[list].as_array().is_some_and(|all| all.iter().all(holds));
    counts.map(|name| totals[name].as_u64().unwrap_or(0)) == [1000, 1000, 1600, 100, 100, 100, 0]
        && every("lanes", |lane| lane["unacknowledged"] == 0)
        && every("nodes", |node| node["held"] == 0)
        && every("edges", |edge| edge["queuedRows"].as_u64().unwrap_or(0) == 0 && edge["full"] != true)
}

fn by_id<'v>(list: &'v Value, id: &str) -> &'v Value {
    list.as_array().unwrap().iter().find(|one| one["id"] == id).unwrap_or_else(|| panic!("no {id} in {list}"))
}

#[test]
fn every_node_and_edge_has_numbers() {
    let workspace = Workspace::new();
    let (process, address) = delivered(&workspace, &[]);
    let all = get(address, "/v1/live").json();
    let p = &all["pipelines"][0];
    assert_eq!((&p["id"], &p["name"], &p["status"]["run"]), (&"p".into(), &"numbers".into(), &1.into()));
    let numbers = ["read", "delivered", "filtered", "failed", "deadLettered", "inFlight", "unacknowledged"];
    let counts: Vec<u64> = numbers.iter().map(|name| p[name].as_u64().unwrap()).collect();
    assert_eq!(counts, [1000, 1600, 100, 100, 100, 0, 0]);
    assert!(all["uptimeSeconds"].as_f64().unwrap() > 0.0 && all["version"].is_string());

    let live = get(address, "/v1/pipelines/p/live").json();
    assert_eq!((&live["totals"]["born"], &live["totals"]["settled"]), (&800.into(), &1000.into()));
    assert_eq!((&live["lanes"][0]["connector"], &live["lanes"][0]["read"]), (&"in".into(), &1000.into()));
    let rows = |id: &str| {
        let node = by_id(&live["nodes"], id);
        ["rowsIn", "selected", "rowsOut", "filtered", "failed", "held"].map(|name| node[name].as_u64().unwrap())
    };
    assert_eq!(rows("in"), [1000, 1000, 1000, 0, 0, 0]);
    assert_eq!(rows("picky"), [1000, 100, 900, 0, 100, 0]);
    assert_eq!(rows("drop"), [900, 100, 800, 100, 0, 0]);
    assert_eq!(rows("a"), [800, 800, 800, 0, 0, 0]);
    assert_eq!(rows("b"), [800, 800, 800, 0, 0, 0]);
    assert_eq!(rows("dead-letter-queue"), [100, 100, 100, 0, 0, 0]);
    let error = &by_id(&live["nodes"], "picky")["lastError"];
    assert!(error["message"].as_str().unwrap().contains("ends with seven"), "{error}");
    assert!(by_id(&live["nodes"], "drop")["busySeconds"].as_f64().unwrap() > 0.0);

    // The numbers are those of the graph, node by node and edge by edge.
    let graph = get(address, "/v1/pipelines/p/graph").json();
    let nodes = |list: &Value, index: &str| -> Vec<(u64, String)> {
        let name = |node: &Value| (node[index].as_u64().unwrap(), node["id"].as_str().unwrap().to_owned());
        list.as_array().unwrap().iter().map(name).collect()
    };
    assert_eq!(nodes(&live["nodes"], "node"), nodes(&graph["nodes"], "index"));
    let edges = |list: &Value| -> BTreeSet<(u64, u64)> {
        let ends = |edge: &Value| (edge["from"].as_u64().unwrap(), edge["to"].as_u64().unwrap());
        list.as_array().unwrap().iter().map(ends).collect()
    };
    assert_eq!(edges(&live["edges"]), edges(&graph["edges"]));
    let index = |id: &str| by_id(&live["nodes"], id)["node"].clone();
    let edge = |from: &str, to: &str| {
        let edges = live["edges"].as_array().unwrap();
        edges.iter().find(|edge| edge["from"] == index(from) && edge["to"] == index(to)).unwrap()
    };
    let along = |from, to| edge(from, to)["rows"].as_u64().unwrap();
    assert_eq!(
        [along("in", "picky"), along("picky", "drop"), along("drop", "a"), along("drop", "b")],
        [1000, 900, 800, 800]
    );
    assert_eq!(along("drop", "dead-letter-queue"), 100);
    let queue = edge("drop", "b");
    assert_eq!((&queue["queuedRows"], &queue["full"]), (&0.into(), &false.into()));
    assert!(queue["boundBytes"].as_u64().unwrap() > 0 && edge("picky", "drop")["boundBytes"] == 0);
    end(process);
}

#[test]
fn a_pipeline_that_has_nothing_to_do_is_idle() {
    let workspace = Workspace::new();
    let (mut process, address) = delivered(&workspace, &[]);
    let status = || get(address, "/v1/pipelines/p/live").json()["status"].clone();
    process.wait_until("idle", || status()["word"] == "idle");
    assert!(status()["since"].is_string() && status()["stalled"].is_null(), "{}", status());
    process.wait_until("running", || {
        // It is idle again five seconds after the last.
        workspace.append("in.txt", "one more\n");
        status()["word"] == "running"
    });
    end(process);
}

#[test]
fn the_graph_is_that_of_the_plan() {
    let workspace = Workspace::new();
    let (process, address) = delivered(&workspace, &[]);
    let planned = workspace.run(&["pipelines", "plan", "p", "--format", "json"]).expect_code(0).stdout;
    assert_eq!(get(address, "/v1/pipelines/p/graph?format=json").body, planned);
    let lowered = workspace.run(&["pipelines", "plan", "p", "--stage", "lowered", "--format", "svg"]).expect_code(0);
    let drawn = get(address, "/v1/pipelines/p/graph?format=svg&pass=lowered");
    assert_eq!((drawn.body.as_str(), drawn.header("content-type")), (lowered.stdout.as_str(), Some("image/svg+xml")));
    assert!(get(address, "/v1/pipelines/p/graph?format=live").body.starts_with("<svg"));
    for (path, status, reason) in [
        ("/v1/pipelines/p/graph?format=jpeg", 400, "api.malformed_request"),
        ("/v1/pipelines/p/graph?pass=last", 400, "api.malformed_request"),
        ("/v1/pipelines/q/graph", 404, "pipeline.not_found"),
        ("/v1/pipelines/q/live", 404, "pipeline.not_found"),
    ] {
        let answer = get(address, path);
        assert_eq!((answer.status, answer.reason().as_str()), (status, reason), "{path}");
    }
    end(process);
}

/// The rows of the table of `docs/metrics.md`: name, type and labels.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md")).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        // Other tables of the page are about plugins.
        if !["counter", "gauge", "histogram"].contains(cells.get(2)?) {
            return None;
        }
        let labels = cells[3].split(',').map(|label| label.trim().trim_matches('`').to_owned());
        Some((name.to_owned(), (cells[2].to_owned(), labels.filter(|label| !label.is_empty()).collect())))
    };
    page.lines().filter_map(row).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn metrics_are_those_of_the_docs() {
    let workspace = Workspace::new();
    let (mut process, address) = delivered(&workspace, &[]);
    process
        .wait_until("stored positions", || get(address, "/metrics").body.contains("_last_success_timestamp_seconds{"));
    let answer = get(address, "/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = answer.body;
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut exported: BTreeMap<String, (String, BTreeSet<String>)> =
        types.map(|(name, kind)| (name.to_owned(), (kind.to_owned(), BTreeSet::new()))).collect();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, labels) = line.split_once(['{', ' ']).unwrap();
        let labels = labels.split_once('}').map_or("", |(labels, _)| labels);
        let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        // Those of a histogram are called by what they are.
        let whole = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let name = whole.filter(|whole| exported.contains_key(*whole)).unwrap_or(name);
        let names = names.filter(|name| name != "le");
        exported.get_mut(name).unwrap_or_else(|| panic!("no type: {line}")).1.extend(names);
    }
    // Only sources that count them, and nodes of a cluster, have these.
    let elsewhere = [
        "anabranch_cluster_member",
        "anabranch_cluster_units",
        "anabranch_source_backlog_records",
        "anabranch_source_backlog_objects",
        "anabranch_source_partition_backlog_records",
        "anabranch_source_requests_refused_total",
        "anabranch_source_retained_bytes",
        "anabranch_source_retained_transactions",
        "anabranch_source_retention_spare_bytes",
        "anabranch_source_retention_status",
    ];
    let mut documented = documented();
    documented.retain(|name, _| !elsewhere.contains(&name.as_str()));
    exported.retain(|name, _| !elsewhere.contains(&name.as_str()));
    assert_eq!(exported, documented);
    for name in exported.keys() {
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
    let value = |line: &str| -> f64 {
        let found = text.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {line} in\n{text}")).parse().unwrap()
    };
    let total = |what: &str| value(&format!("anabranch_records_{what}{{pipeline=\"p\"}}"));
    assert_eq!(total("read_total"), 1000.0);
    let ended = total("delivered_total") + total("filtered_total") + total("dead_lettered_total");
    assert_eq!(total("read_total") + total("born_total"), ended + total("in_flight"));
    assert_eq!(value(r#"anabranch_node_records_failed_total{pipeline="p",node="picky",kind="processor"}"#), 100.0);
    assert_eq!(value(r#"anabranch_pipeline_runs_total{pipeline="p"}"#), 1.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
    end(process);
}

#[test]
fn metrics_need_the_token_unless_they_are_open() {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_API_HTTP_TOKEN", "secret-token");
    for (flags, status) in [(&[] as &[&str], 401), (&["--api.http.open-metrics"], 200)] {
        let (process, address) = delivered(&workspace, flags);
        let without = get(address, "/metrics");
        assert_eq!(without.status, status, "{flags:?}");
        assert!(!without.body.contains("secret-token"));
        assert_eq!(ask(address, "GET", "/metrics", "Authorization: Bearer secret-token\r\n", "").status, 200);
        assert_eq!(get(address, "/v1/live").status, 401);
        end(process);
        fs::remove_dir_all(workspace.path("anabranch.db")).ok();
        for left in ["anabranch.db", "a.ndjson", "b.ndjson", "letters.ndjson"] {
            fs::remove_file(workspace.path(left)).ok();
        }
    }
}

#[cfg(feature = "http")]
#[test]
fn a_pipeline_that_is_held_up_says_where() {
    let workspace = Workspace::new();
    // It takes calls and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let call = format!(
        "      - id: call\n        plugin: webhook.http\n        settings: {{ request.url: 'http://{}/' }}\n",
        silent.local_addr().unwrap()
    );
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", &call));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    let status = || get(address, "/v1/live").json()["pipelines"][0]["status"].clone();
    process.wait_until("the stall", || !status()["stalled"].is_null());
    let status = status();
    assert_eq!((&status["word"], &status["stalled"]["node"]), (&"running".into(), &"call".into()));
    let lag = get(address, "/v1/live").json()["pipelines"][0]["oldestUnacknowledgedSeconds"].as_f64().unwrap();
    assert!(lag >= 10.0, "{lag}");
    let metrics = get(address, "/metrics").body;
    assert!(metrics.contains("anabranch_pipeline_stalled{pipeline=\"p\"} 1\n"), "{metrics}");
    for command in [&["pipelines", "list"][..], &["pipelines", "describe", "p"]] {
        let named = format!("--api.http.address={address}");
        let shown = workspace.run(&[command, &[named.as_str()]].concat()).expect_code(0).stdout;
        assert!(shown.contains("(stalled") && shown.contains("no record has moved at call for "), "{shown}");
    }
    process.signal("KILL");
}

#[test]
fn a_pipeline_that_fails_again_and_again_says_why_while_it_runs() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("out.ndjson", "/dev/full"));
    let mut process = workspace.start(&["run"]);
    let named = format!("--api.http.address={}", process.address());
    // It fails after some ten seconds of tries, and runs for as long before it fails again.
    for command in [&["pipelines", "list"][..], &["pipelines", "describe", "p"]] {
        process.wait_until("the cause", || {
            let shown = workspace.run(&[command, &[named.as_str()]].concat()).stdout;
            shown.contains("running") && shown.contains("to recover): ") && shown.contains("No space left")
        });
    }
    process.signal("KILL");
}

#[test]
fn top_prints_a_table_or_json_without_a_terminal() {
    let workspace = Workspace::new();
    let (process, address) = delivered(&workspace, &[]);
    let address = format!("--api.http.address={address}");
    let table = workspace.run(&["top", "--once", "--interval", "0.1", &address]).expect_code(0).stdout;
    let [head, row] = &table.lines().collect::<Vec<_>>()[..] else { panic!("{table}") };
    let (head, row) = (head.trim_start(), row.trim_start());
    assert!(head.starts_with("PIPELINE") && row.starts_with("p "), "{table}");
    assert!(row.split_whitespace().rev().take(2).all(|count| count == "100"), "{table}");
    assert_eq!(workspace.run(&["top", "--interval", "0.1", &address]).expect_code(0).stdout.lines().count(), 2);
    let json = workspace.run(&["top", "--json", &address]).expect_code(0).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["summary"]["pipelines"], &json["result"]["pipelines"][0]["read"]), (&1.into(), &1000.into()));
    let graph = workspace.run(&["top", "p", "--once", "--interval", "0.1", &address]).expect_code(0).stdout;
    let row = |word: &str| graph.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{graph}"));
    assert!(graph.starts_with("p: ") && row("| picky").split_whitespace().any(|word| word == "100"), "{graph}");
    assert!(row("if {{ hasSuffix \"7\"").contains("10 % if"), "{graph}");
    assert!(row("`-> S").contains("----------") && graph.contains("error_triggered: ends with seven"), "{graph}");
    workspace.run(&["top", "q", "--once", &address]).expect_code(2);
    let json = workspace.run(&["top", "p", "--json", &address]).expect_code(0).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(by_id(&json["result"]["nodes"], "picky")["failed"], 100, "{json}");
    end(process);
    let nobody = workspace.run(&["top", "--once", &format!("--api.http.address={NOBODY}")]).expect_code(3).stderr;
    assert!(nobody.contains(NOBODY), "{nobody}");
}

#[cfg(target_os = "linux")]
#[test]
fn top_runs_in_a_terminal() {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip("`script` is missing, so top is not run in a terminal");
        return;
    }
    let workspace = Workspace::new();
    let (mut service, address) = delivered(&workspace, &[]);
    let command =
        format!("stty rows 24 cols 120 && exec {} top --api.http.address={address}", env!("CARGO_BIN_EXE_anabranch"));
    let mut top = Command::new("script");
    top.args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"])
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .current_dir(workspace.root())
        .stdin(Stdio::piped());
    let mut top = Process::spawn(&mut top);
    let mut keys = top.stdin();
    let screen = top.printed();
    top.wait_until("the list", || screen().contains("PIPELINE") && screen().contains("DEAD LETTERS"));
    keys.write_all(b"\r").unwrap();
    top.wait_until("the graph", || screen().contains("picky") && screen().contains("QUEUE"));
    keys.write_all(b"sy").unwrap();
    service.wait_until("the stop", || get(address, "/v1/live").json()["pipelines"][0]["status"]["word"] == "stopped");
    keys.write_all(b"q").unwrap();
    let output = top.finish().expect_code(0);
    // The screen is given back.
    assert!(output.stdout.contains("\u{1b}[?1049l"), "{:?}", output.stdout);
    end(service);
}

/// The example of README: its processor and its destination have the same id.
const NAMESAKES: &str = r#"version: "2.2"
pipelines:
  - id: orders
    connectors:
      - { id: orders, type: source, plugin: file, settings: { path: orders.txt } }
      - { id: items, type: destination, plugin: file, settings: { path: items.ndjson } }
    processors:
      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }
      - { id: items, plugin: split, settings: { field: .Payload.After.items } }
"#;

#[test]
fn a_processor_and_a_destination_of_the_same_id_are_told_apart() {
    let workspace = Workspace::new();
    workspace.write("orders.txt", "{\"items\": [1, 2]}\n{\"items\": [3]}\n");
    workspace.write("pipelines/p.yaml", NAMESAKES);
    let mut process = workspace.start(&["run", "--preview.pipeline-arch-v2"]);
    let address = process.address();
    process.wait_until("the items", || workspace.lines("items.ndjson").len() == 3);
    let series = |kind: &str, what: &str| {
        let name =
            format!("anabranch_node_records_{what}_total{{pipeline=\"orders\",node=\"items\",kind=\"{kind}\"}} ");
        let metrics = get(address, "/metrics").body;
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse::<u64>().unwrap()
    };
    // They are counted when the write has returned.
    process.wait_until("their count", || series("destination", "out") == 3);
    assert_eq!([series("processor", "in"), series("processor", "out")], [2, 3]);
    assert_eq!([series("destination", "in"), series("destination", "out")], [3, 3]);
    let live = get(address, "/v1/pipelines/orders/live").json();
    let nodes = live["nodes"].as_array().unwrap();
    let kinds: BTreeMap<&str, u64> = nodes
        .iter()
        .filter(|node| node["id"] == "items")
        .map(|node| (node["kind"].as_str().unwrap(), node["rowsIn"].as_u64().unwrap()))
        .collect();
    assert_eq!(kinds, BTreeMap::from([("processor", 2), ("destination", 3)]));

    let inspected = |at: &str| {
        let mut watch = workspace.start(&[
            "pipelines",
            "inspect",
            "orders",
            "--at",
            at,
            "--before",
            "--limit=1",
            &format!("--api.http.address={address}"),
        ]);
        let printed = watch.printed();
        watch.wait_until("a record", || {
            workspace.append("orders.txt", "{\"items\": [4]}\n");
            std::thread::sleep(std::time::Duration::from_millis(100));
            printed().contains('{')
        });
        watch.finish().expect_code(0).stdout
    };
    let list = "\"items\":[";
    let (to_split, to_file) = (inspected("processor:items"), inspected("destination:items"));
    assert!(
        to_split.replace(' ', "").contains(list) && !to_file.replace(' ', "").contains(list),
        "{to_split}{to_file}"
    );
    end(process);
}
