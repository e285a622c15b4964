//! `webhook.http` in pipelines: the services of the reference pipeline, stop, refusal, secrets.

use std::collections::HashSet;
use std::sync::Mutex;

use anabranch_ops_http::testing::{Received, Reply, Server};
use serde_json::{Value, json};

use crate::process::{Workspace, file_to_file, numbered_lines, raw_after};

/// The first five steps of the reference pipeline.
const DOCUMENTS: &str = r#"
      - { id: text, plugin: base64.encode, settings: { field: .Payload.After } }
      - id: partition
        plugin: webhook.http
        settings:
          request.url: http://${UNSTRUCTURED_ADDRESS}/unstructured/partition
          request.method: POST
          headers.content-type: application/json
          request.body: '{ "data": {{ toJson (printf "%s" .Payload.After) }} }'
          response.body: .Payload.After
      - { id: chunks, plugin: json.decode, settings: { field: .Payload.After } }
      - id: embed
        plugin: webhook.http
        settings:
          request.url: http://${OLLAMA_ADDRESS}/api/embed
          request.method: POST
          request.body: '{ "input": {{ toJson .Payload.After.chunks }}, "model": "tiny" }'
          response.body: .Payload.After.embeddings
          backoffRetry.count: "3"
          backoffRetry.min: 1ms
      - { id: vectors, plugin: json.decode, settings: { field: .Payload.After.embeddings } }
"#;

/// Words of a document, as its chunks.
fn partition(request: &Received) -> Reply {
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/unstructured/partition"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body.as_object().unwrap().len(), 1);
    let line = json!({ "payload": { "after": body["data"] } }).to_string();
    let chunks: Vec<String> = raw_after(&line).split(' ').map(str::to_owned).collect();
    Reply::ok(json!({ "chunks": chunks }).to_string())
}

/// The length of each text, as its vector. Of every document it has too much to do at first.
fn embed(seen: &Mutex<HashSet<Vec<u8>>>, request: &Received) -> Reply {
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/api/embed"));
    if seen.lock().unwrap().insert(request.body.clone()) {
        return Reply::status(503, "busy");
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["model"], "tiny");
    let vectors: Vec<Value> =
        body["input"].as_array().unwrap().iter().map(|text| json!([text.as_str().unwrap().len(), 0.5])).collect();
    Reply::ok(json!({ "embeddings": vectors }).to_string())
}

#[test]
fn documents_get_chunks_and_vectors() {
    let seen = Mutex::default();
    let (partitioning, embedding) = (Server::start(partition), Server::start(move |request| embed(&seen, request)));
    let mut workspace = Workspace::new();
    workspace.env("UNSTRUCTURED_ADDRESS", &partitioning.address().to_string());
    workspace.env("OLLAMA_ADDRESS", &embedding.address().to_string());
    workspace.write("in.txt", numbered_lines(300));
    workspace.write("pipelines/p.yaml", file_to_file("documents", DOCUMENTS));
    workspace.once();
    let out = workspace.lines("out.ndjson");
    assert_eq!(out.len(), 300);
    for (i, line) in out.iter().enumerate() {
        let record: Value = serde_json::from_str(line).unwrap();
        let number = i.to_string();
        assert_eq!(
            record["payload"]["after"],
            json!({
                "chunks": ["line", number],
                "embeddings": { "embeddings": [[4, 0.5], [number.len(), 0.5]] }
            })
        );
    }
    assert_eq!(partitioning.received().len(), 300);
}

/// Posts every line.
fn posting(url: &str, more: &str) -> String {
    file_to_file(
        "post",
        &format!(
            r#"      - id: hook
        plugin: webhook.http
        settings:
          request.url: {url}
          request.method: POST
          request.body: '{{{{ printf "%s" .Payload.After }}}}'
{more}"#
        ),
    )
}

#[test]
fn a_stop_aborts_what_has_no_answer_and_the_next_start_asks_again() {
    let silent = Server::start(|request| match request.number {
        ..20 => Reply::ok(request.body.clone()),
        _ => Reply::Hang,
    });
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_SHUTDOWN_TIMEOUT", "500ms");
    workspace.write("in.txt", numbered_lines(100));
    workspace.write("pipelines/p.yaml", posting(&silent.url(), ""));
    let mut process = workspace.start(&["run"]);
    process.wait_until("requests without answer", || silent.received().len() > 30);
    process.signal("TERM");
    process.finish().expect_code(3);
    drop(silent);

    let server = Server::start(|request| Reply::ok(request.body.clone()));
    workspace.write("pipelines/p.yaml", posting(&server.url(), ""));
    workspace.once();
    // Records delivered and not stored before the stop ended are delivered again.
    let mut lines: Vec<String> = workspace.lines("out.ndjson").iter().map(|line| raw_after(line)).collect();
    lines.sort_by_key(|line| line[5..].parse::<usize>().unwrap());
    lines.dedup();
    assert_eq!(lines, (0..100).map(|i| format!("line {i}")).collect::<Vec<_>>());
}

#[test]
fn a_refused_record_becomes_a_letter_without_secrets() {
    let server = Server::start(|request| match request.text().as_str() {
        "line 3" => {
            Reply::status(422, format!("{} cannot use {}", request.header("authorization").unwrap(), request.text()))
        }
        _ => Reply::ok("good"),
    });
    let mut workspace = Workspace::new();
    workspace.env("TOKEN", "hunter22hunter22");
    workspace.write("in.txt", numbered_lines(5));
    let url = server.url().replace("http://", "http://user:sesame77@");
    let letters = "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }\n";
    let headers = "          headers.Authorization: Bearer ${TOKEN}\n";
    workspace.write("pipelines/p.yaml", posting(&url, headers) + letters);
    let output = workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 4);
    let letters = workspace.read("dlq.ndjson");
    let letter: Value = serde_json::from_str(&letters).unwrap();
    let error = letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap();
    assert!(
        error.contains(&format!("POST {}/: answered 422", server.url())) && error.contains("cannot use line 3"),
        "{error}"
    );
    for text in [&letters, &output.both()] {
        assert!(!text.contains("hunter22") && !text.contains("sesame77"), "{text}");
    }
    let planned = workspace.run(&["pipelines", "plan", "pipelines/p.yaml"]).both();
    assert!(!planned.contains("hunter22"), "{planned}");
}

#[test]
fn a_redirected_record_becomes_a_letter_and_goes_nowhere_else() {
    let elsewhere = Server::start(|_| Reply::ok("good"));
    let to = format!("{}/moved", elsewhere.url());
    let location = to.replace("http://", "http://user:sesame77@") + "?key=sesame77";
    let server = Server::start(move |_| Reply::status(302, "").with("Location", &location));
    let mut workspace = Workspace::new();
    workspace.env("TOKEN", "hunter22hunter22");
    workspace.write("in.txt", numbered_lines(3));
    let letters = "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }\n";
    let more = "          headers.x-api-key: ${TOKEN}\n          backoffRetry.count: \"9\"\n";
    workspace.write("pipelines/p.yaml", posting(&server.url(), more) + letters);
    let output = workspace.once();
    let letters = workspace.lines("dlq.ndjson");
    assert_eq!((letters.len(), server.received().len()), (3, 3));
    for letter in letters.iter().map(|letter| serde_json::from_str::<Value>(letter).unwrap()) {
        let error = letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap();
        let why = format!("answered 302 Found and points to {to}; redirects are not followed: set request.url to it");
        assert!(error.contains(&why), "{error}");
    }
    assert!(!format!("{letters:?}{}", output.both()).contains("sesame77"), "{letters:?}");
    assert_eq!(elsewhere.received(), []);
}

#[test]
fn settings_that_cannot_work_are_shown_where_they_are() {
    let workspace = Workspace::new();
    let more = "          response.body: .Payload.After.x\n          headers.Host: '{{ .Metadata.x'\n";
    workspace.write("pipelines/p.yaml", posting("localhost/x", more));
    let text = workspace.run(&["pipelines", "validate", "pipelines/p.yaml"]).expect_code(2).both();
    assert!(text.contains("headers.Host: ") && text.contains("p.yaml:"), "{text}");
    let more = "          response.body: .Payload.After.x\n";
    workspace.write("pipelines/p.yaml", posting("localhost/x", more));
    let text = workspace.run(&["pipelines", "validate", "pipelines/p.yaml"]).expect_code(2).both();
    assert!(text.contains("request.url: this is not a URL"), "{text}");
    // A field of lines that are raw data.
    workspace.write("pipelines/p.yaml", posting("http://localhost/x", more));
    let text = workspace.run(&["pipelines", "validate", "pipelines/p.yaml"]).expect_code(2).both();
    assert!(text.contains(".Payload.After is raw data"), "{text}");
}

/// A container without certificates, say.
#[test]
fn plain_text_needs_no_certificates() {
    let server = Server::start(|_| Reply::ok("good"));
    let mut workspace = Workspace::new();
    workspace.env("SSL_CERT_FILE", "/nonexistent");
    workspace.env("SSL_CERT_DIR", "/nonexistent");
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", posting(&server.url(), ""));
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 3);
}
