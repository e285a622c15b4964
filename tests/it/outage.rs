//! A destination that is down, as a monitoring system sees it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::api::get;
use crate::process::{PATIENCE, Workspace, skip};
use crate::servers::postgres::Server;

const PIPELINE: &str = r#"
version: "2.2"
pipelines:
  - id: rows
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.txt } }
      - { id: out, type: destination, plugin: postgres, settings: { url: "${DATABASE}", table: t } }
    processors:
      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }
      - { id: key, plugin: field.set, settings: { field: .Key, value: '{"id": {{ .Payload.After.id }}}' } }
"#;

/// More than a pipeline holds in memory or reads ahead.
const LINES: usize = 200_000;

fn lines(numbers: std::ops::Range<usize>) -> String {
    numbers.fold(String::new(), |mut text, i| {
        writeln!(text, r#"{{"id":{i}}}"#).unwrap();
        text
    })
}

/// The value of the series of a metric whose labels contain `labels`.
fn sample(metrics: &str, name: &str, labels: &str) -> Option<f64> {
    let series = format!("{name}{{");
    let line = metrics.lines().find(|line| line.starts_with(&series) && line.contains(labels))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn metrics(address: SocketAddr) -> String {
    get(address, "/metrics").body
}

#[test]
fn a_destination_that_is_down_is_seen_and_raises_the_shipped_alerts() {
    let Some(server) = Server::start(&[]) else { return };
    server.query("CREATE TABLE t (id int PRIMARY KEY)");
    let mut workspace = Workspace::new();
    workspace.env("DATABASE", &server.url());
    workspace.write("in.txt", lines(0..10));
    workspace.write("pipelines/p.yaml", PIPELINE);
    let mut process = workspace.start(&[
        "run",
        "--pipelines.error-recovery.min-delay=3s",
        "--pipelines.error-recovery.max-delay=3s",
        "--pipelines.error-recovery.max-retries=-1",
    ]);
    let address = process.address();
    let state = |text: &str, word: &str| sample(text, "anabranch_pipeline_state", &format!("state=\"{word}\""));
    process.wait_until("the first rows", || server.query("SELECT count(*) FROM t") == ["10"]);
    process.wait_until("nothing in flight", || {
        sample(&metrics(address), "anabranch_source_lag_seconds", "connector=\"in\"") == Some(0.0)
    });
    server.stop();
    workspace.append("in.txt", &lines(10..LINES));
    process.wait_until("it to recover", || state(&metrics(address), "recovering") == Some(1.0));
    // Each of these is seen in every scrape, whatever the pipeline does at that moment, and only grows.
    let growing = [
        "anabranch_source_lag_seconds",
        "anabranch_source_position_age_seconds",
        "anabranch_source_backlog_age_seconds",
        "anabranch_pipeline_runs_total",
    ];
    let of = |text: &str| growing.map(|name| sample(text, name, "pipeline=\"rows\"").unwrap_or(0.0));
    process.wait_until("all of it", || of(&metrics(address)).iter().all(|value| *value > 0.0));
    let mut seen = vec![metrics(address)];
    // So many that the alerts below have the minutes that they wait for, whatever a scrape takes here.
    let enough = |seen: &[String]| {
        let grown = of(&seen[seen.len() - 1]).into_iter().zip(of(&seen[0])).all(|(now, first)| now >= first + 3.0);
        grown && seen.len() >= 30 && seen.iter().filter(|text| of(text)[0] > 6.0).count() >= 10
    };
    while !enough(&seen) {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let (mut text, began) = (metrics(address), Instant::now());
        // An attempt takes as long as the machine makes it take. It is seen once, and the pause after it next.
        while [&text, &seen[seen.len() - 1]].iter().all(|text| state(text, "recovering") == Some(0.0)) {
            assert!(began.elapsed() < PATIENCE, "no pause after the attempt: {text}");
            std::thread::sleep(std::time::Duration::from_millis(10));
            text = metrics(address);
        }
        let (now, before) = (of(&text), of(&seen[seen.len() - 1]));
        assert!(now.iter().zip(before).all(|(now, before)| *now >= before), "{growing:?}: {before:?}, then {now:?}");
        for name in ["anabranch_source_lag_records", "anabranch_source_backlog_bytes"] {
            assert!(sample(&text, name, "connector=\"in\"").is_some_and(|value| value > 0.0), "{name}: {text}");
        }
        assert!(
            ["recovering", "starting", "running", "idle"].iter().any(|word| state(&text, word) == Some(1.0)),
            "{text}"
        );
        seen.push(text);
        assert!(seen.len() < 1200, "nothing grows: {:?}", seen.last());
    }
    raises(&seen, &["AnabranchPipelineRecovering", "AnabranchRecordsUnacknowledged", "AnabranchNoSuccess"]);
    // Back again: everything arrives, and the alarms have no reason left.
    server.resume();
    process.wait_until("all rows", || server.query("SELECT count(*) FROM t") == [LINES.to_string()]);
    process.wait_until("nothing in flight", || {
        let text = metrics(address);
        let lag = sample(&text, "anabranch_source_lag_seconds", "connector=\"in\"");
        lag == Some(0.0) && state(&text, "recovering") == Some(0.0)
    });
    process.signal("TERM");
    process.finish().expect_code(0);
}

/// Checks that samples raise exactly these of the shipped alerts. The scrapes were seconds apart and count as minutes
/// apart, so that ages count a minute per second, too.
fn raises(scrapes: &[String], alerts: &[&str]) {
    let mut tests = format!(
        "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n",
        Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/monitoring/alerts.yaml").display()
    );
    let value = |text: &str, series: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or_else(|| "_".to_owned(), str::to_owned)
    };
    let last = &scrapes[scrapes.len() - 1];
    let series = last.lines().filter(|line| line.starts_with("anabranch_")).filter_map(|line| line.rsplit_once(' '));
    for (name, _) in series {
        let (metric, labels) = name.split_once('{').unwrap_or((name, "}"));
        let comma = if labels == "}" { "" } else { "," };
        let of_minute = |text: &String| {
            match (metric.ends_with("_timestamp_seconds"), metric.ends_with("lag_seconds")) {
                // The clock of the tool begins at 0.
                (true, _) => "0".to_owned(),
                (_, true) => {
                    value(text, name).parse().map_or_else(|_| "_".to_owned(), |age: f64| (age * 60.0).to_string())
                }
                _ => value(text, name),
            }
        };
        let values: Vec<String> = scrapes.iter().map(of_minute).collect();
        let series = format!("{metric}{{instance=\"a\",job=\"anabranch\"{comma}{labels}");
        writeln!(tests, "      - {{ series: '{series}', values: {} }}", values.join(" ")).unwrap();
    }
    tests += "    promql_expr_test:\n";
    for alert in alerts {
        let expression = format!("count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\",pipeline=\"rows\"}})");
        writeln!(
            tests,
            "      - {{ expr: '{expression}', eval_time: {}m, exp_samples: [{{ labels: '{{}}', value: 1 }}] }}",
            scrapes.len() - 1
        )
        .unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("scraped.yaml"), &tests).unwrap();
    let run = Command::new("promtool").args(["test", "rules", "scraped.yaml"]).current_dir(directory.path()).output();
    let Ok(output) = run else { return skip("promtool is not installed") };
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && said.contains("SUCCESS"), "{said}\n{tests}");
}
