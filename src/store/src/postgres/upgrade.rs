//! The upgrade of tables of the first form, in which claims, marks and receipts belonged to pipelines. Commands that only
//! read leave such tables to the program that wrote them: the first write upgrades.

use super::connection::message;
use super::session::{Client, Failure as Error, Transaction};
use super::table::{KEY, Table, VERSION};
use crate::tables::SCHEMA;

impl Table {
    /// Upgrades tables of the first form, in one transaction. Their content is of slot 0 then. Costs one query if they
    /// have the present form, and nothing if that is known.
    pub(super) async fn upgrade(&self, client: &mut Client) -> Result<(), Error> {
        if self.is_current.get() {
            return Ok(());
        }
        let sql = format!("SELECT number FROM {} WHERE kind = '{VERSION}'", self.state);
        let found = client.query_opt(&sql, &[]).await?.map(|row| row.get::<_, i64>(0));
        if found == Some(FIRST) {
            let transaction = client.transaction().await?;
            if let Err(error) = self.convert(&transaction).await {
                let (table, why) = (&self.name, message(&error));
                tracing::warn!("the state store in table {table} cannot be upgraded to version {SCHEMA}: {why}");
                return Err(error);
            }
            transaction.commit().await?;
            tracing::info!("upgraded the state store in table {} from version {FIRST} to version {SCHEMA}", self.name);
        }
        self.is_current.set(true);
        Ok(())
    }

    async fn convert(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let Table { name, state, .. } = self;
        transaction.execute("SELECT pg_advisory_xact_lock(hashtext($1))", &[name]).await?;
        transaction.batch_execute(LOCK_TIMEOUT).await?;
        let key = "SELECT quote_ident(conname) FROM pg_constraint WHERE conrelid = to_regclass($1) AND contype = 'p'";
        let key: String = transaction.query_one(key, &[state]).await?.get(0);
        let alter = format!(
            "ALTER TABLE {state} ADD COLUMN slot bigint NOT NULL DEFAULT 0, DROP CONSTRAINT {key}, \
             ADD CONSTRAINT {key} PRIMARY KEY ({KEY}); \
             UPDATE {state} SET number = {SCHEMA} WHERE kind = '{VERSION}'"
        );
        transaction.batch_execute(&alter).await
    }
}

/// The version of the first form.
const FIRST: i64 = 1;
/// Time limit for the lock of the upgrade. The heartbeat of the owner waits behind it, and a backup holds its own lock for
/// long. The write is repeated.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '1s'";
