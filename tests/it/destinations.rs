//! What destinations refuse, and what they take as dead-letter queues: found before a run, and shown by a dry run.

use crate::process::{Output, Workspace};
use crate::servers::s3::Server as ObjectStore;

const ORDER: &str = "{\"id\":1,\"kind\":\"order\"}\n";

/// A pipeline of `in.txt`, whose lines are JSON, with these processors, destination and further lines.
fn pipeline(processors: &str, destination: &str, more: &str) -> String {
    format!(
        r#"version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - {{ id: out, type: destination, {destination} }}
    processors:
      - {{ id: d, plugin: json.decode, settings: {{ field: .Payload.After }} }}
{processors}{more}"#
    )
}

fn workspace(processors: &str, destination: &str, more: &str) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", ORDER);
    workspace.write("pipelines/p.yaml", pipeline(processors, destination, more));
    workspace
}

/// An object store that nobody answers for: a trial does not ask it.
fn nowhere(more: &str) -> String {
    format!(
        "plugin: s3, settings: {{ objstore.bucket: lake, objstore.endpoint: 'http://127.0.0.1:9', \
         objstore.access_key_id: a, objstore.secret_access_key: b, {more} }}"
    )
}

fn dry_run(workspace: &Workspace) -> Output {
    workspace.run(&["pipelines", "dry-run"])
}

/// The order of the settings of a destination and what it says of the record.
#[test]
fn a_dry_run_shows_the_records_that_a_destination_refuses_whatever_it_is_connected_to() {
    let folder = |template: &str| nowhere(&format!("folder: '{template}'"));
    let mut rows = vec![
        ("", folder("{{ repeat 2 \".\" }}/{{ .Payload.After.kind }}"), "folder_invalid", "\"../order\" cannot be a part of a key"),
        ("", folder("dt={{ .Payload.After.day }}"), "folder_invalid", "there is no entry \"day\" in the map"),
        (
            "",
            "plugin: file, settings: { path: out, sdk.record.format: template, sdk.record.format.options: '{{ .Payload.After.day }}' }"
                .to_owned(),
            "format_failed",
            "there is no entry \"day\" in the map",
        ),
    ];
    if cfg!(feature = "postgres") {
        let table = |more: &str| {
            format!("plugin: postgres, settings: {{ url: 'postgresql://u@127.0.0.1:9/d', table: {more} }}")
        };
        let key = "      - { id: k, plugin: field.set, settings: { field: .Key, value: '{{ .Payload.After.id }}' } }\n";
        let other = "      - { id: k, plugin: field.set, settings: { field: .Key, value: '{\"id\": 100}' } }\n";
        let text = "      - { id: k, plugin: field.set, settings: { field: .Key, value: '{\"kind\": \"Order\"}' } }\n";
        let unique =
            "      - { id: u, plugin: field.set, settings: { field: .Payload.After.uid, value: '{{ uuidv4 }}' } }
      - { id: k, plugin: field.set, settings: { field: .Key, value: '{\"uid\": \"{{ uuidv4 }}\"}' } }\n";
        let keyless = "      - { id: k, plugin: field.exclude, settings: { fields: .Key } }\n";
        let delete = "      - { id: o, plugin: field.set, settings: { field: .Operation, value: '{{ if .Payload }}delete{{ end }}' } }\n";
        rows.extend([
            (key, table("t"), "key_raw", "the key is raw data"),
            (other, table("t"), "key_differs", "one value in the key and another in .Payload.After"),
            (
                text,
                table("t, createTables: 'true'"),
                "key_differs",
                "one value in the key and another in .Payload.After",
            ),
            (unique, table("t"), "key_differs", "the column \"uid\" of \"t\" has one value in the key"),
            (keyless, table("'{{ .Payload.After.nope }}'"), "table_unknown", "there is no entry \"nope\" in the map"),
            (
                keyless,
                table("'{{ .Payload.After.kind }}.{{ .Payload.After.kind }}.c'"),
                "table_name",
                "more than two parts",
            ),
        ]);
        let both = format!("{keyless}{delete}");
        let workspace = workspace(&both, &table("t"), "");
        let text = dry_run(&workspace).expect_code(1).both();
        assert!(text.contains("key_missing"), "{text}");
    }
    for (processors, destination, code, why) in &rows {
        let workspace = workspace(processors, destination, "");
        let output = dry_run(&workspace).expect_code(1);
        let text = output.both();
        assert!(text.contains(code) && text.contains(why) && text.contains("1 failed"), "{destination}: {text}");
        assert!(!text.contains("would be written"), "{text}");
    }
    let good = workspace("", &folder("dt={{ .Payload.After.kind }}"), "");
    let text = dry_run(&good).expect_code(0).both();
    assert!(text.contains("would be written") && text.contains("1 delivered, 0 dropped, 0 failed"), "{text}");
}

/// The output of `validate` for a pipeline, and whether the pipeline runs.
fn validate(workspace: &Workspace) -> (String, Option<i32>) {
    let output = workspace.run(&["pipelines", "validate"]);
    (output.both(), output.code())
}

fn objects(id: &str, kind: &str, more: &str) -> String {
    format!(
        "      - {{ id: {id}, type: {kind}, plugin: s3, settings: {{ objstore.bucket: lake, objstore.access_key_id: a, \
         objstore.secret_access_key: b, {more} }} }}\n"
    )
}

fn between(id: &str, source: &str, destination: &str) -> String {
    let (source, destination) = (objects("in", "source", source), objects("out", "destination", destination));
    format!("  - id: {id}\n    connectors:\n{source}{destination}")
}

fn told_of(pipelines: &[String]) -> (String, Option<i32>) {
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{}", pipelines.concat()));
    validate(&workspace)
}

#[test]
fn a_bucket_that_feeds_itself_is_refused() {
    let at = "objstore.endpoint: 'http://localhost:9000/'";
    let same = "objstore.endpoint: 'http://127.0.0.1:9000'";
    for (source, destination) in [
        ("prefix: feed/", "prefix: feed/out/"),
        ("prefix: feed/", "prefix: feed/, folder: 'x={{ .Operation }}'"),
        ("prefix: feed/out", "prefix: feed/, folder: 'out/{{ .Operation }}'"),
        ("pollingPeriod: 1s", "prefix: out/"),
        ("objstore.endpoint: 'https://s3.eu-west-1.amazonaws.com', objstore.region: x", "prefix: out/"),
        (&*format!("{at}, prefix: a/"), &*format!("{same}, prefix: a/b/")),
    ] {
        let (text, code) = told_of(&[between("p", source, destination)]);
        assert_eq!(code, Some(2), "{source} {destination}: {text}");
        assert!(text.contains("plan.feedback") && text.contains("writes objects that"), "{text}");
    }
    for (source, destination) in [
        ("prefix: feed/", "prefix: out/"),
        ("prefix: feed/in/", "prefix: feed/"),
        ("prefix: feed/", "prefix: feed/, objstore.endpoint: 'http://127.0.0.1:9000'"),
        ("prefix: feed/", "prefix: feed, folder: '{{ .Operation }}'"),
    ] {
        let (text, code) = told_of(&[between("p", source, destination)]);
        assert_eq!(code, Some(0), "{source} {destination}: {text}");
        assert!(!text.contains("plan.feedback"), "{text}");
    }
    // As a queue, and in a circle of two.
    let letters = between("p", "prefix: feed/", "prefix: out/");
    let queue = "    dead-letter-queue: { plugin: s3, window-size: 0, settings: { objstore.bucket: lake, prefix: feed/dead/ } }\n";
    let (text, code) = told_of(&[format!("{letters}{queue}")]);
    assert!(code == Some(2) && text.contains("plan.feedback"), "{text}");
    let circle = [between("p", "prefix: a/", "prefix: b/"), between("q", "prefix: b/", "prefix: a/")];
    let (text, code) = told_of(&circle);
    assert!(code == Some(2) && text.contains("p → q → p") && text.contains("another prefix"), "{text}");
    let (text, code) = told_of(&[between("p", "prefix: a/", "prefix: b/"), between("q", "prefix: b/", "prefix: c/")]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn settings_that_cannot_be_meant_are_told() {
    for (bucket, why) in [("'s3://lake'", "the address of a bucket"), ("lake/orders", "contains a slash")] {
        let destination = nowhere("prefix: x").replace("lake", bucket);
        let (text, code) = validate(&workspace("", &destination, ""));
        assert!(code == Some(2) && text.contains(why), "{text}");
    }
    let file = "plugin: file, settings: { path: out }";
    let queue = "    dead-letter-queue: { plugin: store, window-size: 0, window-nack-threshold: 3 }\n";
    let (text, code) = validate(&workspace("", file, queue));
    assert!(code == Some(0) && text.contains("config.no_effect") && text.contains("not 3"), "{text}");
    let queue = queue.replace("window-size: 0", "window-size: 10");
    let (text, _) = validate(&workspace("", file, &queue));
    assert!(!text.contains("config.no_effect"), "{text}");
    let workers = "      - { id: w, plugin: json.encode, workers: 0, settings: { field: .Payload.After } }\n";
    let (text, code) = validate(&workspace(workers, file, ""));
    assert!(code == Some(0) && text.contains("counts as 1"), "{text}");
}

#[cfg(feature = "postgres")]
#[test]
fn keys_that_no_row_can_have_are_told_before_a_run() {
    let table = "plugin: postgres, settings: { url: 'postgresql://u@h/d', table: t }";
    let set = |value: &str| {
        format!("      - {{ id: k, plugin: field.set, settings: {{ field: .Key, value: '{value}' }} }}\n")
    };
    let keyless = "      - { id: k, plugin: field.exclude, settings: { fields: .Key } }\n";
    let delete = "      - { id: o, plugin: field.set, settings: { field: .Operation, value: delete } }\n";
    for (processors, code) in [(set("id"), "flow.key_raw"), (format!("{keyless}{delete}"), "flow.key_missing")] {
        let (text, exit) = validate(&workspace(&processors, table, ""));
        assert!(exit == Some(2) && text.contains(code), "{text}");
    }
    for processors in [set(r#"{"id": {{ .Payload.After.id }}}"#), set("{}"), keyless.to_owned()] {
        let (text, exit) = validate(&workspace(&processors, table, ""));
        assert_eq!(exit, Some(0), "{processors}: {text}");
        assert!(!text.contains("warning["), "{text}");
    }
    let (text, exit) = validate(&workspace(&set(r#"{"id": 1}"#), table, ""));
    assert!(exit == Some(0) && text.contains("flow.key_constant"), "{text}");
    let (text, exit) = validate(&workspace(keyless, &table.replace("/d'", "'"), ""));
    assert!(exit == Some(0) && text.contains("settings.no_database"), "{text}");
}

/// Each destination that is no queue of its own kind keeps the letter of a record that fails.
#[test]
fn every_destination_can_be_a_queue_or_says_that_it_cannot() {
    const FAIL: &str = "      - { id: fail, plugin: error, settings: { message: no } }\n";
    let file = "plugin: file, settings: { path: out }";
    let run = |queue: &str| {
        let more = format!("    dead-letter-queue: {{ window-size: 0, {queue} }}\n");
        let workspace = workspace(FAIL, file, &more);
        let output = workspace.run(&["run", "--once", "--log.level", "debug"]);
        (workspace, output)
    };
    let (letters, output) = run("plugin: file, settings: { path: letters }");
    output.expect_code(0);
    assert_eq!(letters.lines("letters").len(), 1);
    let (_, output) = run("plugin: log");
    assert!(output.expect_code(0).both().contains("1 dead-lettered"));
    let (_, output) = run("plugin: drop");
    assert!(output.expect_code(0).both().contains("1 dead-lettered"));
    let (_, output) = run("plugin: store");
    assert!(output.expect_code(0).both().contains("1 dead-lettered"));

    let server = ObjectStore::start();
    let (endpoint, bucket) = (server.endpoint(), crate::servers::s3::BUCKET);
    let (_, output) = run(&format!(
        "plugin: s3, settings: {{ objstore.bucket: {bucket}, objstore.endpoint: '{endpoint}', objstore.access_key_id: a, \
         objstore.secret_access_key: b, prefix: letters/ }}"
    ));
    output.expect_code(0);
    let objects = server.objects();
    let (key, body) = objects.first_key_value().unwrap();
    assert!(key.starts_with("letters/") && String::from_utf8_lossy(body).contains("svc.dlq.nack.error"), "{key}");

    // A sources' plugin is no destination.
    let (_, output) = run("plugin: generator");
    assert_ne!(output.code(), Some(0));
}

/// A table that is made for letters: columns that can be asked for, and one row for each letter however often it comes.
#[cfg(feature = "postgres")]
#[test]
fn a_table_can_be_the_queue() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    const FAIL: &str = "      - { id: fail, plugin: error, settings: { message: no } }\n";
    let queue = |more: &str| {
        let url = database.url();
        format!("    dead-letter-queue: {{ plugin: postgres, window-size: 0, settings: {{ url: '{url}', {more} }} }}\n")
    };
    let file = "plugin: file, settings: { path: out }";
    let made = workspace(FAIL, file, &queue("table: letters, createTables: true"));
    made.write("in.txt", "{\"id\":1,\"kind\":\"or\\u0000der\"}\n{\"id\":2}\n");
    made.run(&["run", "--once"]).expect_code(0);
    let rows = database.query("SELECT node, code, error, source, pipeline FROM letters ORDER BY name");
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows.iter().all(|row| row.starts_with("fail|") && row.ends_with("|no|in|p")), "{rows:?}");
    // A text with the character 0 is there as it was; of the other record a field can be asked for.
    let again =
        "SELECT count(*), bool_or(record LIKE '%or\\\\u0000der%'), bool_and(failed_at IS NOT NULL) FROM letters";
    assert_eq!(database.query(again), ["2|t|t"]);
    let field = "SELECT record::json->'payload'->'after'->>'id' FROM letters WHERE record NOT LIKE '%u0000%'";
    assert_eq!(database.query(field), ["2"]);
    // The source is read again from its beginning: each letter replaces itself.
    std::fs::remove_file(made.path("anabranch.db")).unwrap();
    made.run(&["run", "--once"]).expect_code(0);
    assert_eq!(database.query(again), ["2|t|t"]);

    // Without a table of its own, or with positions that letters have not, it says so before a run.
    let (text, code) = validate(&workspace(FAIL, file, &queue("createTables: true")));
    assert!(code == Some(2) && text.contains("recfmt.collection"), "{text}");
    let (text, code) = validate(&workspace(FAIL, file, &queue("table: letters, exactlyOnce: true")));
    assert!(code == Some(2) && text.contains("plan.queue_transactional"), "{text}");
    let (text, code) = validate(&workspace(FAIL, file, &queue("table: letters")));
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("flow."), "{text}");
}
