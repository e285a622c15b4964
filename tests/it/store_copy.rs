//! `anabranch store copy`: where it copies to, and what it leaves behind if it is stopped.

use crate::process::{Workspace, file_to_file};
use crate::servers::postgres::Database;

/// A workspace whose store has 500 dead letters.
fn with_letters() -> Workspace {
    let workspace = Workspace::new();
    let lines: String = (0..500).map(|n| format!("line {n}\n")).collect();
    workspace.write("in.txt", lines);
    let processors = "      - { id: e, plugin: error, settings: { message: no } }\n";
    let queue = "    status: running\n    dead-letter-queue: { plugin: store, window-size: 0 }\n";
    workspace.write("pipelines/p.yaml", file_to_file("p", processors).replace("    status: running\n", queue));
    workspace.run(&["run", "--once"]).expect_code(0);
    workspace
}

#[test]
fn the_store_to_copy_to_is_the_address_of_a_database_or_a_file() {
    let mut workspace = with_letters();
    let before = std::fs::read_dir(workspace.root()).unwrap().count();
    workspace.env("SECRET", "hunter2hunter2");
    for (to, code, told) in [
        // Nothing listens on this port.
        ("host=127.0.0.1 port=1 user=u password=hunter2hunter2 dbname=d", 3, "cannot be opened"),
        ("host=127.0.0.1 port=1 user=u password=${SECRET} dbname=d", 3, "cannot be opened"),
        ("postgres://u:${SECRET}@127.0.0.1:1/d", 3, "cannot be opened"),
        ("nothost=127.0.0.1 password=hunter2hunter2", 2, "expected postgresql://"),
        ("mysql://u:hunter2hunter2@127.0.0.1/d", 2, "expected postgres://"),
        ("u:hunter2hunter2@127.0.0.1/d", 2, "write postgres:// or ./ before it"),
        ("-", 2, "write postgres:// or ./ before it"),
        ("${NOT_SET}", 2, "a variable in it is not set"),
        ("", 2, "is empty"),
    ] {
        let output = workspace.run(&["store", "copy", "--to", to]).expect_code(code).both();
        assert!(output.contains(told) && !output.contains("hunter2"), "{to}: {output}");
    }
    assert_eq!(std::fs::read_dir(workspace.root()).unwrap().count(), before, "a file was written");
    let output = workspace.run(&["store", "copy", "--to", "./a=b@c.db"]).expect_code(0).both();
    assert!(output.contains("500 dead letters"), "{output}");
}

#[test]
fn a_store_without_contents_is_not_copied() {
    let Some(database) = Database::create() else { return };
    let workspace = Workspace::new();
    let url = format!("--db.postgres.connection-string={}", database.url());
    for from in [&["--db.type=postgres", &url, "--db.postgres.table=typo"][..], &["--db.type=inmemory"], &[]] {
        let output = workspace.run(&[&["store", "copy", "--to", "copy.db"], from].concat()).expect_code(3).both();
        assert!(output.contains("there is no store to copy"), "{output}");
    }
    assert!(!workspace.path("copy.db").exists());
    assert_eq!(database.query("SELECT to_regclass('typo') IS NULL"), ["t"], "nothing was created");
}

#[test]
fn a_copy_that_is_stopped_leaves_nothing_behind() {
    let Some(database) = Database::create() else { return };
    let workspace = with_letters();
    let url = database.url();
    let copy = ["store", "copy", "--to", &url];
    // The copy waits for this lock when it writes the dead letters.
    workspace.run(&copy).expect_code(0);
    for signal in ["TERM", "INT"] {
        database.query("TRUNCATE anabranch_kv_store_dlq; DELETE FROM anabranch_kv_store WHERE kind <> 'schema'");
        let lock = database.hold("LOCK TABLE anabranch_kv_store_dlq");
        let mut process = workspace.start(&copy);
        process.wait_until("its beginning", || {
            database.query("SELECT count(*) FROM anabranch_kv_store WHERE kind = 'copy'") == ["1"]
        });
        process.signal(signal);
        drop(lock);
        let output = process.finish().expect_code(1).both();
        assert!(output.contains("the copy was stopped: nothing was copied"), "{output}");
        let left = "SELECT (SELECT count(*) FROM anabranch_kv_store WHERE kind IN ('copy', 'pipeline')) \
                    + (SELECT count(*) FROM anabranch_kv_store_dlq)";
        assert_eq!(database.query(left), ["0"]);
    }
    workspace.run(&copy).expect_code(0);
}
