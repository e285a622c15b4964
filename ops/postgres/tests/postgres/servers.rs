//! The servers of the tests do what the tests expect of them.

use std::time::{Duration, Instant};

use super::server::{Database, LOGICAL, Release, Server};

#[test]
fn each_release_decodes_its_log() {
    for release in Release::ALL {
        let Some(db) = Database::logical(release) else { continue };
        let slot = db.name();
        db.query("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t");
        db.query(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
        let mut session = db.session();
        session.run("BEGIN; INSERT INTO t VALUES (1, 'a')");
        session.run("COPY t FROM STDIN;\n2\tb\n\\.");
        session.run("COMMIT");
        let options = "'proto_version', '1', 'publication_names', 'p'";
        let messages =
            format!("SELECT count(*) FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL, {options})");
        // Begin, relation, two rows, commit.
        assert_eq!(db.query(&messages), ["5"], "{release:?}");
    }
    let version = |release| Some(Database::logical(release)?.server.version() / 10_000);
    assert!(version(Release::V17).is_none_or(|version| version == 17));
    assert!(version(Release::V18).is_none_or(|version| version == 18));
}

#[test]
fn the_slots_of_a_database_end_with_it() {
    let Some(db) = Database::logical(Release::Installed) else { return };
    let server = db.server.clone();
    let name = db.name().to_owned();
    db.query(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
    let slots = format!("SELECT slot_name FROM pg_replication_slots WHERE slot_name = '{name}'");
    assert_eq!(server.query(&slots), [name]);
    drop(db);
    assert_eq!(server.query(&slots), Vec::<String>::new());
}

#[test]
fn a_session_reports_errors_and_ends() {
    let Some(db) = Database::create() else { return };
    let mut session = db.session();
    assert_eq!(session.run("SELECT 1; SELECT NULL, 'x'"), ["1", "|x"]);
    let error = session.try_run("SELECT nothing").unwrap_err();
    assert!(error.contains("column \"nothing\" does not exist"), "{error}");
    session.try_run("SELECT 1").unwrap_err();
}

#[test]
fn a_server_that_is_paused_does_not_answer() {
    let Some(server) = Server::of(Release::Installed, &LOGICAL) else { return };
    server.pause();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| (server.query("SELECT 1"), Instant::now()));
        std::thread::sleep(Duration::from_millis(200));
        let continued = Instant::now();
        server.unpause();
        let (rows, answered) = answer.join().unwrap();
        assert_eq!(rows, ["1"]);
        assert!(answered >= continued);
    });
    // One that is paused can be killed.
    server.pause();
    server.kill();
    server.resume();
    assert_eq!(server.query("SELECT 1"), ["1"]);
}

#[test]
fn a_standby_takes_over_a_slot() {
    let Some(primary) = Server::of(Release::V17, &LOGICAL) else { return };
    primary.query("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t");
    primary.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput', false, false, true)");
    let mut primary = primary;
    for round in 1..=2 {
        let standby = primary.standby();
        let read = |server: &Server| {
            server.query(
                "SELECT count(*) FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, 'proto_version', '1', \
                 'publication_names', 'p')",
            )
        };
        primary.query(&format!("INSERT INTO t VALUES ({})", round * 10));
        assert_eq!(read(&primary), ["4"]);
        standby.await_slot("s", &primary, || drop(read(&primary)));
        primary.query(&format!("INSERT INTO t VALUES ({})", round * 10 + 1));
        primary.query(&format!("SELECT pg_logical_emit_message(true, 'flush', '{round}')"));
        let at = primary.query("SELECT pg_current_wal_lsn()").remove(0);
        let begun = Instant::now();
        while standby.query(&format!("SELECT pg_last_wal_replay_lsn() >= '{at}'")) != ["t"] {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
        primary.kill();
        standby.promote();
        assert_eq!(read(&standby), ["4"], "the row that was not read");
        primary = standby;
    }
}

#[test]
fn a_standby_of_an_earlier_release_has_no_slot() {
    let Some(primary) = Server::of(Release::Installed, &LOGICAL) else { return };
    if primary.version() >= 170_000 {
        return;
    }
    primary.query("CREATE TABLE t (id int)");
    primary.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')");
    let standby = primary.standby();
    primary.kill();
    standby.promote();
    assert_eq!(standby.query("SELECT count(*) FROM pg_replication_slots"), ["0"]);
    standby.query("INSERT INTO t VALUES (1)");
}
