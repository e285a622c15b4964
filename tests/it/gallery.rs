//! `pipelines init --template`: pipelines to start from.

use serde_json::Value;

use crate::process::{Workspace, base64_decode};

fn templates() -> Vec<Value> {
    let output = Workspace::new().run(&["pipelines", "init", "--template", "list", "--json"]).expect_code(0);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    report["result"]["templates"].as_array().unwrap().clone()
}

#[test]
#[cfg(all(feature = "ai", feature = "http", feature = "js", feature = "kafka", feature = "postgres", feature = "s3"))]
fn every_template_is_valid_where_it_is_written() {
    for template in templates() {
        let name = template["name"].as_str().unwrap();
        let mut workspace = Workspace::new();
        let written = workspace.run(&["pipelines", "init", "--template", name]).expect_code(0).stdout;
        let variables = template["variables"].as_array().unwrap();
        for variable in variables.iter().map(|variable| variable.as_str().unwrap()) {
            assert!(written.contains(variable), "{name}: {written}");
            let value = match variable {
                "SOURCE_POSTGRES_URL" => "postgresql://u@localhost/d",
                "POSTGRES_URL" => "postgresql://u@localhost/other",
                "S3_BUCKET" => "lake",
                "KAFKA_SERVERS" => "localhost:9092",
                _ => "http://x",
            };
            workspace.env(variable, value);
        }
        let flag: &[&str] = if template["splits"] == true { &["--preview.pipeline-arch-v2"] } else { &[] };
        let output = workspace.run(&[&["pipelines", "lint", "--strict"], flag].concat());
        assert_eq!(output.code(), Some(0), "{name}: {}", output.both());
    }
}

#[test]
fn a_template_runs_under_a_name_of_its_own() {
    let workspace = Workspace::new();
    workspace.run(&["pipelines", "init", "shop", "--template", "json-lines"]).expect_code(0);
    workspace.write("events.ndjson", "{\"kind\":\"view\"}\n{\"kind\":\"purchase\",\"n\":1}\nnot JSON\n");
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(workspace.lines("purchases.ndjson"), ["{\"kind\":\"purchase\",\"n\":1}"]);
    let failed = workspace.lines("failed.ndjson");
    assert_eq!(failed.len(), 1);
    let letter: Value = serde_json::from_str(&failed[0]).unwrap();
    let line = base64_decode(letter["payload"]["after"]["payload"]["after"].as_str().unwrap());
    assert_eq!(String::from_utf8(line).unwrap(), "not JSON");
    let listed = workspace.run(&["pipelines", "list"]).expect_code(0).stdout;
    assert!(listed.contains("shop"), "{listed}");
}

#[test]
fn branches_get_what_is_theirs() {
    let workspace = Workspace::new();
    workspace.run(&["pipelines", "init", "--template", "branching"]).expect_code(0);
    workspace.write("payments.ndjson", "{\"amount\":5}\n{\"amount\":5000}\n{\"amount\":-1}\n");
    workspace.run(&["run", "--once"]).expect_code(0);
    let amounts = |file: &str| -> Vec<i64> {
        let records = workspace.lines(file);
        let amount =
            |line: &String| serde_json::from_str::<Value>(line).unwrap()["payload"]["after"]["amount"].as_i64();
        records.iter().map(|line| amount(line).unwrap()).collect()
    };
    assert_eq!((amounts("small.ndjson"), amounts("large.ndjson")), (vec![5], vec![5000]));
    assert_eq!(workspace.lines("failed.ndjson").len(), 1);
}

#[test]
fn what_there_is_not_is_said() {
    let workspace = Workspace::new();
    let text = workspace.run(&["pipelines", "init", "--template", "json-line"]).expect_code(2).stderr;
    assert!(text.contains("did you mean json-lines?"), "{text}");
    let both = ["pipelines", "init", "--template", "json-lines", "--source", "file"];
    assert_eq!(workspace.run(&both).code(), Some(2));
    workspace.run(&["pipelines", "init", "--template", "json-lines"]).expect_code(0);
    workspace.run(&["pipelines", "init", "--template", "json-lines"]).expect_code(2);
    assert!(!templates().is_empty());
}
