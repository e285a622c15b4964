//! Tables that follow the schemas of records.

use anabranch_plugin::schema::SchemaKind;
use anabranch_record::fault::FaultClass;

use super::*;

/// Registers a schema with columns and their types in SQL, and returns its version.
async fn register(host: &Host, columns: &[(&str, &str)]) -> String {
    let field = |(name, sql): &(&str, &str)| serde_json::json!({ "name": name, "type": ["null", { "type": "string", "sqlType": sql }], "default": null });
    let fields: Vec<_> = columns.iter().map(field).collect();
    let text = serde_json::json!({ "type": "record", "name": "record", "fields": fields }).to_string();
    host.schemas.create(&"t_payload".into(), SchemaKind::Avro, &text.into()).await.unwrap().version.to_string()
}

fn of_schema(version: &str, mut record: Record) -> Record {
    record.metadata.insert(key::PAYLOAD_SCHEMA_SUBJECT, "t_payload");
    record.metadata.insert(key::PAYLOAD_SCHEMA_VERSION, version);
    to("t", record)
}

const EVOLVE: (&str, &str) = ("schemaDrift", "evolve");
const COLUMNS: &str = "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute \
                       WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum";

#[tokio::test]
async fn columns_are_added_and_widened_in_order() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int, code varchar(3), sum numeric(5,2), other smallint)");
    let host = host();
    let mut writer = configure(&db.url(), &[EVOLVE]).unwrap().open(&host).await.unwrap();
    let one = register(
        &host,
        &[("id", "integer"), ("n", "integer"), ("code", "character varying(3)"), ("sum", "numeric(5,2)")],
    )
    .await;
    let two = register(
        &host,
        &[
            ("id", "bigint"),
            ("n", "bigint"),
            ("code", "character varying(9)"),
            ("sum", "numeric(8,3)"),
            ("other", "integer"),
            ("extra", "numeric(10,2)[]"),
            ("excluded", "text"),
            ("mood", "a_mood"),
            ("odd", "integer; DROP TABLE t"),
        ],
    )
    .await;
    let rows = [
        of_schema(&one, create(r#"{"id":1}"#, r#"{"id":1,"n":1,"code":"a","sum":"1.25"}"#)),
        of_schema(
            &two,
            create(
                r#"{"id":3000000000}"#,
                r#"{"id":3000000000,"n":5000000000,"code":"abcdef","sum":"12345.678","extra":["1.5"],"mood":"ok","odd":7}"#,
            ),
        ),
        of_schema(&one, create(r#"{"id":2}"#, r#"{"id":2,"n":2,"code":"b","sum":"2.00"}"#)),
    ];
    all_good(&write(&mut writer, &rows).await);
    assert_eq!(
        db.query("SELECT id, n, code, sum, extra, mood, odd FROM t ORDER BY id"),
        ["1|1|a|1.250|||", "2|2|b|2.000|||", "3000000000|5000000000|abcdef|12345.678|{1.50}|ok|7"]
    );
    let columns = [
        "id|bigint|t",
        "n|bigint|f",
        "code|character varying(9)|f",
        "sum|numeric(8,3)|f",
        "other|integer|f",
        "extra|numeric(10,2)[]|f",
        "mood|text|f",
        "odd|bigint|f",
    ];
    assert_eq!(db.query(COLUMNS), columns);
    // A narrower schema, for example after the source was replaced, changes nothing.
    let three = register(&host, &[("id", "smallint"), ("n", "integer"), ("code", "character(1)")]).await;
    all_good(&write(&mut writer, &[of_schema(&three, create(r#"{"id":4}"#, r#"{"id":4,"n":4,"code":"d"}"#))]).await);
    assert_eq!(db.query(COLUMNS), columns);
}

#[tokio::test]
async fn tables_stay_as_they_are_by_default() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let host = host();
    let mut writer = configure(&db.url(), &[]).unwrap().open(&host).await.unwrap();
    let version = register(&host, &[("id", "integer"), ("n", "bigint"), ("extra", "text")]).await;
    let rows = [
        of_schema(&version, create(r#"{"id":1}"#, r#"{"n":5000000000}"#)),
        of_schema(&version, create(r#"{"id":2}"#, r#"{"extra":"x"}"#)),
        of_schema(&version, create(r#"{"id":3}"#, r#"{"n":3}"#)),
    ];
    let outcomes = write(&mut writer, &rows).await;
    assert!(outcomes[0].starts_with("value_mismatch: ") && outcomes[1].starts_with("column_missing: "), "{outcomes:?}");
    assert_eq!(outcomes[2], "ok");
    assert_eq!(db.query(COLUMNS), ["id|integer|t", "n|integer|f"]);
}

/// A row that its table rejects after the change is at fault, and not the table.
#[tokio::test]
async fn a_row_that_is_rejected_after_a_change_is_refused() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, code varchar(3), n int CHECK (n > 0))");
    let host = host();
    let mut writer = configure(&db.url(), &[EVOLVE]).unwrap().open(&host).await.unwrap();
    let one = register(&host, &[("code", "character varying(3)")]).await;
    all_good(&write(&mut writer, &[of_schema(&one, create(r#"{"id":1}"#, r#"{"code":"a","n":1}"#))]).await);
    let two = register(&host, &[("code", "character varying(5)")]).await;
    let rows = [
        of_schema(&two, create(r#"{"id":2}"#, r#"{"code":"abcdef","n":1}"#)),
        of_schema(&two, create(r#"{"id":3}"#, r#"{"code":"abcde","n":1}"#)),
        of_schema(&two, create(r#"{"id":4}"#, r#"{"code":"abcde","n":0}"#)),
    ];
    let outcomes = write(&mut writer, &rows).await;
    assert!(
        outcomes[0].starts_with("value_rejected: ") && outcomes[2].starts_with("check_violation: "),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[1], "ok");
}

/// A column that cannot be widened keeps its type, and takes what fits.
#[tokio::test]
async fn a_column_that_others_need_stays() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int); CREATE VIEW v AS SELECT n FROM t");
    let host = host();
    let mut writer = configure(&db.url(), &[EVOLVE]).unwrap().open(&host).await.unwrap();
    let version = register(&host, &[("n", "bigint")]).await;
    let rows = [
        of_schema(&version, create(r#"{"id":1}"#, r#"{"n":1}"#)),
        of_schema(&version, create(r#"{"id":2}"#, r#"{"n":5000000000}"#)),
    ];
    let outcomes = write(&mut writer, &rows).await;
    assert_eq!(outcomes[0], "ok");
    assert!(outcomes[1].starts_with("value_mismatch: "), "{outcomes:?}");
    assert_eq!(db.query(COLUMNS), ["id|integer|t", "n|integer|f"]);
}

/// A run that another one has replaced does not change a table.
#[tokio::test]
async fn only_the_run_that_writes_changes_tables() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let host = host();
    let open = async || {
        let settings = [EVOLVE, ("exactlyOnce", "true"), ("createTables", "true")];
        configure(&db.url(), &settings).unwrap().open(&host).await.unwrap()
    };
    let version = register(&host, &[("n", "bigint"), ("extra", "text")]).await;
    let (mut zombie, mut next) = (open().await, open().await);
    for row in [
        of_schema(&version, create(r#"{"id":1}"#, r#"{"n":1}"#)),
        to("t", create(r#"{"id":1}"#, r#"{"n":1,"extra":"x"}"#)),
        to("made", create(r#"{"id":1}"#, r#"{"n":1}"#)),
    ] {
        let fault = zombie.write(Write::new(&[row])).await.unwrap_err();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "fenced"), "{fault}");
    }
    assert_eq!(db.query(COLUMNS), ["id|integer|t", "n|integer|f"]);
    assert_eq!(db.query("SELECT to_regclass('made')"), [""]);
    let rows = [of_schema(&version, create(r#"{"id":1}"#, r#"{"n":5000000000,"extra":"x"}"#))];
    all_good(&write(&mut next, &rows).await);
    assert_eq!(db.query(COLUMNS), ["id|integer|t", "n|bigint|f", "extra|text|f"]);
}

#[tokio::test]
async fn tables_are_created_with_the_types_of_the_schema() {
    let Some(db) = Database::create() else { return };
    let host = host();
    let mut writer = configure(&db.url(), &[("createTables", "true")]).unwrap().open(&host).await.unwrap();
    let version =
        register(&host, &[("id", "uuid"), ("day", "date"), ("sum", "numeric(10,2)"), ("note", "no_type")]).await;
    let id = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let rows = [of_schema(
        &version,
        create(
            &format!(r#"{{"id":"{id}"}}"#),
            &format!(r#"{{"id":"{id}","day":"0044-03-15 BC","sum":"1.50","note":"x"}}"#),
        ),
    )];
    all_good(&write(&mut writer, &rows).await);
    assert_eq!(db.query("SELECT * FROM t"), [format!("{id}|0044-03-15 BC|x|1.50")]);
    assert_eq!(db.query(COLUMNS), ["id|uuid|t", "day|date|f", "note|text|f", "sum|numeric(10,2)|f"]);
}
