//! All contents of a file, read and written at once.

use anabranch_plugin::state::{Receipt, StoreError, Unit};
use anabranch_record::mark::{LaneId, Partition};
use bytes::Bytes;
use redb::{Key, ReadTransaction, ReadableTable as _, TableDefinition, Value, WriteTransaction};

use super::letters::{self, table};
use super::schemas;
use crate::contents::{Contents, StoredMark};
use crate::request::unavailable;
use crate::tables::{
    ACTIVE, DETACHED_MARKS, EPOCHS, MARKS, Marks, RECEIPTS, WriteFailure, encode, mark_of, pipelines, put_pipeline,
};

/// Reads everything but dead letters. O(all).
pub(super) fn read(transaction: &ReadTransaction) -> Result<Contents, StoreError> {
    let mut contents = Contents { pipelines: pipelines(transaction)?, ..Contents::default() };
    each(transaction, EPOCHS, |(pipeline, slot), number| {
        contents.claims.insert(Unit { pipeline: pipeline.into(), slot }, number);
        Ok(())
    })?;
    contents.marks = marks(transaction, MARKS)?;
    contents.detached = marks(transaction, DETACHED_MARKS)?;
    each(transaction, RECEIPTS, |(pipeline, slot, destination, connector, partition), value| {
        let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
        let receipt = Receipt { destination: destination.into(), mark: mark_of(pipeline, connector, value)?, lane };
        contents.receipts.push((Unit { pipeline: pipeline.into(), slot }, receipt));
        Ok(())
    })?;
    each(transaction, ACTIVE, |(pipeline, connector), settings| {
        contents.active.push((pipeline.into(), connector.into(), Bytes::copy_from_slice(settings)));
        Ok(())
    })?;
    contents.queues = letters::counters(transaction)?;
    schemas::read_all(transaction, &mut contents)?;
    Ok(contents)
}

fn marks(transaction: &ReadTransaction, definition: Marks) -> Result<Vec<StoredMark>, StoreError> {
    let mut marks = Vec::new();
    each(transaction, definition, |(pipeline, slot, connector, partition), value| {
        let mark = mark_of(pipeline, connector, value)?;
        let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
        marks.push(StoredMark { unit: Unit { pipeline: pipeline.into(), slot }, lane, mark });
        Ok(())
    })?;
    Ok(marks)
}

/// Calls `see` with every entry of a table, in order.
pub(super) fn each<K: Key + 'static, V: Value + 'static>(
    transaction: &ReadTransaction,
    definition: TableDefinition<'_, K, V>,
    mut see: impl FnMut(K::SelfType<'_>, V::SelfType<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let Some(table) = table(transaction, definition)? else { return Ok(()) };
    for entry in table.iter().map_err(unavailable)? {
        let (key, value) = entry.map_err(unavailable)?;
        see(key.value(), value.value())?;
    }
    Ok(())
}

/// Writes everything but dead letters into a store that has nothing of it.
pub(super) fn write(transaction: &WriteTransaction, contents: &Contents) -> Result<(), WriteFailure> {
    for pipeline in &contents.pipelines {
        put_pipeline(transaction, pipeline)?;
    }
    let mut epochs = transaction.open_table(EPOCHS)?;
    for (unit, number) in &contents.claims {
        epochs.insert((unit.pipeline.as_str(), unit.slot), number)?;
    }
    for (definition, marks) in [(MARKS, &contents.marks), (DETACHED_MARKS, &contents.detached)] {
        let mut table = transaction.open_table(definition)?;
        for StoredMark { unit, lane, mark } in marks {
            let key = (unit.pipeline.as_str(), unit.slot, lane.connector.as_str(), lane.partition.0.as_str());
            table.insert(key, encode(mark).as_slice())?;
        }
    }
    let mut receipts = transaction.open_table(RECEIPTS)?;
    for (unit, Receipt { destination, lane, mark }) in &contents.receipts {
        let (pipeline, slot) = (unit.pipeline.as_str(), unit.slot);
        let key = (pipeline, slot, destination.as_str(), lane.connector.as_str(), lane.partition.0.as_str());
        receipts.insert(key, encode(mark).as_slice())?;
    }
    let mut active = transaction.open_table(ACTIVE)?;
    for (pipeline, connector, settings) in &contents.active {
        active.insert((pipeline.as_str(), connector.as_str()), &settings[..])?;
    }
    letters::put_counters(transaction, &contents.queues)?;
    schemas::write_all(transaction, contents)
}
