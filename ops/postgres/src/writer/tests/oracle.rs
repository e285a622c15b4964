//! Batches leave what row-by-row statements leave, and refuse what those refuse.

use std::fmt::Write as _;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Upsert {
        key: u8,
        a: Option<u8>,
        b: Option<i8>,
    },
    Delete {
        key: u8,
    },
    /// Without a key, but perhaps with a value in its column.
    Insert {
        id: Option<u8>,
        a: u8,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..5u8, proptest::option::of(0..4u8), proptest::option::of(-1..4i8))
            .prop_map(|(key, a, b)| Op::Upsert { key, a, b }),
        3 => (0..5u8).prop_map(|key| Op::Delete { key }),
        1 => (proptest::option::of(0..5u8), 0..9u8).prop_map(|(id, a)| Op::Insert { id, a }),
    ]
}

impl Op {
    fn record(&self) -> Record {
        let fields = |entries: &[(&str, Option<String>)]| {
            let mut text = String::new();
            for (name, value) in entries.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
                let comma = if text.is_empty() { "" } else { "," };
                write!(text, "{comma}\"{name}\":{value}").unwrap();
            }
            format!("{{{text}}}")
        };
        match self {
            Op::Upsert { key, a, b } => create(
                &fields(&[("id", Some(key.to_string()))]),
                &fields(&[("a", a.map(|a| format!("\"u{a}\""))), ("b", b.map(|b| b.to_string()))]),
            ),
            Op::Delete { key } => record("delete", &fields(&[("id", Some(key.to_string()))]), "null"),
            Op::Insert { id, a } => {
                create("{}", &fields(&[("id", id.map(|id| id.to_string())), ("a", Some(format!("\"i{a}\"")))]))
            }
        }
    }

    fn sql(&self) -> String {
        match self {
            Op::Upsert { key, a, b } => {
                let (mut names, mut values, mut sets) = ("id".to_owned(), key.to_string(), Vec::new());
                if let Some(a) = a {
                    names += ", a";
                    values += &format!(", 'u{a}'");
                    sets.push(format!("a = 'u{a}'"));
                }
                if let Some(b) = b {
                    names += ", b";
                    values += &format!(", {b}");
                    sets.push(format!("b = {b}"));
                }
                let action = match sets.is_empty() {
                    true => "NOTHING".to_owned(),
                    false => format!("UPDATE SET {}", sets.join(", ")),
                };
                format!("INSERT INTO oracle ({names}) VALUES ({values}) ON CONFLICT (id) DO {action}")
            }
            Op::Delete { key } => format!("DELETE FROM oracle WHERE id = {key}"),
            Op::Insert { id: None, a } => format!("INSERT INTO oracle (a) VALUES ('i{a}')"),
            Op::Insert { id: Some(id), a } => format!("INSERT INTO oracle (id, a) VALUES ({id}, 'i{a}')"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_as_good_as_single_statements() {
    let Some(db) = Database::create() else { return };
    for table in ["ours", "oracle"] {
        db.query(&format!("CREATE TABLE {table} (id int UNIQUE, a text DEFAULT 'd', b int DEFAULT 0 CHECK (b >= 0))"));
    }
    let address = crate::address::Address::parse(&db.url()).unwrap();
    let oracle = address.connect(false).await.unwrap();
    let settings = Settings {
        address,
        table: TableSelector::Fixed("ours".into()),
        exactly_once: false,
        marks_schema: None,
        create_tables: false,
        add_columns: false,
        evolves: false,
        history: Default::default(),
    };
    let writer = TableWriter::open(Arc::new(settings), &host()).await.unwrap();
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let writer = std::cell::RefCell::new(writer);
        let case = (vec(op(), 1..40), any::<bool>(), 1..40usize);
        let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
        let verdict = runner.run(&case, |(ops, copied, size)| {
            let writer = &mut *writer.borrow_mut();
            let copy_from = if copied { 2 } else { usize::MAX };
            writer.copy_from = copy_from;
            if let Some(session) = &mut writer.session {
                session.set_copy_from(copy_from);
            }
            runtime.block_on(compare(&oracle, writer, &ops, size))
        });
        verdict.unwrap_or_else(|error| panic!("{error}"));
    });
}

/// Writes the operations in batches, and one by one to the other table.
async fn compare(
    oracle: &tokio_postgres::Client,
    writer: &mut TableWriter,
    ops: &[Op],
    size: usize,
) -> Result<(), TestCaseError> {
    oracle.batch_execute("TRUNCATE ours, oracle").await.unwrap();
    for batch in ops.chunks(size) {
        let mut expected = Vec::new();
        for op in batch {
            expected.push(oracle.batch_execute(&op.sql()).await.is_ok());
        }
        let records: Vec<Record> = batch.iter().map(Op::record).collect();
        let verdicts = writer.write(Write::new(&records)).await.unwrap();
        let outcomes = outcomes(&verdicts, records.len());
        for (i, op) in batch.iter().enumerate() {
            // A bad row that a later one replaces is not looked at.
            prop_assert!(outcomes[i] == "ok" || !expected[i], "{i} {op:?}: {}", outcomes[i]);
        }
    }
    let rows = |table: &str| format!("SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM {table} t");
    let ours: String = oracle.query_one(&rows("ours"), &[]).await.unwrap().get(0);
    let theirs: String = oracle.query_one(&rows("oracle"), &[]).await.unwrap().get(0);
    prop_assert_eq!(ours, theirs);
    Ok(())
}
