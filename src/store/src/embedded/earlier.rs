//! The first form of the file, in which claims, marks and receipts belonged to pipelines. A store of this form is read as
//! it is, so that a command that only reads leaves it to the program that wrote it. The first write upgrades it.

use std::collections::BTreeMap;

use anabranch_plugin::state::StoreError;
use anabranch_record::mark::{LaneId, Mark, Partition};
use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError, WriteTransaction,
};

use crate::request::unavailable;
use crate::tables::{self, META, SCHEMA};

/// The version whose tables these are.
const FIRST: u64 = 1;

const EPOCHS: TableDefinition<'_, &str, u64> = TableDefinition::new("epochs");
type Marks = TableDefinition<'static, (&'static str, &'static str, &'static str), &'static [u8]>;
pub(super) const MARKS: Marks = TableDefinition::new("marks");
pub(super) const DETACHED_MARKS: Marks = TableDefinition::new("detached_marks");
/// (Pipeline, destination, connector, partition) -> mark.
const RECEIPTS: TableDefinition<'_, (&str, &str, &str, &str), &[u8]> = TableDefinition::new("receipts");

/// Returns `true` if the store has the first form.
pub(super) fn is_first(transaction: &ReadTransaction) -> Result<bool, redb::Error> {
    Ok(transaction.open_table(META)?.get("schema")?.is_some_and(|version| version.value() == FIRST))
}

/// Returns the marks of a pipeline.
pub(super) fn marks(
    transaction: &ReadTransaction,
    table: Marks,
    pipeline: &str,
) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
    let mut marks = BTreeMap::new();
    let table = match transaction.open_table(table) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(marks),
        other => other.map_err(unavailable)?,
    };
    for entry in table.range((pipeline, "", "")..).map_err(unavailable)? {
        let (key, value) = entry.map_err(unavailable)?;
        let (owner, connector, partition) = key.value();
        if owner != pipeline {
            break;
        }
        let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
        marks.insert(lane, tables::mark_of(owner, connector, value.value())?);
    }
    Ok(marks)
}

/// Upgrades a store of the first form, in one transaction. Does nothing to a store of the present form. O(claims, marks
/// and receipts).
pub(super) fn upgrade(database: &Database) -> Result<(), redb::Error> {
    if !is_first(&database.begin_read()?)? {
        return Ok(());
    }
    let transaction = database.begin_write()?;
    convert(&transaction)?;
    transaction.commit()?;
    tracing::info!("upgraded the state store from version {FIRST} to version {SCHEMA}");
    Ok(())
}

/// Moves everything to slot 0.
pub(crate) fn convert(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    {
        let (from, mut to) = (transaction.open_table(EPOCHS)?, transaction.open_table(tables::EPOCHS)?);
        for entry in from.iter()? {
            let (pipeline, number) = entry?;
            to.insert((pipeline.value(), 0), number.value())?;
        }
        for (from, to) in [(MARKS, tables::MARKS), (DETACHED_MARKS, tables::DETACHED_MARKS)] {
            let (from, mut to) = (transaction.open_table(from)?, transaction.open_table(to)?);
            for entry in from.iter()? {
                let (key, mark) = entry?;
                let (pipeline, connector, partition) = key.value();
                to.insert((pipeline, 0, connector, partition), mark.value())?;
            }
        }
        let (from, mut to) = (transaction.open_table(RECEIPTS)?, transaction.open_table(tables::RECEIPTS)?);
        for entry in from.iter()? {
            let (key, mark) = entry?;
            let (pipeline, destination, connector, partition) = key.value();
            to.insert((pipeline, 0, destination, connector, partition), mark.value())?;
        }
        transaction.open_table(META)?.insert("schema", SCHEMA)?;
    }
    transaction.delete_table(EPOCHS)?;
    transaction.delete_table(MARKS)?;
    transaction.delete_table(DETACHED_MARKS)?;
    transaction.delete_table(RECEIPTS)?;
    Ok(())
}
