//! Claims, marks and receipts of units, in the state table.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_cluster::NodeId;
use anabranch_plugin::state::{Epoch, Receipt, Slots, StoreError, Unit};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;

use super::leases::is_free;
use super::session::{Client, Failure as Error, Transaction};
use super::table::{EPOCH, KEY, MARK, RECEIPT, Table, unsigned};
use crate::contents::latest;
use crate::request::{ReadResult, Spread, Write, WriteResult, fence};
use crate::tables::{decode, encode, mark_of};

impl Table {
    /// Claims a unit, unless it belongs to another node of a cluster. The row of the unit stays as it is until the
    /// transaction ends: until then, no other node takes the unit.
    pub(super) async fn claim(
        &self,
        transaction: &Transaction<'_>,
        unit: &Unit,
        by: Option<NodeId>,
    ) -> Result<Result<Epoch, StoreError>, Error> {
        if let Some(by) = by
            && let Err(refused) = self.may_claim(transaction, unit, by).await?
        {
            return Ok(Err(refused));
        }
        // In a cluster, a server that lost the latest claims in a failover must not give their numbers to others: there,
        // numbers follow the clock.
        let first = if by.is_some() { "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint" } else { "1" };
        let sql = format!(
            "INSERT INTO {0} AS t VALUES ('{EPOCH}', $1, '', '', {first}, '', $2) \
             ON CONFLICT ({KEY}) DO UPDATE SET number = greatest(t.number + 1, EXCLUDED.number) RETURNING number",
            self.state
        );
        let row = transaction.query_one(&sql, &[&&*unit.pipeline, &i64::from(unit.slot)]).await?;
        Ok(Ok(Epoch { unit: unit.clone(), number: unsigned(row.get(0)) }))
    }

    /// Fails if a unit belongs to another node, or if its pipeline has units and this is none of them: a node that has not
    /// heard of the new number of units has the marks of none. The row of the unit stays as it is until the transaction ends.
    ///
    /// A pipeline without units is stopped: a request to its marks claims them.
    async fn may_claim(
        &self,
        transaction: &Transaction<'_>,
        unit: &Unit,
        by: NodeId,
    ) -> Result<Result<(), StoreError>, Error> {
        let Table { nodes, units, .. } = self;
        let (pipeline, slot) = (unit.pipeline.as_str(), i64::from(unit.slot));
        let sql = format!("SELECT u.owner FROM {units} u WHERE u.pipeline = $1 AND u.slot = $2 FOR SHARE");
        let Some(row) = transaction.query_opt(&sql, &[&pipeline, &slot]).await? else {
            // A statement of its own: it sees the transaction that the first one has waited for.
            let sql = format!("SELECT EXISTS (SELECT FROM {units} WHERE pipeline = $1)");
            if !transaction.query_one(&sql, &[&pipeline]).await?.get::<_, bool>(0) {
                return Ok(Ok(()));
            }
            let theirs = theirs(&self.epochs(transaction, &[unit].into()).await?, unit);
            return Ok(Err(StoreError::Fenced { unit: unit.clone(), ours: 0, theirs }));
        };
        if let Some(owner) = row.get::<_, Option<i64>>(0).filter(|owner| *owner != by.0.cast_signed()) {
            let sql = format!("SELECT name FROM {nodes} WHERE id = $1");
            if let Some(other) = transaction.query_opt(&sql, &[&owner]).await? {
                return Ok(Err(StoreError::Elsewhere { unit: unit.clone(), node: other.get(0) }));
            }
        }
        Ok(Ok(()))
    }

    /// Has the nodes of a cluster run a pipeline. Returns `false` if they do already.
    ///
    /// If the pipeline had another number of units, its marks are moved to the units of their lanes. Earlier runs are fenced.
    /// Units that are drained do not count, see [`Table::revive`].
    pub(super) async fn want(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &Str,
        Spread { units, label }: &Spread,
    ) -> Result<bool, Error> {
        let sql = format!(
            "INSERT INTO {0} (pipeline, slot, shares, label) SELECT $1, slot, $2, $3 FROM generate_series(0, $2 - 1) slot \
             WHERE NOT EXISTS (SELECT FROM {0} WHERE pipeline = $1) ON CONFLICT DO NOTHING",
            self.units
        );
        let count = i64::from(*units);
        if transaction.execute(&sql, &[&pipeline.as_str(), &count, &label.as_str()]).await? == 0 {
            return Ok(false);
        }
        // Runs that hang may have had other units. They are fenced first: this waits for what they are storing, and what they
        // have stored is moved as well.
        let sql = format!(
            "UPDATE {} SET number = greatest(number + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) \
             WHERE kind = '{EPOCH}' AND pipeline = $1",
            self.state
        );
        transaction.execute(&sql, &[&pipeline.as_str()]).await?;
        self.distribute(transaction, pipeline, Slots::none(*units)).await?;
        Ok(true)
    }

    /// Has the nodes run a pipeline again that they drain: they drain its runs, and then begin new ones. Returns `false` if they
    /// drain none of its units.
    pub(super) async fn revive(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &Str,
        Spread { units, label }: &Spread,
    ) -> Result<bool, Error> {
        let (id, count) = (pipeline.as_str(), i64::from(*units));
        // Units of another number of units end without draining: the caller asks for new ones, which fence them.
        let sql = format!("DELETE FROM {} WHERE pipeline = $1 AND ending AND shares <> $2", self.units);
        transaction.execute(&sql, &[&id, &count]).await?;
        let sql = format!("UPDATE {} SET ending = false, label = $2 WHERE pipeline = $1 AND ending", self.units);
        if transaction.execute(&sql, &[&id, &label.as_str()]).await? == 0 {
            return Ok(false);
        }
        // Those that were drained already.
        let sql = format!(
            "INSERT INTO {} (pipeline, slot, shares, label) SELECT $1, slot, $2, $3 FROM generate_series(0, $2 - 1) slot \
             ON CONFLICT DO NOTHING",
            self.units
        );
        transaction.execute(&sql, &[&id, &count, &label.as_str()]).await?;
        Ok(true)
    }

    /// Has the nodes run a pipeline in another number of units, if they run it. Nodes that run it lose their units.
    pub(super) async fn reshape(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &Str,
        spread: &Spread,
    ) -> Result<bool, Error> {
        let sql = format!("DELETE FROM {} WHERE pipeline = $1 AND shares <> $2 AND NOT ending", self.units);
        let is_other = transaction.execute(&sql, &[&pipeline.as_str(), &i64::from(spread.units)]).await? > 0;
        if is_other { self.want(transaction, pipeline, spread).await } else { Ok(false) }
    }

    /// Moves the marks and receipts of a pipeline to the slots of their lanes.
    async fn distribute(&self, transaction: &Transaction<'_>, pipeline: &Str, slots: Slots) -> Result<(), Error> {
        let sql = format!(
            "SELECT kind, connector, partition, slot FROM {} WHERE kind IN ('{MARK}', '{RECEIPT}') AND pipeline = $1 \
             FOR UPDATE",
            self.state
        );
        let rows = transaction.query(&sql, &[&pipeline.as_str()]).await?;
        let mut moved = MovedRows::default();
        for row in &rows {
            let (kind, connector, partition): (String, String, String) = (row.get(0), row.get(1), row.get(2));
            let of_lane = match kind == RECEIPT {
                true => receipt_lane(&partition).map(|lane| lane.partition),
                false => Some(Partition(partition.as_str().into())),
            };
            let (before, Some(of_lane)) = (row.get::<_, i64>(3), of_lane) else { continue };
            let after = i64::from(slots.slot_of(&of_lane));
            if after != before {
                moved.kinds.push(kind);
                moved.connectors.push(connector);
                moved.partitions.push(partition);
                moved.before.push(before);
                moved.after.push(after);
            }
        }
        if moved.kinds.is_empty() {
            return Ok(());
        }
        // A lane that has marks in several slots, because it changed its slot, keeps one of them: rows of the others would
        // have the same key. The later one counts.
        let sql = format!(
            "WITH moved AS (SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[]) \
                 AS m (kind, connector, partition, before, after)), \
             taken AS (DELETE FROM {0} t USING moved m WHERE t.pipeline = $1 AND t.kind = m.kind \
                 AND t.connector = m.connector AND t.partition = m.partition AND t.slot = m.before \
                 RETURNING t.kind, t.connector, t.partition, t.number, t.value, m.after) \
             INSERT INTO {0} AS t SELECT DISTINCT ON (kind, connector, partition) kind, $1, connector, partition, number, \
                 value, after FROM taken ORDER BY kind, connector, partition, substring(value FOR 16) DESC \
             ON CONFLICT ({KEY}) DO UPDATE SET value = EXCLUDED.value \
                 WHERE substring(EXCLUDED.value FOR 16) > substring(t.value FOR 16)",
            self.state
        );
        let MovedRows { kinds, connectors, partitions, before, after } = moved;
        transaction.execute(&sql, &[&pipeline.as_str(), &kinds, &connectors, &partitions, &before, &after]).await?;
        Ok(())
    }

    /// Has the nodes of a cluster stop a pipeline: they deliver what they have read, and remove their units. Units that no
    /// node has are removed at once. Returns `true` if a node has some.
    pub(super) async fn end_units(&self, transaction: &Transaction<'_>, pipeline: &Str) -> Result<bool, Error> {
        let sql = format!("DELETE FROM {} u WHERE u.pipeline = $1 AND {}", self.units, is_free(&self.nodes));
        transaction.execute(&sql, &[&pipeline.as_str()]).await?;
        let sql = format!("UPDATE {} SET ending = true WHERE pipeline = $1", self.units);
        Ok(transaction.execute(&sql, &[&pipeline.as_str()]).await? > 0)
    }

    /// Removes the units of a pipeline that this node has, because their run has ended. With `all`, the other nodes stop
    /// theirs. Returns the number of units that are left.
    pub(super) async fn unwant(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &Str,
        by: Option<NodeId>,
        all: bool,
    ) -> Result<u64, Error> {
        let sql = format!("DELETE FROM {} WHERE pipeline = $1 AND owner = $2", self.units);
        let by = by.map_or(0, |by| by.0.cast_signed());
        transaction.execute(&sql, &[&pipeline.as_str(), &by]).await?;
        if all {
            self.end_units(transaction, pipeline).await?;
        }
        let sql = format!("SELECT count(*) FROM {} WHERE pipeline = $1", self.units);
        Ok(unsigned(transaction.query_one(&sql, &[&pipeline.as_str()]).await?.get(0)))
    }

    /// Returns the slots of a pipeline that were ever claimed.
    pub(super) async fn slots(&self, client: &Client, pipeline: &Str) -> Result<Vec<u32>, Error> {
        let sql = format!("SELECT slot FROM {} WHERE kind = '{EPOCH}' AND pipeline = $1 ORDER BY slot", self.state);
        let rows = client.query(&sql, &[&&**pipeline]).await?;
        Ok(rows.iter().filter_map(|row| u32::try_from(row.get::<_, i64>(0)).ok()).collect())
    }

    /// Returns the numbers of the latest claims and locks them until the transaction ends.
    async fn epochs(
        &self,
        transaction: &Transaction<'_>,
        units: &BTreeSet<&Unit>,
    ) -> Result<BTreeMap<(String, i64), u64>, Error> {
        let sql = format!(
            "SELECT pipeline, slot, number FROM {} WHERE kind = '{EPOCH}' \
             AND (pipeline, slot) IN (SELECT * FROM unnest($1::text[], $2::bigint[])) ORDER BY pipeline, slot FOR SHARE",
            self.state
        );
        let (pipelines, slots): (Vec<&str>, Vec<i64>) =
            units.iter().map(|unit| (unit.pipeline.as_str(), i64::from(unit.slot))).unzip();
        let rows = transaction.query(&sql, &[&pipelines, &slots]).await?;
        Ok(rows.iter().map(|row| ((row.get(0), row.get(1)), unsigned(row.get(2)))).collect())
    }

    /// Fails unless the epoch is that of the latest claim, and keeps it so until the transaction ends.
    pub(super) async fn check(
        &self,
        transaction: &Transaction<'_>,
        epoch: &Epoch,
    ) -> Result<Result<(), StoreError>, Error> {
        let epochs = self.epochs(transaction, &[&epoch.unit].into()).await?;
        Ok(fence(epoch, theirs(&epochs, &epoch.unit)))
    }

    /// Stores the marks and receipts of several units in two statements.
    pub(super) async fn put_marks(
        &self,
        transaction: &Transaction<'_>,
        writes: &[Write],
    ) -> Result<Vec<Result<WriteResult, StoreError>>, Error> {
        let units = writes.iter().filter_map(marks_of).map(|(epoch, ..)| &epoch.unit).collect();
        let epochs = self.epochs(transaction, &units).await?;
        let mut outcomes = Vec::with_capacity(writes.len());
        // The last of several marks of a lane.
        let mut latest: BTreeMap<(&str, &Unit, &str, Str), &Mark> = BTreeMap::new();
        for (epoch, moves, receipts) in writes.iter().filter_map(marks_of) {
            let outcome = fence(epoch, theirs(&epochs, &epoch.unit));
            if outcome.is_ok() {
                for (lane, mark) in moves {
                    latest.insert((MARK, &epoch.unit, lane.connector.as_str(), lane.partition.0.clone()), mark);
                }
                for Receipt { destination, lane, mark } in receipts {
                    latest.insert((RECEIPT, &epoch.unit, destination.as_str(), lane_text(lane)), mark);
                }
            }
            outcomes.push(outcome.map(|()| WriteResult::Nothing));
        }
        if latest.is_empty() {
            return Ok(outcomes);
        }
        let sql = format!(
            "INSERT INTO {} SELECT kind, pipeline, connector, partition, 0, value, slot \
             FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bytea[]) \
             AS moved (kind, pipeline, slot, connector, partition, value) \
             ON CONFLICT ({KEY}) DO UPDATE SET value = EXCLUDED.value",
            self.state
        );
        let kinds: Vec<&str> = latest.keys().map(|key| key.0).collect();
        let pipelines: Vec<&str> = latest.keys().map(|key| key.1.pipeline.as_str()).collect();
        let slots: Vec<i64> = latest.keys().map(|key| i64::from(key.1.slot)).collect();
        let connectors: Vec<&str> = latest.keys().map(|key| key.2).collect();
        let partitions: Vec<&str> = latest.keys().map(|key| key.3.as_str()).collect();
        let values: Vec<Vec<u8>> = latest.values().map(|mark| encode(mark)).collect();
        transaction.execute(&sql, &[&kinds, &pipelines, &slots, &connectors, &partitions, &values]).await?;
        Ok(outcomes)
    }

    /// Removes the marks and receipts of lanes.
    pub(super) async fn drop_lanes(
        &self,
        transaction: &Transaction<'_>,
        unit: &Unit,
        drops: &[LaneId],
    ) -> Result<(), Error> {
        let sql = format!(
            "DELETE FROM {} WHERE pipeline = $1 AND slot = $2 AND (kind = '{MARK}' AND (connector, partition) IN \
             (SELECT * FROM unnest($3::text[], $4::text[])) OR kind = '{RECEIPT}' AND partition = ANY($5))",
            self.state
        );
        let connectors: Vec<&str> = drops.iter().map(|lane| lane.connector.as_str()).collect();
        let partitions: Vec<&str> = drops.iter().map(|lane| lane.partition.0.as_str()).collect();
        let lanes: Vec<Str> = drops.iter().map(lane_text).collect();
        let lanes: Vec<&str> = lanes.iter().map(Str::as_str).collect();
        let slot = i64::from(unit.slot);
        transaction.execute(&sql, &[&&*unit.pipeline, &slot, &connectors, &partitions, &lanes]).await?;
        Ok(())
    }

    /// Returns the marks of a unit.
    pub(super) async fn unit_marks(
        &self,
        client: &Client,
        epoch: &Epoch,
    ) -> Result<Result<ReadResult, StoreError>, Error> {
        let (theirs, rows) = self.owned(client, epoch, MARK).await?;
        let marks = rows.iter().map(|row| (&*row.connector, &*row.partition, &*row.value));
        Ok(fence(epoch, theirs).and_then(|()| understood(&epoch.unit.pipeline, marks)).map(ReadResult::Marks))
    }

    /// Returns the receipts of a unit.
    pub(super) async fn unit_receipts(
        &self,
        client: &Client,
        epoch: &Epoch,
    ) -> Result<Result<ReadResult, StoreError>, Error> {
        let (theirs, rows) = self.owned(client, epoch, RECEIPT).await?;
        let receipts = rows.iter().map(|row| receipt(&row.connector, &row.partition, &row.value));
        Ok(fence(epoch, theirs).and_then(|()| receipts.collect()).map(ReadResult::Receipts))
    }

    /// Returns the number of the latest claim of a unit, and its rows of a kind.
    async fn owned(&self, client: &Client, epoch: &Epoch, kind: &str) -> Result<(u64, Vec<Owned>), Error> {
        // One statement sees one snapshot.
        let sql = format!(
            "SELECT kind, connector, partition, number, value FROM {} \
             WHERE kind IN ('{EPOCH}', '{kind}') AND pipeline = $1 AND slot = $2",
            self.state
        );
        let Unit { pipeline, slot } = &epoch.unit;
        let rows = client.query(&sql, &[&&**pipeline, &i64::from(*slot)]).await?;
        let (claims, rows): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get::<_, &str>(0) == EPOCH);
        let theirs = claims.first().map_or(0, |row| unsigned(row.get(3)));
        let owned =
            |row: &&tokio_postgres::Row| Owned { connector: row.get(1), partition: row.get(2), value: row.get(4) };
        Ok((theirs, rows.iter().map(owned).collect()))
    }
}

/// Rows of the state table that move to other slots, by column.
#[derive(Default)]
struct MovedRows {
    kinds: Vec<String>,
    connectors: Vec<String>,
    partitions: Vec<String>,
    before: Vec<i64>,
    after: Vec<i64>,
}

/// A mark or receipt of a unit.
struct Owned {
    connector: String,
    partition: String,
    value: Vec<u8>,
}

/// Encodes a lane as text for the column `partition`.
pub(super) fn lane_text(lane: &LaneId) -> Str {
    serde_json::json!([lane.connector.as_str(), lane.partition.0.as_str()]).to_string().into()
}

/// Decodes what [`lane_text`] encodes.
fn receipt_lane(text: &str) -> Option<LaneId> {
    let (connector, partition): (String, String) = serde_json::from_str(text).ok()?;
    Some(LaneId { connector: connector.into(), partition: Partition(partition.into()) })
}

pub(super) fn receipt(destination: &str, lane: &str, value: &[u8]) -> Result<Receipt, StoreError> {
    let damaged = || StoreError::Damaged(format!("a receipt of {destination} cannot be decoded"));
    let lane = receipt_lane(lane).ok_or_else(damaged)?;
    Ok(Receipt { destination: destination.into(), lane, mark: decode(value).ok_or_else(damaged)? })
}

/// The epoch of a commit, the marks of its lanes, and the receipts of destinations.
type MarkWrite<'a> = (&'a Epoch, &'a [(LaneId, Mark)], &'a [Receipt]);

fn marks_of(write: &Write) -> Option<MarkWrite<'_>> {
    match write {
        Write::Marks { epoch, moves, receipts, .. } => Some((epoch, moves, receipts)),
        _ => None,
    }
}

/// Returns the number of the latest claim of a unit.
fn theirs(epochs: &BTreeMap<(String, i64), u64>, unit: &Unit) -> u64 {
    epochs.get(&(unit.pipeline.to_string(), i64::from(unit.slot))).copied().unwrap_or(0)
}

pub(super) fn understood<'a>(
    pipeline: &str,
    marks: impl Iterator<Item = (&'a str, &'a str, &'a [u8])>,
) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
    let mut found = BTreeMap::new();
    for (connector, partition, value) in marks {
        let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
        latest(&mut found, lane, mark_of(pipeline, connector, value)?);
    }
    Ok(found)
}
