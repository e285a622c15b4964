//! Schemas: one row per text, per version of a subject and per level, in the state table.

use std::sync::Arc;

use anabranch_plugin::schema::{Definition, Schema, SchemaId, SchemaKind, SchemaVersion};
use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;
use tokio_postgres::Row;

use super::session::{Client, Failure as Error, Transaction};
use super::table::Table;
use crate::request::WriteResult;
use crate::schemas::{self, Deletion, SchemaAnswer, SchemaEntry, SchemaQuery};

/// Text of a schema; `pipeline` and `number` are its id.
pub(super) const DEFINITION: &str = "schema-text";
/// Version of a subject; `pipeline` is the subject, `connector` the version, `number` the id of the text.
pub(super) const SUBJECT: &str = "schema-version";
/// Values of a version that is soft-deleted, and of one that is permanently deleted.
pub(super) const HIDDEN: &[u8] = b"deleted";
pub(super) const GONE: &[u8] = b"gone";
/// Compatibility level: global, or of the subject in `pipeline`, depending on `connector`.
pub(super) const LEVEL: &str = "schema-level";

impl Table {
    /// Returns the version of a subject that has this text; creates it if there is none.
    pub(super) async fn create_schema(
        &self,
        transaction: &Transaction<'_>,
        subject: &Str,
        text: &Str,
    ) -> Result<Result<WriteResult, StoreError>, Error> {
        let Table { state, name, .. } = self;
        // Serializes registrations of several processes.
        transaction.execute("SELECT pg_advisory_xact_lock(hashtext($1))", &[&format!("schemas of {name}")]).await?;
        let by_text = format!("SELECT number FROM {state} WHERE kind = '{DEFINITION}' AND value = $1");
        let known = transaction.query_opt(&by_text, &[&text.as_bytes()]).await?.map(|row| row.get::<_, i64>(0));
        let versions = format!(
            "SELECT connector::bigint, number, value FROM {state} WHERE kind = '{SUBJECT}' AND pipeline = $1 \
             ORDER BY connector::bigint"
        );
        let rows = transaction.query(&versions, &[&&**subject]).await?;
        let is_it = |row: &&Row| Some(row.get::<_, i64>(1)) == known && row.get::<_, &[u8]>(2).is_empty();
        let found = rows.iter().find(is_it).map(|row| row.get::<_, i64>(0));
        let id = match known {
            Some(id) => id,
            None => {
                let last = format!("SELECT coalesce(max(number), 0) FROM {state} WHERE kind = '{DEFINITION}'");
                transaction.query_one(&last, &[]).await?.get::<_, i64>(0) + 1
            }
        };
        let version = found.unwrap_or_else(|| rows.last().map_or(0, |row| row.get::<_, i64>(0)) + 1);
        let (Some(schema_id), Some(schema_version)) =
            (numbered(id, SchemaId::new), numbered(version, SchemaVersion::new))
        else {
            return Ok(Err(schemas::full()));
        };
        if known.is_none() {
            let insert = format!("INSERT INTO {state} VALUES ('{DEFINITION}', $1, '', '', $2, $3)");
            transaction.execute(&insert, &[&id.to_string(), &id, &text.as_bytes()]).await?;
        }
        if found.is_none() {
            let insert = format!("INSERT INTO {state} VALUES ('{SUBJECT}', $1, $2, '', $3, '')");
            transaction.execute(&insert, &[&&**subject, &version.to_string(), &id]).await?;
        }
        Ok(Ok(WriteResult::Schema(Schema {
            subject: subject.clone(),
            version: schema_version,
            id: schema_id,
            kind: SchemaKind::Avro,
            text: text.clone(),
        })))
    }

    /// Marks versions as deleted. The id of an unused text stays reserved without the text, so that it is never
    /// assigned again.
    pub(super) async fn delete_schemas(
        &self,
        transaction: &Transaction<'_>,
        subject: &str,
        versions: &[SchemaVersion],
        how: Deletion,
    ) -> Result<(), Error> {
        let Table { state, name, .. } = self;
        transaction.execute("SELECT pg_advisory_xact_lock(hashtext($1))", &[&format!("schemas of {name}")]).await?;
        let numbers: Vec<String> = versions.iter().map(ToString::to_string).collect();
        let word = if how == Deletion::Gone { GONE } else { HIDDEN };
        let mark =
            format!("UPDATE {state} SET value = $3 WHERE kind = '{SUBJECT}' AND pipeline = $1 AND connector = ANY($2)");
        transaction.execute(&mark, &[&subject, &numbers, &word]).await?;
        if how == Deletion::Gone {
            let empty = format!(
                "UPDATE {state} d SET value = '' WHERE d.kind = '{DEFINITION}' AND EXISTS (SELECT 1 FROM {state} v \
                 WHERE v.kind = '{SUBJECT}' AND v.number = d.number AND v.pipeline = $1 AND v.connector = ANY($2)) \
                 AND NOT EXISTS (SELECT 1 FROM {state} v WHERE v.kind = '{SUBJECT}' AND v.number = d.number \
                 AND v.value <> $3)"
            );
            transaction.execute(&empty, &[&subject, &numbers, &GONE]).await?;
        }
        Ok(())
    }

    /// Sets the compatibility level of a subject, or the global level.
    pub(super) async fn set_level(
        &self,
        transaction: &Transaction<'_>,
        subject: Option<&Str>,
        level: Option<&Str>,
    ) -> Result<(), Error> {
        let Table { state, .. } = self;
        let (of, subject) = level_of(subject);
        let delete = format!("DELETE FROM {state} WHERE kind = '{LEVEL}' AND connector = $1 AND pipeline = $2");
        transaction.execute(&delete, &[&of, &subject]).await?;
        if let Some(level) = level {
            let insert = format!("INSERT INTO {state} VALUES ('{LEVEL}', $2, $1, '', 0, $3)");
            transaction.execute(&insert, &[&of, &subject, &level.as_bytes()]).await?;
        }
        Ok(())
    }

    pub(super) async fn schemas(
        &self,
        client: &Client,
        question: &SchemaQuery,
    ) -> Result<Result<SchemaAnswer, StoreError>, Error> {
        let Table { state, .. } = self;
        Ok(match question {
            SchemaQuery::Definition(id) => {
                let sql =
                    format!("SELECT value FROM {state} WHERE kind = '{DEFINITION}' AND pipeline = $1 AND value <> ''");
                let row = client.query_opt(&sql, &[&id.to_string()]).await?;
                let definition = row.map(|row| schema_text(row.get(0))).transpose();
                definition.map(|text| {
                    let known = |text| Arc::new(Definition { id: *id, kind: SchemaKind::Avro, text });
                    SchemaAnswer::Definition(text.map(known))
                })
            }
            SchemaQuery::Version(subject, version) => {
                let sql = format!(
                    "SELECT d.number, d.value FROM {state} v JOIN {state} d ON d.kind = '{DEFINITION}' \
                     AND d.pipeline = v.number::text WHERE v.kind = '{SUBJECT}' AND v.pipeline = $1 \
                     AND v.connector = $2 AND v.value <> $3"
                );
                let row = client.query_opt(&sql, &[&&**subject, &version.to_string(), &GONE]).await?;
                let Some(row) = row else { return Ok(Ok(SchemaAnswer::Schema(None))) };
                let Some(id) = numbered(row.get(0), SchemaId::new) else { return Ok(Err(schemas::wrong_number())) };
                let (subject, version, kind) = (subject.clone(), *version, SchemaKind::Avro);
                let schema = |text| SchemaAnswer::Schema(Some(Arc::new(Schema { subject, version, id, kind, text })));
                schema_text(row.get(1)).map(schema)
            }
            SchemaQuery::Versions(subject) => {
                let sql = format!(
                    "SELECT connector::bigint, number, value FROM {state} WHERE kind = '{SUBJECT}' AND pipeline = $1 \
                     AND value <> $2 ORDER BY 1"
                );
                let rows = client.query(&sql, &[&&**subject, &GONE]).await?;
                let entries = rows.iter().map(|row| entry(row.get(0), row.get(1), row.get(2)));
                entries.collect::<Option<_>>().map(SchemaAnswer::Versions).ok_or_else(schemas::wrong_number)
            }
            SchemaQuery::Subjects => {
                let sql = format!(
                    "SELECT pipeline COLLATE \"C\", bool_and(value <> '') FROM {state} WHERE kind = '{SUBJECT}' \
                     AND value <> $1 GROUP BY pipeline ORDER BY 1"
                );
                let rows = client.query(&sql, &[&GONE]).await?;
                Ok(SchemaAnswer::Subjects(
                    rows.iter().map(|row| (Str::from(row.get::<_, &str>(0)), row.get(1))).collect(),
                ))
            }
            SchemaQuery::Identify(given) => {
                let sql = format!("SELECT number FROM {state} WHERE kind = '{DEFINITION}' AND value = $1");
                let row = client.query_opt(&sql, &[&given.as_bytes()]).await?;
                let id = row.map(|row| numbered(row.get(0), SchemaId::new).ok_or_else(schemas::wrong_number));
                id.transpose().map(SchemaAnswer::Id)
            }
            SchemaQuery::Uses(id) => {
                let sql = format!(
                    "SELECT pipeline, connector::bigint, number, value FROM {state} WHERE kind = '{SUBJECT}' \
                     AND number = $1 AND value <> $2 ORDER BY pipeline COLLATE \"C\", 2"
                );
                let rows = client.query(&sql, &[&i64::from(id.get()), &GONE]).await?;
                let used =
                    |row: &Row| Some((Str::from(row.get::<_, &str>(0)), entry(row.get(1), row.get(2), row.get(3))?));
                let uses = rows.iter().map(used);
                uses.collect::<Option<_>>().map(SchemaAnswer::Uses).ok_or_else(schemas::wrong_number)
            }
            SchemaQuery::Referring => {
                let sql = format!(
                    "SELECT number, value FROM {state} WHERE kind = '{DEFINITION}' \
                     AND position('\\x00'::bytea IN value) > 0 ORDER BY 1"
                );
                let rows = client.query(&sql, &[]).await?;
                let definition = |row: &Row| {
                    let id = numbered(row.get(0), SchemaId::new).ok_or_else(schemas::wrong_number)?;
                    Ok(Definition { id, kind: SchemaKind::Avro, text: schema_text(row.get(1))? })
                };
                rows.iter().map(definition).collect::<Result<_, _>>().map(SchemaAnswer::Definitions)
            }
            SchemaQuery::Level(subject) => {
                let (of, subject) = level_of(subject.as_ref());
                let sql =
                    format!("SELECT value FROM {state} WHERE kind = '{LEVEL}' AND connector = $1 AND pipeline = $2");
                let row = client.query_opt(&sql, &[&of, &subject]).await?;
                row.map(|row| schema_text(row.get(0))).transpose().map(SchemaAnswer::Level)
            }
        })
    }
}

pub(super) fn schema_text(bytes: &[u8]) -> Result<Str, StoreError> {
    std::str::from_utf8(bytes).map(Str::from).map_err(|_| StoreError::Damaged("a schema is not text".to_owned()))
}

fn entry(version: i64, id: i64, state: &[u8]) -> Option<SchemaEntry> {
    let (version, id) = (numbered(version, SchemaVersion::new)?, numbered(id, SchemaId::new)?);
    Some(SchemaEntry { version, id, deleted: !state.is_empty() })
}

pub(super) fn level_of(subject: Option<&Str>) -> (&'static str, &str) {
    subject.map_or(("all", ""), |subject| ("subject", subject.as_str()))
}

fn numbered<T>(stored: i64, new: impl Fn(u32) -> Option<T>) -> Option<T> {
    u32::try_from(stored).ok().and_then(new)
}
