mod changes;
mod drift;
mod exactly_once;
mod faults;
mod forms;
mod layout;
mod oracle;
mod order;
mod rights;
mod round_trip;
mod types;

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::Destination;
use anabranch_plugin::settings::Settings as Written;
use anabranch_plugin::testing;
use anabranch_record::metadata::key;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position, json};

use super::*;
use crate::server::Database;

fn host() -> Host {
    Host { node: "out".into(), ..testing::host() }
}

fn configure(url: &str, settings: &[(&str, &str)]) -> Result<Arc<dyn Destination>, Vec<String>> {
    let kind = crate::destination::kind();
    let pairs = [&[("url", url)], settings].concat();
    Arguments::parse(kind.specification(), &Written::from_pairs(pairs))
        .and_then(|arguments| kind.configure(&arguments))
        .map_err(|findings| findings.into_iter().map(|d| d.message).collect())
}

async fn open(url: &str, settings: &[(&str, &str)]) -> Result<Box<dyn Writer>, Fault> {
    configure(url, settings).unwrap().open(&host()).await
}

/// A record from JSON texts: `null` is absent.
fn record(operation: &str, key: &str, after: &str) -> Record {
    let data = |text: &str| match json::parse_value(text.as_bytes()).unwrap() {
        Value::Map(object) => Data::Structured(object),
        Value::Null => Data::Absent,
        other => panic!("{other:?}"),
    };
    let mut record = Record::create(Position::copy_from(b"1"), data(key), data(after));
    record.operation = operation.parse().unwrap();
    record
}

fn create(key: &str, after: &str) -> Record {
    record("create", key, after)
}

fn to(table: &str, mut record: Record) -> Record {
    record.metadata.insert(key::COLLECTION, table);
    record
}

/// The messages of refused rows; `ok` for the others.
fn outcomes(verdicts: &Verdicts, rows: usize) -> Vec<String> {
    match verdicts {
        Verdicts::All(Delivered::Durable) => vec!["ok".to_owned(); rows],
        Verdicts::Each(each) => {
            let text = |verdict: &Result<Delivered, Fault>| match verdict {
                Ok(Delivered::Durable) => "ok".to_owned(),
                Ok(Delivered::Accepted) => "accepted".to_owned(),
                Err(fault) => format!("{}: {}", fault.code(), fault.message()),
            };
            each.iter().map(text).collect()
        }
        other => panic!("{other:?}"),
    }
}

async fn write(writer: &mut Box<dyn Writer>, rows: &[Record]) -> Vec<String> {
    outcomes(&writer.write(Write::new(rows)).await.unwrap(), rows.len())
}

#[track_caller]
fn all_good(outcomes: &[String]) {
    assert!(outcomes.iter().all(|outcome| outcome == "ok"), "{outcomes:#?}");
}

#[tokio::test]
async fn rows_are_inserted_updated_and_deleted() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, name text, n int DEFAULT 7)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let rows = [
        create(r#"{"id":1}"#, r#"{"name":"a"}"#),
        record("snapshot", r#"{"id":2}"#, r#"{"name":"b","n":1}"#),
        create(r#"{"id":3}"#, "{}"),
        create("{}", r#"{"id":4,"name":"d"}"#),
        record("update", r#"{"id":2}"#, r#"{"name":"B"}"#),
        record("delete", r#"{"id":9}"#, "null"),
    ];
    all_good(&write(&mut writer, &rows).await);
    assert_eq!(db.query("SELECT * FROM t ORDER BY id"), ["1|a|7", "2|B|1", "3||7", "4|d|7"]);
    let rows = [
        record("delete", r#"{"id":1}"#, r#"{"ignored":true}"#),
        record("update", r#"{"id":3}"#, r#"{"id":3,"name":"the key's"}"#),
        record("update", r#"{"id":5}"#, r#"{"name":"new"}"#),
    ];
    all_good(&write(&mut writer, &rows).await);
    assert_eq!(db.query("SELECT * FROM t ORDER BY id"), ["2|B|1", "3|the key's|7", "4|d|7", "5|new|7"]);
    writer.close().await.unwrap();
}

/// The rows of the reference pipeline (spec § 4.5): empty keys insert, composite keys are columns too.
#[tokio::test]
async fn the_collection_names_the_table() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE TABLE file_items (id bigserial PRIMARY KEY, file_id uuid NOT NULL, user_id uuid, content text, tokens int);
         CREATE SCHEMA other;
         CREATE TABLE other.collection_files (file_id uuid, collection_id uuid, user_id uuid,
             PRIMARY KEY (file_id, collection_id));",
    );
    let mut writer = open(&db.url(), &[]).await.unwrap();
    let file = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let item = format!(r#"{{"file_id":"{file}","user_id":"{file}","content":"x","tokens":3}}"#);
    let keys = format!(r#"{{"file_id":"{file}","collection_id":"{file}"}}"#);
    let user = format!(r#"{{"user_id":"{file}"}}"#);
    let rows = [
        to("file_items", create("{}", &item)),
        to("other.collection_files", create(&keys, &user)),
        to("file_items", create("{}", &item)),
        to("other.collection_files", create(&keys, &user)),
    ];
    all_good(&write(&mut writer, &rows).await);
    assert_eq!(db.query("SELECT count(*), max(file_id::text) FROM file_items"), [format!("2|{file}")]);
    assert_eq!(db.query("SELECT * FROM other.collection_files"), [format!("{file}|{file}|{file}")]);
}

#[tokio::test]
async fn keys_may_be_json_text() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE bench (k text PRIMARY KEY, id bigint)");
    let mut writer = open(&db.url(), &[("table", "{{ .Payload.After.table }}")]).await.unwrap();
    let mut row = create("null", r#"{"id":1,"table":"bench"}"#);
    row.key = Data::text(r#"{"k":"x"}"#);
    let lacks = "column_missing: \"bench\" has no column \"table\"; it has k, id";
    assert!(write(&mut writer, &[row]).await[0].starts_with(lacks));
    let mut writer = open(&db.url(), &[("table", "bench")]).await.unwrap();
    let mut row = create("null", r#"{"id":1}"#);
    row.key = Data::text(r#"{"k":"x"}"#);
    all_good(&write(&mut writer, &[row]).await);
    assert_eq!(db.query("SELECT * FROM bench"), ["x|1"]);
}

#[tokio::test]
async fn missing_tables_and_columns_are_made_on_demand() {
    let Some(db) = Database::create() else { return };
    let settings = [("createTables", "true"), ("addColumns", "true")];
    let mut writer = open(&db.url(), &settings).await.unwrap();
    let rows = [
        to("a", create(r#"{"id":1}"#, r#"{"x":1,"tags":["p"],"late":null}"#)),
        to("b", create("{}", r#"{"t":"only"}"#)),
        to("a", create(r#"{"id":2}"#, r#"{"x":1.5,"ok":true}"#)),
        to("a", create(r#"{"id":2}"#, r#"{"new \"one":"v"}"#)),
    ];
    all_good(&write(&mut writer, &rows).await);
    all_good(&write(&mut writer, &[to("a", record("update", r#"{"id":1}"#, r#"{"more":3}"#))]).await);
    assert_eq!(
        db.query("SELECT id, x, tags, late, ok, \"new \"\"one\", more FROM a ORDER BY id"),
        ["1|1|[\"p\"]||||3", "2|1.5|||t|v|"]
    );
    assert_eq!(db.query("SELECT t FROM b"), ["only"]);
    let columns = "SELECT data_type FROM information_schema.columns WHERE table_name = 'a' ORDER BY column_name";
    assert_eq!(db.query(columns), ["bigint", "text", "bigint", "text", "boolean", "jsonb", "double precision"]);
    assert_eq!(db.query("SELECT count(*) FROM pg_index WHERE indrelid = 'a'::regclass AND indisprimary"), ["1"]);
}

/// PostgreSQL quotes the rejected value: the message had the length of the record, in the log and in every answer.
#[tokio::test]
async fn a_large_value_that_is_rejected_is_not_quoted_whole() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE DOMAIN short AS text CHECK (length(value) < 10); CREATE TABLE t (a jsonb, b short, c inet)");
    let value = "z".repeat(6_000_000);
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    for (column, code, said) in [
        ("a", "value_rejected", "invalid input syntax for type json"),
        ("b", "check_violation", "violates check constraint"),
        ("c", "value_rejected", "invalid input syntax for type inet"),
    ] {
        let message = &write(&mut writer, &[create("{}", &format!(r#"{{"{column}":"{value}"}}"#))]).await[0];
        assert!(message.len() < 4096, "{column}: {} bytes", message.len());
        assert!(message.starts_with(code) && message.contains(said) && message.contains("SQLSTATE"), "{message}");
        assert_eq!(message.contains(" more bytes)"), column != "b", "{message}");
    }
}

#[tokio::test]
async fn identity_columns_take_the_values_of_records() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int, b int GENERATED ALWAYS AS (a + 1) STORED)",
    );
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let outcomes = write(
        &mut writer,
        &[create(r#"{"id":10}"#, r#"{"a":1}"#), create("{}", r#"{"a":2}"#), create(r#"{"id":11}"#, r#"{"a":1,"b":3}"#)],
    )
    .await;
    assert_eq!(outcomes[..2], ["ok", "ok"]);
    assert!(outcomes[2].starts_with("column_generated: "), "{}", outcomes[2]);
    assert_eq!(db.query("SELECT * FROM t ORDER BY id"), ["1|2|3", "10|1|2"]);
}

#[test]
fn settings_are_checked_before_anything_is_opened() {
    let findings = |url: &str, settings: &[(&str, &str)]| configure(url, settings).err().unwrap_or_default();
    assert_eq!(
        findings("postgresql://u:hunter2@h/d?sslmode=on", &[("table", "a.b.c")]),
        [
            "url: sslmode must be disable, allow, prefer, require, verify-ca or verify-full; expected \
             postgresql://<user>:<password>@<host>:<port>/<database>",
            "table: this is not a table name: it has more than two parts; write it as table or schema.table, and \
             put a name with a dot in double quotes",
        ]
    );
    for table in
        ["{{ .Key.x }}", "{{ .Key.x }}.t", "s.{{ .Key.x }}", "{{ .Key.x }}.t.{{ .Key.y }}", "{{ .Key.x }}\".t.u\""]
    {
        assert_eq!(findings("postgresql://u@h/d", &[("table", table)]), [] as [String; 0], "{table}");
    }
    for table in ["a.b.{{ .Key.x }}", "{{ .Key.x }}.a.b", ".{{ .Key.x }}", "{{ .Key.x }}.", "a..{{ .Key.x }}"] {
        let found = findings("postgresql://u@h/d", &[("table", table)]);
        assert!(
            matches!(&found[..], [one] if one.starts_with("table: this is not a table name: ")),
            "{table}: {found:?}"
        );
    }
}
