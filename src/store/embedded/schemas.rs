//! Schemas in the file: texts by id, and ids by subject and version.

use std::sync::Arc;

use anabranch_graph::schema::{Definition, Schema, SchemaId, SchemaKind, SchemaVersion};
use anabranch_graph::state::StoreError;
use anabranch_graph::text::Str;
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};

use super::Failed;
use crate::store::schemas::{Answer, Question, full, wrong_number};
use crate::store::unavailable;

/// Id -> text.
const DEFINITIONS: TableDefinition<'_, u32, &str> = TableDefinition::new("schemas");
/// Text -> id.
const IDS: TableDefinition<'_, &str, u32> = TableDefinition::new("schema_ids");
/// (Subject, version) -> id.
const VERSIONS: TableDefinition<'_, (&str, u32), u32> = TableDefinition::new("schema_versions");

pub(super) fn create(transaction: &WriteTransaction, subject: &Str, text: &Str) -> Result<Schema, Failed> {
    let mut definitions = transaction.open_table(DEFINITIONS)?;
    let mut ids = transaction.open_table(IDS)?;
    let mut versions = transaction.open_table(VERSIONS)?;
    let known = ids.get(text.as_str())?.map(|id| id.value());
    let mut last = 0;
    let mut found = None;
    for entry in versions.range((subject.as_str(), 0)..=(subject.as_str(), u32::MAX))? {
        let (key, id) = entry?;
        last = key.value().1;
        found = found.or((Some(id.value()) == known).then_some(last));
    }
    let last_id = definitions.last()?.map_or(0, |(id, _)| id.value());
    let id = known.or(last_id.checked_add(1)).and_then(SchemaId::new).ok_or_else(|| Failed::Alone(full()))?;
    let version = found.or(last.checked_add(1)).and_then(SchemaVersion::new).ok_or_else(|| Failed::Alone(full()))?;
    if known.is_none() {
        definitions.insert(id.get(), text.as_str())?;
        ids.insert(text.as_str(), id.get())?;
    }
    if found.is_none() {
        versions.insert((subject.as_str(), version.get()), id.get())?;
    }
    Ok(Schema { subject: subject.clone(), version, id, kind: SchemaKind::Avro, text: text.clone() })
}

pub(super) fn answer(transaction: &ReadTransaction, question: &Question) -> Result<Answer, StoreError> {
    Ok(match question {
        Question::Definition(id) => Answer::Definition(definition(transaction, *id)?.map(Arc::new)),
        Question::Version(subject, version) => {
            let Some(table) = versions(transaction)? else { return Ok(Answer::Schema(None)) };
            let found = table.get((subject.as_str(), version.get())).map_err(unavailable)?.map(|id| id.value());
            let Some(id) = found else { return Ok(Answer::Schema(None)) };
            let id = SchemaId::new(id).ok_or_else(wrong_number)?;
            let Some(Definition { kind, text, .. }) = definition(transaction, id)? else {
                return Err(StoreError::Damaged(format!("the schema with id {id} is missing")));
            };
            Answer::Schema(Some(Arc::new(Schema { subject: subject.clone(), version: *version, id, kind, text })))
        }
        Question::Versions(subject) => {
            let Some(table) = versions(transaction)? else { return Ok(Answer::Versions(Vec::new())) };
            let range = (subject.as_str(), 0)..=(subject.as_str(), u32::MAX);
            let mut numbers = Vec::new();
            for entry in table.range(range).map_err(unavailable)? {
                let (key, _) = entry.map_err(unavailable)?;
                numbers.push(SchemaVersion::new(key.value().1).ok_or_else(wrong_number)?);
            }
            Answer::Versions(numbers)
        }
        Question::Subjects => {
            let mut subjects: Vec<Str> = Vec::new();
            all_versions(transaction, |subject, _, _| {
                if subjects.last().is_none_or(|last| **last != *subject) {
                    subjects.push(subject.into());
                }
                Ok(())
            })?;
            Answer::Subjects(subjects)
        }
        Question::Find(subject, text) => {
            let Some(id) = id_of(transaction, text)? else { return Ok(Answer::Schema(None)) };
            let Some(table) = versions(transaction)? else { return Ok(Answer::Schema(None)) };
            for entry in table.range((subject.as_str(), 0)..=(subject.as_str(), u32::MAX)).map_err(unavailable)? {
                let (key, used) = entry.map_err(unavailable)?;
                if used.value() == id {
                    let version = SchemaVersion::new(key.value().1).ok_or_else(wrong_number)?;
                    let id = SchemaId::new(id).ok_or_else(wrong_number)?;
                    let (subject, kind, text) = (subject.clone(), SchemaKind::Avro, text.clone());
                    return Ok(Answer::Schema(Some(Arc::new(Schema { subject, version, id, kind, text }))));
                }
            }
            Answer::Schema(None)
        }
        Question::Uses(id) => {
            let mut uses = Vec::new();
            all_versions(transaction, |subject, version, used| {
                if used == id.get() {
                    uses.push((subject.into(), SchemaVersion::new(version).ok_or_else(wrong_number)?));
                }
                Ok(())
            })?;
            Answer::Uses(uses)
        }
    })
}

/// Calls `see` with every subject, version and id, in the order of subjects and versions.
fn all_versions(
    transaction: &ReadTransaction,
    mut see: impl FnMut(&str, u32, u32) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let Some(table) = versions(transaction)? else { return Ok(()) };
    for entry in table.iter().map_err(unavailable)? {
        let (key, id) = entry.map_err(unavailable)?;
        let (subject, version) = key.value();
        see(subject, version, id.value())?;
    }
    Ok(())
}

fn id_of(transaction: &ReadTransaction, text: &Str) -> Result<Option<u32>, StoreError> {
    match transaction.open_table(IDS) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        other => {
            let table = other.map_err(unavailable)?;
            let id = table.get(text.as_str()).map_err(unavailable)?;
            Ok(id.map(|id| id.value()))
        }
    }
}

type Versions = ReadOnlyTable<(&'static str, u32), u32>;

fn versions(transaction: &ReadTransaction) -> Result<Option<Versions>, StoreError> {
    match transaction.open_table(VERSIONS) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        other => other.map(Some).map_err(unavailable),
    }
}

fn definition(transaction: &ReadTransaction, id: SchemaId) -> Result<Option<Definition>, StoreError> {
    let table = match transaction.open_table(DEFINITIONS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        other => other.map_err(unavailable)?,
    };
    let text = table.get(id.get()).map_err(unavailable)?;
    Ok(text.map(|text| Definition { id, kind: SchemaKind::Avro, text: text.value().into() }))
}
