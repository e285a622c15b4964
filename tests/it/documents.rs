//! The reference pipeline as `examples/documents-to-vectors` has it: documents of an object store become rows with
//! vectors in PostgreSQL, whatever is killed or fails in between.

mod example;
mod faults;
mod kills;
mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anabranch_ops_http::testing::{Received, Reply, Server as Http};
use serde_json::{Value, json};

use crate::process::{Workspace, raw_after};
use crate::servers::{postgres, s3};

const USER: &str = "11111111-1111-4111-8111-111111111111";
const COLLECTION: &str = "22222222-2222-4222-8222-222222222222";
const WORKSPACE: &str = "33333333-3333-4333-8333-333333333333";
const RUN: &[&str] = &["run", "--preview.pipeline-arch-v2"];
const ONCE: &[&str] = &["run", "--once", "--preview.pipeline-arch-v2"];

fn pipeline() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/documents-to-vectors/pipeline.yaml");
    std::fs::read_to_string(path).unwrap()
}

/// The tables of the example, where there is no pgvector.
fn schema() -> String {
    include_str!("../../examples/documents-to-vectors/schema.sql").replace(":embedding", "jsonb")
}

/// The response of the partition service: the lines of the document.
fn partition(request: &Received) -> Reply {
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/unstructured/partition"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let text = raw_after(&json!({ "payload": { "after": body["data"] } }).to_string());
    Reply::ok(json!({ "chunks": text.lines().collect::<Vec<_>>() }).to_string())
}

/// The response of the embedding service.
fn embed(request: &Received) -> Reply {
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/api/embed"));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["model"], "all-minilm");
    let vectors: Vec<Value> =
        body["input"].as_array().unwrap().iter().map(|text| vector(text.as_str().unwrap())).collect();
    Reply::ok(json!({ "embeddings": vectors }).to_string())
}

fn vector(text: &str) -> Value {
    json!([text.len(), 0.5, text.bytes().map(u32::from).sum::<u32>()])
}

/// The services of the pipeline but for the database, and a directory where it is the only one.
struct Library {
    objects: s3::Server,
    partitioning: Http,
    _embedding: Http,
    /// How often vectors were asked for.
    asked: Arc<AtomicUsize>,
    workspace: Workspace,
    documents: BTreeMap<String, Vec<String>>,
}

impl Library {
    /// `url` is the address of the database.
    fn new(
        pipeline: &str,
        url: &str,
        partition: impl Fn(&Received) -> Reply + Send + Sync + 'static,
        embed: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Library {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let embed = move |request: &Received| {
            counter.fetch_add(1, Ordering::Relaxed);
            embed(request)
        };
        let (objects, partitioning, embedding) = (s3::Server::start(), Http::start(partition), Http::start(embed));
        let mut workspace = Workspace::new();
        let (address, database) = url.strip_prefix("postgresql://postgres@").unwrap().split_once('/').unwrap();
        for (name, value) in [
            ("OBJSTORE_ENDPOINT", &*objects.endpoint()),
            ("OBJSTORE_REGION", "eu-central-1"),
            ("OBJSTORE_BUCKET", s3::BUCKET),
            ("ACCESS_KEY_ID", "AKIAEXAMPLE"),
            ("SECRET_ACCESS_KEY", "of-the-test"),
            ("UNSTRUCTURED_ADDRESS", &partitioning.address().to_string()),
            ("OLLAMA_ADDRESS", &embedding.address().to_string()),
            ("EMBEDDING_MODEL", "all-minilm"),
            ("DB_USER", "postgres"),
            ("DB_PASSWORD", "not-asked-for"),
            ("DB_ADDRESS", address),
            ("DB_NAME", database),
            ("USER_ID", USER),
            ("COLLECTION_ID", COLLECTION),
            ("WORKSPACE_ID", WORKSPACE),
            ("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "20ms"),
            ("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_DELAY", "200ms"),
        ] {
            workspace.env(name, value);
        }
        workspace.write("pipelines/documents.yaml", pipeline);
        Library { objects, partitioning, _embedding: embedding, asked, workspace, documents: BTreeMap::new() }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Adds a document of so many chunks, of a time that is over or of now.
    fn add(&mut self, key: &str, chunks: usize, new: bool) {
        let lines: Vec<String> = (0..chunks).map(|chunk| format!("{key}  chunk\t{chunk} ")).collect();
        let modified = (!new).then(|| self.objects.now() - 100);
        let title = ("x-amz-meta-title", &*format!("About {}", self.documents.len()));
        self.objects.put_with(key, lines.join("\n"), &[title], modified);
        self.documents.insert(key.to_owned(), lines);
    }

    /// The rows of a document, each table its own, with the file's id replaced by the key.
    fn expected(&self) -> Vec<String> {
        let mut rows = Vec::new();
        for (key, chunks) in self.documents.iter().filter(|(_, chunks)| !chunks.is_empty()) {
            let title = self.objects.header(key, "x-amz-meta-title").unwrap();
            let name = key.rsplit('/').next().unwrap();
            rows.push(format!("files|{key}|{USER}|{title}|{key}|{name}|0|0|application/pdf"));
            rows.push(format!("collection_files|{key}|{COLLECTION}|{USER}"));
            rows.push(format!("file_workspaces|{key}|{WORKSPACE}|{USER}"));
            for chunk in chunks {
                let tokens = chunk.split_whitespace().count();
                rows.push(format!("file_items|{key}|{USER}|{chunk}|{}|{tokens}", vector(chunk)));
            }
        }
        rows.sort();
        rows
    }
}

/// All rows: table, id of the file, columns.
fn rows(db: &postgres::Database) -> Vec<(String, String, String)> {
    let mut rows = Vec::new();
    for sql in [
        "SELECT 'files', id, user_id, description, file_path, name, size, tokens, type FROM files",
        "SELECT 'collection_files', file_id, collection_id, user_id FROM collection_files",
        "SELECT 'file_workspaces', file_id, workspace_id, user_id FROM file_workspaces",
        "SELECT 'file_items', file_id, user_id, content, replace(local_embedding::text, ' ', ''), tokens FROM file_items",
    ] {
        for row in db.query(sql) {
            let mut parts = row.splitn(3, '|').map(str::to_owned);
            let mut part = || parts.next().unwrap();
            rows.push((part(), part(), part()));
        }
    }
    rows
}

/// Keys of the files by their ids, as the table `files` has them.
fn keys(rows: &[(String, String, String)]) -> BTreeMap<&str, &str> {
    let files = rows.iter().filter(|(table, ..)| table == "files");
    files.map(|(_, id, columns)| (id.as_str(), columns.split('|').nth(2).unwrap())).collect()
}

/// The tables hold what the documents call for, once, and all rows of a document have its random id.
#[track_caller]
fn assert_exact(library: &Library, db: &postgres::Database) {
    let rows = rows(db);
    let keys = keys(&rows);
    assert!(keys.keys().all(|id| id.len() == 36 && &id[14..15] == "4"), "random UUIDs");
    let mut found: Vec<String> = rows
        .iter()
        .map(|(table, id, columns)| {
            format!("{table}|{}|{columns}", keys.get(id.as_str()).copied().unwrap_or("of no file"))
        })
        .collect();
    found.sort();
    let expected = library.expected();
    if found != expected {
        let (found, expected): (BTreeSet<_>, BTreeSet<_>) = (found.iter().collect(), expected.iter().collect());
        let missing: Vec<_> = expected.difference(&found).take(5).collect();
        let more: Vec<_> = found.difference(&expected).take(5).collect();
        panic!("{} of {} rows\nmissing: {missing:#?}\nnot expected: {more:#?}", found.len(), expected.len());
    }
}

fn database() -> Option<postgres::Database> {
    let db = postgres::Database::create()?;
    db.query(&schema());
    Some(db)
}

#[test]
fn every_document_becomes_its_rows() {
    let Some(db) = database() else { return };
    let mut library = Library::new(&pipeline(), &db.url(), partition, embed);
    for n in 0..120 {
        library.add(&format!("papers/{n:03}.pdf"), n % 5 + 1, false);
    }
    for key in
        ["a b+c%2F/ü?&#=.pdf", "no-folder", "deep//x/", "it's \"quoted\"\\", "~!@$^*(),;:[]{}<>'.pdf", "空/文書.pdf"]
    {
        library.add(key, 2, false);
    }
    // A document without chunks has no rows.
    library.add("empty.pdf", 0, false);
    library.workspace.once();
    assert_exact(&library, &db);
    // New documents are added, earlier ones are not read again.
    library.add("papers/new.pdf", 3, true);
    library.workspace.once();
    assert_exact(&library, &db);
    assert_eq!(library.partitioning.received().len(), library.documents.len());
}

#[test]
fn a_document_of_fifty_megabytes_is_one_row() {
    let Some(db) = database() else { return };
    let short = |request: &Received| {
        let sizes = [49_000_000 / 3 * 4, 70_000_000];
        assert!((sizes[0]..sizes[1]).contains(&request.body.len()), "{}", request.body.len());
        Reply::ok(json!({ "chunks": ["large"] }).to_string())
    };
    let mut library = Library::new(&pipeline(), &db.url(), short, embed);
    library.add("large", 1, false);
    library.documents.insert("large".to_owned(), vec!["large".to_owned()]);
    let modified = Some(library.objects.now() - 100);
    library.objects.put_with("large", vec![b'x'; 50_000_000], &[("x-amz-meta-title", "L")], modified);
    library.workspace.once();
    assert_exact(&library, &db);
}

/// Waits without a busy loop until `done`, or for so long.
fn wait(most: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < most {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    done()
}
