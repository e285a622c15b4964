//! Taps that others wrote, unmodified: what they read arrives with its types, and their states are handed back.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::scripted::records;
use crate::process::{Output, Workspace};
use crate::servers::mariadb::{MariaDb, PASSWORD};
use crate::servers::postgres::Database;

/// Directory of a tap's programs. `None`, and a word about it, where `.ci/setup` has not installed it.
fn programs(tap: &str) -> Option<PathBuf> {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/taps").join(tap).join("bin");
    if programs.join(tap).exists() {
        return Some(programs);
    }
    assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "{tap} is missing: run .ci/setup");
    let _ = writeln!(std::io::stderr(), "skipped: {tap} is missing: run .ci/setup");
    None
}

/// Writes a pipeline from a tap, with settings in YAML, indented by ten, to a destination in one line.
fn pipeline(workspace: &Workspace, tap: &Path, settings: &str, destination: &str) {
    let tap = tap.display();
    let text = format!(
        r#"version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: singer
        settings:
          command: {tap}
{settings}
      - {{ id: out, type: destination, {destination} }}
"#
    );
    workspace.write("pipelines/p.yaml", text);
}

#[track_caller]
fn once(workspace: &Workspace, secret: &str) -> Output {
    let output = workspace.once();
    assert!(!output.both().contains(secret), "{}", output.both());
    output
}

#[test]
fn a_tap_for_mysql_copies_a_table_and_continues_from_its_state() {
    let (Some(programs), Some(target)) = (programs("tap-mysql"), Database::create()) else { return };
    let Some(source) = MariaDb::start(&programs.join("python")) else { return };
    source.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, price decimal(20,2), at datetime, note varchar(20), weight double);
         CREATE TABLE secrets (id int PRIMARY KEY);
         INSERT INTO secrets VALUES (1);
         INSERT INTO orders VALUES (1, 123456789012345678.99, '2024-01-02 03:04:05', 'a', 0.1), (2, 1.50, '2024-01-03 00:00:00', NULL, 1e10)",
    );
    let mut workspace = Workspace::new();
    workspace.env("TAP_PASSWORD", PASSWORD);
    let settings = format!(
        "          config.host: 127.0.0.1
          config.port: {}
          config.user: tap
          config.password: ${{TAP_PASSWORD}}
          config.filter_dbs: shop
          streams: shop-orders
          replicationMethod.shop-orders: INCREMENTAL
          replicationKey.shop-orders: at",
        source.port()
    );
    let destination =
        format!("plugin: postgres, settings: {{ url: \"{}\", table: orders, createTables: true }}", target.url());
    pipeline(&workspace, &programs.join("tap-mysql"), &settings, &destination);
    let listed = workspace.run(&["connectors", "discover", "--json"]).expect_code(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let streams = listed["result"]["sources"][0]["streams"].as_array().unwrap();
    let selected: Vec<_> = streams.iter().filter(|stream| stream["selected"] == true).collect();
    assert_eq!((streams.len(), selected.len()), (2, 1), "{streams:?}");
    assert_eq!((&selected[0]["id"], &selected[0]["key"]), (&json!("shop-orders"), &json!(["id"])));

    once(&workspace, PASSWORD);
    let types = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'orders' ORDER BY 1";
    assert_eq!(
        target.query(types),
        ["at|timestamp with time zone", "id|bigint", "note|text", "price|numeric", "weight|numeric"]
    );
    let rows = || target.query("SELECT id, price, at AT TIME ZONE 'UTC', note, weight FROM orders ORDER BY id");
    let first = ["1|123456789012345678.99|2024-01-02 03:04:05|a|0.1", "2|1.50|2024-01-03 00:00:00||10000000000"];
    assert_eq!(rows(), first);
    // The row before the last state is not read again, so the tap does not see that it is back.
    target.query("DELETE FROM orders WHERE id = 1");
    source.run(
        "INSERT INTO orders VALUES (3, -2, '2024-01-04 00:00:00', 'c', 2); UPDATE orders SET note = 'b' WHERE id = 2",
    );
    once(&workspace, PASSWORD);
    assert_eq!(rows(), ["2|1.50|2024-01-03 00:00:00|b|10000000000", "3|-2.00|2024-01-04 00:00:00|c|2"]);
}

#[test]
fn a_tap_for_postgresql_copies_a_table_and_continues_from_its_state() {
    let (Some(programs), Some(source)) = (programs("tap-postgres"), Database::create()) else { return };
    source.query(
        "CREATE TABLE events (id bigint PRIMARY KEY, at timestamptz NOT NULL, amount numeric(30,10), data jsonb);
         INSERT INTO events SELECT n, '2024-01-01T00:00:00Z'::timestamptz + n * interval '1 second',
            n + 0.0000000001, '{\"a\": [1]}' FROM generate_series(1, 500) n",
    );
    let workspace = Workspace::new();
    let settings = format!(
        "          config.host: 127.0.0.1
          config.port: {}
          config.user: postgres
          config.password: none-is-needed
          config.database: {}
          config.filter_schemas: '[\"public\"]'
          config.json_as_object: true
          streams: public-events
          replicationMethod.public-events: INCREMENTAL
          replicationKey.public-events: at",
        source.port(),
        source.name()
    );
    pipeline(&workspace, &programs.join("tap-postgres"), &settings, "plugin: file, settings: { path: out.ndjson }");
    once(&workspace, "none-is-needed");
    let first = records(&workspace);
    assert_eq!(first.len(), 500);
    assert_eq!(first[499]["key"], json!({"id": 500}));
    assert_eq!(first[499]["metadata"]["recfmt.collection"], "public-events");
    let after = &first[499]["payload"]["after"];
    assert_eq!((&after["at"], &after["data"]), (&json!("2024-01-01T00:08:20Z"), &json!({"a": [1]})));
    assert!(after["amount"].to_string().contains("500.0000000001"), "{after}");
    source.query("INSERT INTO events VALUES (501, '2024-02-01T00:00:00Z', 1, NULL)");
    once(&workspace, "none-is-needed");
    let ids: Vec<u64> = records(&workspace)[500..].iter().map(|record| record["key"]["id"].as_u64().unwrap()).collect();
    // The tap reads the rows of its last state again.
    assert_eq!(ids, [500, 501]);
}

#[test]
fn a_tap_for_an_api_reads_its_pages_and_continues_from_its_state() {
    let Some(programs) = programs("tap-rest-api-msdk") else { return };
    let (address, requests) = api();
    let workspace = Workspace::new();
    let config = json!({
        "api_url": format!("http://{address}"),
        "start_date": "2000-01-01T00:00:00Z",
        "next_page_token_path": "$.next",
        "pagination_page_size": 2,
        "streams": [{
            "name": "items", "path": "/items", "primary_keys": ["id"], "records_path": "$.items[*]",
            "replication_key": "updated", "source_search_field": "since", "source_search_query": "$last_run_date"
        }]
    });
    let settings = format!("          config: '{config}'");
    pipeline(
        &workspace,
        &programs.join("tap-rest-api-msdk"),
        &settings,
        "plugin: file, settings: { path: out.ndjson }",
    );
    workspace.once();
    let ids = |workspace: &Workspace| -> Vec<u64> {
        records(workspace).iter().map(|record| record["key"]["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(ids(&workspace), [10, 11, 20, 21]);
    assert_eq!(records(&workspace)[0]["metadata"]["recfmt.collection"], "items");
    requests.lock().unwrap().clear();
    workspace.once();
    assert_eq!(ids(&workspace), [10, 11, 20, 21, 10, 11]);
    let asked = requests.lock().unwrap().join("\n");
    assert!(asked.contains("since=2024-01-02T00%3A00%3A00Z"), "{asked}");
}

/// An API with two pages of items, which are left out if they are older than asked for. Returns its address and the paths
/// of requests so far.
fn api() -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::<Mutex<Vec<String>>>::default();
    let noted = requests.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(first)) = lines.next() else { continue };
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            let page = if path.contains("page=2") { 2 } else { 1 };
            let updated = format!("2024-01-0{}T00:00:00Z", 3 - page);
            let since = path.split("since=").nth(1).and_then(|rest| rest.split('&').next()).unwrap_or_default();
            let is_old = updated < since.replace("%3A", ":");
            let items: Vec<Value> = (0..2).map(|n| json!({"id": page * 10 + n, "updated": updated})).collect();
            let body =
                json!({"items": if is_old { Vec::new() } else { items }, "next": (page == 1).then_some(2)}).to_string();
            noted.lock().unwrap().push(path);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    (address, requests)
}
