use super::*;

/// Keys that are equal to PostgreSQL and differ in bytes: the order of the records decides.
#[tokio::test]
async fn the_last_record_of_a_key_wins_however_it_is_written() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE DOMAIN money2 AS numeric(10, 2); CREATE DOMAIN upright AS bigint;",
    );
    let citext = db.query("SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'") == ["1"];
    if citext {
        db.query("CREATE EXTENSION citext");
    }
    let cases = [
        ("citext", "Bob", "bob"),
        ("numeric", "1.0", "1.00"),
        ("money2", "1.239", "1.24"),
        ("inet", "10.0.0.1", "10.0.0.1/32"),
        ("char(5)", "ab", "ab "),
        ("varchar(2)", "ab  ", "ab"),
        ("text COLLATE blind", "Bob", "bob"),
        ("float8", "-0", "0"),
        ("timestamp(0)", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00Z"),
    ];
    for (at, (sql_type, one, other)) in cases.into_iter().filter(|case| citext || case.0 != "citext").enumerate() {
        let table = format!("t{at}");
        db.query(&format!("CREATE TABLE {table} (id {sql_type} PRIMARY KEY, v int, w int)"));
        let mut writer = open(&db.url(), &[("table", &table)]).await.unwrap();
        let key = |id: &str| format!(r#"{{"id":"{id}"}}"#);
        let rows = [create(&key(one), r#"{"v":1}"#), record("delete", &key(other), "null")];
        all_good(&write(&mut writer, &rows).await);
        assert_eq!(db.query(&format!("SELECT count(*) FROM {table}")), ["0"], "{sql_type}: deleted");
        let rows =
            [create(&key(one), r#"{"v":1}"#), create(&key(other), r#"{"v":2,"w":2}"#), create(&key(one), r#"{"v":3}"#)];
        all_good(&write(&mut writer, &rows).await);
        assert_eq!(db.query(&format!("SELECT v, w FROM {table}")), ["3|2"], "{sql_type}: the last one");
        let rows =
            [record("delete", &key(other), "null"), create(&key(one), r#"{"v":4}"#), create(&key(other), r#"{"v":5}"#)];
        all_good(&write(&mut writer, &rows).await);
        assert_eq!(db.query(&format!("SELECT v, w FROM {table}")), ["5|"], "{sql_type}: written anew");
    }
}

/// Where equal bytes are equal keys, a batch of mixed records is still few statements.
#[tokio::test]
async fn exact_keys_are_written_together() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE TABLE t (id varchar(20), n numeric(20, 2), PRIMARY KEY (id, n)); CREATE TABLE statements (n int);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN INSERT INTO statements VALUES (1); RETURN NULL; END$$;
         CREATE TRIGGER note AFTER INSERT OR DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION note()",
    );
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let rows: Vec<Record> =
        (0..64).map(|n| record(["create", "delete"][n % 2], &format!(r#"{{"id":"k{n}","n":{n}}}"#), "{}")).collect();
    all_good(&write(&mut writer, &rows).await);
    assert_eq!(db.query("SELECT count(*) FROM statements"), ["2"]);
}

#[tokio::test]
async fn a_deletion_needs_a_unique_key() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (a int, b int, v int, PRIMARY KEY (a, b)); INSERT INTO t SELECT 1, n, n FROM generate_series(1, 5) n");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let rows = [record("delete", r#"{"a":1}"#, "null"), record("delete", r#"{"a":1,"b":2}"#, "null")];
    assert_eq!(
        write(&mut writer, &rows).await,
        ["key_not_unique: \"t\" has no primary key or unique constraint on (a): its unique keys are (a, b)", "ok"]
    );
    assert_eq!(db.query("SELECT count(*) FROM t"), ["4"]);
}

/// A column that must have a value is no obstacle to updating others of a row that is there.
#[tokio::test]
async fn an_update_of_some_columns_leaves_the_others() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, must int NOT NULL, a int, b int NOT NULL DEFAULT 3)");
    for size in [1, 3, 600] {
        db.query("TRUNCATE t");
        db.query(&format!("INSERT INTO t SELECT n, n FROM generate_series(1, {size}) n"));
        let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
        let update = |n: i32, after: &str| record("update", &format!(r#"{{"id":{n}}}"#), after);
        let mut rows: Vec<Record> = (1..=size).map(|n| update(n, &format!(r#"{{"a":{n}}}"#))).collect();
        rows.push(update(1, r#"{"a":100}"#));
        rows.push(update(1, "{}"));
        all_good(&write(&mut writer, &rows).await);
        assert_eq!(
            db.query("SELECT count(*), count(*) FILTER (WHERE a = CASE id WHEN 1 THEN 100 ELSE id END) FROM t"),
            [format!("{size}|{size}")]
        );
        let rows = [
            update(1, r#"{"a":7}"#),
            update(10_000, r#"{"a":7}"#),
            create(r#"{"id":10001}"#, r#"{"must":1}"#),
            update(10_001, r#"{"a":8}"#),
            record("delete", r#"{"id":1}"#, "null"),
            update(1, r#"{"a":9}"#),
        ];
        let outcomes = write(&mut writer, &rows).await;
        let failed: Vec<bool> = outcomes.iter().map(|o| o.starts_with("not_null_violation: ")).collect();
        assert_eq!(failed, [false, true, false, false, false, true], "{outcomes:#?}");
        assert_eq!(db.query("SELECT id, must, a FROM t WHERE id IN (1, 10000, 10001)"), ["10001|1|8"]);
    }
}
