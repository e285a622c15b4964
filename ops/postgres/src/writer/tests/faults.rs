use std::time::Duration;

use anabranch_record::Operation;
use anabranch_record::fault::FaultClass;

use super::*;
use crate::server::Server;

#[tokio::test]
async fn only_bad_rows_are_refused_each_with_its_own_reason() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE TABLE t (id int PRIMARY KEY, mail text UNIQUE, age int NOT NULL CHECK (age < 200), boss int,
             FOREIGN KEY (boss) REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)",
    );
    db.query("INSERT INTO t VALUES (-1, 'taken', 1)");
    for size in [6, 1000] {
        db.query("DELETE FROM t WHERE id >= 0");
        let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
        let mut rows: Vec<Record> = (0..size)
            .map(|n| create(&format!(r#"{{"id":{n}}}"#), &format!(r#"{{"mail":"m{n}","age":1,"boss":null}}"#)))
            .collect();
        rows[0] = create(r#"{"id":0}"#, r#"{"mail":"taken","age":1,"boss":null}"#);
        rows[1] = create(r#"{"id":1}"#, r#"{"mail":"m1","age":500,"boss":null}"#);
        rows[2] = create(r#"{"id":2}"#, r#"{"mail":"m2","boss":null}"#);
        rows[3] = create(r#"{"id":3}"#, r#"{"mail":"m3","age":"old","boss":null}"#);
        rows[4] = create(r#"{"id":4}"#, r#"{"mail":"m4","age":1,"boss":777777}"#);
        let outcomes = write(&mut writer, &rows).await;
        let expected = [
            "unique_violation: \"t\": PostgreSQL: duplicate key value violates unique constraint \"t_mail_key\" \
             (SQLSTATE 23505): Key (mail)=(taken) already exists.",
            "check_violation: \"t\": PostgreSQL: new row for relation \"t\" violates check constraint \"t_age_check\" \
             (SQLSTATE 23514): Failing row contains (1, m1, 500, null).",
            "not_null_violation: \"t\": PostgreSQL: null value in column \"age\" of relation \"t\" violates not-null \
             constraint (SQLSTATE 23502): Failing row contains (2, m2, null, null).",
            "value_mismatch: column \"age\" (integer) of \"t\": the text \"old\" is not an integer",
            "foreign_key_violation: \"t\": PostgreSQL: insert or update on table \"t\" violates foreign key constraint \
             \"t_boss_fkey\" (SQLSTATE 23503): Key (boss)=(777777) is not present in table \"t\".",
        ];
        assert_eq!(outcomes[..5], expected);
        all_good(&outcomes[5..]);
        assert_eq!(db.query("SELECT count(*) FROM t WHERE id >= 0"), [(size - 5).to_string()]);
        // The writer goes on as before.
        all_good(&write(&mut writer, &rows[5..]).await);
    }
}

#[tokio::test]
async fn records_without_what_a_row_needs_are_refused() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int, name text, UNIQUE (id, name)); CREATE TABLE users (id int)");
    let mut writer = open(&db.url(), &[]).await.unwrap();
    let raw = |key: Data, after: Data| {
        let mut record = create("{}", "{}");
        (record.key, record.payload.after) = (key, after);
        to("t", record)
    };
    let fields = || create("{}", r#"{"id":1}"#).payload.after;
    let rows = [
        create("{}", r#"{"id":1}"#),
        to("user", create("{}", r#"{"id":1}"#)),
        to("t", create("{}", r#"{"nmae":"x"}"#)),
        to("t", create(r#"{"id":1}"#, r#"{"name":"x"}"#)),
        to("t", record("update", "{}", r#"{"name":"x"}"#)),
        to("t", record("delete", "null", "null")),
        to("t", create("{}", "{}")),
        to("t", create(r#"{"id":1,"name":null}"#, "{}")),
        to("a..b", create("{}", r#"{"id":1}"#)),
        raw(Data::text("k1"), fields()),
        raw(Data::Absent, Data::text("raw")),
        to("t", create("{}", r#"{"id":1}"#)),
    ];
    assert_eq!(
        write(&mut writer, &rows).await,
        [
            "table_unknown: the record has no metadata recfmt.collection that names its table: set it, or set table",
            "table_missing: the table \"user\" does not exist; did you mean \"users\"?",
            "column_missing: \"t\" has no column \"nmae\"; did you mean \"name\"?",
            "key_not_unique: \"t\" has no primary key or unique constraint on (id): its unique keys are (id, name)",
            "key_missing: a record of the operation update needs a key that identifies the row",
            "key_missing: a record of the operation delete needs a key that identifies the row",
            "nothing_to_write: the record has no key and no fields",
            "key_null: the field \"name\" of the key is null: it identifies no row of \"t\"",
            "table_name: \"a..b\" is not a table name: it is empty",
            "key_raw: the key is raw data and not a JSON object with the key's columns: set .Key to such an object, \
             for example {\"id\": 1}, or to {} for rows without a key",
            "payload_raw: the payload is raw data, not fields: decode it earlier, for example with json.decode",
            "ok",
        ]
    );
    assert_eq!(db.query("SELECT * FROM t"), ["1|"]);
}

#[tokio::test]
async fn changed_tables_are_looked_up_again() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, a text)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let rows = |from: i32, field: &str| -> Vec<Record> {
        (from..from + 100).map(|n| create(&format!(r#"{{"id":{n}}}"#), &format!(r#"{{"{field}":"{n}"}}"#))).collect()
    };
    all_good(&write(&mut writer, &rows(0, "a")).await);
    db.query("ALTER TABLE t ADD COLUMN later int");
    all_good(&write(&mut writer, &rows(100, "later")).await);
    db.query("ALTER TABLE t ALTER COLUMN a TYPE int USING a::int");
    all_good(&write(&mut writer, &rows(200, "a")).await);
    all_good(&write(&mut writer, &rows(300, "a")[..1]).await);
    db.query("ALTER TABLE t DROP COLUMN later");
    let outcomes = write(&mut writer, &rows(400, "nmae")[..7]).await;
    let lacks = "column_missing: \"t\" has no column \"nmae\"; it has id, a; ";
    assert!(outcomes.iter().all(|o| o.starts_with(lacks)), "{outcomes:?}");
}

#[tokio::test]
async fn a_field_that_a_table_lacks_names_the_setting_that_adds_columns() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, a text)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let remedy = "; `addColumns: true` adds a column for such a field";
    let b = create(r#"{"id":1}"#, r#"{"b":"x"}"#);
    let lacks = format!("column_missing: \"t\" has no column \"b\"; it has id, a{remedy}");
    assert_eq!(write(&mut writer, std::slice::from_ref(&b)).await, [lacks.as_str()]);
    // Of a whole write too.
    let text = writer.write(Write::new(&vec![b; 8])).await.unwrap_err().to_string();
    assert!(text.contains(remedy), "{text}");
    // A column of the key would not be unique, and a slip of the pen is no new column.
    let key = create(r#"{"order":1}"#, r#"{"a":"x"}"#);
    assert_eq!(write(&mut writer, &[key]).await, ["column_missing: \"t\" has no column \"order\"; it has id, a"]);
    let slip = create(r#"{"id":1}"#, r#"{"idd":"x"}"#);
    assert_eq!(
        write(&mut writer, &[slip]).await,
        ["column_missing: \"t\" has no column \"idd\"; did you mean \"id\"?"]
    );
}

/// A missing table or column is a fault of the destination: it retries the rows and dead-letters none.
#[tokio::test]
async fn a_table_that_is_dropped_or_altered_is_retried() {
    let Some(db) = Database::create() else { return };
    let make = "CREATE TABLE t (id int PRIMARY KEY, a text, b inet)";
    for settings in [vec![("table", "t")], vec![], vec![("table", "t"), ("exactlyOnce", "true")]] {
        db.query(&format!("DROP TABLE IF EXISTS t; {make}"));
        let mut writer = open(&db.url(), &settings).await.unwrap();
        let row = |n: i32| to("t", create(&format!(r#"{{"id":{n}}}"#), &format!(r#"{{"a":"{n}","b":"10.0.0.1"}}"#)));
        all_good(&write(&mut writer, &[row(0)]).await);
        for (n, (damage, mend, code, words)) in [
            ("DROP TABLE t", make, "table_missing", "the table \"t\" does not exist"),
            ("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a text", "column_missing", "no column \"a\""),
            (
                "ALTER TABLE t ALTER COLUMN a TYPE uuid USING NULL",
                "ALTER TABLE t ALTER COLUMN a TYPE text",
                "value_mismatch",
                "column \"a\" (uuid)",
            ),
            (
                "ALTER TABLE t DROP CONSTRAINT t_pkey",
                "ALTER TABLE t ADD PRIMARY KEY (id)",
                "key_not_unique",
                "no primary key",
            ),
            (
                // PostgreSQL itself reads the text of such a type.
                "ALTER TABLE t ALTER COLUMN b TYPE interval USING NULL",
                "ALTER TABLE t ALTER COLUMN b TYPE inet USING NULL",
                "value_rejected",
                "invalid input syntax for type interval",
            ),
            (
                "ALTER TABLE t ADD COLUMN c int; UPDATE t SET c = 1; ALTER TABLE t ALTER COLUMN c SET NOT NULL",
                "ALTER TABLE t DROP COLUMN c",
                "not_null_violation",
                "null value in column \"c\"",
            ),
            (
                "ALTER TABLE t RENAME TO other",
                "ALTER TABLE other RENAME TO t",
                "table_missing",
                "the table \"t\" does not exist",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let n = n as i32 * 10 + 1;
            // A single row, and many.
            for count in [1, 9] {
                db.query(damage);
                let rows: Vec<Record> = (n..n + count).map(row).collect();
                for _ in 0..2 {
                    let fault = writer.write(Write::new(&rows)).await.unwrap_err();
                    assert_eq!(
                        (fault.class(), fault.code().name()),
                        (FaultClass::Transient, code),
                        "{damage}: {fault}"
                    );
                    assert!(fault.message().contains(words) && fault.message().contains("retries"), "{fault}");
                }
                db.query(mend);
                all_good(&write(&mut writer, &rows).await);
            }
        }
        writer.close().await.unwrap();
    }
}

/// A run that starts while the table is away waits for it, if an earlier run of the plan had it.
#[tokio::test]
async fn a_recovery_waits_for_the_table() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY)");
    let destination = configure(&db.url(), &[("table", "t")]).unwrap();
    drop(destination.open(&host()).await.unwrap());
    db.query("DROP TABLE t");
    let fault = destination.open(&host()).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "table_missing"), "{fault}");
    let fault = open(&db.url(), &[("table", "t")]).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "table_missing"), "{fault}");
}

/// The same applies if the pipeline never wrote a row: every row of a call fails because of the same missing part.
#[tokio::test]
async fn rows_that_all_lack_the_same_are_not_at_fault() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, name text, at inet)");
    let mut writer = open(&db.url(), &[]).await.unwrap();
    let row = |table: &str, after: &str| to(table, create(r#"{"id":1}"#, after));
    for (table, after, code) in [
        ("gone", "{}", "table_missing"),
        ("t", r#"{"nmae":"x"}"#, "column_missing"),
        ("t", r#"{"name":{"a":1},"id":"x"}"#, "row"),
    ] {
        let mut rows = vec![row(table, after); 8];
        match code {
            "row" => drop(writer.write(Write::new(&rows)).await.unwrap()),
            code => {
                let fault = writer.write(Write::new(&rows)).await.unwrap_err();
                assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, code), "{fault}");
                // With one that fits, or fewer, they are odd records.
                rows[7] = row("t", r#"{"name":"x"}"#);
                let outcomes = write(&mut writer, &rows).await;
                assert!(outcomes[..7].iter().all(|outcome| outcome.starts_with(code)), "{outcomes:?}");
                assert_eq!(outcomes[7], "ok");
            }
        }
    }
}

/// A trigger fails because of an object that does not exist; no row causes this.
#[tokio::test]
async fn rows_that_a_broken_trigger_refuses_are_not_at_fault() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE TABLE t (id int PRIMARY KEY, n int);
         CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN IF NEW.n = 0 THEN RETURN NEW; END IF; INSERT INTO audits VALUES (NEW.id); RETURN NEW; END$$;
         CREATE FUNCTION unset() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN PERFORM currval('numbers'); RETURN NEW; END$$;
         CREATE SEQUENCE numbers;
         CREATE TRIGGER audit BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION audit()",
    );
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let row = |id: i32, n: i32| create(&format!(r#"{{"id":{id}}}"#), &format!(r#"{{"n":{n}}}"#));
    let rows = |n: i32| (0..8).map(|id| row(id, n)).collect::<Vec<_>>();
    let fault = writer.write(Write::new(&rows(1))).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "table_missing"), "{fault}");
    assert!(fault.message().contains("audits"), "{fault}");
    // With one that fits, or fewer, they are odd records.
    let mut odd = rows(1);
    odd[7] = row(7, 0);
    let outcomes = write(&mut writer, &odd).await;
    assert!(outcomes[..7].iter().all(|outcome| outcome.starts_with("table_missing: ")), "{outcomes:?}");
    assert_eq!(outcomes[7], "ok");
    db.query("CREATE TABLE audits (id int); DELETE FROM t");
    all_good(&write(&mut writer, &rows(1)).await);
    // A state that the server is in.
    db.query("DELETE FROM t; CREATE TRIGGER unset BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION unset()");
    let fault = writer.write(Write::new(&rows(1))).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "row_rejected"), "{fault}");
    assert!(fault.message().contains("55000"), "{fault}");
    // A constraint is about the values of rows.
    db.query("DROP TRIGGER unset ON t; ALTER TABLE t ADD CHECK (n < 1)");
    let outcomes = write(&mut writer, &rows(1)).await;
    assert!(outcomes.iter().all(|outcome| outcome.starts_with("check_violation: ")), "{outcomes:?}");
}

/// The value of the key would replace the value of the payload silently.
#[tokio::test]
async fn a_column_with_two_values_is_refused() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let rows = [
        create(r#"{"id":1}"#, r#"{"id":1,"n":1}"#),
        create(r#"{"id":2}"#, r#"{"id":3,"n":1}"#),
        // The same in the type of the column.
        create(r#"{"id":"4"}"#, r#"{"id":4,"n":1}"#),
        create(r#"{"id":5}"#, r#"{"id":null,"n":1}"#),
    ];
    let outcomes = write(&mut writer, &rows).await;
    assert!(outcomes[1].starts_with("key_differs: the column \"id\""), "{outcomes:?}");
    assert_eq!([&outcomes[0], &outcomes[2], &outcomes[3]], ["ok"; 3], "{outcomes:?}");
    assert_eq!(db.query("SELECT id FROM t ORDER BY id"), ["1", "4", "5"]);
    // A deletion has no columns but the key's.
    let mut gone = create(r#"{"id":4}"#, r#"{"id":9}"#);
    gone.operation = Operation::Delete;
    all_good(&write(&mut writer, &[gone]).await);
}

#[tokio::test]
async fn tables_are_made_of_records_that_can_be_rows() {
    let Some(db) = Database::create() else { return };
    let mut writer = open(&db.url(), &[("table", "t1"), ("createTables", "true")]).await.unwrap();
    let mut raw = create("null", r#"{"n":1}"#);
    raw.key = Data::text("line 7");
    let outcomes = write(&mut writer, &[raw.clone(), raw.clone()]).await;
    assert!(outcomes.iter().all(|outcome| outcome.starts_with("key_raw: ")), "{outcomes:?}");
    assert_eq!(db.query("SELECT to_regclass('t1') IS NULL"), ["t"]);
    // The key is mended: the table is made for it.
    all_good(&write(&mut writer, &[create(r#"{"id":1}"#, r#"{"n":1}"#)]).await);
    assert_eq!(db.query("SELECT id, n FROM t1"), ["1|1"]);
    // A table without columns is one that has nothing to keep.
    db.query("CREATE TABLE t2 ()");
    let row = create(r#"{"id":1}"#, r#"{"n":1}"#);
    let mut plain = open(&db.url(), &[("table", "t2")]).await.unwrap();
    assert_eq!(
        write(&mut plain, std::slice::from_ref(&row)).await,
        ["column_missing: \"t2\" has no column \"id\"; it has no columns"]
    );
    let mut writer = open(&db.url(), &[("table", "t2"), ("createTables", "true")]).await.unwrap();
    all_good(&write(&mut writer, &[row.clone(), row]).await);
    assert_eq!(db.query("SELECT id, n FROM t2"), ["1|1"]);
}

#[tokio::test]
async fn what_cannot_be_opened_says_what_to_do() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE users (id int); CREATE ROLE nobody_special LOGIN");
    let open_failure = async |url: String, settings: &[(&str, &str)]| {
        let fault = open(&url, settings).await.err().unwrap();
        (fault.class(), fault.code().name(), fault.message())
    };
    let (class, code, text) = open_failure(db.url(), &[("table", "usres")]).await;
    assert_eq!((class, code), (FaultClass::Fatal, "table_missing"));
    assert_eq!(text, "the table \"usres\" does not exist; did you mean \"users\"?");

    let (class, _, text) = open_failure(db.url().replace("/test", "/nowhere"), &[]).await;
    assert_eq!(class, FaultClass::Fatal);
    assert!(text.ends_with("create the database, or correct its name in the URL") && text.contains("3D000"), "{text}");

    let (class, _, text) = open_failure(format!("{}?sslmode=require", db.url()), &[]).await;
    assert_eq!(class, FaultClass::Fatal, "{text}");
    assert!(text.contains("sslmode"), "{text}");

    let (class, _, text) = open_failure(db.url().replace("postgres@", "ghost:hunter2@"), &[]).await;
    assert_eq!(class, FaultClass::Fatal, "{text}");
    assert!(text.contains("28000") && !text.contains("hunter2"), "{text}");

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (class, _, text) = open_failure(format!("postgresql://me:hunter2@127.0.0.1:{free}/d"), &[]).await;
    assert_eq!(class, FaultClass::Transient, "{text}");
    assert!(
        text.starts_with(&format!("cannot connect to 127.0.0.1:{free}/d: ")) && !text.contains("hunter2"),
        "{text}"
    );

    let mut writer = open(&db.url().replace("postgres@", "nobody_special@"), &[("table", "users")]).await.unwrap();
    let fault = writer.write(Write::new(&[create("{}", r#"{"id":1}"#)])).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "postgres_denied"));
    assert!(fault.message().contains("permission denied for table users"), "{fault}");
}

/// A restore into a new database, which then takes the name of the old one.
#[tokio::test]
async fn a_database_that_is_away_for_a_moment_is_retried() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let url = db.url();
    let name = url.rsplit('/').next().unwrap();
    let destination = configure(&url, &[("table", "t")]).unwrap();
    let mut writer = destination.open(&host()).await.unwrap();
    all_good(&write(&mut writer, &[create(r#"{"id":1}"#, "{}")]).await);
    let away = format!("{name}_away");
    let as_admin = |sql: String| db.server.query(&sql);
    for (go, come) in [
        (format!("ALTER DATABASE {name} RENAME TO {away}"), format!("ALTER DATABASE {away} RENAME TO {name}")),
        (
            format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"),
            format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"),
        ),
    ] {
        let end = format!("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '{name}'");
        as_admin(end);
        as_admin(go.clone());
        // The first write may find the connection lost.
        for _ in 0..3 {
            let fault = writer.write(Write::new(&[create(r#"{"id":2}"#, "{}")])).await.unwrap_err();
            assert_eq!(fault.class(), FaultClass::Transient, "{go}: {fault}");
        }
        let fault = destination.open(&host()).await.err().unwrap();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "connect_failed"), "{go}: {fault}");
        // Nobody knows it at the first start.
        let fault = open(&url, &[("table", "t")]).await.err().unwrap();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "connect_failed"), "{go}: {fault}");
        as_admin(come);
        all_good(&write(&mut writer, &[create(r#"{"id":2}"#, "{}")]).await);
    }
    assert_eq!(db.query("SELECT id FROM t ORDER BY id"), ["1", "2"]);
}

#[tokio::test]
async fn a_server_that_restarts_loses_nothing() {
    let Some(server) = Server::start(&[]).map(Arc::new) else { return };
    let db = server.database();
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let rows = |n: i32| -> Vec<Record> {
        (0..600).map(|id| create(&format!(r#"{{"id":{id}}}"#), &format!(r#"{{"n":{n}}}"#))).collect()
    };
    all_good(&write(&mut writer, &rows(1)).await);
    // In the middle of a batch: it waits for a lock when the server goes away.
    let address = crate::address::Address::parse(&db.url()).unwrap();
    let other = address.connect(false).await.unwrap();
    other.batch_execute("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let kill = {
        let (server, name) = (server.clone(), db.url());
        std::thread::spawn(move || {
            while server.query(waiting) != ["1"] {
                std::thread::sleep(Duration::from_millis(5));
            }
            server.kill();
            name
        })
    };
    let batch = rows(2);
    let fault = writer.write(Write::new(&batch)).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "connection_lost"), "{fault}");
    kill.join().unwrap();
    let fault = writer.write(Write::new(&batch)).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "connect_failed"), "{fault}");
    server.resume();
    assert_eq!(db.query("SELECT count(*), max(n) FROM t"), ["600|1"]);
    all_good(&write(&mut writer, &batch).await);
    assert_eq!(db.query("SELECT count(*), min(n) FROM t"), ["600|2"]);
    // An idle connection that the server closed is made again without a word.
    db.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'anabranch'");
    let mut attempts = 0;
    while let Err(fault) = writer.write(Write::new(&rows(3))).await {
        assert_eq!(fault.class(), FaultClass::Transient, "{fault}");
        attempts += 1;
        assert!(attempts < 3, "{fault}");
    }
    assert_eq!(db.query("SELECT count(*), min(n) FROM t"), ["600|3"]);
}

/// Two keys for us are one key for PostgreSQL: their rows are written one after the other.
#[tokio::test]
async fn keys_that_are_equal_only_to_the_server_are_no_error() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id numeric PRIMARY KEY, n int)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let rows: Vec<Record> =
        ["1", "1.0", "2", "1.00"].map(|id| create(&format!(r#"{{"id":"{id}"}}"#), r#"{"n":1}"#)).to_vec();
    let last = create(r#"{"id":"1.000"}"#, r#"{"n":2}"#);
    all_good(&write(&mut writer, &[rows.as_slice(), &[last]].concat()).await);
    assert_eq!(db.query("SELECT * FROM t ORDER BY id"), ["1|2", "2|1"]);
}

/// `sslmode` means what it means to libpq.
#[tokio::test]
async fn tls_checks_as_much_as_it_is_told() {
    certified("CA:FALSE").await;
}

/// The certificate that `openssl req -x509` makes by default, as in PostgreSQL's documentation.
#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_checked_too() {
    certified("CA:TRUE").await;
}

async fn certified(basic_constraints: &str) {
    let Some(server) = Server::start(&[]) else { return };
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args([
            "-subj",
            "/CN=test",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            &format!("basicConstraints=critical,{basic_constraints}"),
            "-keyout",
            "server.key",
        ])
        .args(["-out", "server.crt"])
        .current_dir(server.data())
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        use std::io::Write;
        assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "openssl is missing");
        let _ = writeln!(std::io::stderr(), "skipped: openssl is missing");
        return;
    }
    let owner = std::fs::metadata(server.data()).unwrap();
    for file in ["server.key", "server.crt"] {
        use std::os::unix::fs::{MetadataExt, chown};
        chown(server.data().join(file), Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    server.query("ALTER SYSTEM SET ssl = on");
    server.stop();
    server.resume();
    server.query("CREATE TABLE t (n int)");
    let root = server.data().join("server.crt").display().to_string();
    let by_name = server.url().replace("127.0.0.1", "localhost");
    let how = |url: &str, options: &str| format!("{url}?{options}");
    let encrypted = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                     WHERE ssl AND application_name = 'anabranch'";
    for (url, tls) in [
        (how(&by_name, "sslmode=disable"), "0"),
        (by_name.clone(), "1"),
        (how(&by_name, "sslmode=require"), "1"),
        (how(&server.url(), &format!("sslmode=verify-ca&sslrootcert={root}")), "1"),
        (how(&by_name, &format!("sslmode=verify-full&sslrootcert={root}")), "1"),
    ] {
        let mut writer = open(&url, &[("table", "t")]).await.unwrap_or_else(|fault| panic!("{url}: {fault}"));
        assert_eq!(server.query(encrypted), [tls], "{url}");
        writer.close().await.unwrap();
        while server.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'anabranch'") != ["0"] {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    for url in [
        how(&server.url(), &format!("sslmode=verify-full&sslrootcert={root}")),
        how(&by_name, "sslmode=verify-full"),
        how(&by_name, "sslmode=verify-ca"),
        how(&by_name, "sslmode=verify-ca&sslrootcert=/no/such/file"),
    ] {
        let fault = open(&url, &[("table", "t")]).await.err().unwrap_or_else(|| panic!("{url} was trusted"));
        assert_eq!(fault.class(), FaultClass::Fatal, "{fault}");
        assert!(fault.message().contains("cert"), "{fault}");
    }
}

#[tokio::test]
async fn what_may_work_the_next_time_is_transient() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let rows = [create(r#"{"id":1}"#, r#"{"n":1}"#), create(r#"{"id":2}"#, r#"{"n":1}"#)];
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    // Deadlock, serialization failure, cancelled by an administrator, read-only after a failover.
    for state in ["40P01", "40001", "57014", "25006"] {
        db.query(&format!(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
                 $$BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END$$;
             CREATE TRIGGER fail BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fail()"
        ));
        let fault = writer.write(Write::new(&rows)).await.unwrap_err();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "transaction_conflict"), "{fault}");
        assert!(fault.message().contains(state), "{fault}");
        db.query("DROP TRIGGER fail ON t");
        all_good(&write(&mut writer, &rows).await);
    }
    assert_eq!(db.query("SELECT id, n FROM t ORDER BY id"), ["1|1", "2|1"]);
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_nothing_behind() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    let rows = |n: i32| -> Vec<Record> {
        (0..600).map(|id| create(&format!(r#"{{"id":{id}}}"#), &format!(r#"{{"n":{n}}}"#))).collect()
    };
    for polls in [1usize, 2, 3, 5, 8, 13, 21] {
        let batch = rows(1);
        let mut call = writer.write(Write::new(&batch));
        let mut left = polls;
        let given_up = std::future::poll_fn(|context| {
            let polled = call.as_mut().poll(context);
            left -= 1;
            match (polled.is_ready(), left) {
                (true, _) => std::task::Poll::Ready(false),
                (false, 0) => std::task::Poll::Ready(true),
                _ => std::task::Poll::Pending,
            }
        })
        .await;
        drop(call);
        let n = polls as i32 + 10;
        all_good(&write(&mut writer, &rows(n)).await);
        assert_eq!(db.query("SELECT count(*), min(n), max(n) FROM t"), [format!("600|{n}|{n}")], "{given_up}");
    }
}

/// PostgreSQL does not say which value is too large: the column is found by the limits of its type, and no other is named.
#[tokio::test]
async fn a_value_that_is_too_large_names_its_column() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE DOMAIN cents AS numeric(4, 2);
         CREATE TABLE t (id int PRIMARY KEY, note text, price numeric(10, 2), code varchar(3), d cents,
                         doc jsonb)",
    );
    let mut writer = open(&db.url(), &[("table", "t")]).await.unwrap();
    for (after, named, innocent) in [
        (
            r#"{"note":"n","price":123456789.5,"code":"abc"}"#,
            &["column \"price\" (numeric(10,2))"][..],
            ["note", "code"],
        ),
        (
            r#"{"note":"n","price":99999999.995,"code":"abc"}"#,
            &["column \"price\" (numeric(10,2))"][..],
            ["note", "code"],
        ),
        (r#"{"note":"n","price":1.5,"code":"abcd"}"#, &["column \"code\" (varchar(3))"], ["note", "price"]),
        (r#"{"note":"n","code":"abc","doc":"{x"}"#, &["column \"doc\" (jsonb)"], ["note", "code"]),
        (r#"{"note":"n","price":1.5,"d":123}"#, &["perhaps ", "\"note\" (text)", "\"d\" (cents)"], ["price", "code"]),
    ] {
        let outcomes = write(&mut writer, &[create(r#"{"id":1}"#, after)]).await;
        let [outcome] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(
            outcome.starts_with("value_rejected: ") && named.iter().all(|name| outcome.contains(name)),
            "{outcome}"
        );
        let (_, columns) = outcome.split_once("; ").unwrap();
        assert!(innocent.iter().all(|name| !columns.contains(name)), "{outcome}");
    }
    all_good(&write(&mut writer, &[create(r#"{"id":1}"#, r#"{"note":"n","price":99999999.99,"code":"ab  "}"#)]).await);
}
