//! Nodes are killed and paused under load, one after the other, at random times.
//!
//! A check does it a few times. `ANABRANCH_KILLS=200 cargo test --test it -- --nocapture cluster::soak` does it as often.

use std::time::{Duration, Instant};

use super::split::generated;
use super::{Node, counts, each_has, places, wait_for};
use crate::api::{ask, end};
use crate::fault_plan::{choices, say, wait};
use crate::servers::postgres::Database;

/// Number of faults of a check.
const FEW: usize = 4;

/// A fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// SIGKILL, and a new process when the others have its units.
    Kill,
    /// SIGSTOP until the others have its units.
    LongPause,
    /// SIGSTOP for a time in which its lease may end or not.
    ShortPause,
}

/// Notes each claim in the tables of the destination that is replaced by an earlier one.
const WATCH: &str = "
CREATE TABLE fallen (pipeline text, slot bigint, before bigint, after bigint);
CREATE FUNCTION note_fall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.epoch < OLD.epoch THEN INSERT INTO fallen VALUES (OLD.pipeline, OLD.slot, OLD.epoch, NEW.epoch); END IF;
  RETURN NEW;
END $$;
DO $$ DECLARE writers text; BEGIN
  SELECT attrelid::regclass INTO STRICT writers FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
    WHERE attname = 'writes' AND c.relkind = 'r' AND relnamespace = 'public'::regnamespace;
  EXECUTE 'CREATE TRIGGER watch BEFORE UPDATE ON ' || writers || ' FOR EACH ROW EXECUTE FUNCTION note_fall()';
END $$";

#[test]
fn nodes_that_fail_again_and_again_lose_nothing_and_double_nothing() {
    let Some(database) = Database::create() else { return };
    database.query("CREATE TABLE p (id text, v bigint)");
    let pipeline = generated("p", "rate: \"600\"", "exactlyOnce: \"true\"");
    let mut nodes = ["a", "b", "c"].map(|name| Node::new(name, &database, &pipeline));
    let names = ["a", "b", "c"];
    // Eight units.
    let spread = || {
        let places = places(&database);
        names.iter().all(|name| (2..4).contains(&places.iter().filter(|place| place == name).count()))
    };
    wait_for("units of each node", spread);
    wait_for("the first rows", || counts(&database, "p").0 > 100);
    database.query(WATCH);
    let (faults, mut random) = choices(FEW);
    let (mut done, mut slowest) = ([0; 3], Duration::ZERO);
    for number in 0..faults {
        wait_for("units of each node", spread);
        wait(&mut random, 0..1_000);
        let struck = random.usize(..3);
        // Each kind in turn, so that a check has them all.
        let fault = [Fault::Kill, Fault::LongPause, Fault::ShortPause][number % 3];
        done[number % 3] += 1;
        let begun = Instant::now();
        let others_have_all =
            || each_has(&database, &[(names[struck], 0)]) && places(&database).iter().all(|place| !place.is_empty());
        let node = &mut nodes[struck];
        match fault {
            Fault::Kill => {
                node.process.signal("KILL");
                wait_for("the units of the killed node", others_have_all);
                slowest = slowest.max(begun.elapsed());
                node.restart();
            }
            Fault::LongPause => {
                node.process.signal("STOP");
                wait_for("the units of the paused node", others_have_all);
                slowest = slowest.max(begun.elapsed());
                node.process.signal("CONT");
            }
            Fault::ShortPause => {
                node.process.signal("STOP");
                wait(&mut random, 500..8_000);
                node.process.signal("CONT");
            }
        }
        let rows = counts(&database, "p");
        assert_eq!(rows.0, rows.1, "{fault:?} of {}: a record is there twice", names[struck]);
        wait_for("further rows", || counts(&database, "p").0 > rows.0);
    }
    wait_for("units of each node", spread);
    assert_eq!(ask(nodes[0].process.address(), "POST", "/v1/pipelines/p/stop", "", "{}").status, 200);
    wait_for("the stop", || places(&database).is_empty());
    let (rows, distinct) = counts(&database, "p");
    let gaps = database.query(
        "SELECT part, first, rows, top FROM (SELECT id::bigint % 16 AS part, min(id::bigint) AS first, count(*) AS rows, \
         max(id::bigint) AS top FROM p GROUP BY 1) parts \
         WHERE first <> CASE part WHEN 0 THEN 16 ELSE part END OR rows <> (top - first) / 16 + 1",
    );
    let parts = database.query("SELECT count(DISTINCT id::bigint % 16) FROM p");
    let fallen = database.query("SELECT * FROM fallen");
    say(&format!(
        "{} kills, {} long and {} short pauses; {rows} rows, doubles {}, partitions with gaps {}, claims that fell {}; \
         until the others had the units at most {:.1} s",
        done[0],
        done[1],
        done[2],
        rows - distinct,
        gaps.len(),
        fallen.len(),
        slowest.as_secs_f64()
    ));
    assert_eq!(rows, distinct, "a record is there twice");
    assert!(gaps.is_empty() && parts == ["16"], "records are missing: {gaps:?}");
    assert!(fallen.is_empty(), "a claim was replaced by an earlier one: {fallen:?}");
    nodes.into_iter().for_each(|node| end(node.process));
}
