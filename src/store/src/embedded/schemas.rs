//! Schemas in the file: texts by id, and ids by subject and version.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

use anabranch_plugin::schema::{Definition, Schema, SchemaId, SchemaKind, SchemaVersion};
use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;
use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};

use super::contents::each;
use crate::contents::{Contents, StoredVersion};
use crate::request::unavailable;
use crate::schemas::{Deletion, SchemaAnswer, SchemaEntry, SchemaQuery, full, wrong_number};
use crate::tables::WriteFailure;

/// Id -> text.
const DEFINITIONS: TableDefinition<'_, u32, &str> = TableDefinition::new("schemas");
/// Text -> id.
const IDS: TableDefinition<'_, &str, u32> = TableDefinition::new("schema_ids");
/// (Subject, version) -> id.
const VERSIONS: TableDefinition<'_, (&str, u32), u32> = TableDefinition::new("schema_versions");

/// (Subject, version) -> 1 if it is soft-deleted, 2 if it is permanently deleted.
const DELETED: TableDefinition<'_, (&str, u32), u8> = TableDefinition::new("schema_deletions");
/// `""`, or a subject after `=` -> its compatibility level.
const LEVELS: TableDefinition<'_, &str, &str> = TableDefinition::new("schema_levels");

const HIDDEN: u8 = 1;
const GONE: u8 = 2;

pub(super) fn create(transaction: &WriteTransaction, subject: &Str, text: &Str) -> Result<Schema, WriteFailure> {
    let mut definitions = transaction.open_table(DEFINITIONS)?;
    let mut ids = transaction.open_table(IDS)?;
    let mut versions = transaction.open_table(VERSIONS)?;
    let deleted = transaction.open_table(DELETED)?;
    let known = ids.get(text.as_str())?.map(|id| id.value());
    let mut last = 0;
    let mut found = None;
    for entry in versions.range((subject.as_str(), 0)..=(subject.as_str(), u32::MAX))? {
        let (key, id) = entry?;
        last = key.value().1;
        if found.is_none() && Some(id.value()) == known && deleted.get(key.value())?.is_none() {
            found = Some(last);
        }
    }
    let last_id = definitions.last()?.map_or(0, |(id, _)| id.value());
    let id = known.or(last_id.checked_add(1)).and_then(SchemaId::new).ok_or_else(|| WriteFailure::Alone(full()))?;
    let version =
        found.or(last.checked_add(1)).and_then(SchemaVersion::new).ok_or_else(|| WriteFailure::Alone(full()))?;
    if known.is_none() {
        definitions.insert(id.get(), text.as_str())?;
        ids.insert(text.as_str(), id.get())?;
    }
    if found.is_none() {
        versions.insert((subject.as_str(), version.get()), id.get())?;
    }
    Ok(Schema { subject: subject.clone(), version, id, kind: SchemaKind::Avro, text: text.clone() })
}

pub(super) fn delete(
    transaction: &WriteTransaction,
    subject: &Str,
    versions: &[SchemaVersion],
    how: Deletion,
) -> Result<(), WriteFailure> {
    let all = transaction.open_table(VERSIONS)?;
    let mut deleted = transaction.open_table(DELETED)?;
    let mut ids = Vec::new();
    for version in versions {
        let key = (subject.as_str(), version.get());
        if let Some(id) = all.get(key)? {
            deleted.insert(key, if how == Deletion::Gone { GONE } else { HIDDEN })?;
            ids.push(id.value());
        }
    }
    if how == Deletion::Hidden {
        return Ok(());
    }
    // The id of an unused text stays reserved without the text, so that it is never assigned again.
    for entry in all.iter()? {
        let (key, id) = entry?;
        if ids.contains(&id.value()) && deleted.get(key.value())?.is_none_or(|state| state.value() != GONE) {
            ids.retain(|unused| *unused != id.value());
        }
    }
    let mut definitions = transaction.open_table(DEFINITIONS)?;
    let mut by_text = transaction.open_table(IDS)?;
    for id in ids {
        let text = definitions.insert(id, "")?.map(|text| text.value().to_owned());
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            by_text.remove(text.as_str())?;
        }
    }
    Ok(())
}

pub(super) fn set_level(
    transaction: &WriteTransaction,
    subject: Option<&Str>,
    level: Option<&Str>,
) -> Result<(), WriteFailure> {
    let mut levels = transaction.open_table(LEVELS)?;
    let key = level_key(subject);
    match level {
        Some(level) => drop(levels.insert(key.as_str(), level.as_str())?),
        None => drop(levels.remove(key.as_str())?),
    }
    Ok(())
}

fn level_key(subject: Option<&Str>) -> String {
    subject.map_or_else(String::new, |subject| format!("={subject}"))
}

/// Reads the texts, versions and levels of all schemas.
pub(super) fn read_all(transaction: &ReadTransaction, contents: &mut Contents) -> Result<(), StoreError> {
    each(transaction, DEFINITIONS, |id, text| {
        contents.definitions.push((id, text.into()));
        Ok(())
    })?;
    each(transaction, VERSIONS, |(subject, version), id| {
        contents.versions.push(StoredVersion { subject: subject.into(), version, id, deleted: None });
        Ok(())
    })?;
    let mut deletions = BTreeMap::new();
    each(transaction, DELETED, |(subject, version), how| {
        let how = if how == GONE { Deletion::Gone } else { Deletion::Hidden };
        deletions.insert((Str::from(subject), version), how);
        Ok(())
    })?;
    for version in &mut contents.versions {
        version.deleted = deletions.get(&(version.subject.clone(), version.version)).copied();
    }
    each(transaction, LEVELS, |key, level| {
        contents.levels.push((key.strip_prefix('=').map(Str::from), level.into()));
        Ok(())
    })
}

/// Writes the texts, versions and levels of all schemas into a store without schemas.
pub(super) fn write_all(transaction: &WriteTransaction, contents: &Contents) -> Result<(), WriteFailure> {
    let mut definitions = transaction.open_table(DEFINITIONS)?;
    let mut ids = transaction.open_table(IDS)?;
    for (id, text) in &contents.definitions {
        definitions.insert(id, text.as_str())?;
        if !text.is_empty() {
            ids.insert(text.as_str(), id)?;
        }
    }
    let mut versions = transaction.open_table(VERSIONS)?;
    let mut deletions = transaction.open_table(DELETED)?;
    for StoredVersion { subject, version, id, deleted } in &contents.versions {
        let key = (subject.as_str(), *version);
        versions.insert(key, id)?;
        if let Some(how) = deleted {
            deletions.insert(key, if *how == Deletion::Gone { GONE } else { HIDDEN })?;
        }
    }
    for (subject, level) in &contents.levels {
        set_level(transaction, subject.as_ref(), Some(level))?;
    }
    Ok(())
}

pub(super) fn answer(transaction: &ReadTransaction, question: &SchemaQuery) -> Result<SchemaAnswer, StoreError> {
    Ok(match question {
        SchemaQuery::Definition(id) => SchemaAnswer::Definition(definition(transaction, *id)?.map(Arc::new)),
        SchemaQuery::Version(subject, version) => {
            let Some(id) = version_of(transaction, subject, *version)? else { return Ok(SchemaAnswer::Schema(None)) };
            let Some(Definition { kind, text, .. }) = definition(transaction, id)? else {
                return Err(StoreError::Damaged(format!("the schema with id {id} is missing")));
            };
            SchemaAnswer::Schema(Some(Arc::new(Schema { subject: subject.clone(), version: *version, id, kind, text })))
        }
        SchemaQuery::Versions(subject) => {
            let range = (subject.as_str(), 0)..=(subject.as_str(), u32::MAX);
            let mut entries = Vec::new();
            seen(transaction, range, |_, entry| entries.push(entry))?;
            SchemaAnswer::Versions(entries)
        }
        SchemaQuery::Subjects => {
            let mut subjects: Vec<(Str, bool)> = Vec::new();
            seen(transaction, ALL, |subject, entry| match subjects.last_mut() {
                Some((last, deleted)) if **last == *subject => *deleted &= entry.deleted,
                _ => subjects.push((subject.into(), entry.deleted)),
            })?;
            SchemaAnswer::Subjects(subjects)
        }
        SchemaQuery::Identify(text) => {
            let id = id_of(transaction, text)?;
            SchemaAnswer::Id(id.map(|id| SchemaId::new(id).ok_or_else(wrong_number)).transpose()?)
        }
        SchemaQuery::Uses(id) => {
            let mut uses = Vec::new();
            seen(transaction, ALL, |subject, entry| {
                if entry.id == *id {
                    uses.push((subject.into(), entry));
                }
            })?;
            SchemaAnswer::Uses(uses)
        }
        SchemaQuery::Referring => {
            let Some(table) = opened(transaction.open_table(DEFINITIONS))? else {
                return Ok(SchemaAnswer::Definitions(Vec::new()));
            };
            let mut all = Vec::new();
            for entry in table.iter().map_err(unavailable)? {
                let (id, text) = entry.map_err(unavailable)?;
                if text.value().contains('\0') {
                    let id = SchemaId::new(id.value()).ok_or_else(wrong_number)?;
                    all.push(Definition { id, kind: SchemaKind::Avro, text: text.value().into() });
                }
            }
            SchemaAnswer::Definitions(all)
        }
        SchemaQuery::Level(subject) => {
            let Some(table) = opened(transaction.open_table(LEVELS))? else { return Ok(SchemaAnswer::Level(None)) };
            let level = table.get(level_key(subject.as_ref()).as_str()).map_err(unavailable)?;
            SchemaAnswer::Level(level.map(|level| level.value().into()))
        }
    })
}

/// Returns the id of a version that is not permanently deleted.
fn version_of(
    transaction: &ReadTransaction,
    subject: &Str,
    version: SchemaVersion,
) -> Result<Option<SchemaId>, StoreError> {
    let mut found = None;
    let key = (subject.as_str(), version.get());
    seen(transaction, key..=key, |_, entry| found = Some(entry.id))?;
    Ok(found)
}

const ALL: std::ops::RangeFull = ..;

/// Calls `see` with every version that is not permanently deleted, in the order of subjects and versions.
fn seen<'k>(
    transaction: &ReadTransaction,
    range: impl RangeBounds<(&'k str, u32)> + 'k,
    mut see: impl FnMut(&str, SchemaEntry),
) -> Result<(), StoreError> {
    let Some(table) = opened(transaction.open_table(VERSIONS))? else { return Ok(()) };
    let deletions = opened(transaction.open_table(DELETED))?;
    for entry in table.range(range).map_err(unavailable)? {
        let (key, id) = entry.map_err(unavailable)?;
        let (subject, version) = key.value();
        let state = match &deletions {
            Some(table) => table.get(key.value()).map_err(unavailable)?.map(|state| state.value()),
            None => None,
        };
        if state == Some(GONE) {
            continue;
        }
        let version = SchemaVersion::new(version).ok_or_else(wrong_number)?;
        let id = SchemaId::new(id.value()).ok_or_else(wrong_number)?;
        see(subject, SchemaEntry { version, id, deleted: state.is_some() });
    }
    Ok(())
}

/// Returns the table, or `None` if nothing was ever written to it.
fn opened<T>(table: Result<T, TableError>) -> Result<Option<T>, StoreError> {
    match table {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        other => other.map(Some).map_err(unavailable),
    }
}

fn id_of(transaction: &ReadTransaction, text: &Str) -> Result<Option<u32>, StoreError> {
    let Some(table) = opened(transaction.open_table(IDS))? else { return Ok(None) };
    let id = table.get(text.as_str()).map_err(unavailable)?;
    Ok(id.map(|id| id.value()))
}

fn definition(transaction: &ReadTransaction, id: SchemaId) -> Result<Option<Definition>, StoreError> {
    let Some(table) = opened(transaction.open_table(DEFINITIONS))? else { return Ok(None) };
    let text = table.get(id.get()).map_err(unavailable)?.map(|text| Str::from(text.value()));
    Ok(text.filter(|text| !text.is_empty()).map(|text| Definition { id, kind: SchemaKind::Avro, text }))
}
