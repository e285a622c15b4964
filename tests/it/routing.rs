//! Destinations that receive the records of their conditions.

use serde_json::{Value, json};

use crate::api::get;
use crate::process::Workspace;

/// Requests of which the status and the path decide. `more` are fields of the pipeline.
fn pipeline(more: &str) -> String {
    format!(
        r#"
version: "2.2"
pipelines:
  - id: access
    connectors:
      - {{ id: log, type: source, plugin: file, settings: {{ path: access.ndjson }} }}
      - id: errors
        type: destination
        plugin: file
        condition: '{{{{ ge .Payload.After.status 500 }}}}'
        settings: {{ path: errors.ndjson }}
      - id: orders
        type: destination
        plugin: file
        condition: '{{{{ eq .Payload.After.path "/orders" }}}}'
        settings: {{ path: orders.ndjson }}
        processors:
          - {{ id: mark, plugin: field.set, settings: {{ field: .Metadata.order, value: "yes" }} }}
      - {{ id: others, type: destination, plugin: file, condition: "false", settings: {{ path: others.ndjson }} }}
    processors:
      - {{ id: decode, plugin: json.decode, settings: {{ field: .Payload.After }} }}
    dead-letter-queue: {{ plugin: store, window-size: 0 }}
{more}"#
    )
}

/// Status 400 and up; every third path is `/orders`.
fn requests(count: u64) -> Vec<(u64, &'static str)> {
    (0..count).map(|i| (400 + i, if i % 3 == 0 { "/orders" } else { "/a" })).collect()
}

fn workspace(more: &str, count: u64) -> Workspace {
    let workspace = Workspace::new();
    let lines: String = requests(count)
        .iter()
        .map(|(status, path)| json!({ "status": status, "path": path }).to_string() + "\n")
        .collect();
    workspace.write("access.ndjson", lines);
    workspace.write("pipelines/p.yaml", pipeline(more));
    workspace
}

/// The status of each line.
fn statuses(workspace: &Workspace, file: &str) -> Vec<u64> {
    let status = |line: &String| {
        let record: Value = serde_json::from_str(line).unwrap();
        record["payload"]["after"]["status"].as_u64().unwrap()
    };
    if workspace.path(file).exists() { workspace.lines(file).iter().map(status).collect() } else { Vec::new() }
}

fn those(count: u64, is: impl Fn(u64, &str) -> bool) -> Vec<u64> {
    requests(count).into_iter().filter(|(status, path)| is(*status, path)).map(|(status, _)| status).collect()
}

#[test]
fn each_record_goes_where_its_conditions_hold() {
    let workspace = workspace("    unmatched: others\n", 300);
    let output = workspace.run(&["run", "--once"]).expect_code(0);
    let (errors, orders) = (those(300, |status, _| status >= 500), those(300, |_, path| path == "/orders"));
    assert_eq!(statuses(&workspace, "errors.ndjson"), errors);
    assert_eq!(statuses(&workspace, "orders.ndjson"), orders);
    let others = those(300, |status, path| status < 500 && path != "/orders");
    assert_eq!(statuses(&workspace, "others.ndjson"), others);
    let delivered = errors.len() + orders.len() + others.len();
    let said = output.both();
    assert!(
        said.contains(&format!("300 records read, {delivered} delivered")) && said.contains("0 filtered"),
        "{said}"
    );
    // Only the copies of one destination pass its processors.
    assert!(workspace.lines("orders.ndjson").iter().all(|line| line.contains("\"order\":\"yes\"")));
    assert!(!workspace.read("errors.ndjson").contains("\"order\""));
    let plan = workspace.run(&["pipelines", "plan", "access"]).expect_code(0).stdout;
    assert!(plan.contains("errors: if {{ ge .Payload.After.status 500 }}"), "{plan}");
    assert!(plan.contains("others: if false, or no condition holds"), "{plan}");
}

#[test]
fn records_for_no_destination_are_dropped_fail_or_stop_the_pipeline() {
    let none = |status: u64, path: &str| status < 500 && path != "/orders";
    let dropped = those(150, none).len();
    let warned = workspace("", 150).run(&["pipelines", "validate"]).expect_code(0).both();
    assert!(warned.contains("warning[plan.unmatched_dropped]"), "{warned}");

    let dropping = workspace("    unmatched: drop\n", 150);
    let said = dropping.run(&["run", "--once"]).expect_code(0).both();
    assert!(said.contains(&format!("{dropped} filtered, 0 dead-lettered")), "{said}");

    let keeping = workspace("    unmatched: dead-letter\n", 150);
    let said = keeping.run(&["run", "--once"]).expect_code(0).both();
    assert!(said.contains(&format!("0 filtered, {dropped} dead-lettered")), "{said}");
    let letters = keeping.run(&["dlq", "list", "access", "--json"]).expect_code(0).stdout;
    assert!(letters.contains("\"unmatched\"") && letters.contains("route?"), "{letters}");
    // With another rule, they find their destination.
    keeping.write("pipelines/p.yaml", pipeline("    unmatched: others\n"));
    keeping.run(&["dlq", "replay", "access", "--all"]).expect_code(0);
    assert_eq!(statuses(&keeping, "others.ndjson"), those(150, none));
    let errors = those(150, |status, _| status >= 500);
    assert_eq!(statuses(&keeping, "errors.ndjson"), errors, "what was delivered is not delivered again");

    let failing = workspace("    unmatched: fail\n", 150);
    let said = failing.run(&["run", "--once"]).expect_code(1).both();
    assert!(said.contains("the record fulfils the condition of no destination"), "{said}");
    assert!(failing.run(&["dlq", "list", "access"]).both().contains("no dead letters"));
}

#[test]
fn a_condition_that_fails_on_a_record_is_located_and_replayed() {
    let workspace = workspace("    unmatched: drop\n", 3);
    workspace.append("access.ndjson", "{\"path\": \"/orders\"}\n");
    let said = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert!(said.contains("step=errors? code=condition_failed"), "{said}");
    assert!(said.contains("p.yaml:10:24"), "{said}");
    assert_eq!(statuses(&workspace, "orders.ndjson"), [400], "a record that fails goes nowhere");
    let corrected =
        pipeline("    unmatched: drop\n").replace("ge .Payload", "ge (or .Payload.After.status 0) 500 }}{{/*");
    let corrected = corrected.replace(".After.status 500 }}'", "*/}}'");
    workspace.write("pipelines/p.yaml", corrected);
    workspace.run(&["dlq", "replay", "access", "--all"]).expect_code(0);
    assert_eq!(workspace.lines("orders.ndjson").len(), 2, "the replay evaluates all conditions");
}

#[test]
fn tests_of_pipelines_cover_the_conditions() {
    let workspace = workspace("    unmatched: drop\n", 0);
    let test = |more: &str| {
        format!(
            "tests:\n  - name: an error\n    input: [{{ after: {{ $json: {{ status: 500, path: /a }} }} }}]\n    expect:\n      \
             records: {{ errors: [{{ after: {{ status: 500, path: /a }} }}], orders: [], others: [] }}\n{more}"
        )
    };
    workspace.write("pipelines/p.test.yaml", test(""));
    let said = workspace.run(&["pipelines", "test", "--coverage"]).expect_code(0).both();
    assert!(said.contains("NOT COVERED  errors (route), otherwise"), "{said}");
    assert!(said.contains("NOT COVERED  orders (route), if {{ eq .Payload.After.path \"/orders\" }}"), "{said}");
    let more = "  - name: an order\n    input: [{ after: { $json: { status: 200, path: /orders } } }]\n    expect:\n      \
                records: { errors: [], orders: [{ after: { status: 200, path: /orders } }], others: [] }\n";
    workspace.write("pipelines/p.test.yaml", test(more));
    let said = workspace.run(&["pipelines", "test", "--coverage"]).expect_code(0).both();
    assert!(!said.contains("NOT COVERED  errors") && !said.contains("NOT COVERED  orders"), "{said}");
}

#[test]
fn the_service_shows_and_counts_the_route() {
    let workspace = workspace("    unmatched: drop\n", 150);
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    let filtered = "anabranch_node_records_filtered_total{";
    let of_route = || {
        let metrics = get(address, "/metrics").body;
        let line = metrics.lines().find(|line| line.starts_with(filtered) && line.contains("node=\"route?\""))?;
        line.rsplit_once(' ')?.1.parse::<f64>().ok()
    };
    let dropped = those(150, |status, path| status < 500 && path != "/orders").len() as f64;
    process.wait_until("the dropped records to be counted", || of_route() == Some(dropped));
    let connector = get(address, "/v1/connectors/access:errors").json();
    assert_eq!(connector["config"]["condition"], "{{ ge .Payload.After.status 500 }}", "{connector}");
    assert_eq!(get(address, "/v1/pipelines/access").json()["config"]["unmatched"], "drop");
    process.signal("TERM");
    process.finish().expect_code(0);
    // A changed condition is an edit of the connector, which keeps the position.
    workspace.write("pipelines/p.yaml", pipeline("    unmatched: drop\n").replace("\"/orders\"", "\"/a\""));
    let said = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert!(said.contains("0 records read"), "{said}");
    assert_eq!(statuses(&workspace, "orders.ndjson"), those(150, |_, path| path == "/orders"));
}

#[test]
fn a_dry_run_shows_where_records_go() {
    let dry_run = |more: &str, lines: &str| {
        let workspace = workspace(more, 0);
        workspace.write("access.ndjson", lines);
        workspace.run(&["pipelines", "dry-run", "access"])
    };
    let lines = "{\"status\": 500, \"path\": \"/orders\"}\n{\"status\": 200, \"path\": \"/a\"}\n";
    let said = dry_run("    unmatched: drop\n", lines).expect_code(0).both();
    assert!(
        said.contains("errors (file): would be written") && said.contains("orders (file): would be written"),
        "{said}"
    );
    assert!(said.contains("route? (route): dropped"), "{said}");
    assert!(said.contains("2 read, 2 delivered, 1 dropped, 0 failed"), "{said}");
    let said = dry_run("    unmatched: fail\n", lines).expect_code(1).both();
    assert!(
        said.contains("route? (route): failed, the record fulfils the condition of no destination (unmatched)"),
        "{said}"
    );
    let said = dry_run("    unmatched: drop\n", "{\"path\": \"/a\"}\n").expect_code(1).both();
    assert!(said.contains("route? (route): failed") && said.contains("condition_failed"), "{said}");
    let all = "{\"status\": 200, \"path\": \"/a\"}\n".repeat(3);
    let said = dry_run("    unmatched: drop\n", &all).both();
    assert!(said.contains("it dropped all 3 records") && said.contains("check the conditions"), "{said}");
}

#[test]
fn drawings_show_the_route_and_what_a_filter_drops() {
    let workspace = workspace("    unmatched: others\n", 0);
    let filtered = pipeline("    unmatched: others\n").replace(
        "    dead-letter-queue",
        "      - { id: less, plugin: filter, condition: '{{ eq .Payload.After.path \"/health\" }}' }\n    dead-letter-queue",
    );
    workspace.write("pipelines/p.yaml", filtered);
    let svg = workspace.run(&["pipelines", "plan", "access", "--format", "svg"]).expect_code(0).stdout;
    assert!(svg.contains("drops if"), "{svg}");
    for format in ["text", "dot", "mermaid"] {
        let drawn =
            workspace.run(&["pipelines", "plan", "access", "--format", format, "--no-color"]).expect_code(0).stdout;
        for text in ["ge .Payload.After.status 500", "no condition holds", "drops if"] {
            assert!(drawn.contains(text), "{format} does not say {text:?}: {drawn}");
        }
    }
}
