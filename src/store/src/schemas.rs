//! The schema registry in the state store, without compatibility checks. A soft-deleted version is not listed, but
//! records that name it still find it until it is permanently deleted. Its number is never assigned again.

use std::sync::Arc;

use anabranch_plugin::schema::{Definition, Schema, SchemaId, SchemaVersion};
use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;
use serde::{Deserialize, Serialize};

/// A query of schemas. Texts have the form of [`SchemaDocument::stored`].
#[derive(Clone, Debug)]
pub(crate) enum SchemaQuery {
    Version(Str, SchemaVersion),
    Definition(SchemaId),
    Versions(Str),
    Subjects,
    /// The id of a text.
    Identify(Str),
    /// The versions that use the text with this id.
    Uses(SchemaId),
    /// The texts that refer to others.
    Referring,
    /// The compatibility level of a subject, or the global level.
    Level(Option<Str>),
}

#[derive(Clone, Debug)]
pub(crate) enum SchemaAnswer {
    Schema(Option<Arc<Schema>>),
    Definition(Option<Arc<Definition>>),
    /// Empty if the subject does not exist.
    Versions(Vec<SchemaEntry>),
    /// Sorted; the flag is true if all versions of the subject are deleted.
    Subjects(Vec<(Str, bool)>),
    Id(Option<SchemaId>),
    /// By subject, then version.
    Uses(Vec<(Str, SchemaEntry)>),
    Definitions(Vec<Definition>),
    Level(Option<Str>),
}

/// A version of a subject, without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaEntry {
    /// The version number.
    pub version: SchemaVersion,
    /// The id of its text.
    pub id: SchemaId,
    /// True if it is soft-deleted.
    pub deleted: bool,
}

/// Kind of deletion of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Soft deletion: the versions are not listed.
    Hidden,
    /// Permanent deletion: the versions are removed, and their texts too if nothing else uses them.
    Gone,
}

/// A reference from a schema to another schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = SchemaReference)]
pub struct Reference {
    /// The name that the text uses for it.
    pub name: String,
    /// Its subject.
    pub subject: String,
    /// Its version.
    pub version: u32,
}

/// The text of a schema, and its references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaDocument {
    /// The text as it was registered.
    pub text: Str,
    /// The schemas that it refers to.
    pub references: Vec<Reference>,
    /// The text with its references resolved; equals `text` if there are none.
    pub whole: Str,
}

impl SchemaDocument {
    /// Creates a document without references.
    pub fn alone(text: Str) -> Self {
        SchemaDocument { whole: text.clone(), text, references: Vec::new() }
    }

    /// Encodes the document as one text: equal texts are the same schema. The separator is a zero byte, which no part
    /// contains.
    pub(crate) fn stored(&self) -> Result<Str, StoreError> {
        if self.references.is_empty() {
            return Ok(self.text.clone());
        }
        let references = serde_json::to_string(&self.references)
            .map_err(|error| StoreError::Damaged(format!("the references of a schema cannot be written: {error}")))?;
        Ok(format!("{}\0{references}\0{}", self.text, self.whole).into())
    }

    pub(crate) fn of_stored(stored: &Str) -> Result<Self, StoreError> {
        let mut parts = stored.splitn(3, '\0');
        let (Some(text), Some(references), Some(whole)) = (parts.next(), parts.next(), parts.next()) else {
            return Ok(SchemaDocument::alone(stored.clone()));
        };
        let references = serde_json::from_str(references)
            .map_err(|_| StoreError::Damaged("the references of a schema cannot be read".to_owned()))?;
        Ok(SchemaDocument { text: text.into(), references, whole: whole.into() })
    }
}

pub(crate) fn full() -> StoreError {
    StoreError::Damaged("there are 2147483647 schemas, which is the maximum".to_owned())
}

pub(crate) fn wrong_number() -> StoreError {
    StoreError::Damaged("a schema has an invalid id or version".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_stored_in_one_piece() {
        let alone = SchemaDocument::alone("\"int\"".into());
        assert_eq!(alone.stored().unwrap(), alone.text);
        let references = vec![Reference { name: "a.b".into(), subject: "s".into(), version: 3 }];
        let document = SchemaDocument { text: "\"a.b\"".into(), references, whole: "{}".into() };
        for document in [alone, document] {
            assert_eq!(SchemaDocument::of_stored(&document.stored().unwrap()).unwrap(), document);
        }
        assert!(SchemaDocument::of_stored(&"a\0b\0c".into()).is_err());
    }
}
