//! Changes of a PostgreSQL database through the real binary: what users see, servers that fail, and a service that is
//! killed.

mod checker;
mod copier;
mod deleted;
mod drift;
mod failover;
mod incremental;
mod kills;
mod load;
mod ranges;
mod replica;
#[cfg(all(feature = "ai", feature = "js"))]
mod vectors;
mod visible;

use crate::process::Workspace;
use crate::servers::postgres as server;

#[test]
fn a_pipeline_that_writes_back_to_the_tables_that_it_reads_is_refused() {
    let told = |tables: &str, url: &str, more: &str| {
        let workspace = Workspace::new();
        let source = format!("url: 'postgresql://a:b@localhost/shop', tables: '{tables}'");
        let text = format!(
            "version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, plugin: postgres, \
             settings: {{ {source} }} }}\n      - {{ id: out, type: destination, plugin: postgres, settings: {{ url: \
             'postgresql://{url}'{more} }} }}\n"
        );
        workspace.write("pipelines/p.yaml", text);
        let output = workspace.run(&["pipelines", "validate", "pipelines"]);
        (output.code(), output.both())
    };
    let same = "c:d@127.0.0.1:5432/shop";
    for (tables, more) in [
        ("orders", ""),
        ("orders, customers", ", table: customers"),
        ("sales.*", ", table: sales.orders"),
        ("orders", ", table: '{{ index .Metadata \"recfmt.collection\" }}'"),
    ] {
        let (code, text) = told(tables, same, more);
        assert!(code == Some(2) && text.contains("plan.feedback"), "{tables} {more}: {text}");
    }
    for (tables, url, more) in [
        ("orders", "c:d@127.0.0.1:5433/shop", ""),
        ("orders", "c:d@127.0.0.1/copy", ""),
        ("orders", same, ", table: copies"),
        ("sales.orders", same, ", table: orders"),
        // The collection of a record lacks the schema.
        ("sales.orders", same, ""),
    ] {
        let (code, text) = told(tables, url, more);
        assert!(code == Some(0) && !text.contains("plan.feedback"), "{tables} {url} {more}: {text}");
    }
}
