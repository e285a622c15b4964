//! Tables of the store and the encoding of their values.

use std::collections::{BTreeMap, HashSet};

use anabranch_plugin::state::{Epoch, Receipt, StoreError, Unit};
use anabranch_record::Position;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use bytes::Bytes;
use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};

use crate::compare::{ConfigurationChange, Differences};
use crate::contents::latest;
use crate::entity::{Status, StoredPipeline};
use crate::request::{fence, unavailable};

/// Why a write failed: `Alone` if only this write failed before it changed anything, `Storage` if the whole store
/// failed.
pub(crate) enum WriteFailure {
    Alone(StoreError),
    Storage(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for WriteFailure {
    fn from(error: E) -> Self {
        WriteFailure::Storage(error.into())
    }
}

/// Version of the stored format. It rises with each change of the format. Since version 2, claims, marks and receipts
/// belong to units.
pub(super) const SCHEMA: u64 = 2;

/// `schema` -> [`SCHEMA`].
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Temporary bytes, written to see whether there is space for them.
pub(super) const TRIAL: TableDefinition<'_, (), &[u8]> = TableDefinition::new("trial");
/// (Pipeline, slot) -> number of the latest claim of the unit.
pub(super) const EPOCHS: TableDefinition<'_, (&str, u32), u64> = TableDefinition::new("unit_epochs");
/// Pipeline -> [`StoredPipeline`] as JSON.
pub(super) const PIPELINES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("pipelines");

pub(super) type Marks = TableDefinition<'static, (&'static str, u32, &'static str, &'static str), &'static [u8]>;
/// (Pipeline, slot, connector, partition) -> mark.
pub(super) const MARKS: Marks = TableDefinition::new("unit_marks");
/// (Pipeline, slot, connector, partition) -> mark, of connectors that are missing in the files.
pub(super) const DETACHED_MARKS: Marks = TableDefinition::new("unit_detached_marks");

type Receipts = TableDefinition<'static, (&'static str, u32, &'static str, &'static str, &'static str), &'static [u8]>;
/// (Pipeline, slot, destination, connector, partition) -> the mark that the destination confirmed.
pub(super) const RECEIPTS: Receipts = TableDefinition::new("unit_receipts");

/// (Pipeline, connector) -> the last active settings of a plugin, in the format of the plugin host.
pub(super) const ACTIVE: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("active");

/// Encodes the generation and the sequence number, eight bytes each, most significant first, then the position.
pub(super) fn encode(mark: &Mark) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + mark.position.0.len());
    bytes.extend_from_slice(&mark.generation.to_be_bytes());
    bytes.extend_from_slice(&mark.seq.to_be_bytes());
    bytes.extend_from_slice(&mark.position.0);
    bytes
}

pub(super) fn decode(bytes: &[u8]) -> Option<Mark> {
    let (generation, rest) = bytes.split_first_chunk()?;
    let (seq, position) = rest.split_first_chunk()?;
    Some(Mark {
        generation: u64::from_be_bytes(*generation),
        seq: u64::from_be_bytes(*seq),
        position: Position::copy_from(position),
    })
}

/// Returns the marks of one unit of a pipeline, or of all if `slot` is `None`.
pub(super) fn marks(
    transaction: &ReadTransaction,
    table: Marks,
    pipeline: &str,
    slot: Option<u32>,
) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
    let mut marks = BTreeMap::new();
    let table = match transaction.open_table(table) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(marks),
        other => other.map_err(unavailable)?,
    };
    for entry in table.range((pipeline, slot.unwrap_or(0), "", "")..).map_err(unavailable)? {
        let (key, value) = entry.map_err(unavailable)?;
        let (owner, its, connector, partition) = key.value();
        if owner != pipeline || slot.is_some_and(|slot| its != slot) {
            break;
        }
        let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
        latest(&mut marks, lane, mark_of(owner, connector, value.value())?);
    }
    Ok(marks)
}

/// Decodes the mark of a connector.
pub(super) fn mark_of(pipeline: &str, connector: &str, bytes: &[u8]) -> Result<Mark, StoreError> {
    let cut_off = || StoreError::Damaged(format!("the position of {pipeline}:{connector} is truncated"));
    decode(bytes).ok_or_else(cut_off)
}

pub(super) fn receipts(transaction: &ReadTransaction, unit: &Unit) -> Result<Vec<Receipt>, StoreError> {
    let table = match transaction.open_table(RECEIPTS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        other => other.map_err(unavailable)?,
    };
    let mut receipts = Vec::new();
    for entry in table.range((unit.pipeline.as_str(), unit.slot, "", "", "")..).map_err(unavailable)? {
        let (key, value) = entry.map_err(unavailable)?;
        let (owner, slot, destination, connector, partition) = key.value();
        if (owner, slot) != (unit.pipeline.as_str(), unit.slot) {
            break;
        }
        let mark = decode(value.value())
            .ok_or_else(|| StoreError::Damaged(format!("a receipt of {owner}:{destination} is truncated")))?;
        let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
        receipts.push(Receipt { destination: destination.into(), lane, mark });
    }
    Ok(receipts)
}

pub(super) fn epoch(transaction: &ReadTransaction, unit: &Unit) -> Result<u64, StoreError> {
    match transaction.open_table(EPOCHS) {
        Err(TableError::TableDoesNotExist(_)) => Ok(0),
        Err(error) => Err(unavailable(error)),
        Ok(table) => {
            let found = table.get((unit.pipeline.as_str(), unit.slot)).map_err(unavailable)?;
            Ok(found.map_or(0, |e| e.value()))
        }
    }
}

/// Returns the slots of a pipeline that were ever claimed.
pub(super) fn slots(transaction: &ReadTransaction, pipeline: &str) -> Result<Vec<u32>, StoreError> {
    let table = match transaction.open_table(EPOCHS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        other => other.map_err(unavailable)?,
    };
    let units = table.range((pipeline, 0)..=(pipeline, u32::MAX)).map_err(unavailable)?;
    units.map(|entry| entry.map(|(key, _)| key.value().1).map_err(unavailable)).collect()
}

/// Claims a unit.
pub(super) fn claim(transaction: &WriteTransaction, unit: Unit) -> Result<Epoch, WriteFailure> {
    let mut epochs = transaction.open_table(EPOCHS)?;
    let key = (unit.pipeline.as_str(), unit.slot);
    let number = epochs.get(key)?.map_or(0, |e| e.value()) + 1;
    epochs.insert(key, number)?;
    Ok(Epoch { number, unit })
}

/// Fails unless the epoch is that of the latest claim.
pub(super) fn check(transaction: &WriteTransaction, epoch: &Epoch) -> Result<(), WriteFailure> {
    let epochs = transaction.open_table(EPOCHS)?;
    let theirs = epochs.get((epoch.unit.pipeline.as_str(), epoch.unit.slot))?.map_or(0, |e| e.value());
    fence(epoch, theirs).map_err(WriteFailure::Alone)
}

/// Stores the marks and receipts of a unit, then removes lanes. O(receipts of the unit) if lanes are removed.
pub(super) fn commit(
    transaction: &WriteTransaction,
    unit: &Unit,
    moves: &[(LaneId, Mark)],
    receipts: &[Receipt],
    drops: &[LaneId],
) -> Result<(), WriteFailure> {
    let (pipeline, slot) = (unit.pipeline.as_str(), unit.slot);
    let mut marks = transaction.open_table(MARKS)?;
    for (lane, mark) in moves {
        let key = (pipeline, slot, lane.connector.as_str(), lane.partition.0.as_str());
        marks.insert(key, encode(mark).as_slice())?;
    }
    if !receipts.is_empty() {
        let mut table = transaction.open_table(RECEIPTS)?;
        for Receipt { destination, lane, mark } in receipts {
            let key = (pipeline, slot, destination.as_str(), lane.connector.as_str(), lane.partition.0.as_str());
            table.insert(key, encode(mark).as_slice())?;
        }
    }
    if drops.is_empty() {
        return Ok(());
    }
    for lane in drops {
        marks.remove((pipeline, slot, lane.connector.as_str(), lane.partition.0.as_str()))?;
    }
    let drops: HashSet<(&str, &str)> =
        drops.iter().map(|lane| (lane.connector.as_str(), lane.partition.0.as_str())).collect();
    let mut receipts = transaction.open_table(RECEIPTS)?;
    let mut gone = Vec::new();
    for entry in receipts.range((pipeline, slot, "", "", "")..)? {
        let (key, _) = entry?;
        let (owner, its, destination, connector, partition) = key.value();
        if (owner, its) != (pipeline, slot) {
            break;
        }
        if drops.contains(&(connector, partition)) {
            gone.push((destination.to_owned(), connector.to_owned(), partition.to_owned()));
        }
    }
    for (destination, connector, partition) in &gone {
        receipts.remove((pipeline, slot, destination.as_str(), connector.as_str(), partition.as_str()))?;
    }
    Ok(())
}

pub(super) fn active(
    transaction: &ReadTransaction,
    pipeline: &str,
    connector: &str,
) -> Result<Option<Bytes>, StoreError> {
    match transaction.open_table(ACTIVE) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(unavailable(error)),
        Ok(table) => {
            let found = table.get((pipeline, connector)).map_err(unavailable)?;
            Ok(found.map(|found| Bytes::copy_from_slice(found.value())))
        }
    }
}

pub(super) fn pipelines(transaction: &ReadTransaction) -> Result<Vec<StoredPipeline>, StoreError> {
    let table = match transaction.open_table(PIPELINES) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        other => other.map_err(unavailable)?,
    };
    let mut pipelines = Vec::new();
    for entry in table.iter().map_err(unavailable)? {
        let (key, value) = entry.map_err(unavailable)?;
        pipelines.push(understand(key.value(), value.value())?);
    }
    Ok(pipelines)
}

pub(super) fn understand(id: &str, json: &[u8]) -> Result<StoredPipeline, StoreError> {
    serde_json::from_slice(json)
        .map_err(|error| StoreError::Damaged(format!("the stored pipeline {id} cannot be read: {error}")))
}

/// Returns all stored pipelines by id.
pub(super) fn take_pipelines(transaction: &WriteTransaction) -> Result<BTreeMap<Str, StoredPipeline>, WriteFailure> {
    let mut pipelines = BTreeMap::new();
    for entry in transaction.open_table(PIPELINES)?.iter()? {
        let (key, value) = entry?;
        pipelines.insert(key.value().into(), understand(key.value(), value.value()).map_err(WriteFailure::Alone)?);
    }
    Ok(pipelines)
}

pub(super) fn put_pipeline(transaction: &WriteTransaction, pipeline: &StoredPipeline) -> Result<(), WriteFailure> {
    let json = serde_json::to_vec(pipeline).map_err(|e| redb::Error::Corrupted(e.to_string()))?;
    transaction.open_table(PIPELINES)?.insert(pipeline.id.as_str(), json.as_slice())?;
    Ok(())
}

pub(super) fn set_status(transaction: &WriteTransaction, id: &str, status: Status) -> Result<(), WriteFailure> {
    change_pipeline(transaction, id, |pipeline| pipeline.status = status)
}

fn change_pipeline(
    transaction: &WriteTransaction,
    id: &str,
    change: impl FnOnce(&mut StoredPipeline),
) -> Result<(), WriteFailure> {
    let stored = transaction.open_table(PIPELINES)?.get(id)?.map(|v| v.value().to_vec());
    if let Some(json) = stored {
        let mut pipeline = understand(id, &json).map_err(WriteFailure::Alone)?;
        change(&mut pipeline);
        put_pipeline(transaction, &pipeline)?;
    }
    Ok(())
}

/// Applies the differences to the store.
pub(super) fn apply(
    transaction: &WriteTransaction,
    found: Differences,
) -> Result<Vec<ConfigurationChange>, WriteFailure> {
    for (pipeline, connector) in &found.detached {
        move_marks(transaction, pipeline, connector, MARKS, DETACHED_MARKS)?;
    }
    for (pipeline, connector) in &found.attached {
        move_marks(transaction, pipeline, connector, DETACHED_MARKS, MARKS)?;
    }
    for pipeline in &found.puts {
        put_pipeline(transaction, pipeline)?;
    }
    Ok(found.changes)
}

/// Deletes everything that is stored of a pipeline. The number of its latest claim stays: a run that hangs must not own
/// the marks of a pipeline that is created with the same id. Marks of a beginning stay: a destination may have marks of
/// the generation before.
pub(super) fn delete(transaction: &WriteTransaction, pipeline: &str) -> Result<(), WriteFailure> {
    transaction.open_table(PIPELINES)?.remove(pipeline)?;
    let is_beginning = |mark: &[u8]| decode(mark).is_some_and(|mark| mark.is_beginning());
    transaction.open_table(MARKS)?.retain(|(owner, ..), mark| owner != pipeline || is_beginning(mark))?;
    transaction.open_table(DETACHED_MARKS)?.retain(|(owner, ..), _| owner != pipeline)?;
    transaction.open_table(RECEIPTS)?.retain(|(owner, ..), _| owner != pipeline)?;
    transaction.open_table(ACTIVE)?.retain(|(owner, _), _| owner != pipeline)?;
    Ok(())
}

/// Removes a connector that is set aside.
pub(super) fn forget(transaction: &WriteTransaction, pipeline: &str, connector: &str) -> Result<(), WriteFailure> {
    change_pipeline(transaction, pipeline, |stored| stored.forget(connector))?;
    transaction.open_table(ACTIVE)?.remove((pipeline, connector))?;
    let mut marks = transaction.open_table(DETACHED_MARKS)?;
    marks.retain(|(owner, _, owning, _), _| (owner, owning) != (pipeline, connector))?;
    transaction.open_table(RECEIPTS)?.retain(|(owner, _, destination, source, _), _| {
        owner != pipeline || (destination != connector && source != connector)
    })?;
    Ok(())
}

/// Moves the marks of a connector from one table to the other. O(marks of the pipeline).
pub(super) fn move_marks(
    transaction: &WriteTransaction,
    pipeline: &str,
    connector: &str,
    from: Marks,
    to: Marks,
) -> Result<(), WriteFailure> {
    let mut from = transaction.open_table(from)?;
    let mut to = transaction.open_table(to)?;
    let mut moved = Vec::new();
    for entry in from.range((pipeline, 0, "", "")..)? {
        let (key, value) = entry?;
        let (owner, slot, owning, partition) = key.value();
        if owner != pipeline {
            break;
        }
        if owning == connector {
            moved.push((slot, partition.to_owned(), value.value().to_vec()));
        }
    }
    for (slot, partition, value) in moved {
        from.remove((pipeline, slot, connector, partition.as_str()))?;
        to.insert((pipeline, slot, connector, partition.as_str()), value.as_slice())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_keep_their_bytes_and_short_ones_are_refused() {
        let mark = Mark { generation: 3, seq: u64::MAX, position: Position::copy_from(b"\0\xffx") };
        let bytes = encode(&mark);
        assert_eq!(decode(&bytes), Some(mark));
        assert_eq!(decode(&bytes[..15]), None);
    }
}
