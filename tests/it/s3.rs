//! From and to buckets, by the real binary.

mod moto;

use std::time::Duration;

use crate::process::{Workspace, numbered_lines, raw_after};
use crate::servers::s3::{BUCKET, Fault, Server};

const RUN: &[&str] = &["run", "--preview.pipeline-arch-v2"];

/// Sets the variables that [`bucket_settings`] names.
pub fn reaches_bucket(workspace: &mut Workspace, endpoint: &str, access_key: &str) {
    workspace.env("OBJECT_STORE", endpoint);
    workspace.env("ACCESS_KEY_ID", access_key);
    workspace.env("SECRET_ACCESS_KEY", "of-the-test");
}

/// Settings of a connector, indented by ten, with which it reaches a bucket.
pub fn bucket_settings(bucket: &str) -> String {
    format!(
        "          objstore.access_key_id: ${{ACCESS_KEY_ID}}
          objstore.secret_access_key: ${{SECRET_ACCESS_KEY}}
          objstore.region: eu-central-1
          objstore.bucket: {bucket}
          objstore.endpoint: ${{OBJECT_STORE}}"
    )
}

/// A pipeline between a bucket and a file. The keys come from the environment, as the specification has it.
fn workspace(endpoint: &str, pipeline: &str) -> Workspace {
    let mut workspace = Workspace::new();
    reaches_bucket(&mut workspace, endpoint, "AKIAEXAMPLE");
    workspace.write("pipelines/s3.yaml", pipeline);
    workspace
}

fn bucket_to_file(bucket: &str, more: &str) -> String {
    let connection = bucket_settings(bucket);
    format!(
        r#"version: "2.2"
pipelines:
  - id: read
    status: running
    connectors:
      - id: in
        type: source
        plugin: s3
        settings:
{connection}
          pollingPeriod: 50ms
{more}
      - id: out
        type: destination
        plugin: file
        settings: {{ path: out.ndjson }}
"#
    )
}

/// `operation key=payload` of each line.
fn changes(workspace: &Workspace) -> Vec<String> {
    let shown = |line: &String| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |data: &serde_json::Value| match data.as_str() {
            Some(_) => raw_after(&format!("{{\"payload\":{{\"after\":{data}}}}}")),
            None => "-".to_owned(),
        };
        let operation = record["operation"].as_str().unwrap();
        format!("{operation} {}={}", text(&record["key"]), text(&record["payload"]["after"]))
    };
    workspace.lines("out.ndjson").iter().map(shown).collect()
}

#[test]
fn a_bucket_is_read_once_and_then_what_is_new() {
    let server = Server::start();
    let before = server.now() - 100;
    for n in 0..3 {
        server.put_with(&format!("doc {n}"), format!("text {n}"), &[("x-amz-meta-title", "T")], Some(before));
    }
    let workspace = workspace(&server.endpoint(), &bucket_to_file(BUCKET, ""));
    workspace.once();
    workspace.once();
    assert_eq!(changes(&workspace), ["snapshot doc 0=text 0", "snapshot doc 1=text 1", "snapshot doc 2=text 2"]);
    assert!(workspace.read("out.ndjson").contains(r#""title":"T""#));
    server.put("doc 1", "changed");
    server.put("doc 3", "new");
    let output = workspace.once();
    assert_eq!(changes(&workspace)[3..], ["create doc 1=changed", "create doc 3=new"]);
    assert!(!output.both().contains("of-the-test"));
}

#[test]
fn prefixes_are_read_side_by_side_and_have_positions_of_their_own() {
    let server = Server::start();
    let before = server.now() - 100;
    for key in ["in/1/a", "in/2/a", "out/a"] {
        server.put_with(key, "x", &[], Some(before));
    }
    let workspace = workspace(&server.endpoint(), &bucket_to_file(BUCKET, "          prefixes: in/1/, in/2/"));
    let sorted = || {
        let mut changes = changes(&workspace);
        changes.sort();
        changes
    };
    workspace.once();
    workspace.once();
    assert_eq!(sorted(), ["snapshot in/1/a=x", "snapshot in/2/a=x"]);
    let positions = workspace.run(&["positions", "show", "read"]).expect_code(0).both();
    assert!(positions.contains("in/1") && positions.contains("in/2"), "{positions}");
    // A prefix is removed, another one is added.
    workspace.write("pipelines/s3.yaml", bucket_to_file(BUCKET, "          prefixes: out/, in/2/"));
    server.put("in/1/b", "y");
    server.put("in/2/b", "y");
    workspace.once();
    let all = ["create in/2/b=y", "snapshot in/1/a=x", "snapshot in/2/a=x", "snapshot out/a=x"];
    assert_eq!(sorted(), all);
    // The removed one comes back, and continues after its position.
    workspace.write("pipelines/s3.yaml", bucket_to_file(BUCKET, "          prefixes: out/, in/2/, in/1/"));
    workspace.once();
    assert_eq!(sorted(), [&["create in/1/b=y"], &all[..]].concat());
    // Another setting begins at the beginning, and the log says so.
    workspace.write("pipelines/s3.yaml", bucket_to_file(BUCKET, "          prefix: out/"));
    let log = workspace.once().both();
    assert_eq!(sorted().iter().filter(|line| *line == "snapshot out/a=x").count(), 2);
    assert!(log.contains("each prefix without a position is read from the beginning"), "{log}");
}

#[test]
fn prefixes_that_overlap_are_refused_at_their_place() {
    let workspace = workspace("http://127.0.0.1:1", &bucket_to_file(BUCKET, "          prefixes: in/a, out/, in/ab/"));
    let refused = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    // The line and the column of the longer one.
    let line = 1 + workspace.read("pipelines/s3.yaml").lines().position(|line| line.contains("prefixes:")).unwrap();
    assert!(refused.contains(&format!("pipelines/s3.yaml:{line}:33")), "{refused}");
    assert!(refused.contains(r#"the prefix "in/ab/" begins with "in/a""#), "{refused}");
}

#[test]
fn nothing_is_lost_or_doubled_when_the_server_is_away() {
    let server = Server::start();
    for n in 0..30 {
        server.put(&format!("k{n:02}"), format!("{n}"));
    }
    let workspace = workspace(&server.endpoint(), &bucket_to_file(BUCKET, ""));
    let mut process = workspace.start(RUN);
    process.wait_until("the snapshot", || workspace.lines("out.ndjson").len() == 30);
    server.fail(|_| Some(Fault::Close));
    for n in 30..60 {
        server.put(&format!("k{n:02}"), format!("{n}"));
    }
    server.delete("k05");
    // As long as it takes to see several tries fail.
    let tries = server.requests().len();
    process.wait_until("failing requests", || server.requests().len() >= tries + 4);
    server.heal();
    process.wait_until("the changes", || workspace.lines("out.ndjson").len() == 61);
    process.signal("TERM");
    process.finish().expect_code(0);
    let mut expected: Vec<String> = (0..30).map(|n| format!("snapshot k{n:02}={n}")).collect();
    expected.push("delete k05=-".to_owned());
    expected.extend((30..60).map(|n| format!("create k{n:02}={n}")));
    assert_eq!(changes(&workspace), expected);
}

#[test]
fn a_killed_service_goes_on_where_it_was() {
    const OBJECTS: usize = 3_000;
    let server = Server::start();
    let before = server.now() - 100;
    for n in 0..OBJECTS {
        server.put_with(&format!("{n:05}"), format!("{n}"), &[], Some(before));
    }
    server.set_page(100);
    let workspace = workspace(&server.endpoint(), &bucket_to_file(BUCKET, ""));
    for kill in 1..=5 {
        let mut process = workspace.start(RUN);
        process.wait_until("some objects", || workspace.lines("out.ndjson").len() > kill * OBJECTS / 8);
        process.signal("KILL");
        drop(process);
    }
    workspace.once();
    // Lines that were cut by a kill are taken back when the file is opened again.
    let mut found: Vec<String> = changes(&workspace);
    let replayed = found.len() - OBJECTS;
    found.sort();
    found.dedup();
    assert_eq!(found, (0..OBJECTS).map(|n| format!("snapshot {n:05}={n}")).collect::<Vec<_>>());
    assert!(replayed < OBJECTS, "{replayed}");
}

#[test]
fn lines_become_objects_and_a_refusal_names_the_place() {
    let server = Server::start();
    let pipeline = |format: &str| {
        format!(
            r#"version: "2.2"
pipelines:
  - id: write
    status: running
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - id: out
        type: destination
        plugin: s3
        settings:
          aws.accessKeyId: ${{ACCESS_KEY_ID}}
          aws.secretAccessKey: ${{SECRET_ACCESS_KEY}}
          aws.region: eu-central-1
          aws.bucket: {BUCKET}
          objstore.endpoint: ${{OBJECT_STORE}}
          prefix: lines/
          format: {format}
          sdk.batch.size: "300"
          sdk.batch.delay: 10m
"#
        )
    };
    let workspace = workspace(&server.endpoint(), &pipeline("json"));
    workspace.write("in.txt", numbered_lines(1000));
    workspace.once();
    let objects = server.objects();
    assert!((4..=12).contains(&objects.len()), "{}", objects.len());
    let mut lines = Vec::new();
    for (key, body) in &objects {
        assert!(key.starts_with("lines/") && key.ends_with(".ndjson"), "{key}");
        lines.extend(String::from_utf8(body.clone()).unwrap().lines().map(raw_after));
    }
    lines.sort_by_key(|line| line[5..].parse::<usize>().unwrap());
    assert_eq!(lines, (0..1000).map(|n| format!("line {n}")).collect::<Vec<_>>());

    workspace.write("pipelines/s3.yaml", pipeline("orc"));
    let refused = workspace.run(&["pipelines", "validate"]);
    assert_ne!(refused.code(), Some(0));
    assert!(refused.both().contains("\"orc\" is not one of json, parquet"), "{}", refused.both());
}

#[test]
fn a_slow_server_is_waited_for() {
    let server = Server::start();
    for n in 0..20 {
        server.put(&format!("k{n:02}"), format!("{n}"));
    }
    server.fail(|request| request.is_get().then_some(Fault::Slow(Duration::from_millis(50))));
    let workspace = workspace(&server.endpoint(), &bucket_to_file(BUCKET, "          fetch.concurrency: \"8\""));
    workspace.once();
    assert_eq!(changes(&workspace).len(), 20);
}

#[test]
fn an_object_dated_ahead_of_the_server_is_named_and_the_run_has_not_read_everything() {
    let server = Server::start();
    server.put("a", "1");
    server.put_with("late", "2", &[], Some(server.now() + 7200));
    let workspace = workspace(&server.endpoint(), &bucket_to_file(BUCKET, ""));
    let output = workspace.run(&["run", "--once", "--preview.pipeline-arch-v2"]).expect_code(7);
    let text = output.both();
    for words in ["not all records were read", "read:in: 1 object is dated ahead", r#""late""#] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(changes(&workspace), ["snapshot a=1"]);

    let mut process = workspace.start(RUN);
    let address = process.address();
    let served = address.to_string();
    let doctor = ["doctor", "--check", "pipelines.ahead", "--api.http.address", &served];
    process.wait_until("doctor to say it", || {
        workspace.run(&doctor).both().contains("read holds back 1 object that is dated ahead")
    });
    let metrics = crate::api::get(address, "/metrics").body;
    let metric = r#"anabranch_source_backlog_objects{pipeline="read",connector="in"} 1"#;
    assert!(metrics.contains(metric), "{metrics}");
    process.signal("TERM");
    let log = process.finish().expect_code(0).both();
    assert!(log.contains("dated ahead"), "{log}");
    server.set_clock(server.now() + 7300);
    workspace.once();
    assert_eq!(changes(&workspace), ["snapshot a=1", "create late=2"]);
}

#[test]
fn a_server_that_never_answers_is_named_while_the_pipeline_starts() {
    let server = Server::start();
    server.put("a", "1");
    server.fail(|_| Some(Fault::Silent));
    let workspace = workspace(&server.endpoint(), &bucket_to_file(BUCKET, ""));
    let mut process = workspace.start(RUN);
    let (address, printed) = (process.address(), process.printed());
    // The address comes from the environment and is masked.
    process.wait_until("the log to say it", || printed().contains("to report whether bucket documents keeps versions"));
    process.wait_until("the state to say it", || {
        crate::api::get(address, "/v1/pipelines/read").body.contains("did not report whether bucket")
    });
    server.heal();
    process.wait_until("the object", || workspace.lines("out.ndjson").len() == 1);
    process.signal("TERM");
    process.finish().expect_code(0);
}

/// The position does not move past an object of which only other answers come: when the server is well again, the object
/// is read.
#[test]
fn an_object_is_read_when_its_answers_are_its_own_again() {
    let server = Server::start();
    for key in ["a", "b", "c"] {
        server.put_with(key, key.repeat(100), &[], Some(server.now() - 100));
    }
    let etag = server.etag("b");
    server.fail(move |request| {
        let piece = || Fault::Instead(200, vec![("ETag", etag.clone())], b"bbb".to_vec());
        (request.is_get() && request.key == "b").then(piece)
    });
    let workspace = workspace(&server.endpoint(), &bucket_to_file(BUCKET, ""));
    let mut process = workspace.start(RUN);
    let printed = process.printed();
    process.wait_until("the log to say it", || printed().contains("3 bytes and lists the object with 100"));
    process.signal("KILL");
    drop(process);
    server.heal();
    workspace.once();
    let all = ["a", "b", "c"].map(|key| format!("snapshot {key}={}", key.repeat(100)));
    let mut found = changes(&workspace);
    // The kill may have come before the position of the first one was stored.
    found.dedup();
    assert_eq!(found, all);
}
