//! The pipelines of `examples/`, each run as it stands there.

use std::path::{Path, PathBuf};

use anabranch_ops_http::testing::{Reply, Server};
use serde_json::Value;

use crate::http::client::{exchange, request};
use crate::process::{PATIENCE, Workspace, raw_after};
use crate::servers::postgres::Database;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// A directory with the example as its only pipeline.
fn example(name: &str) -> Workspace {
    let workspace = Workspace::new();
    workspace.write(&format!("pipelines/{name}"), std::fs::read(directory().join(name)).unwrap());
    workspace
}

fn records(workspace: &Workspace, name: &str) -> Vec<Value> {
    workspace.lines(name).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_example_is_run_here() {
    let run = include_str!("examples.rs");
    for entry in std::fs::read_dir(directory()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let tested = name.ends_with(".test.yaml")
            || [
                "access-log",
                "cluster",
                "common.sh",
                "csv-orders",
                "documents-to-vectors",
                "kafka",
                "orders-over-http",
                "postgres-replica",
            ]
            .contains(&name.as_str())
            || run.contains(&format!("example(\"{name}\")"));
        assert!(tested, "no test runs examples/{name}");
    }
}

/// A directory with the files of an example that has a directory of its own. The pipelines have variables from `env`.
fn example_directory(name: &str, pipelines: &[&str], env: &[(&str, &str)]) -> Workspace {
    let mut workspace = Workspace::new();
    for entry in std::fs::read_dir(directory().join(name)).unwrap() {
        let path = entry.unwrap().path();
        workspace.write(path.file_name().unwrap().to_str().unwrap(), std::fs::read(&path).unwrap());
    }
    for (name, value) in env {
        workspace.env(name, value);
    }
    let lines: usize = pipelines.iter().map(|file| workspace.lines(file).len()).sum();
    assert!(lines < 40, "{name}: {lines} lines");
    for file in pipelines {
        workspace.run(&["pipelines", "lint", "--strict", file]).expect_code(0);
        workspace.run(&["pipelines", "test", file]).expect_code(0);
    }
    workspace
}

#[test]
fn an_access_log_is_split_and_masked() {
    let workspace = example_directory("access-log", &["pipeline.yaml"], &[]);
    let output = workspace.run(&["run", "--once", "--pipelines", "./pipeline.yaml"]).expect_code(0);
    // The README shows the counts.
    let counts = "4 delivered (errors 2, requests 2)";
    assert!(output.both().contains(counts), "{}", output.both());
    assert!(workspace.read("README.md").contains(counts));
    let shown = |file: &str| -> Vec<String> {
        records(&workspace, file).iter().map(|r| format!("{} {} {}", r["status"], r["address"], r["user"])).collect()
    };
    assert_eq!(shown("errors.ndjson"), [r#"401 "2001:db8::" "*""#, r#"500 "203.0.113.0" "*""#]);
    assert_eq!(shown("requests.ndjson"), [r#"200 "203.0.113.0" "a**""#, r#"304 "198.51.100.0" "*""#]);
    assert_eq!(records(&workspace, "requests.ndjson")[0]["at"], "2026-03-01T09:30:00Z");
    assert_eq!(workspace.lines("unparsed.ndjson").len(), 1);
}

#[test]
fn wrong_rows_of_a_csv_file_are_kept_with_their_reasons() {
    let workspace = example_directory("csv-orders", &["pipeline.yaml"], &[]);
    workspace.run(&["run", "--once", "--pipelines", "./pipeline.yaml"]).expect_code(0);
    let orders: Vec<String> =
        records(&workspace, "orders.ndjson").iter().map(|r| format!("{} {}", r["customer"], r["amount"])).collect();
    assert_eq!(orders, [r#""Lovelace, Ada" 12.5"#, r#""Noether" 7.0"#]);
    let mut rejected: Vec<(u64, String)> = records(&workspace, "rejected.ndjson")
        .iter()
        .map(|r| (r["line"].as_u64().unwrap(), r["reason"].as_str().unwrap().to_owned()))
        .collect();
    rejected.sort();
    let reasons = [(3, "is not a number"), (4, "the amount -4 is not positive"), (5, "the row has 3 values")];
    assert_eq!(rejected.len(), reasons.len(), "{rejected:?}");
    for ((line, reason), (expected_line, expected)) in rejected.iter().zip(reasons) {
        assert!(*line == expected_line && reason.contains(expected), "{rejected:?}");
    }
}

/// What the page examples/orders-over-http/README.md shows, with free ports.
#[test]
fn orders_of_an_api_and_of_webhooks_become_rows() {
    let Some(database) = Database::create() else { return };
    let orders = std::fs::read(directory().join("orders-over-http/orders.json")).unwrap();
    let shop = Server::start(move |_| Reply::ok(orders.clone()));
    let env = [
        ("POSTGRES_URL", database.url()),
        ("SHOP_URL", format!("{}/orders.json", shop.url())),
        ("SHOP_TOKEN", "a-token-of-your-own".to_owned()),
        ("LISTEN", "127.0.0.1:0".to_owned()),
    ];
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let workspace = example_directory("orders-over-http", &["api.yaml", "webhooks.yaml"], &env);
    database.query(&workspace.read("schema.sql"));
    let page = workspace.read("README.md");
    let rows = || {
        database.query("SELECT id, customer, amount, extract(epoch FROM updated_at)::bigint FROM orders ORDER BY id")
    };
    let of_the_api = ["1|Lovelace|12.50|1772357400", "2|Noether|7.00|1772445600"];
    for _ in 0..2 {
        workspace.run(&["run", "--once", "--pipelines", "./api.yaml"]).expect_code(0);
        assert_eq!(rows(), of_the_api);
    }
    let asked: Vec<String> = shop.received().iter().map(|request| request.path.clone()).collect();
    assert_eq!(asked, ["/orders.json", "/orders.json?updated_since=2026-03-02T10%3A00%3A00Z"]);

    let mut service = workspace.start(&["run", "--pipelines", "./webhooks.yaml"]);
    let address = service.address_after("records are received at http://");
    let body = page.split_once("-d '").unwrap().1.split_once('\'').unwrap().0;
    let send = |token: &str| {
        let authorization = format!("Bearer {token}");
        exchange(address, &request("POST", "/orders", &[("Authorization", &authorization)], body.as_bytes())).unwrap()
    };
    assert_eq!(send("another").status, 401);
    let answer = send("a-token-of-your-own");
    assert_eq!((answer.status, answer.body.trim()), (200, r#"{"records":1}"#));
    assert_eq!(rows(), [of_the_api[0], of_the_api[1], "3|Hopper|30.00|1772525700"]);
    assert!(page.contains(answer.body.trim()));
}

#[test]
fn flights_are_logged() {
    let workspace = example("generate-and-log.yaml");
    let log = std::fs::File::create(workspace.path("service.log")).unwrap();
    let mut service = workspace.command(["run"]).stdout(log).spawn().unwrap();
    let started = std::time::Instant::now();
    while workspace.read("service.log").matches("scheduledDeparture").count() < 2 && started.elapsed() < PATIENCE {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // It has no end of its own.
    service.kill().unwrap();
    service.wait().unwrap();
    assert!(workspace.read("service.log").matches("scheduledDeparture").count() >= 2);
}

#[test]
fn the_lines_of_a_file_are_copied() {
    let workspace = example("copy-a-file.yaml");
    // Latin-1, NUL, a carriage return, and what is no text in any encoding.
    let lines = b"one\ncaf\xe9\n\0\r\n\n\xff\xfe\x80\n";
    workspace.write("in.txt", lines);
    workspace.once();
    assert_eq!(std::fs::read(workspace.path("out.txt")).unwrap(), lines);
}

#[test]
fn purchases_are_kept_and_large_ones_marked() {
    let workspace = example("decode-and-filter.yaml");
    let events = r#"{"kind":"view"}
{"kind":"purchase","amount":5}
{"kind":"purchase","amount":5000}
"#;
    workspace.write("events.ndjson", events);
    workspace.once();
    let kept = records(&workspace, "purchases.ndjson");
    let shown: Vec<(&Value, &Value)> =
        kept.iter().map(|r| (&r["payload"]["after"]["amount"], &r["metadata"]["priority"])).collect();
    assert_eq!(shown, [(&5.into(), &Value::Null), (&5000.into(), &"high".into())]);
}

#[test]
fn an_order_becomes_items_and_an_audit() {
    let workspace = example("split-and-copy.yaml");
    workspace.write("orders.ndjson", "{\"items\":[{\"sku\":\"a\"},{\"sku\":\"b\"}]}\n");
    workspace.once();
    let mut shown: Vec<String> = records(&workspace, "items.ndjson")
        .iter()
        .map(|r| {
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            format!("{} {}", text(&r["payload"]["after"]["items"]["sku"]), text(&r["metadata"]["recfmt.collection"]))
        })
        .collect();
    shown.sort();
    assert_eq!(shown, ["a audit", "a items", "b audit", "b items"]);
}

#[test]
fn failures_go_to_a_file() {
    let workspace = example("dead-letters.yaml");
    workspace.write("in.ndjson", "{\"amount\":1}\nno JSON\n{\"amount\":-1}\n");
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 1);
    let reasons: Vec<String> = records(&workspace, "failed.ndjson")
        .iter()
        .map(|letter| letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("a negative amount: -1")), "{reasons:?}");
}

#[test]
fn two_sources_meet_and_part() {
    let workspace = example("several-ends.yaml");
    workspace.write("web.log", "w\n");
    workspace.write("shop.log", "s\n");
    workspace.once();
    let mut all: Vec<String> = workspace.lines("archive.ndjson").iter().map(|line| raw_after(line)).collect();
    all.sort();
    assert_eq!(all, ["s", "w"]);
    let shop: Vec<String> = workspace.lines("shop.ndjson").iter().map(|line| raw_after(line)).collect();
    assert_eq!(shop, ["s"]);
}

#[test]
fn workers_write_in_order() {
    let workspace = example("workers.yaml");
    let mut process = workspace.start(&["run"]);
    process.wait_until("a thousand readings", || workspace.lines("readings.ndjson").len() >= 1000);
    process.signal("TERM");
    process.finish().expect_code(0);
    let times: Vec<String> = records(&workspace, "readings.ndjson")
        .iter()
        .map(|r| r["metadata"]["recfmt.createdAt"].as_str().unwrap().to_owned())
        .collect();
    assert!(times.is_sorted_by_key(|time| time.parse::<u128>().unwrap()));
}

#[test]
fn changes_are_made_up() {
    let workspace = example("change-feed.yaml");
    let file = workspace.read("pipelines/change-feed.yaml").replace("status: stopped", "status: running");
    workspace.write("pipelines/change-feed.yaml", file);
    workspace.once();
    let changes = records(&workspace, "changes.ndjson");
    assert!(changes.iter().any(|change| change["operation"] == "delete"));
    assert!(changes.iter().all(|change| change["operation"] != "snapshot"));
    assert!(changes.len() > 500);
}
