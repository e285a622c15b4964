//! The template `postgres-to-vectors`: chunks and vectors follow the texts of a table.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anabranch_ops_http::testing::{Received, Reply, Server as Http};
use serde_json::{Value, json};

use super::server::{Database, Release};
use crate::process::Workspace;

const FILE: &str = "pipelines/postgres-to-vectors.yaml";
/// What ends a chunk, if chunks are short.
const PARAGRAPH: &str = "\n\n";

/// A table of documents, a table of chunks, and a service for embeddings.
struct Index {
    source: Database,
    chunks: Database,
    workspace: Workspace,
    _service: Http,
    /// The texts that were embedded.
    asked: Arc<Mutex<Vec<String>>>,
}

fn vector(text: &str) -> Value {
    json!([text.len() as f64 + 0.5, 0.25])
}

impl Index {
    /// `identity` is SQL about the table of documents.
    fn new(identity: &str) -> Option<Index> {
        let (source, chunks) = (Database::logical(Release::Installed)?, Database::create()?);
        source.query("CREATE TABLE documents (id bigint PRIMARY KEY, title text, body text)");
        source.query("ALTER TABLE documents ALTER body SET STORAGE EXTERNAL");
        source.query(identity);
        // The type of the template is that of an extension.
        chunks.query("CREATE TABLE chunks (id uuid PRIMARY KEY, document bigint, content text, embedding jsonb)");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let noted = asked.clone();
        let service = Http::start(move |request: &Received| {
            assert_eq!(request.header("authorization"), Some("Bearer key-of-the-test"));
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let texts = body["input"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned());
            let texts: Vec<String> = texts.collect();
            noted.lock().unwrap().extend(texts.iter().cloned());
            let one = |(index, text): (usize, &String)| json!({ "index": index, "embedding": vector(text) });
            Reply::ok(json!({ "data": texts.iter().enumerate().map(one).collect::<Vec<_>>() }).to_string())
        });
        let mut workspace = Workspace::new();
        workspace.env("SOURCE_POSTGRES_URL", &source.url());
        workspace.env("POSTGRES_URL", &chunks.url());
        workspace.env("OPENAI_API_KEY", "key-of-the-test");
        workspace.run(&["pipelines", "init", "--template", "postgres-to-vectors"]).expect_code(0);
        let mut text = workspace.read(FILE);
        let base = format!("provider: openai\n          baseURL: http://{}", service.address());
        // A slot of its own, a service of its own, and chunks as small as the texts here.
        let slot = format!("vectors_{}", source.name());
        for (from, to, count) in [
            ("Name: postgres_to_vectors", format!("Name: {slot}"), 2),
            ("provider: openai", base, 1),
            ("chunkSize: 1500", "chunkSize: 10".to_owned(), 2),
            ("overlap: 200", "overlap: 0".to_owned(), 2),
        ] {
            assert_eq!(text.matches(from).count(), count, "{from}: {text}");
            text = text.replace(from, &to);
        }
        workspace.write(FILE, text);
        Some(Index { source, chunks, workspace, _service: service, asked })
    }

    /// Runs the pipeline to the end of the changes, compares the chunks with the texts, and returns what was embedded.
    #[track_caller]
    fn update(&self) -> Vec<String> {
        self.workspace.once();
        self.check();
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }

    #[track_caller]
    fn check(&self) {
        let rows = self.source.query("SELECT jsonb_build_array(id, body) FROM documents WHERE body IS NOT NULL");
        let mut expected = Vec::new();
        for row in rows {
            let row: Value = serde_json::from_str(&row).unwrap();
            let body = row[1].as_str().unwrap().to_owned();
            let texts = body.split(PARAGRAPH).filter(|text| !text.is_empty());
            expected.extend(texts.map(|text| json!([row[0], text, vector(text)]).to_string()));
        }
        let rows = self.chunks.query("SELECT jsonb_build_array(document, content, embedding) FROM chunks");
        let mut found: Vec<String> =
            rows.iter().map(|row| serde_json::from_str::<Value>(row).unwrap().to_string()).collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
    }

    /// Ids of the chunks of a document.
    fn ids(&self, document: u32) -> BTreeSet<String> {
        self.chunks.query(&format!("SELECT id FROM chunks WHERE document = {document}")).into_iter().collect()
    }
}

#[test]
fn chunks_follow_the_texts_of_a_table() {
    let Some(index) = Index::new("ALTER TABLE documents REPLICA IDENTITY FULL") else { return };
    index.source.query(
        "INSERT INTO documents VALUES (1, 'a', E'one a one\n\ntwo a two\n\nthree a'), (2, 'b', 'one b one'), \
         (3, 'c', NULL), (4, 'd', ''), (5, 'e', E'one e one\n\ntwo e two')",
    );
    assert_eq!(index.update().len(), 6);
    let before = index.ids(1);

    // A chunk that stays is neither written nor embedded again.
    index.source.query("UPDATE documents SET body = E'one a one\n\nother' WHERE id = 1");
    assert_eq!(index.update(), ["other"]);
    assert_eq!(index.ids(1).intersection(&before).count(), 1);

    // A deleted document has no chunks, and others keep theirs.
    index.source.query("DELETE FROM documents WHERE id = 2");
    assert!(index.update().is_empty());
    assert_eq!((index.ids(2).len(), index.ids(5).len()), (0, 2));

    // A text that is removed, one that is added, a change of another column, and several changes in one transaction.
    index.source.query("UPDATE documents SET body = NULL WHERE id = 1");
    index.source.query("UPDATE documents SET body = 'new c' WHERE id = 3");
    index.source.query("UPDATE documents SET title = 'f' WHERE id = 5");
    index.source.query(
        "BEGIN; UPDATE documents SET body = 'for now' WHERE id = 4; UPDATE documents SET body = E'later\n\nlast' \
         WHERE id = 4; INSERT INTO documents VALUES (6, 'g', 'short'); DELETE FROM documents WHERE id = 6; COMMIT",
    );
    index.update();

    // Another key: the chunks belong to the document under its new key.
    index.source.query("UPDATE documents SET id = 7 WHERE id = 5");
    index.update();
    assert_eq!((index.ids(5).len(), index.ids(7).len()), (0, 2));
    index.source.query("DELETE FROM documents");
    index.update();
    assert_eq!(index.chunks.query("SELECT count(*) FROM chunks"), ["0"]);
}

#[test]
fn chunks_are_right_after_kills() {
    let Some(index) = Index::new("ALTER TABLE documents REPLICA IDENTITY FULL") else { return };
    index
        .source
        .query("INSERT INTO documents SELECT n, 't', format(E'one %s\n\ntwo %s', n, n) FROM generate_series(1, 500) n");
    for round in 0..6 {
        let mut service = index.workspace.start(&["run", "--preview.pipeline-arch-v2"]);
        let delivered = index.chunks.query("SELECT count(*) FROM chunks WHERE content LIKE '% done'");
        for n in 0..60 {
            let id = round * 60 + n + 1;
            index.source.query(&format!(
                "UPDATE documents SET body = format(E'one %s\n\n%s done', id, id) WHERE id = {id}; \
                 DELETE FROM documents WHERE id = {id} AND id % 3 = 0"
            ));
        }
        // In the midst of the snapshot at first, and of changes then.
        if round > 0 {
            service.wait_until("changes in the copy", || {
                index.chunks.query("SELECT count(*) FROM chunks WHERE content LIKE '% done'") != delivered
            });
        }
        service.signal("KILL");
        service.finish();
    }
    index.update();
}

#[test]
fn a_table_without_its_old_texts_is_refused() {
    let Some(index) = Index::new("INSERT INTO documents VALUES (1, 'a', 'one a one')") else { return };
    index.update();
    index.source.query("DELETE FROM documents");
    let output = index.workspace.run(&["run", "--once", "--preview.pipeline-arch-v2"]);
    let text = output.both();
    assert_ne!(output.code(), Some(0), "{text}");
    assert!(text.contains("ALTER TABLE documents REPLICA IDENTITY FULL"), "{text}");
    assert_eq!(index.ids(1).len(), 1, "nothing is done by half");
}
