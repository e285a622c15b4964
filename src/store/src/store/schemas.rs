//! The schema registry of a store.

use std::sync::Arc;

use anabranch_plugin::schema::{Definition, Schema, SchemaError, SchemaId, SchemaKind, SchemaRegistry, SchemaVersion};
use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;
use async_trait::async_trait;

use super::Store;
use crate::request::{Read, ReadResult, Write, WriteResult};
use crate::schemas::{Deletion, Reference, SchemaAnswer, SchemaDocument, SchemaEntry, SchemaQuery};

/// Returns the text with references resolved, which readers of data need.
fn whole(stored: &Str) -> Result<Str, SchemaError> {
    if stored.contains('\0') {
        Ok(SchemaDocument::of_stored(stored).map_err(failed)?.whole)
    } else {
        Ok(stored.clone())
    }
}

fn failed(error: StoreError) -> SchemaError {
    SchemaError::Unavailable(Arc::new(error))
}

fn contradiction() -> SchemaError {
    failed(StoreError::Damaged("the response does not match the request".to_owned()))
}

impl Store {
    async fn answer(&self, question: SchemaQuery) -> Result<SchemaAnswer, SchemaError> {
        match self.read(Read::Schemas(question)).await.map_err(failed)? {
            ReadResult::Schemas(answer) => Ok(answer),
            _ => Err(contradiction()),
        }
    }

    /// Returns all subjects, sorted. The flag is true if all versions of the subject are deleted.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn subjects(&self) -> Result<Vec<(Str, bool)>, SchemaError> {
        match self.answer(SchemaQuery::Subjects).await? {
            SchemaAnswer::Subjects(subjects) => Ok(subjects),
            _ => Err(contradiction()),
        }
    }

    /// Returns the versions of a subject in order, including soft-deleted ones.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn entries(&self, subject: &Str) -> Result<Vec<SchemaEntry>, SchemaError> {
        match self.answer(SchemaQuery::Versions(subject.clone())).await? {
            SchemaAnswer::Versions(entries) => Ok(entries),
            _ => Err(contradiction()),
        }
    }

    /// Returns the schema with an id.
    ///
    /// # Errors
    /// The schema does not exist, or the store cannot be read.
    pub async fn document(&self, id: SchemaId) -> Result<SchemaDocument, SchemaError> {
        SchemaDocument::of_stored(&self.definition(id).await?.text).map_err(failed)
    }

    /// Returns the id of a schema; `None` if it was never registered.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn identify(&self, document: &SchemaDocument) -> Result<Option<SchemaId>, SchemaError> {
        match self.answer(SchemaQuery::Identify(document.stored().map_err(failed)?)).await? {
            SchemaAnswer::Id(id) => Ok(id),
            _ => Err(contradiction()),
        }
    }

    /// Returns the versions of subjects whose text has this id, in order.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn uses(&self, id: SchemaId) -> Result<Vec<(Str, SchemaEntry)>, SchemaError> {
        match self.answer(SchemaQuery::Uses(id)).await? {
            SchemaAnswer::Uses(uses) => Ok(uses),
            _ => Err(contradiction()),
        }
    }

    /// Returns the ids of schemas that refer to a version and have a version that is not deleted. Reads all schemas
    /// with references.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn referring(&self, subject: &Str, version: SchemaVersion) -> Result<Vec<SchemaId>, SchemaError> {
        let SchemaAnswer::Definitions(all) = self.answer(SchemaQuery::Referring).await? else {
            return Err(contradiction());
        };
        let mut ids = Vec::new();
        for definition in all {
            let references = SchemaDocument::of_stored(&definition.text).map_err(failed)?.references;
            let is_it = |it: &Reference| *it.subject == **subject && it.version == version.get();
            if references.iter().any(is_it) && self.uses(definition.id).await?.iter().any(|(_, entry)| !entry.deleted) {
                ids.push(definition.id);
            }
        }
        Ok(ids)
    }

    /// Registers a schema under a subject, like [`SchemaRegistry::create`].
    ///
    /// # Errors
    /// The schema is not valid, or the store cannot be written.
    pub async fn register(&self, subject: &Str, document: &SchemaDocument) -> Result<Arc<Schema>, SchemaError> {
        let SchemaDocument { text, whole, .. } = document;
        // PostgreSQL does not store zero bytes in texts, and schemas and subjects do not need them.
        if subject.contains('\0') || text.contains('\0') || whole.contains('\0') {
            return Err(SchemaError::Invalid("it contains a zero byte".into()));
        }
        #[cfg(feature = "avro")]
        anabranch_ops_avro::check(whole).map_err(|error| SchemaError::Invalid(error.into()))?;
        let write = Write::Schema { subject: subject.clone(), text: document.stored().map_err(failed)? };
        match self.write(write).await.map_err(failed)? {
            WriteResult::Schema(schema) => Ok(Arc::new(Schema { text: whole.clone(), ..schema })),
            WriteResult::Nothing
            | WriteResult::NotEmpty
            | WriteResult::Units(_)
            | WriteResult::Epoch(_)
            | WriteResult::Changes(_)
            | WriteResult::Imported(_)
            | WriteResult::Letters(_) => Err(contradiction()),
        }
    }

    /// Deletes versions of a subject in one transaction.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn delete_schemas(
        &self,
        subject: &Str,
        versions: Vec<SchemaVersion>,
        how: Deletion,
    ) -> Result<(), SchemaError> {
        let write = Write::DeleteSchemas { subject: subject.clone(), versions, how };
        self.write(write).await.map(drop).map_err(failed)
    }

    /// Returns the compatibility level that was set for a subject, or the global level that was set.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn level(&self, subject: Option<&Str>) -> Result<Option<Str>, SchemaError> {
        match self.answer(SchemaQuery::Level(subject.cloned())).await? {
            SchemaAnswer::Level(level) => Ok(level),
            _ => Err(contradiction()),
        }
    }

    /// Sets the compatibility level; `None` removes the setting.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn set_level(&self, subject: Option<&Str>, level: Option<Str>) -> Result<(), SchemaError> {
        if subject.is_some_and(|subject| subject.contains('\0')) {
            return Err(SchemaError::Invalid("its subject contains a zero byte".into()));
        }
        let write = Write::Level { subject: subject.cloned(), level };
        self.write(write).await.map(drop).map_err(failed)
    }

    async fn definition(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        match self.answer(SchemaQuery::Definition(id)).await? {
            SchemaAnswer::Definition(Some(definition)) => Ok(definition),
            SchemaAnswer::Definition(None) => Err(SchemaError::SchemaNotFound(format!("id {id}").into())),
            _ => Err(contradiction()),
        }
    }
}

#[async_trait]
impl SchemaRegistry for Store {
    async fn create(&self, subject: &Str, _kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError> {
        self.register(subject, &SchemaDocument::alone(text.clone())).await
    }

    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
        match self.answer(SchemaQuery::Version(subject.clone(), version)).await? {
            SchemaAnswer::Schema(Some(schema)) if !schema.text.contains('\0') => Ok(schema),
            SchemaAnswer::Schema(Some(schema)) => {
                Ok(Arc::new(Schema { text: whole(&schema.text)?, ..(*schema).clone() }))
            }
            SchemaAnswer::Schema(None) => {
                self.versions(subject).await?;
                Err(SchemaError::VersionNotFound { subject: subject.clone(), version })
            }
            _ => Err(contradiction()),
        }
    }

    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        let definition = self.definition(id).await?;
        match definition.text.contains('\0') {
            true => Ok(Arc::new(Definition { text: whole(&definition.text)?, ..(*definition).clone() })),
            false => Ok(definition),
        }
    }

    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        let entries = self.entries(subject).await?.into_iter();
        let versions: Vec<_> = entries.filter(|entry| !entry.deleted).map(|entry| entry.version).collect();
        if versions.is_empty() { Err(SchemaError::SubjectNotFound(subject.clone())) } else { Ok(versions) }
    }
}
