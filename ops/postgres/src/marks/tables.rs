//! The tables of marks and writers: their names, their creation, and their upgrade from the first form, in which they had
//! no slots.

use anabranch_record::fault::Fault;
use tokio_postgres::{Client, Error};

use crate::codes;
use crate::fault::Failure;
use crate::name::Quoted;

/// Columns of the primary keys.
const WRITERS_KEY: &str = "pipeline, slot, destination";
const MARKS_KEY: &str = "pipeline, slot, destination, connector, partition";

/// Keeps two sessions from creating or upgrading the tables at the same time: `IF NOT EXISTS` fails then.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(hashtext('anabranch_marks'))";

/// Time limit for a lock of the upgrade. Everybody else who uses the tables waits behind it, and a backup holds its own
/// locks for long. The pipeline retries.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '2s'";

/// The names of the tables, quoted for SQL.
pub(super) struct MarkTables {
    schema: Option<String>,
    pub(super) marks: String,
    pub(super) writers: String,
}

impl MarkTables {
    pub(super) fn new(schema: Option<&str>) -> Self {
        let name = |table: &str| match schema {
            Some(schema) => format!("{}.{}", Quoted(schema), Quoted(table)),
            None => Quoted(table).to_string(),
        };
        MarkTables {
            schema: schema.map(str::to_owned),
            marks: name("anabranch_marks"),
            writers: name("anabranch_writers"),
        }
    }

    /// Creates missing tables and upgrades those of the first form. Tables of the present form need no permission to
    /// create or alter anything.
    pub(super) async fn prepare(&self, client: &Client) -> Result<(), Failure> {
        let is_there = "SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL";
        if !client.query_one(is_there, &[&self.marks, &self.writers]).await?.try_get::<_, bool>(0)? {
            self.create(client).await?;
        }
        let slots = "SELECT count(*) FROM pg_attribute WHERE attrelid IN (to_regclass($1), to_regclass($2)) \
                     AND attname = 'slot' AND NOT attisdropped";
        match client.query_one(slots, &[&self.marks, &self.writers]).await?.try_get::<_, i64>(0)? {
            2 => Ok(()),
            _ => self.upgrade(client).await,
        }
    }

    async fn create(&self, client: &Client) -> Result<(), Error> {
        // `CREATE SCHEMA IF NOT EXISTS` needs the permission to create schemas even if the schema exists.
        let schema = match &self.schema {
            Some(schema) => {
                let quoted = Quoted(schema).to_string();
                let row = client.query_one("SELECT to_regnamespace($1) IS NOT NULL", &[&quoted]).await?;
                match row.try_get(0)? {
                    true => String::new(),
                    false => format!("CREATE SCHEMA IF NOT EXISTS {quoted};"),
                }
            }
            None => String::new(),
        };
        let sql = format!(
            "BEGIN; {ONE_AT_A_TIME};{schema}\
             CREATE TABLE IF NOT EXISTS {} (pipeline text, slot bigint NOT NULL DEFAULT 0, destination text, \
             connector text, partition text, generation bigint NOT NULL, seq bigint NOT NULL, \
             position bytea NOT NULL, PRIMARY KEY ({MARKS_KEY}));\
             CREATE TABLE IF NOT EXISTS {} (pipeline text, slot bigint NOT NULL DEFAULT 0, destination text, \
             epoch bigint NOT NULL, writes bigint NOT NULL, PRIMARY KEY ({WRITERS_KEY})); COMMIT",
            self.marks, self.writers
        );
        client.batch_execute(&sql).await
    }

    /// Adds the slot to the tables that lack it, in one transaction. Their content is of slot 0.
    async fn upgrade(&self, client: &Client) -> Result<(), Failure> {
        // In the order in which writers lock them. Their open transactions end first.
        let begin = format!(
            "BEGIN; {ONE_AT_A_TIME}; {LOCK_TIMEOUT}; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE",
            self.writers, self.marks
        );
        client.batch_execute(&begin).await.map_err(|error| self.denied(error))?;
        let look = "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'slot' \
                    AND NOT attisdropped), (SELECT quote_ident(conname) FROM pg_constraint \
                    WHERE conrelid = to_regclass($1) AND contype = 'p')";
        for (table, key) in [(&self.writers, WRITERS_KEY), (&self.marks, MARKS_KEY)] {
            let row = client.query_one(look, &[table]).await?;
            if !row.try_get::<_, bool>(0)? {
                let sql = altered(table, row.try_get(1)?, key);
                client.batch_execute(&sql).await.map_err(|error| self.denied(error))?;
            }
        }
        Ok(client.batch_execute("COMMIT").await?)
    }

    /// Adds the remedy to a missing permission: only the owner of a table may alter it.
    fn denied(&self, error: Error) -> Failure {
        match Failure::from(error) {
            Failure::Denied(fault) => {
                let [writers, marks] = [
                    altered(&self.writers, Some("anabranch_writers_pkey"), WRITERS_KEY),
                    altered(&self.marks, Some("anabranch_marks_pkey"), MARKS_KEY),
                ];
                let text = format!(
                    "the tables with the stored positions have the form of an earlier version, and this user may not \
                     upgrade them: run as their owner `{writers}; {marks}`: {}",
                    fault.message()
                );
                Failure::Denied(Fault::transient(codes::POSTGRES_DENIED, text))
            }
            other => other,
        }
    }
}

/// Returns the statement that adds the slot to a table with this primary key.
fn altered(table: &str, key: Option<&str>, columns: &str) -> String {
    let (drop, name) = match key {
        Some(key) => (format!("DROP CONSTRAINT {key}, "), format!("CONSTRAINT {key} ")),
        None => (String::new(), String::new()),
    };
    format!("ALTER TABLE {table} ADD COLUMN slot bigint NOT NULL DEFAULT 0, {drop}ADD {name}PRIMARY KEY ({columns})")
}
