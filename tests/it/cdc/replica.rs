//! A replica of tables in another database: each type, changes of the columns, truncation.

use std::time::{Duration, Instant};

use super::server::{Database, Release};
use crate::process::{Output, PATIENCE, Process, Workspace};

/// A service that copies tables from one database to another.
pub struct Replica {
    pub source: Database,
    pub copy: Database,
    process: Process,
    workspace: Workspace,
}

impl Replica {
    /// Starts it with SQL for both databases, SQL for the source alone, and further settings of source and destination.
    pub fn start(release: Release, both: &str, source_only: &str, settings: [&str; 2]) -> Option<Replica> {
        let (source, copy) = (Database::logical(release)?, Database::create()?);
        Some(Replica::between(source, copy, both, source_only, settings))
    }

    /// Like [`Replica::start`], with databases.
    pub fn between(source: Database, copy: Database, both: &str, source_only: &str, settings: [&str; 2]) -> Replica {
        for database in [&source, &copy] {
            database.query(both);
        }
        source.query(source_only);
        let mut workspace = Workspace::new();
        workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "100ms");
        let name = source.name();
        let text = format!(
            r#"
version: "2.2"
pipelines:
  - id: replica
    connectors:
      - id: in
        type: source
        plugin: postgres
        settings: {{ url: '{}', tables: '*', logrepl.slotName: {name}, logrepl.publicationName: {name}{} }}
      - id: out
        type: destination
        plugin: postgres
        settings: {{ url: '{}', exactlyOnce: "true"{} }}
    dead-letter-queue: {{ plugin: file, settings: {{ path: letters.ndjson }}, window-size: 0 }}
"#,
            source.url(),
            settings[0],
            copy.url(),
            settings[1],
        );
        workspace.write("pipelines/p.yaml", text);
        let process = workspace.start(&["run"]);
        Replica { source, copy, process, workspace }
    }

    /// Waits until a query has the same rows in both databases, and one at least.
    #[track_caller]
    pub fn wait_for(&mut self, sql: &str) {
        let (source, copy) = (&self.source, &self.copy);
        let expected = source.query(sql);
        assert!(!expected.is_empty(), "{sql}");
        let mut last = Vec::new();
        self.process.wait_until(&format!("{expected:#?}"), || {
            last = copy.query(sql);
            last == expected
        });
    }

    /// Kills the service and starts it again. Returns what it had logged.
    #[track_caller]
    pub fn restart(&mut self) -> String {
        assert!(self.process.is_running(), "{}", self.process.printed()());
        self.process.signal("KILL");
        self.process.wait_for_end();
        let next = self.workspace.start(&["run"]);
        std::mem::replace(&mut self.process, next).finish().both()
    }

    /// Waits until something holds of the replica.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, mut done: impl FnMut(&Replica) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(self.process.is_running() && begun.elapsed() < PATIENCE, "{what}: {}", self.printed());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the service has logged.
    pub fn printed(&self) -> String {
        self.process.printed()()
    }

    /// Has a table read again.
    #[track_caller]
    pub fn backfill(&mut self, table: &str) -> Output {
        self.ask_backfill("in", table)
    }

    /// Asks a source of the pipeline to read a table again.
    #[track_caller]
    pub fn ask_backfill(&mut self, connector: &str, table: &str) -> Output {
        let flag = format!("--api.http.address={}", self.process.address());
        self.workspace.run(&["pipelines", "backfill", "replica", connector, "--table", table, &flag])
    }

    pub fn end(self) {
        self.process.signal("TERM");
        self.process.finish().expect_code(0);
    }
}

const TYPES: &str = "
    CREATE TYPE mood AS ENUM ('ok', 'it''s, \"sad\"');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TYPE pair AS (a int, b text);
    CREATE TABLE every (
        id uuid PRIMARY KEY, a_bool boolean, a_int2 smallint, a_int4 integer, a_int8 bigint, a_float4 real,
        a_float8 double precision, a_numeric numeric, a_price numeric(12,2), a_money money, a_text text,
        a_varchar varchar(20), a_char char(5), a_bytea bytea, a_date date, a_time time, a_timetz timetz,
        a_timestamp timestamp, a_timestamptz timestamptz, an_interval interval, a_json json, a_jsonb jsonb, an_xml xml,
        an_inet inet, a_cidr cidr, a_macaddr macaddr, a_bit bit(3), a_varbit varbit, a_point point, a_box box,
        a_polygon polygon, a_range int4range, a_multirange nummultirange, a_tsvector tsvector, an_oid oid, an_lsn pg_lsn,
        a_mood mood, a_positive positive, a_pair pair, ints int[], texts text[], dates date[], boxes box[], moods mood[],
        pairs pair[], numerics numeric(8,2)[], jsons jsonb[], grid int[][]);";

/// Rows with extremes, with empty values and with nulls.
const ROWS: [&str; 4] = [
    r#"(gen_random_uuid(), true, -32768, -2147483648, -9223372036854775808, 1e-45, 5e-324, 'NaN', 9999999999.99, -12.34,
        E'it''s "quoted" \\ {x} ☃', 'two words', 'ab', '\x00ff5c22', '4714-11-24 BC', '24:00:00', '23:59:59.999999-15:59:59',
        '294276-12-31 23:59:59.999999', '0044-03-15 12:00:00+00 BC', '1 year -2 mons 3 days 04:05:06.789',
        '{"a" : [1, 2.50]}', '{"a": 1e100}', '<a b="c">&lt;</a>', '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', '101',
        '10110', '(1.5,-2)', '(1,1),(0,0)', '((0,0),(1,1),(1,0))', '[1,10)', '{[1.5,2.5),[7,)}', '''a'':1A ''it''''s''',
        4294967295, '16/B374D848', 'it''s, "sad"', 7, '(1,"a ""b"" \\ c")', '{1,NULL,3}', '{a,"b,c","NULL",NULL,""}',
        '{infinity,0044-03-15 BC}', '{(1,1),(0,0);(2,2),(0,0)}', '{ok,"it''s, \"sad\""}', '{"(1,x)",NULL}', '{1.50,NaN}',
        '{"{\"a\": 1}",NULL}', '[0:1][2:3]={{1,2},{3,4}}')"#,
    r#"(gen_random_uuid(), false, 32767, 2147483647, 9223372036854775807, '-Infinity', 'Infinity', '-Infinity', -0.01, 0,
        '', '', '', '\x', 'infinity', '00:00', '00:00+00', '-infinity', 'infinity', '0', 'null', 'null', '', '::1',
        '::/0', '00:00:00:00:00:00', '000', '', '(0,0)', '(0,0),(0,0)', '((0,0))', 'empty', '{}', '', 0, '0/0', 'ok', 1,
        '(,)', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')"#,
    r#"(gen_random_uuid(), true, 0, 0, 0, 0.1, 0.1, 123456789012345678901234567890.1234567890, 1.5, 1, 'null', '[1]',
        '{1}', 'text', '2026-11-26', '05:06:07.5', '05:06:07.5+02', '2026-11-26 05:06:07.5', '2026-11-26 05:06:07.5+02',
        'PT5M', '[]', '"text"', 'text', '::1', '10.1.0.0/16', '01:02:03:04:05:06', '111', '1', '(1e300,-1e-300)',
        '(3,3),(1,1)', '((0,0),(1,1))', '(,)', '{(,)}', 'a b', 1, '1/1', 'ok', 2147483647, '(2,)', '{{1,2},{3,4}}',
        '{{a,b}}', '{2026-11-26}', '{(1,1),(0,0)}', '{ok}', '{"(,)"}', '{{1.5}}', '{"[1, 2]"}', '{{{1}}}')"#,
    "(gen_random_uuid())",
];

#[test]
fn each_type_is_the_same_in_the_copy() {
    for release in Release::ALL {
        let snapshot = ROWS.iter().fold(String::new(), |sql, row| sql + &format!("INSERT INTO every VALUES {row};"));
        let Some(mut replica) = Replica::start(release, TYPES, &snapshot, ["", ""]) else { return };
        let rows = "SELECT every::text FROM every ORDER BY id";
        replica.wait_for(rows);
        // The same as changes.
        replica.source.query(&snapshot);
        replica.source.query("UPDATE every SET a_text = a_text || '!', id = gen_random_uuid()");
        replica.wait_for(rows);
        replica.source.query("DELETE FROM every WHERE a_bool");
        replica.wait_for(rows);
        replica.end();
    }
}

#[test]
fn columns_follow_those_of_the_source() {
    let table = "CREATE TABLE t (id int PRIMARY KEY, n smallint, code varchar(3))";
    let settings = ["", ", schemaDrift: evolve"];
    let Some(mut replica) = Replica::start(Release::V18, table, "INSERT INTO t VALUES (1, 1, 'a')", settings) else {
        return;
    };
    let rows = "SELECT t::text FROM t ORDER BY id";
    replica.wait_for(rows);
    // In the middle of a transaction, too.
    replica.source.query(
        "BEGIN; INSERT INTO t VALUES (2, 2, 'b'); ALTER TABLE t ADD more numeric(10,2), ALTER n TYPE bigint, \
         ALTER code TYPE varchar(9); INSERT INTO t VALUES (3, 5000000000, 'abcdef', 1.5); COMMIT",
    );
    replica.wait_for(rows);
    replica.source.query("ALTER TABLE t DROP more; INSERT INTO t VALUES (4, 4, 'd')");
    replica.wait_for("SELECT id, n, code FROM t ORDER BY id");
    let types =
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0";
    assert_eq!(
        replica.copy.query(types),
        ["integer", "bigint", "character varying(9)", "numeric(10,2)"],
        "a column that the source dropped stays"
    );
    replica.end();
}

#[test]
fn a_truncation_empties_the_copy() {
    let table = "CREATE TABLE t (id int PRIMARY KEY, n int)";
    let rows = "INSERT INTO t SELECT n, n FROM generate_series(1, 500) n";
    let Some(mut replica) = Replica::start(Release::Installed, table, rows, [", truncate: record", ""]) else { return };
    let all = "SELECT t::text FROM t ORDER BY id";
    replica.wait_for(all);
    replica.source.query("BEGIN; INSERT INTO t VALUES (0, 0); TRUNCATE t; INSERT INTO t VALUES (7, 1); COMMIT");
    replica.wait_for(all);
    replica.end();
}
