//! Chunks and embeddings in a pipeline.

use std::collections::BTreeSet;

use anabranch_ops_http::testing::{Received, Reply, Server};
use serde_json::{Value, json};

use crate::process::{Workspace, file_to_file};

const PROCESSORS: &str = r#"      - { id: chunks, plugin: ai.chunk, settings: { strategy: tokens, chunkSize: "2" } }
      - id: vectors
        plugin: ai.embed
        settings:
          provider: ollama
          model: tiny
          baseURL: http://${OLLAMA_ADDRESS}
          apiKey: ${KEY}
          backoffRetry.min: 1ms
"#;

fn embed(request: &Received) -> Reply {
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/api/embed"));
    assert_eq!(request.header("authorization"), Some("Bearer hunter22hunter22"));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let texts = body["input"].as_array().unwrap();
    if texts.iter().any(|text| text == "bad") {
        return Reply::status(400, "hunter22hunter22 may not ask this");
    }
    let vector = |text: &Value| json!([text.as_str().unwrap().len() as f64, 0.25]);
    Reply::ok(json!({ "embeddings": texts.iter().map(vector).collect::<Vec<_>>() }).to_string())
}

fn index(workspace: &Workspace) -> Vec<Value> {
    workspace.write("pipelines/p.yaml", file_to_file("index", PROCESSORS) + LETTERS);
    workspace.once();
    workspace.lines("out.ndjson").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const LETTERS: &str = "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }\n";

#[test]
fn documents_are_chunked_and_embedded_under_ids_that_come_again() {
    let server = Server::start(embed);
    let ids = |lines: &str| {
        let mut workspace = Workspace::new();
        workspace.env("OLLAMA_ADDRESS", &server.address().to_string());
        workspace.env("KEY", "hunter22hunter22");
        workspace.write("in.txt", lines);
        let records = index(&workspace);
        for record in &records {
            let after = &record["payload"]["after"];
            assert_eq!(after["vector"], json!([after["text"].as_str().unwrap().len() as f64, 0.25]));
        }
        let letters = workspace.lines("dlq.ndjson");
        assert!(letters.iter().all(|letter| !letter.contains("hunter22")), "{letters:?}");
        let of = |record: &Value| record["metadata"]["ai.chunk.id"].as_str().unwrap().to_owned();
        (records.iter().map(of).collect::<BTreeSet<_>>(), letters.len())
    };
    let (first, letters) = ids("one two three\nfour\nfive six bad\n");
    assert_eq!((first.len(), letters), (4, 1));
    let (again, _) = ids("one two three\nfour\nfive six bad\n");
    assert_eq!(first, again);
    // The second line is another one.
    let (other, _) = ids("one two three\n4\nfive six bad\n");
    assert_eq!(first.intersection(&other).count(), 3);
}

#[test]
fn chunks_as_records_need_the_flag() {
    let workspace = Workspace::new();
    workspace.write(
        "pipelines/p.yaml",
        file_to_file("index", PROCESSORS).replace("${OLLAMA_ADDRESS}", "localhost:1").replace("${KEY}", "k"),
    );
    let text = workspace.run(&["pipelines", "validate", "pipelines/p.yaml"]).expect_code(2).both();
    assert!(text.contains("ai.chunk") && text.contains("arch-v2"), "{text}");
    workspace.run(&["pipelines", "validate", "pipelines/p.yaml", "--preview.pipeline-arch-v2"]).expect_code(0);
}
