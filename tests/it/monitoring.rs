//! The alert rules and the dashboard of `packaging/monitoring`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::skip;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/monitoring").join(name)
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

/// Names of metrics in expressions.
fn used(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let words = words.filter(|word| word.starts_with("anabranch_") || word.starts_with("process_"));
    words
        .map(|word| ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word))
        .collect()
}

#[test]
fn every_metric_is_documented() {
    let page = text(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md"));
    let documented: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split_once('`').map(|(name, _)| name))
        .collect();
    let (alerts, dashboard) = (text(shipped("alerts.yaml")), text(shipped("dashboard.json")));
    for (file, names) in [("alerts.yaml", used(&alerts)), ("dashboard.json", used(&dashboard))] {
        let unknown: Vec<_> = names.difference(&documented).collect();
        assert!(names.len() >= 10 && unknown.is_empty(), "{file}: {unknown:?}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        let queries = panel["targets"].as_array().unwrap();
        assert!(!queries.is_empty() && queries.iter().all(|query| query["expr"].is_string()), "{panel}");
    }
}

#[test]
fn every_rule_has_a_test_that_fires_and_one_that_does_not() {
    let (alerts, tests) = (text(shipped("alerts.yaml")), text(shipped("alerts.test.yaml")));
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 15, "{names:?}");
    for name in names {
        let of_name: Vec<&str> =
            tests.split("alertname: ").filter(|part| part.starts_with(&format!("{name}\n"))).collect();
        let quiet = of_name.iter().filter(|part| part.contains("exp_alerts: []")).count();
        assert!(quiet == 1 && of_name.len() == 2, "{name}: {} tests, {quiet} of them quiet", of_name.len());
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let run = |arguments: &[&str]| Command::new("promtool").args(arguments).current_dir(shipped("")).output();
    let Ok(checked) = run(&["check", "rules", "alerts.yaml"]) else {
        return skip("promtool is not installed");
    };
    let tested = run(&["test", "rules", "alerts.test.yaml"]).unwrap();
    for output in [checked, tested] {
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success() && said.contains("SUCCESS"), "{said}");
    }
}
