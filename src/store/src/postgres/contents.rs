//! All contents of the tables, read and written at once.

use anabranch_plugin::state::{Receipt, StoreError, Unit};
use anabranch_record::mark::{LaneId, Partition};
use anabranch_record::text::Str;
use bytes::Bytes;
use tokio_postgres::Row;

use super::imports::IMPORT;
use super::letters::{COUNTER, counter, counter_value};
use super::schemas::{DEFINITION, GONE, HIDDEN, LEVEL, SUBJECT, level_of, schema_text};
use super::session::{Client, Failure as Error, Transaction};
use super::table::{ACTIVE, DETACHED, EPOCH, MARK, PIPELINE, RECEIPT, Table, json, unsigned};
use super::units::{lane_text, receipt};
use crate::contents::{Contents, StoredMark, StoredVersion};
use crate::request::WriteResult;
use crate::schemas::{Deletion, wrong_number};
use crate::tables::{encode, mark_of, understand};

/// Kind of the row that exists while another store is copied into this one.
pub(super) const COPY: &str = "copy";

/// Kinds of rows that belong to the contents. The others belong to the place: version, owner, nodes and imported files.
const KINDS: [&str; 10] = [PIPELINE, EPOCH, MARK, DETACHED, RECEIPT, ACTIVE, COUNTER, DEFINITION, SUBJECT, LEVEL];

/// Number of rows that one statement writes.
const ROWS: usize = 10_000;

/// The query whether another store is copied into the one with this state table, or was.
pub(super) fn being_copied_to(state: &str) -> String {
    format!("SELECT EXISTS (SELECT FROM {state} WHERE kind = '{COPY}')")
}

/// A row of the state table without its kind.
#[derive(Default)]
struct StateRow {
    pipeline: Str,
    connector: Str,
    partition: Str,
    number: i64,
    value: Vec<u8>,
    slot: i64,
}

impl Table {
    /// Reads everything but dead letters. Only the owner of the store changes it meanwhile.
    pub(super) async fn contents(&self, client: &Client) -> Result<Result<Contents, StoreError>, Error> {
        let sql = format!(
            "SELECT kind, pipeline, connector, partition, number, value, slot FROM {} WHERE kind = $1 \
             ORDER BY pipeline COLLATE \"C\", slot, connector COLLATE \"C\", partition COLLATE \"C\"",
            self.state
        );
        let mut rows = Vec::new();
        // Each statement has a time limit.
        for kind in KINDS {
            rows.extend(client.query(&sql, &[&kind]).await?);
        }
        Ok(understood(&rows))
    }

    /// Notes that another store is copied into this one, unless it has contents. A node that has opened the tables before does
    /// not change the configuration any more.
    pub(super) async fn begin_copy(&self, transaction: &Transaction<'_>) -> Result<WriteResult, Error> {
        // Nodes change the configuration one after the other, and this comes before or after them.
        self.raise_revision(transaction, 1).await?;
        let sql = format!("SELECT EXISTS (SELECT FROM {} WHERE kind = ANY($1))", self.state);
        let kinds = [&KINDS[..], &[IMPORT]].concat();
        if transaction.query_one(&sql, &[&kinds]).await?.get(0) {
            return Ok(WriteResult::NotEmpty);
        }
        let sql = format!("INSERT INTO {} VALUES ('{COPY}', '', '', '', 0, '') ON CONFLICT DO NOTHING", self.state);
        transaction.execute(&sql, &[]).await?;
        Ok(WriteResult::Nothing)
    }

    /// Returns `true` if another store is copied into this one, or if such a copy was interrupted.
    pub(super) async fn is_being_copied_to(&self, transaction: &Transaction<'_>) -> Result<bool, Error> {
        Ok(transaction.query_one(&being_copied_to(&self.state), &[]).await?.get(0))
    }

    /// Removes what was copied into this store.
    pub(super) async fn abandon_copy(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let letters = transaction.query_one("SELECT to_regclass($1) IS NOT NULL", &[&self.letters]).await?;
        if letters.get(0) {
            transaction.execute(&format!("TRUNCATE {}", self.letters), &[]).await?;
        }
        let sql = format!("DELETE FROM {} WHERE kind = ANY($1)", self.state);
        let kinds = [&KINDS[..], &[COPY]].concat();
        transaction.execute(&sql, &[&kinds]).await.map(drop)
    }

    /// Writes everything but dead letters into tables that have nothing of it, and ends the copy.
    pub(super) async fn put_contents(
        &self,
        transaction: &Transaction<'_>,
        contents: &Contents,
    ) -> Result<Result<WriteResult, StoreError>, Error> {
        let rows = match rows(contents) {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(error)),
        };
        let sql = format!(
            "INSERT INTO {} (kind, pipeline, connector, partition, number, value, slot) SELECT * FROM \
             unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bytea[], $7::bigint[]) \
             ON CONFLICT DO NOTHING",
            self.state
        );
        // If the answer to the commit is lost, the rows are written again.
        for rows in rows.chunks(ROWS) {
            let kinds: Vec<&str> = rows.iter().map(|(kind, _)| *kind).collect();
            let pipelines: Vec<&str> = rows.iter().map(|(_, row)| row.pipeline.as_str()).collect();
            let connectors: Vec<&str> = rows.iter().map(|(_, row)| row.connector.as_str()).collect();
            let partitions: Vec<&str> = rows.iter().map(|(_, row)| row.partition.as_str()).collect();
            let numbers: Vec<i64> = rows.iter().map(|(_, row)| row.number).collect();
            let values: Vec<&[u8]> = rows.iter().map(|(_, row)| &row.value[..]).collect();
            let slots: Vec<i64> = rows.iter().map(|(_, row)| row.slot).collect();
            transaction
                .execute(&sql, &[&kinds, &pipelines, &connectors, &partitions, &numbers, &values, &slots])
                .await?;
        }
        let sql = format!("DELETE FROM {} WHERE kind = '{COPY}'", self.state);
        transaction.execute(&sql, &[]).await?;
        Ok(Ok(WriteResult::Nothing))
    }
}

fn understood(rows: &[Row]) -> Result<Contents, StoreError> {
    let mut contents = Contents::default();
    for row in rows {
        let text = |column: usize| row.get::<_, &str>(column);
        let (kind, pipeline, connector, partition) = (text(0), text(1), text(2), text(3));
        let (number, value, slot): (i64, &[u8], i64) = (row.get(4), row.get(5), row.get(6));
        let unit = || Unit { pipeline: pipeline.into(), slot: u32::try_from(slot).unwrap_or(u32::MAX) };
        let id = |number: i64| u32::try_from(number).map_err(|_| wrong_number());
        match kind {
            PIPELINE => contents.pipelines.push(understand(pipeline, value)?),
            EPOCH => drop(contents.claims.insert(unit(), unsigned(number))),
            MARK | DETACHED => {
                let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
                let mark = mark_of(pipeline, connector, value)?;
                let marks = if kind == MARK { &mut contents.marks } else { &mut contents.detached };
                marks.push(StoredMark { unit: unit(), lane, mark });
            }
            RECEIPT => contents.receipts.push((unit(), receipt(connector, partition, value)?)),
            ACTIVE => contents.active.push((pipeline.into(), connector.into(), Bytes::copy_from_slice(value))),
            COUNTER => drop(contents.queues.insert(pipeline.into(), counter(number, value))),
            DEFINITION => contents.definitions.push((id(number)?, schema_text(value)?)),
            SUBJECT => contents.versions.push(StoredVersion {
                subject: pipeline.into(),
                version: connector.parse().map_err(|_| wrong_number())?,
                id: id(number)?,
                deleted: match value {
                    GONE => Some(Deletion::Gone),
                    HIDDEN => Some(Deletion::Hidden),
                    _ => None,
                },
            }),
            LEVEL => {
                let subject = (connector == level_of(Some(&Str::default())).0).then(|| pipeline.into());
                contents.levels.push((subject, schema_text(value)?));
            }
            // The statement asks for no other kind.
            _ => {}
        }
    }
    contents.definitions.sort();
    contents.versions.sort_by(|a, b| (&a.subject, a.version).cmp(&(&b.subject, b.version)));
    Ok(contents)
}

/// Returns the rows of the contents with their kinds.
fn rows(contents: &Contents) -> Result<Vec<(&'static str, StateRow)>, StoreError> {
    let mut rows = Vec::new();
    for pipeline in &contents.pipelines {
        let row = StateRow { pipeline: pipeline.id.clone(), value: json(pipeline)?, ..StateRow::default() };
        rows.push((PIPELINE, row));
    }
    let of = |unit: &Unit| StateRow { pipeline: unit.pipeline.clone(), slot: unit.slot.into(), ..StateRow::default() };
    for (unit, number) in &contents.claims {
        rows.push((EPOCH, StateRow { number: i64::try_from(*number).unwrap_or(i64::MAX), ..of(unit) }));
    }
    for (kind, marks) in [(MARK, &contents.marks), (DETACHED, &contents.detached)] {
        rows.extend(marks.iter().map(|StoredMark { unit, lane, mark }| {
            let (connector, partition) = (lane.connector.clone(), lane.partition.0.clone());
            (kind, StateRow { connector, partition, value: encode(mark), ..of(unit) })
        }));
    }
    for (unit, Receipt { destination, lane, mark }) in &contents.receipts {
        let (connector, partition) = (destination.clone(), lane_text(lane));
        rows.push((RECEIPT, StateRow { connector, partition, value: encode(mark), ..of(unit) }));
    }
    for (pipeline, connector, settings) in &contents.active {
        let (pipeline, connector) = (pipeline.clone(), connector.clone());
        rows.push((ACTIVE, StateRow { pipeline, connector, value: settings.to_vec(), ..StateRow::default() }));
    }
    for (pipeline, counter) in &contents.queues {
        let (number, value) = (i64::try_from(counter.next).unwrap_or(i64::MAX), counter_value(counter));
        rows.push((COUNTER, StateRow { pipeline: pipeline.clone(), number, value, ..StateRow::default() }));
    }
    for (id, text) in &contents.definitions {
        let (pipeline, value) = (id.to_string().into(), text.as_bytes().to_vec());
        rows.push((DEFINITION, StateRow { pipeline, number: (*id).into(), value, ..StateRow::default() }));
    }
    for StoredVersion { subject, version, id, deleted } in &contents.versions {
        let value = match deleted {
            Some(Deletion::Gone) => GONE,
            Some(Deletion::Hidden) => HIDDEN,
            None => b"",
        };
        let (pipeline, connector) = (subject.clone(), version.to_string().into());
        let value = value.to_vec();
        rows.push((SUBJECT, StateRow { pipeline, connector, number: (*id).into(), value, ..StateRow::default() }));
    }
    for (subject, level) in &contents.levels {
        let (of, subject) = level_of(subject.as_ref());
        let value = level.as_bytes().to_vec();
        rows.push((LEVEL, StateRow { pipeline: subject.into(), connector: of.into(), value, ..StateRow::default() }));
    }
    Ok(rows)
}
