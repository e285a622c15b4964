//! Each type: null, extremes, what text and other values become, and what is refused.

use super::*;

/// The text of the column after each value was written, or the beginning of the fault.
async fn stored(db: &Database, sql_type: &str, values: &[Value]) -> Vec<String> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let table = format!("types{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    db.query(&format!("CREATE TABLE {table} (n int PRIMARY KEY, v {sql_type})"));
    let mut texts = Vec::new();
    // By parameters and by a copy: both must say the same.
    for copied in [false, true] {
        let settings = Settings {
            address: crate::address::Address::parse(&db.url()).unwrap(),
            table: TableSelector::Fixed(table.as_str().into()),
            exactly_once: false,
            marks_schema: None,
            create_tables: false,
            add_columns: false,
            evolves: false,
            history: Default::default(),
        };
        let mut writer = TableWriter::open(Arc::new(settings), &host()).await.unwrap();
        let copy_from = if copied { 1 } else { usize::MAX };
        writer.copy_from = copy_from;
        writer.session.as_mut().unwrap().set_copy_from(copy_from);
        let rows: Vec<Record> = values
            .iter()
            .enumerate()
            .map(|(n, value)| {
                let key: Object = [("n", n as i64)].into_iter().collect();
                let after: Object = [("v", value.clone())].into_iter().collect();
                Record::create(Position::copy_from(b"1"), key.into(), after.into())
            })
            .collect();
        db.query(&format!("TRUNCATE {table}"));
        let outcomes = outcomes(&writer.write(Write::new(&rows)).await.unwrap(), rows.len());
        let there =
            db.query(&format!("SET timezone = 'UTC'; SELECT n || '=' || coalesce(v::text, 'NULL') FROM {table}"));
        let found: Vec<String> = outcomes
            .into_iter()
            .enumerate()
            .map(|(n, outcome)| match there.iter().find_map(|row| row.strip_prefix(&format!("{n}="))) {
                Some(text) => {
                    assert_eq!(outcome, "ok", "{sql_type} {n}");
                    text.to_owned()
                }
                None => {
                    assert_ne!(outcome, "ok", "{sql_type} {n}");
                    // A value that PostgreSQL refuses is described with the place in the copy, too.
                    let text =
                        outcome.replace(&table, "t").replace(&format!("column \"v\" ({sql_type}) of \"t\": "), "");
                    text.split(" (SQLSTATE").next().unwrap().to_owned()
                }
            })
            .collect();
        match texts.is_empty() {
            true => texts = found,
            false => assert_eq!(texts, found, "{sql_type}: parameters and a copy differ"),
        }
    }
    texts
}

fn text(text: &str) -> Value {
    Value::from(text)
}

fn time(text: &str) -> Value {
    Value::Time(text.parse().unwrap())
}

fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Value::from(items.into_iter().collect::<Vec<_>>())
}

#[tokio::test]
async fn numbers() {
    let Some(db) = Database::create() else { return };
    let bad = || [Value::Bool(true), text("x"), Value::Float(0.5), Value::Bytes(Arc::from(*b"\x01"))];
    for (sql_type, min, max) in [
        ("smallint", i64::from(i16::MIN), i64::from(i16::MAX)),
        ("integer", i64::from(i32::MIN), i64::from(i32::MAX)),
        ("bigint", i64::MIN, i64::MAX),
    ] {
        let mut values = vec![Value::Null, Value::Int(min), Value::Int(max), Value::Float(-3.0), text(" 42 ")];
        values.push(Value::UInt(u64::MAX));
        values.extend(bad());
        assert_eq!(
            stored(&db, sql_type, &values).await,
            [
                "NULL",
                &min.to_string(),
                &max.to_string(),
                "-3",
                "42",
                &format!("value_mismatch: the integer 18446744073709551615 is out of range for {sql_type}"),
                "value_mismatch: the bool true is not an integer",
                "value_mismatch: the text \"x\" is not an integer",
                "value_mismatch: the float 0.5 is not an integer",
                "value_mismatch: 1 byte is not an integer",
            ]
        );
    }
    let values = [
        Value::Null,
        Value::Float(f64::MAX),
        Value::Float(f64::NAN),
        Value::Float(f64::NEG_INFINITY),
        Value::Int(-7),
        text("1e3"),
        Value::Int(i64::MAX),
        Value::Bool(true),
    ];
    assert_eq!(
        stored(&db, "double precision", &values).await,
        [
            "NULL",
            "1.7976931348623157e+308",
            "NaN",
            "-Infinity",
            "-7",
            "1000",
            "value_mismatch: the integer 9223372036854775807 cannot be represented exactly in double precision",
            "value_mismatch: the bool true is not a number",
        ]
    );
    assert_eq!(
        stored(&db, "real", &[Value::Null, Value::Float(0.5), Value::Float(1e300), Value::Float(1e-300)]).await,
        [
            "NULL",
            "0.5",
            "value_mismatch: the float 1e300 is out of range for real",
            "value_mismatch: the float 1e-300 is out of range for real",
        ]
    );
    let values = [
        Value::Null,
        Value::Int(i64::MIN),
        Value::UInt(u64::MAX),
        Value::Float(0.1),
        Value::Float(f64::NAN),
        Value::Float(f64::INFINITY),
        text("-00012345.678900"),
        text("1e20"),
        text("1.5e-10"),
        text("100000000"),
        text("0.0001"),
        text("0"),
        text("-0.00"),
        text("123456789012345678901234567890.123456789"),
        text("1e200001"),
        text("1.2.3"),
        Value::Bool(false),
    ];
    assert_eq!(
        stored(&db, "numeric", &values).await,
        [
            "NULL",
            "-9223372036854775808",
            "18446744073709551615",
            "0.1",
            "NaN",
            "Infinity",
            "-12345.678900",
            "100000000000000000000",
            "0.00000000015",
            "100000000",
            "0.0001",
            "0",
            "0.00",
            "123456789012345678901234567890.123456789",
            "value_mismatch: the text \"1e200001\" is not a number",
            "value_mismatch: the text \"1.2.3\" is not a number",
            "value_mismatch: the bool false is not a number",
        ]
    );
    assert_eq!(stored(&db, "numeric(5,2)", &[Value::Float(1.5)]).await, ["1.50"]);
}

#[tokio::test]
async fn text_bytes_and_booleans() {
    let Some(db) = Database::create() else { return };
    let values = [
        Value::Null,
        text(""),
        text("snowman ☃ 'quoted' \\ \t"),
        Value::Int(1),
        Value::Bool(true),
        Value::Float(0.5),
        time("2006-01-31T00:00:00Z"),
        list([Value::Int(1)]),
        text("a\0b"),
        Value::Bytes(Arc::from(*b"abc")),
    ];
    let expected = [
        "NULL",
        "",
        "snowman ☃ 'quoted' \\ \t",
        "1",
        "true",
        "0.5",
        "2006-01-31T00:00:00Z",
        "[1]",
        "value_mismatch: the text \"a\\0b\" contains a NUL character, which PostgreSQL text cannot contain",
        "value_mismatch: 3 bytes are not text: decode them first, or make the column bytea",
    ];
    assert_eq!(stored(&db, "text", &values).await, expected);
    assert_eq!(stored(&db, "character varying", &values).await, expected);
    let too_long = stored(&db, "varchar(3)", &[text("abc"), text("abcd")]).await;
    assert_eq!(too_long[0], "abc");
    assert!(too_long[1].contains("value too long for type character varying(3)"), "{}", too_long[1]);
    assert_eq!(stored(&db, "char(3)", &[text("ab"), Value::Null]).await, ["ab", "NULL"]);

    let values =
        [Value::Null, Value::Bytes(Arc::from(*b"\x00\xff")), text("hé"), text("\\x00fF"), text("\\xf"), Value::Int(1)];
    assert_eq!(
        stored(&db, "bytea", &values).await,
        [
            "NULL",
            "\\x00ff",
            "\\x68c3a9",
            "\\x00ff",
            "value_mismatch: the text \"\\\\xf\" is not bytes: pairs of hexadecimal digits must follow \\x",
            "value_mismatch: the integer 1 is not bytes",
        ]
    );
    let values = [Value::Null, Value::Bool(true), text("no"), text("T"), Value::Int(1), text("maybe")];
    assert_eq!(
        stored(&db, "boolean", &values).await,
        [
            "NULL",
            "true",
            "false",
            "true",
            "value_mismatch: the integer 1 is not a boolean",
            "value_mismatch: the text \"maybe\" is not a boolean",
        ]
    );
    let id = "0f0e0d0c-0b0a-4908-8706-050403020100";
    let values = [
        Value::Null,
        text(&id.to_uppercase()),
        text(&format!("{{{}}}", id.replace('-', ""))),
        Value::Bytes(Arc::from([0; 16])),
        text(&id[1..]),
        text(&format!("{id}0")),
        Value::Int(1),
    ];
    assert_eq!(
        stored(&db, "uuid", &values).await,
        [
            "NULL",
            id,
            id,
            "00000000-0000-0000-0000-000000000000",
            &format!("value_mismatch: the text {:?} is not a UUID", &id[1..]),
            &format!("value_mismatch: the text \"{id}0\" is not a UUID"),
            "value_mismatch: the integer 1 is not a UUID",
        ]
    );
}

#[tokio::test]
async fn dates_and_times() {
    let Some(db) = Database::create() else { return };
    let values = [
        Value::Null,
        time("1999-12-31T00:00:00Z"),
        text("2006-01-31"),
        text("infinity"),
        text("9999-12-31"),
        text("0044-03-15 BC"),
        text("12026-01-02"),
        text("9999999-01-01"),
        time("1999-12-31T00:00:01Z"),
        text("2006-02-30"),
        Value::Int(3),
    ];
    assert_eq!(
        stored(&db, "date", &values).await,
        [
            "NULL",
            "1999-12-31",
            "2006-01-31",
            "infinity",
            "9999-12-31",
            "0044-03-15 BC",
            "12026-01-02",
            "value_mismatch: the text \"9999999-01-01\" is not in the range of dates",
            "value_mismatch: the time 1999-12-31T00:00:01Z is not a date: it has a time of day",
            "value_mismatch: the text \"2006-02-30\" is not a date, for example 2006-01-31",
            "value_mismatch: the integer 3 is not a date, for example 2006-01-31",
        ]
    );
    let values = [
        Value::Null,
        time("1970-01-01T00:00:00.123456789Z"),
        text("2006-01-31T15:04:05+02:00"),
        text("2006-01-31 15:04:05.5"),
        text("2006-01-31 15:04:05-07"),
        text("2006-01-31"),
        text("-infinity"),
        text("0044-03-15 12:00:00.25 BC"),
        text("12026-01-02 03:04:05+02"),
        text("999999-01-01"),
        text("soon"),
    ];
    let expected = |zone: &str| {
        [
            "NULL".to_owned(),
            format!("1970-01-01 00:00:00.123456{zone}"),
            format!("2006-01-31 13:04:05{zone}"),
            format!("2006-01-31 15:04:05.5{zone}"),
            format!("2006-01-31 22:04:05{zone}"),
            format!("2006-01-31 00:00:00{zone}"),
            "-infinity".to_owned(),
            format!("0044-03-15 12:00:00.25{zone} BC"),
            format!("12026-01-02 01:04:05{zone}"),
            "value_mismatch: the text \"999999-01-01\" is not in the range of timestamps".to_owned(),
            "value_mismatch: the text \"soon\" is not a time, for example 2006-01-31T15:04:05Z".to_owned(),
        ]
    };
    assert_eq!(stored(&db, "timestamp with time zone", &values).await, expected("+00"));
    assert_eq!(stored(&db, "timestamp without time zone", &values).await, expected(""));
    assert_eq!(
        stored(&db, "time", &[Value::Null, text("15:04:05.5"), text("25:00")]).await,
        ["NULL", "15:04:05.5", "value_rejected: \"t\": PostgreSQL: date/time field value out of range: \"25:00\""]
    );
    assert_eq!(
        stored(&db, "interval", &[Value::Null, text("P1DT2H"), text("1 year 3 days"), text("long")]).await,
        [
            "NULL",
            "1 day 02:00:00",
            "1 year 3 days",
            "value_rejected: \"t\": PostgreSQL: invalid input syntax for type interval: \"long\""
        ]
    );
}

#[tokio::test]
async fn json() {
    let Some(db) = Database::create() else { return };
    let map: Object = [("a", Value::Int(1))].into_iter().collect();
    for sql_type in ["json", "jsonb"] {
        let values = [
            Value::Null,
            Value::from(map.clone()),
            text(r#"{"b": [1, null]}"#),
            Value::Int(7),
            list([]),
            Value::Bool(false),
            text("{"),
            Value::Float(f64::NAN),
        ];
        let mut stored = stored(&db, sql_type, &values).await;
        assert!(
            stored[6].starts_with("value_rejected: \"t\": PostgreSQL: invalid input syntax for type json"),
            "{stored:?}"
        );
        assert!(stored[7].starts_with("value_mismatch: it cannot be written as JSON"), "{stored:?}");
        stored.truncate(6);
        assert_eq!(
            stored.iter().map(|t| t.replace(' ', "")).collect::<Vec<_>>(),
            ["NULL", r#"{"a":1}"#, r#"{"b":[1,null]}"#, "7", "[]", "false"]
        );
    }
}

#[tokio::test]
async fn arrays_enums_domains_and_the_rest() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE TYPE mood AS ENUM ('sad', 'ok');
         CREATE DOMAIN positive AS int CHECK (VALUE > 0);
         CREATE DOMAIN names AS text[];",
    );
    let values = [
        Value::Null,
        list([]),
        list([Value::Int(1), Value::Null, text("3")]),
        list([list([Value::Int(1), Value::Int(2)]), list([Value::Int(3), Value::Int(4)])]),
        text("[5, 6]"),
        list([list([Value::Int(1)]), list([])]),
        list([Value::Int(1), text("x")]),
        text("{1,NULL,\"2\"}"),
        text("[0:1][2:2]={{7},{8}}"),
        text("[0:1]={7,8,9}"),
        text("{1,2"),
        text("{1,x}"),
        Value::Int(1),
    ];
    assert_eq!(
        stored(&db, "integer[]", &values).await,
        [
            "NULL",
            "{}",
            "{1,NULL,3}",
            "{{1,2},{3,4}}",
            "{5,6}",
            "value_mismatch: inner lists differ in length: in an array, all inner lists have the same length",
            "value_mismatch: element 1 of the list: the text \"x\" is not an integer",
            "{1,NULL,2}",
            "[0:1][2:2]={{7},{8}}",
            "value_mismatch: the bounds of the array literal do not match its elements",
            "value_mismatch: the text \"{1,2\" is not a list: text must be a JSON list or an array literal, for example \
             {1,2}",
            "value_mismatch: element 1 of the list: the text \"x\" is not an integer",
            "value_mismatch: the integer 1 is not a list",
        ]
    );
    let words = [text("a b"), text("\"q\\"), Value::Null];
    assert_eq!(stored(&db, "names", &[list(words.clone())]).await, [r#"{"a b","\"q\\",NULL}"#]);
    assert_eq!(stored(&db, "jsonb[]", &[list([list([Value::Int(1)])])]).await, ["{[1]}"]);
    assert_eq!(
        stored(&db, "interval[]", &[list([text("1 day"), Value::Null]), list([])]).await,
        ["{\"1 day\",NULL}", "{}"]
    );
    assert_eq!(
        stored(&db, "mood", &[Value::Null, text("sad"), text("glad")]).await,
        ["NULL", "sad", "value_rejected: \"t\": PostgreSQL: invalid input value for enum mood: \"glad\""]
    );
    assert_eq!(stored(&db, "mood[]", &[list([text("ok")])]).await, ["{ok}"]);
    assert_eq!(
        stored(&db, "positive", &[Value::Null, Value::Int(1), Value::Int(0), text("x")]).await,
        [
            "NULL",
            "1",
            "check_violation: \"t\": PostgreSQL: value for domain positive violates check constraint \"positive_check\"",
            "value_mismatch: the text \"x\" is not an integer"
        ]
    );
    assert_eq!(
        stored(&db, "inet", &[Value::Null, text("10.0.0.0/8"), text("10.0.0.999")]).await,
        ["NULL", "10.0.0.0/8", "value_rejected: \"t\": PostgreSQL: invalid input syntax for type inet: \"10.0.0.999\""]
    );
    assert_eq!(stored(&db, "int4range", &[text("[1,5)")]).await, ["[1,5)"]);
    assert_eq!(stored(&db, "money", &[Value::Float(1.5)]).await, ["$1.50"]);
    assert_eq!(stored(&db, "\"char\"", &[text("x")]).await, ["x"]);
}

/// pgvector's type where it is installed; else one of the same name that keeps the bytes it is sent.
#[tokio::test]
async fn vectors() {
    let Some(db) = Database::create() else { return };
    let values = [
        Value::Null,
        list([Value::Float(0.5), Value::Int(-2)]),
        text("[0.5, -2]"),
        text("[0.5,x]"),
        list([Value::Float(0.5), text("x"), Value::Null]),
        text("0.5"),
        Value::Bool(true),
    ];
    let refused = [
        "value_mismatch: element 1 of the vector is not a number: \"x\"",
        "value_mismatch: element 1 of the vector: the text \"x\" is not a number",
        "value_mismatch: the text \"0.5\" is not a vector, for example [0.1,0.2]",
        "value_mismatch: the bool true is not a vector: a list of numbers, or its JSON text",
    ];
    if db.query("SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'") == ["1"] {
        db.query("CREATE EXTENSION vector");
        let found = stored(&db, "vector", &values).await;
        assert_eq!(found[..3], ["NULL", "[0.5,-2]", "[0.5,-2]"]);
        assert_eq!(found[3..], refused);
        let found = stored(&db, "vector(3)", &values[1..2]).await;
        assert!(found[0].contains("expected 3 dimensions, not 2"), "{found:?}");
        return;
    }
    db.query(
        "CREATE TYPE vector;
         CREATE FUNCTION vector_in(cstring) RETURNS vector LANGUAGE internal IMMUTABLE STRICT AS 'byteain';
         CREATE FUNCTION vector_out(vector) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'byteaout';
         CREATE FUNCTION vector_recv(internal) RETURNS vector LANGUAGE internal IMMUTABLE STRICT AS 'bytearecv';
         CREATE FUNCTION vector_send(vector) RETURNS bytea LANGUAGE internal IMMUTABLE STRICT AS 'byteasend';
         CREATE TYPE vector (INPUT = vector_in, OUTPUT = vector_out, RECEIVE = vector_recv, SEND = vector_send,
             LIKE = bytea);",
    );
    let found = stored(&db, "vector", &values).await;
    assert_eq!(found[..3], ["NULL", "\\x000200003f000000c0000000", "\\x000200003f000000c0000000"]);
    assert_eq!(found[3..], refused);
}
