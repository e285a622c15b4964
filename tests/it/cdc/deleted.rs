//! What a deleted PostgreSQL source leaves on its server.

use super::server::{Database, Release};
use crate::api_lifecycle::Service;
use crate::process::{Output, Workspace};

/// A pipeline `p` that has read a table to its end, and that is in no file any more.
struct Deleted {
    source: Database,
    workspace: Workspace,
    service: Service,
}

impl Deleted {
    fn new(prepare: &str, settings: &str) -> Option<Deleted> {
        let source = Database::logical(Release::Installed)?;
        source.query("CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1)");
        source.query(prepare);
        let slot = source.name();
        let mut workspace = Workspace::new();
        workspace.env("URL", &source.url());
        workspace.write(
            "pipelines/p.yaml",
            format!(
                "version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, plugin: \
                 postgres, settings: {{ url: '${{URL}}', tables: orders, logrepl.slotName: {slot}, \
                 logrepl.publicationName: pub{settings} }} }}\n      - {{ id: out, type: \
                 destination, plugin: file, settings: {{ path: out.ndjson }} }}\n"
            ),
        );
        workspace.run(&["run", "--once"]).expect_code(0);
        assert_eq!(names(&source), [slot, "pub"]);
        workspace.write("pipelines/p.yaml", "version: \"2.2\"\npipelines: []\n");
        let service = Service::start(&workspace);
        assert_eq!(names(&source), [slot, "pub"], "a file that is gone may come back");
        Some(Deleted { source, workspace, service })
    }

    fn delete(&self) -> Output {
        let url = format!("--api.http.address={}", self.service.address);
        self.workspace.run(&["pipelines", "delete", "p", "--yes", &url]).expect_code(0)
    }
}

/// The names of the slots and publications of a database.
fn names(source: &Database) -> Vec<String> {
    source.query(
        "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()
         UNION ALL SELECT pubname::text FROM pg_publication",
    )
}

#[test]
fn slot_and_publication_of_a_deleted_pipeline_are_dropped() {
    let Some(deleted) = Deleted::new("SELECT", "") else { return };
    let output = deleted.delete();
    assert!(!output.stderr.contains("warning"), "{}", output.both());
    assert_eq!(names(&deleted.source), [""; 0]);
    deleted.service.end();
}

#[test]
fn what_a_source_did_not_create_stays() {
    for (prepare, settings, left) in [
        ("CREATE PUBLICATION pub FOR TABLE orders WITH (publish_via_partition_root)", "", 1),
        ("SELECT", ", logrepl.autoCleanup: false", 2),
        ("SELECT pg_create_logical_replication_slot(current_database(), 'pgoutput')", ", logrepl.adoptSlot: true", 2),
    ] {
        let Some(deleted) = Deleted::new(prepare, settings) else { return };
        let output = deleted.delete();
        assert!(!output.stderr.contains("warning"), "{}", output.both());
        let before = [deleted.source.name(), "pub"];
        assert_eq!(names(&deleted.source), before[2 - left..], "{settings}");
        deleted.service.end();
    }
}

#[test]
fn a_slot_that_cannot_be_dropped_is_named_and_keeps_nobody_from_deleting() {
    let Some(Deleted { source, mut workspace, service }) = Deleted::new("SELECT", "") else { return };
    service.end();
    // Nobody listens there.
    workspace.env("URL", "postgresql://user:hunter2222@127.0.0.1:1/shop");
    let service = Service::start(&workspace);
    let deleted = Deleted { source, workspace, service };
    let output = deleted.delete();
    let line = output.stderr.lines().find(|line| line.starts_with("warning: ")).unwrap_or_default();
    let expected = "the plugin of connector p:in could not remove what it has created elsewhere: ";
    assert!(line.contains(expected) && line.contains("was not dropped: cannot connect"), "{}", output.both());
    assert!(!output.both().contains("hunter2222"), "{}", output.both());
    assert_eq!(names(&deleted.source), [deleted.source.name(), "pub"]);
    deleted.service.end();
}
