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
    Subjects,
    /// The version of a subject that has this text.
    Find(Str, Str),
    /// Where the text with this id is used.
    Uses(SchemaId),
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Schema(Option<Arc<Schema>>),
    Definition(Option<Arc<Definition>>),
    /// None: there is no such subject.
    Versions(Vec<SchemaVersion>),
    /// In their order.
    Subjects(Vec<Str>),
    /// By subject, then version.
    Uses(Vec<(Str, SchemaVersion)>),
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
            Found::Pipelines(_) | Found::Marks(_) | Found::Recalled(_) | Found::Letters(_) => Err(contradiction()),
        }
    }

    /// All subjects, in their order.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn subjects(&self) -> Result<Vec<Str>, SchemaError> {
        match self.answer(Question::Subjects).await? {
            Answer::Subjects(subjects) => Ok(subjects),
            _ => Err(contradiction()),
        }
    }

    /// The version of a subject that has this text; `None` where it has none, or is none.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn find(&self, subject: &Str, text: &Str) -> Result<Option<Arc<Schema>>, SchemaError> {
        match self.answer(Question::Find(subject.clone(), text.clone())).await? {
            Answer::Schema(found) => Ok(found),
            _ => Err(contradiction()),
        }
    }

    /// The versions of subjects whose text has this id, in their order.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn uses(&self, id: SchemaId) -> Result<Vec<(Str, SchemaVersion)>, SchemaError> {
        match self.answer(Question::Uses(id)).await? {
            Answer::Uses(uses) => Ok(uses),
            _ => Err(contradiction()),
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
            Written::Nothing | Written::Epoch(_) | Written::Changes(_) | Written::Letters(_) => Err(contradiction()),
        }
    }

    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
        match self.answer(Question::Version(subject.clone(), version)).await? {
            Answer::Schema(Some(schema)) => Ok(schema),
            Answer::Schema(None) => {
                self.versions(subject).await?;
                Err(SchemaError::VersionNotFound { subject: subject.clone(), version })
            }
            _ => Err(contradiction()),
        }
    }

    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        match self.answer(Question::Definition(id)).await? {
            Answer::Definition(Some(definition)) => Ok(definition),
            Answer::Definition(None) => Err(SchemaError::SchemaNotFound(format!("id {id}").into())),
            _ => Err(contradiction()),
        }
    }

    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        match self.answer(Question::Versions(subject.clone())).await? {
            Answer::Versions(versions) if versions.is_empty() => Err(SchemaError::SubjectNotFound(subject.clone())),
            Answer::Versions(versions) => Ok(versions),
            _ => Err(contradiction()),
        }
    }
}
