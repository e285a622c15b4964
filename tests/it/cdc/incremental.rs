//! Rows that are read beside the changes: incremental snapshots, and tables that are read again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::kills::choices;
use super::replica::Replica;
use super::server::{Database, LOGICAL, Release, Server};
use crate::fault_plan::{say, wait};

/// A table whose bodies are stored elsewhere: an update does not repeat them in the log. The number of a row only grows, and
/// a copy notes if it does not.
const TABLE: &str = "
    CREATE TABLE bulk (part text, id int, n int NOT NULL, body text, PRIMARY KEY (part, id));
    ALTER TABLE bulk ALTER body SET STORAGE EXTERNAL;
    CREATE SCHEMA watch;
    CREATE TABLE watch.older (place text);
    CREATE FUNCTION watch.compare() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.n < OLD.n THEN INSERT INTO watch.older VALUES (NEW.part || '/' || NEW.id); END IF;
            RETURN NEW;
        END $$;
    CREATE TRIGGER compare BEFORE UPDATE ON bulk FOR EACH ROW EXECUTE FUNCTION watch.compare();";
const ROWS: usize = 4_000;
const KILLS: usize = 3;
const SAME: &str = "SELECT count(*), sum(n), md5(string_agg(md5(bulk::text), '' ORDER BY part, id)),
    count(*) FILTER (WHERE body IS NULL) FROM bulk";

fn fill(rows: usize) -> String {
    format!(
        "INSERT INTO bulk SELECT chr(97 + n % 7) || 'é', n, 0, repeat(md5(n::text), 80) FROM generate_series(1, {rows}) n"
    )
}

/// Settings of a source that reads small chunks.
const INCREMENTAL: &str = ", snapshotMode: incremental, snapshot.fetchSize: 100";

#[track_caller]
fn assert_nothing_older(replica: &Replica) {
    assert_eq!(replica.copy.query("SELECT count(*), min(place) FROM watch.older"), ["0|"], "older values came later");
}

#[test]
fn rows_and_changes_are_merged_under_load_and_kills() {
    let (kills, mut random) = choices();
    let Some(mut replica) = Replica::start(Release::V18, TABLE, &fill(ROWS), [INCREMENTAL, ""]) else { return };
    let mut session = replica.source.session();
    let is_over = AtomicBool::new(false);
    let within = std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(7);
            let mut round = 0;
            while !is_over.load(Ordering::Relaxed) {
                round += 1;
                let (from, key) = (random.usize(1..ROWS), ROWS + round);
                session.run(&format!(
                    "UPDATE bulk SET n = n + 1 WHERE id IN (SELECT {from} + 97 * g FROM generate_series(0, 20) g);
                     UPDATE bulk SET id = {key}, n = n + 1 WHERE id = (SELECT min(id) FROM bulk WHERE id >= {from});
                     DELETE FROM bulk WHERE id = (SELECT max(id) FROM bulk WHERE id < {from})"
                ));
                std::thread::sleep(Duration::from_millis(5));
            }
            round
        });
        let lanes = "SELECT count(*) > 0 FROM anabranch_marks WHERE partition LIKE 'backfill/%'";
        let mut within = 0;
        for _ in 0..kills.max(KILLS) {
            wait(&mut random, 300..1_500);
            within += usize::from(replica.copy.query(lanes) == ["t"]);
            replica.restart();
        }
        replica.wait_until("the rows", |replica| {
            replica.printed().contains("read the rows of a table beside its changes")
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(changes.join().unwrap() > 100, "too few changes");
        within
    });
    replica.wait_for(SAME);
    assert_nothing_older(&replica);
    say(&format!(
        "{} runs were killed, {within} while rows were read beside changes: the copy is the same",
        kills.max(KILLS)
    ));

    // The copy is damaged, and the table read again. The request survives a kill.
    let damage = "SET session_replication_role = replica; UPDATE bulk SET n = 0, body = '' WHERE id % 3 = 0;
        DELETE FROM bulk WHERE id % 5 = 0";
    replica.copy.query(damage);
    let output = replica.backfill("bulk").expect_code(0);
    assert!(output.stdout.contains("in of replica reads the rows of bulk again."), "{}", output.both());
    replica.restart();
    replica.wait_for(SAME);
    assert_nothing_older(&replica);
    // The lanes are gone with their rows.
    replica.wait_until("the end of the lanes", |replica| {
        let marks = "SELECT count(*) FROM anabranch_marks WHERE partition LIKE 'backfill/%'";
        replica.copy.query(marks) == ["0"]
    });
    replica.end();
}

#[test]
fn a_request_that_cannot_be_carried_out_is_refused() {
    let both = "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (n int); ALTER TABLE b REPLICA IDENTITY FULL";
    let Some(mut replica) = Replica::start(Release::Installed, both, "INSERT INTO a VALUES (1)", ["", ""]) else {
        return;
    };
    replica.wait_for("SELECT id FROM a");
    for (connector, table, expected) in [
        ("in", "c", "does not read a table c; its tables are public.a, public.b"),
        ("in", "b", "because it has no key: add a primary key"),
        ("other", "a", r#"has no source "other"; its sources are in"#),
    ] {
        let output = replica.ask_backfill(connector, table).expect_code(2);
        assert!(output.both().contains(expected), "{}", output.both());
    }
    replica.source.query("INSERT INTO a VALUES (2)");
    replica.wait_for("SELECT id FROM a ORDER BY id");
    replica.end();
}

/// Keys of all kinds, whose order depends on operators of other schemas and on collations.
#[test]
fn rows_are_read_in_the_order_of_every_kind_of_key() {
    let both = "
        CREATE SCHEMA kinds;
        CREATE EXTENSION citext SCHEMA kinds;
        CREATE TYPE kinds.mood AS ENUM ('z', 'm', 'a');
        CREATE DOMAIN kinds.code AS text CHECK (VALUE <> '');
        CREATE TABLE a_citext (id kinds.citext PRIMARY KEY);
        CREATE TABLE an_enum (mood kinds.mood, n numeric(12,3), PRIMARY KEY (mood, n));
        CREATE TABLE a_domain (id kinds.code PRIMARY KEY);
        CREATE TABLE a_char (id char(5), at timestamptz, PRIMARY KEY (id, at));
        CREATE TABLE a_bytea (id bytea PRIMARY KEY, f float8);
        CREATE TABLE a_uuid (id uuid PRIMARY KEY);
        CREATE TABLE an_array (id int[] PRIMARY KEY);
        CREATE TABLE an_index (a int NOT NULL, b text NOT NULL, c int PRIMARY KEY);
        CREATE UNIQUE INDEX an_index_b ON an_index (b, a);
        ALTER TABLE an_index REPLICA IDENTITY USING INDEX an_index_b;
        CREATE TABLE in_parts (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
        CREATE TABLE in_parts_1 PARTITION OF in_parts FOR VALUES FROM (0) TO (50);
        CREATE TABLE in_parts_2 PARTITION OF in_parts FOR VALUES FROM (50) TO (200);";
    let rows = "
        INSERT INTO a_citext SELECT CASE WHEN n % 2 = 0 THEN 'Key ' ELSE 'kEY_' END || n FROM generate_series(1, 100) n;
        INSERT INTO an_enum SELECT m, n / 7.0 - 5 FROM unnest(enum_range(NULL::kinds.mood)) m, generate_series(1, 30) n;
        INSERT INTO a_domain SELECT (ARRAY['É', 'e', '_', '\\', '''', E'\\t', '☃'])[1 + n % 7] || n FROM generate_series(1, 99) n;
        INSERT INTO a_char SELECT chr(65 + n % 50), '2026-01-01'::timestamptz + n * interval '1 us' FROM generate_series(1, 99) n;
        INSERT INTO a_bytea SELECT decode(md5(n::text), 'hex'), n / 3.0 FROM generate_series(1, 99) n;
        INSERT INTO a_bytea VALUES ('', 'NaN');
        INSERT INTO a_uuid SELECT md5(n::text)::uuid FROM generate_series(1, 99) n;
        INSERT INTO an_array SELECT ARRAY[n % 5, n] FROM generate_series(1, 99) n;
        INSERT INTO an_index SELECT n % 3, 'b' || n, n FROM generate_series(1, 99) n;
        INSERT INTO in_parts SELECT n % 10, n FROM generate_series(1, 99) n;";
    let settings = [", snapshotMode: incremental, snapshot.fetchSize: 7", ""];
    let Some(mut replica) = Replica::start(Release::Installed, both, rows, settings) else { return };
    for table in ["a_citext", "an_enum", "a_domain", "a_char", "a_bytea", "a_uuid", "an_array", "an_index", "in_parts"]
    {
        replica.wait_for(&format!("SELECT t::text FROM {table} t ORDER BY t::text COLLATE \"C\""));
    }
    replica.end();
}

#[test]
fn a_table_is_read_when_the_transactions_from_before_have_ended() {
    let settings = [", snapshotMode: never, snapshot.fetchSize: 100", ""];
    let Some(mut replica) = Replica::start(Release::V17, TABLE, &fill(300), settings) else { return };
    replica.wait_until("the slot", |replica| replica.printed().contains("created a slot"));
    replica.source.query("UPDATE bulk SET n = 1, body = 'new' WHERE id = 1");
    replica.wait_until("a change", |replica| replica.copy.query("SELECT count(*) FROM bulk") == ["1"]);
    let mut open = replica.source.hold("UPDATE bulk SET n = 5 WHERE id = 7");
    replica.backfill("public.bulk").expect_code(0);
    let waits = "the rows of a table are read when the transactions that were writing before have ended";
    replica.wait_until("the wait", |replica| replica.printed().contains(waits));
    // Changes do not wait.
    replica.source.query("UPDATE bulk SET n = 2, body = 'new' WHERE id = 2");
    replica.wait_until("a change", |replica| replica.copy.query("SELECT count(*) FROM bulk") == ["2"]);
    open.run("COMMIT");
    drop(open);
    replica.wait_for(SAME);
    assert_nothing_older(&replica);
    replica.end();
}

/// A transaction that waits for a standby is in the log, and in the copy, before others see it: rows that are read meanwhile
/// are older than its changes.
#[test]
fn a_transaction_that_waits_for_a_standby_is_not_undone() {
    let Some(server) = Server::of(Release::V18, &LOGICAL) else { return };
    let source = std::sync::Arc::new(server).database();
    source.query("ALTER SYSTEM SET synchronous_commit = local; ");
    source.query("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    source.query("SELECT pg_reload_conf()");
    let Some(copy) = Database::create() else { return };
    let settings = [", snapshotMode: never, snapshot.fetchSize: 100, logrepl.failover: false", ""];
    let mut replica = Replica::between(source, copy, TABLE, &fill(300), settings);
    replica.wait_until("the slot", |replica| replica.printed().contains("created a slot"));
    replica.source.query("UPDATE bulk SET n = 1, body = 'new' WHERE id = 1");
    replica.wait_until("a change", |replica| replica.copy.query("SELECT n FROM bulk") == ["1"]);

    let mut waiting = replica.source.session();
    let process = waiting.run("SET synchronous_commit = on; SELECT pg_backend_pid()")[0].clone();
    std::thread::scope(|scope| {
        let committed = scope.spawn(move || waiting.run("UPDATE bulk SET n = 9 WHERE id = 1"));
        replica.wait_until("the change of the transaction", |replica| {
            replica.copy.query("SELECT n FROM bulk WHERE id = 1") == ["9"]
        });
        assert_eq!(replica.source.query("SELECT n FROM bulk WHERE id = 1"), ["1"], "it is visible");
        replica.backfill("bulk").expect_code(0);
        let waits = "the rows of a table are read when the transactions that were writing before have ended";
        replica.wait_until("the wait", |replica| replica.printed().contains(waits));
        replica.source.query(&format!("SELECT pg_cancel_backend({process})"));
        committed.join().unwrap();
    });
    replica.wait_for(SAME);
    assert_nothing_older(&replica);
    replica.end();
}
