//! A database that loses what it had confirmed, or whose tables go away, under a pipeline that runs.

use std::fmt::Write;

use crate::process::Workspace;
use crate::servers::postgres::{Database, Server};

/// Lines to a table without a key, which shows every row twice that came twice.
fn pipeline(settings: &str) -> String {
    format!(
        r#"
version: "2.2"
pipelines:
  - id: rows
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - {{ id: out, type: destination, plugin: postgres, settings: {{ url: "${{DATABASE}}", table: t, {settings} }} }}
    processors:
      - {{ id: decode, plugin: json.decode, settings: {{ field: .Payload.After }} }}
      - {{ id: bare, plugin: field.exclude, settings: {{ fields: .Key }} }}
    dead-letter-queue: {{ plugin: file, settings: {{ path: dlq.ndjson }}, window-size: 0 }}
"#
    )
}

fn lines(of: std::ops::Range<usize>) -> String {
    of.fold(String::new(), |mut text, i| {
        writeln!(text, r#"{{"id":{i}}}"#).unwrap();
        text
    })
}

fn workspace(url: &str, settings: &str) -> Workspace {
    let mut workspace = Workspace::new();
    workspace.env("DATABASE", url);
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "100ms");
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_DELAY", "500ms");
    workspace.write("pipelines/p.yaml", pipeline(settings));
    workspace
}

const ONCE: &str = "exactlyOnce: \"true\"";

fn count(server: &Server) -> Vec<String> {
    server.query("SELECT count(*) || '|' || count(DISTINCT id) FROM t")
}

#[test]
fn a_restored_database_gets_what_it_lost() {
    let Some(server) = Server::start(&[]) else { return };
    server.query("CREATE TABLE t (id int)");
    let workspace = workspace(&server.url(), ONCE);
    workspace.write("in.txt", lines(0..1000));
    workspace.once();
    server.stop();
    let backup = server.back_up();
    server.resume();
    workspace.append("in.txt", &lines(1000..3000));
    workspace.once();
    assert_eq!(count(&server), ["3000|3000"]);

    // Between two runs.
    server.stop();
    server.restore(&backup);
    server.resume();
    assert_eq!(count(&server), ["1000|1000"]);
    workspace.append("in.txt", &lines(3000..4000));
    let printed = workspace.once().both();
    assert_eq!(count(&server), ["4000|4000"]);
    assert!(printed.contains("lost records that it had confirmed"), "{printed}");

    // In mid-run.
    workspace.append("in.txt", &lines(4000..5000));
    let mut process = workspace.start(&["run"]);
    process.wait_until("the rows before the failover", || count(&server) == ["5000|5000"]);
    server.stop();
    server.restore(&backup);
    server.resume();
    workspace.append("in.txt", &lines(5000..6000));
    process.wait_until("what was lost and what came after", || count(&server) == ["6000|6000"]);
    process.signal("TERM");
    process.finish().expect_code(0);
    assert!(!workspace.path("dlq.ndjson").exists() || workspace.lines("dlq.ndjson").is_empty());
}

#[test]
fn a_source_that_has_the_lost_records_no_more_stops_the_pipeline() {
    let Some(server) = Server::start(&[]) else { return };
    server.query("CREATE TABLE t (id int)");
    let workspace = workspace(&server.url(), ONCE);
    workspace.write("in.txt", lines(0..500));
    workspace.once();
    server.stop();
    let backup = server.back_up();
    server.resume();
    workspace.append("in.txt", &lines(500..1000));
    workspace.once();
    assert_eq!(count(&server), ["1000|1000"]);
    server.stop();
    server.restore(&backup);
    server.resume();
    // Moved to where the source does not look for it; then another in its place.
    std::fs::rename(workspace.path("in.txt"), workspace.path("kept")).unwrap();
    for another in [None, Some(lines(1000..1100))] {
        another.map(|lines| workspace.write("in.txt", lines));
        let printed = workspace.run(&["run", "--once"]).expect_code(1).both();
        assert!(printed.contains("the source no longer has the records after that position"), "{printed}");
        assert_eq!(count(&server), ["500|500"]);
    }
    std::fs::rename(workspace.path("kept"), workspace.path("in.txt")).unwrap();
    workspace.once();
    assert_eq!(count(&server), ["1000|1000"]);
}

#[test]
fn an_empty_database_in_its_place_stops_the_pipeline() {
    let Some(server) = Server::start(&[]) else { return };
    server.query("CREATE TABLE t (id int)");
    let workspace = workspace(&server.url(), ONCE);
    workspace.write("in.txt", lines(0..500));
    server.stop();
    let empty = server.back_up();
    server.resume();
    workspace.once();
    assert_eq!(count(&server), ["500|500"]);
    server.stop();
    server.restore(&empty);
    server.resume();
    workspace.append("in.txt", &lines(500..600));
    for _ in 0..2 {
        let printed = workspace.run(&["run", "--once"]).expect_code(1).both();
        assert!(printed.contains("it had confirmed 500 records of generation 1, up to position"), "{printed}");
        assert!(printed.contains("it has none") && printed.contains("positions reset"), "{printed}");
        assert_eq!(count(&server), ["0|0"]);
    }
    workspace.run(&["positions", "reset", "rows", "--yes", "--force"]).expect_code(0);
    workspace.once();
    assert_eq!(count(&server), ["600|600"]);
    workspace.once();
    assert_eq!(count(&server), ["600|600"]);
}

#[test]
fn a_dropped_table_costs_no_record() {
    let Some(db) = Database::create() else { return };
    for (drop, make) in [
        ("DROP TABLE t", "CREATE TABLE t (id int)"),
        ("ALTER TABLE t DROP COLUMN id", "ALTER TABLE t ADD COLUMN id int"),
        ("ALTER TABLE t ALTER COLUMN id TYPE uuid USING NULL", "ALTER TABLE t ALTER COLUMN id TYPE int USING NULL"),
    ] {
        for settings in ["exactlyOnce: \"false\"", ONCE] {
            db.query("DROP TABLE IF EXISTS t, anabranch_marks, anabranch_writers; CREATE TABLE t (id int)");
            let workspace = workspace(&db.url(), settings);
            workspace.write("in.txt", lines(0..1000));
            let mut process = workspace.start(&["run"]);
            process.wait_until("the first rows", || db.query("SELECT count(id) FROM t") == ["1000"]);
            db.query(drop);
            workspace.append("in.txt", &lines(1000..1001));
            let printed = process.printed();
            process.wait_until("a word about it", || printed().contains("the pipeline retries until the table fits"));
            workspace.append("in.txt", &lines(1001..2000));
            db.query(make);
            let wanted = "SELECT count(id) || '|' || count(DISTINCT id) FROM t WHERE id >= 1000";
            process.wait_until("the rows after it", || db.query(wanted) == ["1000|1000"]);
            process.signal("TERM");
            process.finish().expect_code(0);
            assert!(!workspace.path("dlq.ndjson").exists() || workspace.lines("dlq.ndjson").is_empty(), "{drop}");
        }
    }
}
