//! The load makes the changes that a source must read, and notes each.

use super::checker::{History, differences};
use super::load::{Load, TABLES, copy_tables, source_tables};
use super::server::Database;

fn loaded(seed: u64, steps: usize) -> Option<Database> {
    let db = Database::create()?;
    db.query(&source_tables());
    let mut load = Load::connect(&db.url(), seed).unwrap();
    load.run(steps).unwrap();
    load.commit().unwrap();
    Some(db)
}

#[test]
fn the_same_seed_makes_the_same_rows() {
    let (Some(one), Some(other)) = (loaded(7, 1500), loaded(7, 1500)) else { return };
    // All but the times, and the numbers of changes: one statement may change rows in any order.
    for (db, table) in [&one, &other].into_iter().flat_map(|db| TABLES.map(|table| (db, table))) {
        let at = if table == "plain" { ", at = NULL" } else { "" };
        db.query(&format!("ALTER TABLE {table} DISABLE TRIGGER USER; UPDATE {table} SET change = 0{at}"));
    }
    let found = differences(&mut one.session(), &mut other.session());
    assert!(found.is_empty(), "{found:#?}");
    for table in TABLES {
        let rows: usize = one.query(&format!("SELECT count(*) FROM {table}"))[0].parse().unwrap();
        assert!(rows > 20, "{table} has {rows} rows");
    }
}

#[test]
fn differences_and_states_of_a_copy_are_found() {
    let (Some(db), Some(copy)) = (loaded(3, 600), Database::create()) else { return };
    copy.query(&copy_tables());
    let (mut source, mut target) = (db.session(), copy.session());
    // The last states, in the order of their changes.
    for table in TABLES {
        let rows = source.run(&format!("COPY (SELECT * FROM {table} ORDER BY change) TO STDOUT"));
        target.run(&format!("COPY {table} FROM STDIN;\n{}\n\\.", rows.join("\n")));
    }
    assert!(differences(&mut source, &mut target).is_empty());
    let history = History::read(&mut source);
    let states = history.compare_states(&History::read(&mut target), 0);
    assert_eq!(states, Default::default());
    target.run("UPDATE plain SET n = n + 1 WHERE id = (SELECT min(id) FROM plain)");
    assert_eq!(differences(&mut source, &mut target).len(), 1);
    target.run("INSERT INTO plain (id, n, change) VALUES (-1, 0, -1)");
    assert_eq!(history.compare_states(&History::read(&mut target), 0).repeated, 1, "the update wrote the change again");
}
