//! The `postgres` destination in the service, on a real server.

use std::fmt::Write;

use crate::process::Workspace;
use crate::servers::certificates::Certificates;
use crate::servers::postgres::{Database, Server};

/// Lines of JSON from `in.txt` to PostgreSQL; `settings` of the destination, and YAML that follows the processors.
fn pipeline(settings: &str, rest: &str) -> String {
    format!(
        r#"
version: "2.2"
pipelines:
  - id: rows
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - {{ id: out, type: destination, plugin: postgres, settings: {{ url: "${{DATABASE}}", {settings} }} }}
    processors:
      - {{ id: decode, plugin: json.decode, settings: {{ field: .Payload.After }} }}
      - {{ id: key, plugin: field.set, settings: {{ field: .Key, value: '{{"id": {{{{ .Payload.After.id }}}}}}' }} }}
{rest}"#
    )
}

fn lines(n: usize) -> String {
    (0..n).fold(String::new(), |mut text, i| {
        writeln!(text, r#"{{"id":{i},"name":"n{i}","tags":["a","b"],"score":{i}.5}}"#).unwrap();
        text
    })
}

#[test]
fn records_become_rows_and_refused_ones_letters() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, name text, tags text[], score float8 CHECK (score <> 700.5))");
    let mut workspace = Workspace::new();
    workspace.env("DATABASE", &db.url());
    workspace.write("in.txt", lines(1000) + "{\"id\":5,\"name\":\"again\"}\n{\"id\":6,\"nmae\":\"x\"}\n");
    let queue = "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }";
    workspace.write("pipelines/p.yaml", pipeline("table: t", queue));
    workspace.once();
    assert_eq!(db.query("SELECT count(*), count(*) FILTER (WHERE tags = '{a,b}') FROM t"), ["999|999"]);
    assert_eq!(db.query("SELECT name, score FROM t WHERE id IN (5, 699) ORDER BY id"), ["again|5.5", "n699|699.5"]);
    let mut reasons: Vec<String> = workspace
        .lines("dlq.ndjson")
        .iter()
        .map(|line| {
            let letter: serde_json::Value = serde_json::from_str(line).unwrap();
            letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap().to_owned()
        })
        .collect();
    reasons.sort();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("SQLSTATE 23514") && reason.contains("t_score_check")));
    assert!(reasons.iter().any(|reason| reason.contains("did you mean \"name\"?")), "{reasons:?}");
}

#[test]
fn raw_payloads_are_refused_before_the_start() {
    let workspace = Workspace::new();
    let text = pipeline("table: t", "").replace("${DATABASE}", "postgresql://u@127.0.0.1:1/d");
    let raw: Vec<&str> = text.lines().filter(|line| !line.contains("json.decode")).collect();
    workspace.write("in.txt", "");
    workspace.write("pipelines/p.yaml", raw.join("\n").replace("{{ .Payload.After.id }}", "1"));
    let output = workspace.run(&["pipelines", "validate"]).expect_code(2);
    assert!(output.both().contains("every record fails here: .Payload.After is raw data"), "{}", output.both());
}

#[test]
fn a_kill_loses_nothing() {
    const ROWS: usize = 30_000;
    let Some(db) = Database::create() else { return };
    let mut workspace = Workspace::new();
    workspace.env("DATABASE", &db.url());
    workspace.write("in.txt", lines(ROWS));
    workspace.write("pipelines/p.yaml", pipeline("table: t, createTables: true", ""));
    db.query("CREATE TABLE t (id int PRIMARY KEY, name text, tags text[], score float8)");
    for kill in 1..=3usize {
        let mut process = workspace.start(&["run"]);
        let enough = |rows: &[String]| rows[0].parse::<usize>().unwrap() >= kill * ROWS / 5;
        process.wait_until("rows", || enough(&db.query("SELECT count(*) FROM t")));
        drop(process);
    }
    workspace.once();
    assert_eq!(db.query("SELECT count(*), max(id) FROM t"), [format!("{ROWS}|{}", ROWS - 1)]);
}

/// A table without a key shows every row twice that came twice.
#[test]
fn letters_of_a_transactional_destination_become_a_row_each() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int, name text, tags text[], score float8)");
    let mut workspace = Workspace::new();
    workspace.env("DATABASE", &db.url());
    workspace.write("in.txt", lines(100));
    let text = |failing: &str| {
        let fails = format!(
            r#"      - id: fail
        plugin: error
        condition: '{{{{ hasSuffix "{failing}" .Payload.After.name }}}}'
        settings: {{ message: not now }}
    dead-letter-queue: {{ plugin: store, window-size: 0 }}
"#
        );
        let text = pipeline("table: t, exactlyOnce: \"true\"", &fails);
        let key = text.lines().find(|line| line.contains("id: key")).unwrap();
        text.replace(key, "      - { id: bare, plugin: field.exclude, settings: { fields: .Key } }")
    };
    let rows = || db.query("SELECT count(*), count(DISTINCT id) FROM t");
    workspace.write("pipelines/p.yaml", text("7"));
    workspace.once();
    assert_eq!(rows(), ["90|90"]);
    // Nothing came of it: no row, and no position.
    let marks = db.query("SELECT * FROM anabranch_marks");
    workspace.run(&["dlq", "replay", "rows", "--all"]).expect_code(1);
    assert_eq!(rows(), ["90|90"]);
    workspace.write("pipelines/p.yaml", text("nothing"));
    workspace.run(&["dlq", "replay", "rows", "1", "2", "3"]).expect_code(0);
    assert_eq!(rows(), ["93|93"]);
    // A running service drains the pipeline, replays, and goes on.
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("readiness", || crate::api::get(address, "/readyz").status == 200);
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", &address.to_string());
    workspace.run(&["dlq", "replay", "rows", "--all"]).expect_code(0);
    assert_eq!(rows(), ["100|100"]);
    assert_eq!(db.query("SELECT * FROM anabranch_marks"), marks, "a replay is none of the source's");
    workspace.append("in.txt", &lines(110).lines().skip(100).map(|line| format!("{line}\n")).collect::<String>());
    process.wait_until("what was read next", || rows() == ["110|110"]);
    process.signal("TERM");
    process.finish().expect_code(0);
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", "127.0.0.1:0");
    workspace.once();
    assert_eq!(rows(), ["110|110"]);
}

/// The destination and the state store log in with a certificate alone.
#[test]
fn a_certificate_opens_the_door_of_destination_and_store() {
    let Some(server) = Server::start(&[]) else { return };
    let mut workspace = Workspace::new();
    let Some(certificates) = Certificates::create(workspace.root()) else { return };
    certificates.sign("server", "database", "DNS:localhost");
    certificates.sign("writer", "writer", "");
    certificates.sign("other", "somebody else", "");
    server.certify(&certificates.certificate("server"), &certificates.key("server"), &certificates.certificate("ca"));
    server.query("CREATE ROLE writer LOGIN");
    server.query("CREATE SCHEMA writer AUTHORIZATION writer");
    let url = format!("postgresql://writer@localhost:{}/postgres?sslmode=verify-full", server.port());
    let with = |name: &str| {
        let (root, certificate, key) =
            (certificates.certificate("ca"), certificates.certificate(name), certificates.key(name));
        format!("{url}&sslrootcert={root}&sslcert={certificate}&sslkey={key}")
    };
    workspace.write("in.txt", lines(100));
    workspace.write("pipelines/p.yaml", pipeline("table: t, createTables: true", ""));
    workspace.env("DATABASE", &with("writer"));
    workspace.env("ANABRANCH_DB_TYPE", "postgres");
    workspace.env("ANABRANCH_DB_POSTGRES_CONNECTION_STRING", &with("writer"));
    workspace.once();
    assert_eq!(server.query("SELECT count(*) FROM writer.t"), ["100"]);
    assert_ne!(server.query("SELECT count(*) FROM writer.anabranch_kv_store"), ["0"]);

    // Nobody else's, and not without.
    let without = format!("{url}&sslrootcert={}", certificates.certificate("ca"));
    for refused in [with("other"), without.clone()] {
        workspace.env("ANABRANCH_DB_POSTGRES_CONNECTION_STRING", &refused);
        let printed = workspace.run(&["run", "--once"]).expect_code(3).both();
        assert!(printed.contains("cannot be opened"), "{printed}");
    }
    workspace.env("ANABRANCH_DB_TYPE", "inmemory");
    workspace.env("DATABASE", &without);
    workspace.run(&["run", "--once", "--pipelines.error-recovery.max-retries=0"]).expect_code(1);
    workspace.env("DATABASE", &with("writer").replace("writer.key", "other.key"));
    let printed = workspace.run(&["run", "--once"]).expect_code(1).both();
    assert!(printed.contains("other.key") && printed.contains("writer.crt"), "{printed}");
    // Half of what is needed.
    workspace.env("DATABASE", &format!("{url}&sslcert=writer.crt"));
    let printed = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    assert!(printed.contains("sslcert needs sslkey"), "{printed}");
}
