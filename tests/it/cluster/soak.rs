//! Nodes are killed, paused and cut off from the store under load, one after the other, at random times. Triggers of the
//! database note what happens in a history, which is checked in the end.
//!
//! A check does it a few times. `ANABRANCH_KILLS=200 cargo test --test it -- --nocapture cluster::soak` does it as often.

use std::time::{Duration, Instant};

use super::split::generated;
use super::{Node, counts, each_has, places, wait_for};
use crate::api::{ask, end};
use crate::fault_plan::{choices, say, wait};
use crate::history::{Checked, Partitions, check};
use crate::servers::postgres::Database;
use crate::servers::proxy::{OPEN, Proxy, SILENT, SLOW};

/// Number of faults of a check.
const FEW: usize = 5;
const PARTITIONS: u64 = 16;
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// SIGKILL, and a new process when the others have its units.
    Kill,
    /// SIGSTOP until the others have its units.
    LongPause,
    /// SIGSTOP for a time in which its lease may end or not.
    ShortPause,
    /// Nothing passes between the node and the store until the others have its units. It still reaches the destination.
    Cut,
    /// Every piece of data between the node and the store is late for some time.
    Slow,
}

const FAULTS: [Fault; 5] = [Fault::Kill, Fault::LongPause, Fault::ShortPause, Fault::Cut, Fault::Slow];

/// Notes what happens in the tables of the store and of the destination, as soon as they exist. The number of a record is its
/// position, and partitions take turns.
const WATCH: &str = "
CREATE TABLE p (id text, v bigint);
CREATE TABLE history (number bigserial, line jsonb);
CREATE FUNCTION note(line jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO history (line) VALUES (line) $$;
CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM note(jsonb_build_object('event', 'write', 'transaction', pg_current_xact_id()::text,
    'partition', (NEW.id::bigint % 16)::text, 'record', NEW.id::bigint));
  RETURN NULL;
END $$;
CREATE TRIGGER note_row AFTER INSERT ON p FOR EACH ROW EXECUTE FUNCTION note_row();
CREATE FUNCTION note_writer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'INSERT' OR NEW.epoch <> OLD.epoch THEN
    PERFORM note(jsonb_build_object('event', 'open', 'slot', NEW.slot, 'opening', NEW.epoch));
  END IF;
  IF TG_OP = 'UPDATE' AND NEW.writes <> OLD.writes THEN
    PERFORM note(jsonb_build_object('event', 'hold', 'transaction', pg_current_xact_id()::text, 'slot', NEW.slot,
      'opening', NEW.epoch));
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION note_state() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.kind = 'epoch' THEN
    PERFORM note(jsonb_build_object('event', 'claim', 'slot', NEW.slot, 'claim', NEW.number));
  ELSIF NEW.kind = 'mark' AND octet_length(NEW.value) > 16 THEN
    PERFORM note(jsonb_build_object('event', 'ack', 'slot', NEW.slot,
      'partition', (convert_from(substring(NEW.value FROM 17), 'UTF8')::bigint % 16)::text,
      'record', convert_from(substring(NEW.value FROM 17), 'UTF8')::bigint));
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
  IF to_regclass('anabranch_writers') IS NOT NULL
      AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'note_writer') THEN
    CREATE TRIGGER note_writer AFTER INSERT OR UPDATE ON anabranch_writers
      FOR EACH ROW EXECUTE FUNCTION note_writer();
  END IF;
  IF to_regclass('anabranch_kv_store') IS NOT NULL
      AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'note_state') THEN
    CREATE TRIGGER note_state AFTER INSERT OR UPDATE ON anabranch_kv_store
      FOR EACH ROW EXECUTE FUNCTION note_state();
  END IF;
END $$;
CREATE EVENT TRIGGER watch ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION watch()";

/// A node that reaches the store through a proxy.
fn node(name: &str, database: &Database, pipeline: &str, way: &Proxy) -> Node {
    let store = format!("postgresql://postgres@127.0.0.1:{}/{}", way.port, database.name());
    Node::with_store(name, &store, database, pipeline)
}

#[test]
fn nodes_that_fail_again_and_again_lose_nothing_and_double_nothing() {
    let Some(database) = Database::create() else { return };
    database.query(WATCH);
    let pipeline = generated("p", "rate: \"600\"", "exactlyOnce: \"true\"");
    let ways = NAMES.map(|_| Proxy::start(database.port()));
    let mut nodes = [0, 1, 2].map(|at| node(NAMES[at], &database, &pipeline, &ways[at]));
    // Eight units.
    let spread = || {
        let places = places(&database);
        NAMES.iter().all(|name| (2..4).contains(&places.iter().filter(|place| place == name).count()))
    };
    wait_for("units of each node", spread);
    wait_for("the first rows", || counts(&database, "p").0 > 100);
    let (faults, mut random) = choices(FEW);
    let (mut done, mut slowest) = ([0; FAULTS.len()], Duration::ZERO);
    for number in 0..faults {
        wait_for("units of each node", spread);
        wait(&mut random, 0..1_000);
        let struck = random.usize(..3);
        // Each kind in turn, so that a check has them all.
        let kind = number % FAULTS.len();
        done[kind] += 1;
        let begun = Instant::now();
        let others_have_all =
            || each_has(&database, &[(NAMES[struck], 0)]) && places(&database).iter().all(|place| !place.is_empty());
        let mut until_others_have_all = || {
            wait_for("the units of the node that was struck", others_have_all);
            slowest = slowest.max(begun.elapsed());
        };
        let (node, way) = (&mut nodes[struck], &ways[struck]);
        match FAULTS[kind] {
            Fault::Kill => {
                node.process.signal("KILL");
                until_others_have_all();
                node.restart();
            }
            Fault::LongPause => {
                node.process.signal("STOP");
                until_others_have_all();
                node.process.signal("CONT");
            }
            Fault::ShortPause => {
                node.process.signal("STOP");
                wait(&mut random, 500..8_000);
                node.process.signal("CONT");
            }
            Fault::Cut => {
                way.set(SILENT);
                until_others_have_all();
                // Connections that were silent lack pieces.
                way.end_at_server();
                way.set(OPEN);
            }
            Fault::Slow => {
                way.set(SLOW);
                wait(&mut random, 2_000..8_000);
                way.set(OPEN);
            }
        }
        let rows = counts(&database, "p");
        assert_eq!(rows.0, rows.1, "{:?} of {}: a record is there twice", FAULTS[kind], NAMES[struck]);
        wait_for("further rows", || counts(&database, "p").0 > rows.0);
    }
    wait_for("units of each node", spread);
    assert_eq!(ask(nodes[0].process.address(), "POST", "/v1/pipelines/p/stop", "", "{}").status, 200);
    wait_for("the stop", || places(&database).is_empty());
    let (rows, distinct) = counts(&database, "p");
    assert_eq!(rows, distinct, "a record is there twice");
    let history = database.query("SELECT line FROM history ORDER BY number").join("\n");
    let names = (0..PARTITIONS).map(|partition| partition.to_string()).collect();
    // The number 0 is that of no record.
    let first = |name: &str| name.parse().ok().filter(|first| *first > 0).unwrap_or(PARTITIONS);
    let checked = check(&history, &Partitions { names, first, step: PARTITIONS });
    let Checked { writes, acknowledgements, claims, openings } = checked.unwrap_or_else(|broken| {
        let file = std::env::temp_dir().join(format!("history-{}.ndjson", std::process::id()));
        std::fs::write(&file, &history).unwrap();
        panic!("{broken}; the history is in {}", file.display())
    });
    assert_eq!(writes, rows);
    say(&format!(
        "{} kills, {} long and {} short pauses, {} cuts and {} slow networks; {rows} rows, doubles {}; in the history no \
         promise is broken by {writes} writes, {acknowledgements} acknowledgements, {claims} claims and {openings} openings; \
         until the others had the units at most {:.1} s",
        done[0],
        done[1],
        done[2],
        done[3],
        done[4],
        rows - distinct,
        slowest.as_secs_f64()
    ));
    nodes.into_iter().for_each(|node| end(node.process));
}
