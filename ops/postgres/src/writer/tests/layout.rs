use anabranch_record::fault::FaultClass;

use super::*;

const NEW_YORK: &str =
    "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(), 'America/New_York'); END$$";

#[tokio::test]
async fn a_changed_type_is_noticed_before_anything_is_kept() {
    let Some(db) = Database::create() else { return };
    db.query(NEW_YORK);
    for (at, size) in [1, 3, 600].into_iter().enumerate() {
        let table = format!("t{at}");
        db.query(&format!("CREATE TABLE {table} (id int PRIMARY KEY, ts timestamp, n numeric(10, 2), s text)"));
        let mut writer = open(&db.url(), &[("table", &table)]).await.unwrap();
        let rows = |from: i32| -> Vec<Record> {
            let after = r#"{"ts":"2026-01-01T10:00:00","n":"1.25","s":"abc"}"#;
            (from..from + size).map(|n| create(&format!(r#"{{"id":{n}}}"#), after)).collect()
        };
        all_good(&write(&mut writer, &rows(0)).await);
        db.query(&format!(
            "ALTER TABLE {table} ALTER ts TYPE timestamptz USING ts AT TIME ZONE 'UTC', ALTER n TYPE float8"
        ));
        all_good(&write(&mut writer, &rows(1000)).await);
        let sql = format!("SELECT DISTINCT ts AT TIME ZONE 'UTC', n FROM {table}");
        assert_eq!(db.query(&sql), ["2026-01-01 10:00:00|1.25"], "{size}");
        db.query(&format!("ALTER TABLE {table} ALTER n TYPE int"));
        let fault = writer.write(Write::new(&rows(2000))).await.unwrap_err();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "value_mismatch"), "{fault}");
        assert!(fault.message().starts_with("column \"n\" (integer)"), "{fault}");
        assert_eq!(db.query(&format!("SELECT count(*) FROM {table} WHERE id >= 2000")), ["0"]);
    }
}

#[tokio::test]
async fn a_corrected_table_takes_the_records() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int, n int, g int GENERATED ALWAYS AS (n) STORED)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let first = |outcomes: Vec<String>| outcomes[0].split(':').next().unwrap().to_owned();
    let keyed = [create(r#"{"id":1}"#, r#"{"n":1}"#)];
    assert_eq!(first(write(&mut writer, &keyed).await), "key_not_unique");
    db.query("ALTER TABLE t ADD PRIMARY KEY (id)");
    all_good(&write(&mut writer, &keyed).await);
    let large = [create(r#"{"id":2}"#, r#"{"n":5000000000}"#)];
    assert_eq!(first(write(&mut writer, &large).await), "value_mismatch");
    db.query("ALTER TABLE t DROP COLUMN g, ALTER n TYPE bigint, ADD g int GENERATED ALWAYS AS (1) STORED");
    all_good(&write(&mut writer, &large).await);
    let generated = [create(r#"{"id":3}"#, r#"{"n":5000000000,"g":4}"#)];
    assert_eq!(first(write(&mut writer, &generated).await), "column_generated");
    db.query("ALTER TABLE t ALTER g DROP EXPRESSION");
    all_good(&write(&mut writer, &generated).await);
    db.query("DROP TABLE t; CREATE TABLE t (id text PRIMARY KEY, n text, g text)");
    all_good(&write(&mut writer, &generated).await);
    assert_eq!(db.query("SELECT * FROM t"), ["3|5000000000|4"]);
}

#[tokio::test]
async fn what_postgresql_refuses_to_make_is_one_records_letter() {
    let Some(db) = Database::create() else { return };
    let settings = [("createTables", "true"), ("addColumns", "true")];
    let mut writer = open(&db.url(), &settings).await.unwrap();
    let long = "x".repeat(100);
    let many: Vec<String> = (0..1700).map(|n| format!(r#""c{n}":1"#)).collect();
    let many = format!("{{{}}}", many.join(","));
    for (round, table) in [("made", "a"), ("extended", "a"), ("made", "b")] {
        let rows = [
            to(table, create(r#"{"id":1}"#, &format!(r#"{{"{round}":1}}"#))),
            to(table, create(r#"{"id":2}"#, &format!(r#"{{"{long}":1}}"#))),
            to(table, create(r#"{"id":3}"#, r#"{"xmin":1}"#)),
            to("nowhere.t", create(r#"{"id":4}"#, r#"{"v":1}"#)),
            to(table, create(r#"{"id":5}"#, &many)),
            to(table, create(r#"{"id":6}"#, &format!(r#"{{"{round}":1,"{round}2":1}}"#))),
        ];
        let outcomes = write(&mut writer, &rows).await;
        assert_eq!([&outcomes[0], &outcomes[5]], ["ok", "ok"], "{outcomes:#?}");
        assert!(outcomes[1].starts_with("column_name: "), "{outcomes:#?}");
        assert!(outcomes[2].contains("system column"), "{outcomes:#?}");
        assert!(outcomes[3].contains("schema \"nowhere\" does not exist"), "{outcomes:#?}");
        assert!(outcomes[4].contains("1600 columns"), "{outcomes:#?}");
        let sql = format!("SELECT id, {round}, {round}2 FROM {table} WHERE {round} = 1 ORDER BY id");
        assert_eq!(db.query(&sql), ["1|1|", "6|1|1"]);
    }
    let outcomes = write(&mut writer, &[to("c3", create(r#"{"id":1}"#, r#"{"xmin":1}"#))]).await;
    assert!(outcomes[0].contains("system column"), "{outcomes:?}");
}

#[tokio::test]
async fn a_time_without_an_offset_is_in_utc() {
    let Some(db) = Database::create() else { return };
    db.query(NEW_YORK);
    db.query("CREATE TABLE t (a timetz, b tstzrange, c tstzrange[])");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let range = "[2026-01-01 10:00,2026-01-01 11:00)";
    let row = create("{}", &format!(r#"{{"a":"10:00","b":"{range}","c":["{range}"]}}"#));
    all_good(&write(&mut writer, &[row]).await);
    assert_eq!(
        db.query("SELECT a, lower(b) AT TIME ZONE 'UTC', lower(c[1]) AT TIME ZONE 'UTC' FROM t"),
        ["10:00:00+00|2026-01-01 10:00:00|2026-01-01 10:00:00"]
    );
}
