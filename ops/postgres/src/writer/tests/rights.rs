use anabranch_record::fault::FaultClass;

use super::*;

/// The server's roles outlive its databases, so each test has its own.
pub(super) fn role(db: &Database, name: &str) -> String {
    let make = format!("DO $$BEGIN CREATE ROLE {name} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END$$");
    db.query(&make);
    db.url().replace("postgres@", &format!("{name}@"))
}

#[tokio::test]
async fn rows_that_a_policy_or_a_trigger_forbids_are_letters() {
    let Some(db) = Database::create() else { return };
    let url = role(&db, "tenant_one");
    db.query(
        "CREATE TABLE t (id int PRIMARY KEY, tenant int); GRANT ALL ON t TO tenant_one;
         ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON t USING (tenant = 1);
         CREATE FUNCTION deny() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN RAISE insufficient_privilege USING MESSAGE = 'not this one'; END$$;
         CREATE TRIGGER deny BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION deny()",
    );
    let mut writer = open(&url, &[("table", "t")]).await.unwrap();
    let row = |id: i32, tenant: i32| create(&format!(r#"{{"id":{id}}}"#), &format!(r#"{{"tenant":{tenant}}}"#));
    let outcomes = write(&mut writer, &[row(1, 1), row(2, 2), row(3, 1), row(4, 1)]).await;
    assert_eq!([&outcomes[0], &outcomes[3]], ["ok", "ok"], "{outcomes:#?}");
    assert!(outcomes[1].contains("row-level security policy"), "{outcomes:#?}");
    assert!(outcomes[2].contains("not this one"), "{outcomes:#?}");
    assert_eq!(db.query("SELECT id FROM t ORDER BY id"), ["1", "4"]);
    db.query("REVOKE INSERT ON t FROM tenant_one");
    let fault = writer.write(Write::new(&[row(5, 1)])).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "postgres_denied"), "{fault}");
    db.query("GRANT INSERT ON t TO tenant_one");
    all_good(&write(&mut writer, &[row(5, 1)]).await);
}

#[tokio::test]
async fn temporary_tables_are_not_needed() {
    let Some(db) = Database::create() else { return };
    let url = role(&db, "without_temp");
    db.query("DO $$BEGIN EXECUTE format('REVOKE TEMP ON DATABASE %I FROM PUBLIC', current_database()); END$$");
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int); GRANT ALL ON t TO without_temp");
    let mut writer = open(&url, &[("table", "t")]).await.unwrap();
    for n in 0..2 {
        let rows: Vec<Record> =
            (0..1000).map(|id| create(&format!(r#"{{"id":{id}}}"#), &format!(r#"{{"n":{n}}}"#))).collect();
        all_good(&write(&mut writer, &rows).await);
        assert_eq!(db.query("SELECT count(*), min(n) FROM t"), [format!("1000|{n}")]);
    }
}

#[tokio::test]
async fn marks_that_are_gone_are_no_fault_of_the_records() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let mut writer = open(&db.url(), &[("table", "t"), ("exactlyOnce", "true")]).await.unwrap();
    let rows = [create(r#"{"id":1}"#, r#"{"n":1}"#)];
    all_good(&write(&mut writer, &rows).await);
    db.query("DROP TABLE anabranch_marks, anabranch_writers");
    let fault = writer.write(Write::new(&rows)).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "marks_moved"), "{fault}");
    assert!(fault.message().contains("anabranch_writers"), "{fault}");
}

/// The right to create schemas is a right on the database, which the owner of one schema need not have.
#[tokio::test]
async fn marks_go_to_a_schema_of_our_own() {
    let Some(db) = Database::create() else { return };
    let url = role(&db, "owner_of_state");
    db.query(
        "CREATE SCHEMA state AUTHORIZATION owner_of_state; CREATE TABLE t (n int); GRANT ALL ON t TO owner_of_state",
    );
    let settings = [("table", "t"), ("exactlyOnce", "true"), ("marks.schema", "state")];
    let mut writer = open(&url, &settings).await.unwrap();
    all_good(&write(&mut writer, &[create("{}", r#"{"n":1}"#)]).await);
    assert_eq!(db.query("SELECT writes FROM state.anabranch_writers"), ["1"]);
    let missing = [("table", "t"), ("exactlyOnce", "true"), ("marks.schema", "elsewhere")];
    let fault = open(&url, &missing).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "postgres_denied"), "{fault}");
}
