//! Keys that several records share, before a destination that keeps one row for each.

use serde_json::Value;

use crate::process::{DECODE, Workspace, lines_to};

const ORDERS: &str = r#"{"order":1,"lines":[{"sku":"a"},{"sku":"b"},{"sku":"c"}]}
{"order":2,"lines":[{"sku":"d"},{"sku":"e"}]}
{"order":3,"lines":[{"sku":"f"}]}
"#;
const SPLIT: &str = "      - { id: split, plugin: split, settings: { field: .Payload.After.lines } }\n";
const TABLE: &str = "plugin: postgres, settings: { url: 'postgres://u@h/d', table: t }";

fn script(body: &str) -> String {
    let body = body.replace('\n', "\n            ");
    format!(
        "      - id: t\n        plugin: custom.javascript\n        settings:\n          script: |\n            \
         function process(rec) {{\n              const o = rec.Payload.After;\n              {body}\n            }}\n"
    )
}

/// The doubts of a dry-run, as `code records/of`, and its exit code, before a table that it never connects to.
fn doubts(lines: &str, steps: &str, destination: &str) -> (Vec<String>, bool) {
    let workspace = Workspace::new();
    workspace.write("in.txt", lines);
    workspace.write("pipelines/p.yaml", lines_to(destination, &format!("{DECODE}{steps}")));
    let args = ["pipelines", "dry-run", "p", "--json", "--preview.pipeline-arch-v2"];
    let json: Value = serde_json::from_str(&workspace.run(&args).stdout).unwrap();
    let doubts = json["result"]["pipelines"][0]["doubts"].as_array().unwrap_or_else(|| panic!("{json}"));
    let told = doubts
        .iter()
        .map(|doubt| format!("{} {}/{}", doubt["code"].as_str().unwrap_or_default(), doubt["records"], doubt["of"]));
    (told.collect(), json["ok"] == Value::Bool(true))
}

#[track_caller]
fn told(lines: &str, steps: &str, expected: &[&str]) {
    assert_eq!(doubts(lines, steps, TABLE), (expected.iter().map(ToString::to_string).collect(), true), "{steps}");
}

#[test]
fn pieces_with_the_key_of_what_they_were_made_of_are_told() {
    let after = "rec.Key = { order: o.order };\nrec.Payload.After = { sku: o.lines.sku };\nreturn rec;";
    let shared = ["flow.key_shared 5/6"];
    told(ORDERS, &format!("{SPLIT}{}", script(after)), &shared);
    told(ORDERS, &format!("{}{SPLIT}", script("rec.Key = { order: o.order };\nreturn rec;")), &shared);
    let own = |key: &str| {
        script(&format!(
            "return o.lines.map(l => {{\n  const each = Record();\n  each.Operation = 'create';\n  each.Key = {{ {key} }};\n  \
             each.Payload.After = {{ order: o.order, sku: l.sku }};\n  return each;\n}});"
        ))
    };
    told(ORDERS, &own("order: o.order"), &shared);
    // Each has its own, or some record has several of one key and others: its last state stays.
    told(ORDERS, &own("order: o.order, sku: l.sku"), &[]);
    told(ORDERS, &own("first: l.sku < 'c'"), &[]);
    // Files keep every line, and rows without a key are inserted.
    let (found, _) = doubts(ORDERS, &own("order: o.order"), "plugin: file, settings: { path: ./out.txt }");
    assert!(found.is_empty(), "{found:?}");
    told(ORDERS, &format!("{SPLIT}{}", script("rec.Key = null;\nreturn rec;")), &[]);
}

#[test]
fn a_key_that_all_records_share_is_told() {
    let key = |key: &str| script(&format!("rec.Key = {key};\nreturn rec;"));
    told(ORDERS, &key("{ pk: 'orders' }"), &["flow.key_constant 3/3"]);
    let set = |value: &str| {
        format!("      - {{ id: t, plugin: field.set, settings: {{ field: .Key, value: '{value}' }} }}\n")
    };
    let id = "      - { id: u, plugin: field.set, settings: { field: .Key.id, value: 7 } }\n";
    told(
        ORDERS,
        &format!("{}      - {{ id: d, plugin: json.decode, settings: {{ field: .Key }} }}\n{id}", set("{}")),
        &["flow.key_constant 3/3"],
    );
    // `validate` says it of a key that is a text.
    told(ORDERS, &set("{\"id\": 7}"), &[]);
    // Two keys, two records, or the records of one thing: the last of them may be what is meant.
    told(ORDERS, &key("{ odd: o.order % 2 }"), &[]);
    let two: String = ORDERS.lines().take(2).map(|line| format!("{line}\n")).collect();
    told(&two, &key("{ pk: 'orders' }"), &[]);
    let one = "{\"device\":\"d1\",\"t\":1}\n{\"device\":\"d1\",\"t\":2}\n{\"device\":\"d1\",\"t\":3}\n";
    told(one, &key("{ id: o.device }"), &[]);
    told(&"{\"a\":1}\n".repeat(3), &key("{ pk: 'orders' }"), &[]);
}
