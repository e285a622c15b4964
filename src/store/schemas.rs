//! The schema registry in the state store. There are no checks of compatibility and nothing is ever removed: a record
//! that names a version finds it.

use std::sync::Arc;

use anabranch_graph::schema::{Definition, Schema, SchemaError, SchemaId, SchemaKind, SchemaRegistry, SchemaVersion};
use anabranch_graph::state::StoreError;
use anabranch_graph::text::Str;
use async_trait::async_trait;

use super::{Found, Read, Store, Write, Written};

/// What is asked about schemas.
#[derive(Clone, Debug)]
pub(super) enum Question {
    Version(Str, SchemaVersion),
    Definition(SchemaId),
    Versions(Str),
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Schema(Option<Arc<Schema>>),
    Definition(Option<Arc<Definition>>),
    /// None: there is no such subject.
    Versions(Vec<SchemaVersion>),
}

pub(super) fn full() -> StoreError {
    StoreError::Damaged("there are 2147483647 schemas; there is no number for another".to_owned())
}

pub(super) fn wrong_number() -> StoreError {
    StoreError::Damaged("a schema has an id or version that cannot be".to_owned())
}

fn failed(error: StoreError) -> SchemaError {
    SchemaError::Unavailable(Arc::new(error))
}

fn contradiction() -> SchemaError {
    failed(StoreError::Damaged("it answered something else than it was asked".to_owned()))
}

impl Store {
    async fn answer(&self, question: Question) -> Result<Answer, SchemaError> {
        match self.read(Read::Schemas(question)).await.map_err(failed)? {
            Found::Schemas(answer) => Ok(answer),
            Found::Pipelines(_) | Found::Marks(_) | Found::Recalled(_) => Err(contradiction()),
        }
    }
}

#[async_trait]
impl SchemaRegistry for Store {
    async fn create(&self, subject: &Str, _kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError> {
        // PostgreSQL has no text with it, and no schema or subject has a use for it.
        if subject.contains('\0') || text.contains('\0') {
            return Err(SchemaError::Invalid("it holds a zero byte".into()));
        }
        #[cfg(feature = "avro")]
        anabranch_ops_avro::check(text).map_err(|error| SchemaError::Invalid(error.into()))?;
        let write = Write::Schema { subject: subject.clone(), text: text.clone() };
        match self.write(write).await.map_err(failed)? {
            Written::Schema(schema) => Ok(Arc::new(schema)),
            Written::Nothing | Written::Epoch(_) | Written::Changes(_) => Err(contradiction()),
        }
    }

    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
        match self.answer(Question::Version(subject.clone(), version)).await? {
            Answer::Schema(Some(schema)) => Ok(schema),
            Answer::Schema(None) => {
                self.versions(subject).await?;
                Err(SchemaError::VersionNotFound { subject: subject.clone(), version })
            }
            Answer::Definition(_) | Answer::Versions(_) => Err(contradiction()),
        }
    }

    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        match self.answer(Question::Definition(id)).await? {
            Answer::Definition(Some(definition)) => Ok(definition),
            Answer::Definition(None) => Err(SchemaError::SchemaNotFound(format!("id {id}").into())),
            Answer::Schema(_) | Answer::Versions(_) => Err(contradiction()),
        }
    }

    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        match self.answer(Question::Versions(subject.clone())).await? {
            Answer::Versions(versions) if versions.is_empty() => Err(SchemaError::SubjectNotFound(subject.clone())),
            Answer::Versions(versions) => Ok(versions),
            Answer::Schema(_) | Answer::Definition(_) => Err(contradiction()),
        }
    }
}
