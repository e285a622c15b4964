//! The state store: one process at a time, and never restarted from nothing.

#[cfg(feature = "postgres")]
mod silent;

use crate::process::{Workspace, file_to_file, numbered_lines};

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(100));
    workspace.write("pipelines/p.yaml", file_to_file("stored", ""));
    workspace
}

#[test]
fn a_second_process_is_refused() {
    let workspace = workspace();
    let mut first = workspace.start(&["run"]);
    let out = workspace.path("out.ndjson");
    first.wait_until("all lines", || std::fs::read_to_string(&out).is_ok_and(|t| t.lines().count() == 100));
    let second = workspace.run(&["run", "--once"]);
    let text = second.expect_code(3).both();
    assert!(text.contains("anabranch.db"), "{text}");
    assert!(text.contains("another process") || text.contains("in use"), "{text}");
    assert!(first.is_running());
    first.signal("INT");
    first.finish().expect_code(0);
    assert_eq!(workspace.lines("out.ndjson").len(), 100);
}

#[test]
fn a_damaged_store_is_refused() {
    let workspace = workspace();
    workspace.once();
    let whole = std::fs::read(workspace.path("anabranch.db")).unwrap();
    let mut foreign = whole.clone();
    foreign[..64].fill(0x5a);
    for (what, bytes) in [
        ("truncated", whole[..whole.len() / 3].to_vec()),
        ("foreign", foreign),
        ("text", b"this is no database\n".to_vec()),
    ] {
        workspace.write("anabranch.db", &bytes);
        let output = workspace.run(&["run", "--once"]);
        let text = output.both();
        assert_ne!(output.code(), Some(0), "{what}: {text}");
        assert!(text.contains("anabranch.db") && !text.contains("panicked"), "{what}: {text}");
        assert_eq!(std::fs::read(workspace.path("anabranch.db")).unwrap(), bytes, "{what}: left as it was");
        assert_eq!(workspace.lines("out.ndjson").len(), 100, "{what}: not restarted from nothing");
    }
    workspace.write("anabranch.db", &whole);
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 100);
}

#[test]
fn a_store_in_memory_starts_anew() {
    let workspace = workspace();
    for copies in 1..=2 {
        workspace.run(&["run", "--once", "--db.type=inmemory"]).expect_code(0);
        assert_eq!(workspace.lines("out.ndjson").len(), 100 * copies);
    }
    assert!(!workspace.path("anabranch.db").exists());
}

#[test]
fn other_kinds_of_store_are_refused_with_a_replacement() {
    let workspace = workspace();
    for kind in ["badger", "sqlite"] {
        let text = workspace.run(&["run", "--once", &format!("--db.type={kind}")]).expect_code(2).both();
        assert!(text.contains(kind) && text.contains("embedded"), "{text}");
    }
    let text = workspace.run(&["run", "--once", "--db.type=oracle"]).expect_code(2).both();
    assert!(text.contains("db.type") && text.contains("embedded"), "{text}");
}

#[test]
#[cfg(feature = "postgres")]
fn a_store_in_postgresql_goes_on_where_it_stopped() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    let workspace = workspace();
    let url = format!("--db.postgres.connection-string={}", database.url());
    let once = ["run", "--once", "--db.type=postgres", &url];
    for _ in 0..2 {
        workspace.run(&once).expect_code(0);
        assert_eq!(workspace.lines("out.ndjson").len(), 100, "nothing comes twice");
    }
    assert!(!workspace.path("anabranch.db").exists());
    let marks = database.query("SELECT pipeline, connector, number FROM anabranch_kv_store WHERE kind = 'mark'");
    assert_eq!(marks, ["stored|in|0"]);
    let listed = workspace.run(&["pipelines", "list", "--db.type=postgres", &url]).expect_code(0).both();
    assert!(listed.contains("stored") && listed.contains("finished"), "{listed}");

    database.query("UPDATE anabranch_kv_store SET number = 9 WHERE kind = 'schema'");
    let text = workspace.run(&once).expect_code(3).both();
    assert!(text.contains("anabranch_kv_store has version 9"), "{text}");
    assert_eq!(workspace.lines("out.ndjson").len(), 100, "not restarted from nothing");
}

#[test]
#[cfg(feature = "postgres")]
fn a_server_that_is_away_ends_the_start_with_a_message() {
    let workspace = workspace();
    let text = workspace.run(&["run", "--once", "--db.type=postgres"]).expect_code(2).both();
    assert!(text.contains("db.postgres.connection-string config value is required"), "{text}");
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let url = format!("--db.postgres.connection-string=postgresql://u:hunter2@127.0.0.1:{free}/d");
    let text = workspace.run(&["run", "--once", "--db.type=postgres", &url]).expect_code(3).both();
    assert!(text.contains(&format!("127.0.0.1:{free}")) && !text.contains("hunter2"), "{text}");
}
