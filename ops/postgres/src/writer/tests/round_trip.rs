//! The text of a value, as PostgreSQL prints it, is the value again in a column of the same type.

use super::*;

const TYPES: &[(&str, &[&str])] = &[
    ("boolean", &["true", "false"]),
    ("smallint", &["-32768", "32767"]),
    ("integer", &["-2147483648", "2147483647"]),
    ("bigint", &["-9223372036854775808", "9223372036854775807"]),
    ("real", &["1.17549435e-38", "3.4028235e+38", "1e-45", "0.1", "-0", "NaN", "Infinity", "-Infinity"]),
    ("double precision", &["5e-324", "1.7976931348623157e308", "0.1", "-0", "NaN", "Infinity", "-Infinity"]),
    ("numeric", &["0", "-0.000", "1.50", "123456789012345678901234567890.1234567890", "NaN", "Infinity", "-Infinity"]),
    ("numeric(12,2)", &["9999999999.99", "-0.01"]),
    ("money", &["-92233720368547758.08", "12.34"]),
    ("text", &["", "a b", "it's \"quoted\" \\ {x,y} [1] ☃", "null", " space "]),
    ("varchar(20)", &["", "two words"]),
    ("char(5)", &["ab", ""]),
    ("\"char\"", &["a", ""]),
    ("name", &["pg_class"]),
    ("bytea", &["\\x", "\\x00ff5c22"]),
    (
        "date",
        &[
            "2006-01-31",
            "4714-11-24 BC",
            "0001-12-31 BC",
            "0001-01-01",
            "9999-12-31",
            "5874897-12-31",
            "infinity",
            "-infinity",
        ],
    ),
    ("time", &["00:00:00", "23:59:59.999999", "24:00:00"]),
    ("timetz", &["00:00:00+15:59", "23:59:59.999999-15:59:59"]),
    (
        "timestamp",
        &[
            "2006-01-31 15:04:05.123456",
            "4714-11-24 00:00:00 BC",
            "294276-12-31 23:59:59.999999",
            "infinity",
            "-infinity",
        ],
    ),
    (
        "timestamptz",
        &["2006-01-31 15:04:05.123456+00", "0044-03-15 12:00:00+00 BC", "294276-12-31 23:59:59.999999+00", "infinity"],
    ),
    ("timestamp(0)", &["10000-01-01 00:00:00"]),
    ("interval", &["0", "1 year -2 mons 3 days 04:05:06.789", "-178000000 years"]),
    ("uuid", &["0f0e0d0c-0b0a-4908-8706-050403020100"]),
    ("json", &["null", "{\"a\" : [1, 2.50, \"x\\u0041\"]}", "\"text\"", "[]"]),
    ("jsonb", &["null", "{\"a\": [1, 2.50, \"x\"]}", "\"text\"", "1e100"]),
    ("jsonpath", &["$.\"a\"[*]?(@ > 1)"]),
    ("xml", &["<a b=\"c\">&lt;</a>"]),
    ("inet", &["10.0.0.1", "10.0.0.1/8", "::1"]),
    ("cidr", &["10.0.0.0/8"]),
    ("macaddr", &["08:00:2b:01:02:03"]),
    ("macaddr8", &["08:00:2b:01:02:03:04:05"]),
    ("bit(3)", &["101"]),
    ("varbit", &["", "10110"]),
    ("point", &["(1.5,-2)"]),
    ("line", &["{1,-1,0}"]),
    ("lseg", &["[(0,0),(1,1)]"]),
    ("box", &["(1,1),(0,0)"]),
    ("path", &["((0,0),(1,1))", "[(0,0),(1,1)]"]),
    ("polygon", &["((0,0),(1,1),(1,0))"]),
    ("circle", &["<(0,0),5>"]),
    ("int4range", &["empty", "[1,10)", "(,)", "[3,)"]),
    ("tstzrange", &["[\"2006-01-31 15:04:05+00\",infinity)"]),
    ("nummultirange", &["{}", "{[1.5,2.5),[7,)}"]),
    ("tsvector", &["'a':1A 'fat':2B,4C 'it''s'"]),
    ("tsquery", &["'fat' & ( 'rat' | 'cat':* )"]),
    ("oid", &["4294967295"]),
    ("regclass", &["pg_class"]),
    ("pg_lsn", &["16/B374D848"]),
    ("mood", &["ok", "it's, \"sad\""]),
    ("positive", &["1"]),
    ("label", &["a,b"]),
    ("far", &["0044-03-15 BC"]),
    ("pair", &["(1,\"a \"\"b\"\" \\\\ c\")", "(,)", "(2,)"]),
    ("numbers", &["{1,NULL,3}"]),
    ("hstore", &["", "\"a\"=>\"it's \\\"b\\\"\", \"c\"=>NULL"]),
    ("citext", &["Bob"]),
];

/// Also as elements of arrays.
#[tokio::test]
async fn each_type_takes_its_own_text() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE TYPE mood AS ENUM ('ok', 'it''s, \"sad\"');
         CREATE DOMAIN positive AS int CHECK (VALUE > 0);
         CREATE DOMAIN label AS varchar(10);
         CREATE DOMAIN far AS date;
         CREATE TYPE pair AS (a int, b text);
         CREATE DOMAIN numbers AS int[];",
    );
    for extension in ["hstore", "citext"] {
        if db.query(&format!("SELECT count(*) FROM pg_available_extensions WHERE name = '{extension}'")) == ["1"] {
            db.query(&format!("CREATE EXTENSION {extension}"));
        }
    }
    let address = crate::address::Address::parse(&db.url()).unwrap();
    let client = address.connect(false).await.unwrap();
    let kinds = client.query("SELECT format_type(oid, NULL) FROM pg_type WHERE typtype <> 'p'", &[]).await.unwrap();
    let kinds: Vec<String> = kinds.iter().map(|row| row.get(0)).collect();
    for (sql_type, values) in
        TYPES.iter().filter(|(name, _)| !["hstore", "citext"].contains(name) || kinds.iter().any(|kind| kind == name))
    {
        let array = format!("{sql_type}[]");
        let literal = |value: &&str| format!("'{}'::{sql_type}", value.replace('\'', "''"));
        let each: Vec<String> = values.iter().map(literal).collect();
        // A list, with bounds, and with two dimensions.
        let mut lists = vec![format!("ARRAY[{}, NULL]::{array}", each.join(", ")), format!("'{{}}'::{array}")];
        lists.push(format!("array_fill({}, ARRAY[2, 1], ARRAY[0, -1])::{array}", each[0]));
        for (sql_type, values) in [(*sql_type, each), (array.as_str(), lists)] {
            check(&db, &client, sql_type, &values).await;
        }
    }
}

async fn check(db: &Database, client: &tokio_postgres::Client, sql_type: &str, values: &[String]) {
    let from =
        format!("CREATE TABLE source (n int PRIMARY KEY, v {sql_type}); CREATE TABLE copy (LIKE source INCLUDING ALL)");
    client.batch_execute(&format!("DROP TABLE IF EXISTS source, copy; {from}")).await.unwrap();
    for (n, value) in values.iter().enumerate() {
        client.batch_execute(&format!("INSERT INTO source VALUES ({n}, {value})")).await.unwrap_or_else(|error| {
            panic!("{sql_type} {value}: {error:?}");
        });
    }
    let rows = client.simple_query("SELECT n, v FROM source ORDER BY n").await.unwrap();
    let records: Vec<Record> = rows
        .iter()
        .filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some((row.get(0).unwrap().parse::<i64>().unwrap(), row.get(1).unwrap().to_owned()))
            }
            _ => None,
        })
        .map(|(n, text)| {
            let key: Object = [("n", n)].into_iter().collect();
            Record::create(Position::copy_from(b"1"), key.into(), [("v", Value::from(text))].into())
        })
        .collect();
    assert_eq!(records.len(), values.len());
    let mut writer = open(&db.url(), &[("table", "copy")]).await.unwrap();
    let outcomes = write(&mut writer, &records).await;
    let texts: Vec<&Data> = records.iter().map(|record| &record.payload.after).collect();
    assert!(outcomes.iter().all(|outcome| outcome == "ok"), "{sql_type} {texts:?}: {outcomes:#?}");
    let different = "SELECT s.v::text || ' became ' || coalesce(c.v::text, 'NULL') FROM source s LEFT JOIN copy c USING (n) \
                     WHERE s.v::text IS DISTINCT FROM c.v::text";
    let different: Vec<String> = client.query(different, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(different.is_empty(), "{sql_type}: {different:#?}");
}
