//! The rows of writers and marks, by the slots of a pipeline. Their number may change.

use anabranch_plugin::state::Slots;
use anabranch_record::mark::Partition;
use tokio_postgres::{Client, Error};

use super::tables::MarkTables;

/// The rows of a pipeline and a destination, in an open transaction that nobody else is in.
pub(super) struct Distribution<'a> {
    pub(super) client: &'a Client,
    pub(super) tables: &'a MarkTables,
    pub(super) pipeline: &'a str,
    pub(super) destination: &'a str,
}

impl Distribution<'_> {
    /// Makes sure that there is a row of each slot and none of another one. If the number of slots has changed, no earlier
    /// run writes any more, and the marks are moved to the slots of their lanes.
    pub(super) async fn ensure(&self, slots: Slots) -> Result<(), Error> {
        let Distribution { client, tables, pipeline, destination } = self;
        let of = i64::from(slots.of());
        let sql = format!(
            "SELECT count(*) FILTER (WHERE slot < $3), count(*) FILTER (WHERE slot >= $3) FROM {} \
             WHERE pipeline = $1 AND destination = $2",
            tables.writers
        );
        let row = client.query_one(&sql, &[pipeline, destination, &of]).await?;
        let (there, beyond): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        // The only slot of a pipeline that is not split is made by the run itself.
        if beyond == 0 && (there == of || of == 1) {
            return Ok(());
        }
        let sql = format!("DELETE FROM {} WHERE pipeline = $1 AND destination = $2 AND slot >= $3", tables.writers);
        client.execute(&sql, &[pipeline, destination, &of]).await?;
        let sql = format!(
            "INSERT INTO {} AS w (pipeline, slot, destination, epoch, writes) \
             SELECT $1, slot, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 0 \
             FROM generate_series(0, $3::bigint - 1) slot \
             ON CONFLICT (pipeline, slot, destination) DO UPDATE SET epoch = greatest(w.epoch + 1, EXCLUDED.epoch)",
            tables.writers
        );
        client.execute(&sql, &[pipeline, destination, &of]).await?;
        self.move_marks(slots).await
    }

    async fn move_marks(&self, slots: Slots) -> Result<(), Error> {
        let Distribution { client, tables, pipeline, destination } = self;
        let sql =
            format!("SELECT connector, partition, slot FROM {} WHERE pipeline = $1 AND destination = $2", tables.marks);
        let (mut connectors, mut partitions, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for row in client.query(&sql, &[pipeline, destination]).await? {
            let (connector, partition, slot): (String, String, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let its = i64::from(slots.slot_of(&Partition(partition.as_str().into())));
            if its != slot {
                connectors.push(connector);
                partitions.push(partition);
                before.push(slot);
                after.push(its);
            }
        }
        if connectors.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "UPDATE {} m SET slot = n.after \
             FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[]) AS n (connector, partition, before, after) \
             WHERE m.pipeline = $1 AND m.destination = $2 AND m.connector = n.connector AND m.partition = n.partition \
             AND m.slot = n.before",
            tables.marks
        );
        client.execute(&sql, &[pipeline, destination, &connectors, &partitions, &before, &after]).await?;
        Ok(())
    }
}
