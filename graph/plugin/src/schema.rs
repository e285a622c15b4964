//! Schemas of keys and payloads, and the schema registry.
//!
//! The metadata of a record contains the subject and version of its schemas; the registry returns the text
//! of a schema. The versions of a subject count from 1; every distinct text has an id that is the same under
//! all subjects.

mod cached;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use anabranch_record::code::Code;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;

use crate::codes;

pub use cached::Cached;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The first number.
            pub const FIRST: Self = Self(NonZeroU32::MIN);

            /// Creates it from a number from 1 to 2³¹ − 1, the range that protocols support.
            pub fn new(number: u32) -> Option<Self> {
                NonZeroU32::new(number).filter(|n| n.get() <= i32::MAX.unsigned_abs()).map(Self)
            }

            /// Returns the number.
            pub fn get(self) -> u32 {
                self.0.get()
            }

            /// Returns the next number; `None` after the last.
            pub fn next(self) -> Option<Self> {
                Self::new(self.get() + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = NotANumber;

            fn from_str(text: &str) -> Result<Self, NotANumber> {
                text.parse().ok().and_then(Self::new).ok_or(NotANumber)
            }
        }
    };
}

number! {
    /// The version of a schema under its subject.
    SchemaVersion
}
number! {
    /// The id of the text of a schema in its registry.
    SchemaId
}

/// Error: the text is not a version or an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a whole number from 1 to 2147483647")]
pub struct NotANumber;

/// The language of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaKind {
    /// Apache Avro, as JSON text.
    Avro,
}

impl SchemaKind {
    /// Returns the name in settings. Registries use the same name in upper case.
    pub const fn as_str(self) -> &'static str {
        match self {
            SchemaKind::Avro => "avro",
        }
    }
}

/// A version of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The subject.
    pub subject: Str,
    /// The version in the subject.
    pub version: SchemaVersion,
    /// The id of the text.
    pub id: SchemaId,
    /// The language of the text.
    pub kind: SchemaKind,
    /// The schema.
    pub text: Str,
}

/// The text of a schema, independent of its subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The id.
    pub id: SchemaId,
    /// The language of the text.
    pub kind: SchemaKind,
    /// The schema.
    pub text: Str,
}

/// A failure of a schema registry.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SchemaError {
    /// The subject does not exist.
    #[error("schema subject {0:?} not found")]
    SubjectNotFound(Str),
    /// The subject does not have this version.
    #[error("schema subject {subject:?} has no version {version}")]
    VersionNotFound {
        /// The subject.
        subject: Str,
        /// The requested version.
        version: SchemaVersion,
    },
    /// No schema has this id, or the subject does not contain this text.
    #[error("schema not found: {0}")]
    SchemaNotFound(Str),
    /// The text is not a schema, or the registry does not accept it.
    #[error("invalid schema: {0}")]
    Invalid(Str),
    /// The subject accepts only schemas that are compatible with its earlier ones.
    #[error("schema subject {subject:?} refused an incompatible schema: {message}")]
    Incompatible {
        /// The subject.
        subject: Str,
        /// The message of the registry.
        message: Str,
    },
    /// The registry denies access: credentials, permissions.
    #[error("schema registry refused the request: {0}")]
    Denied(Str),
    /// The request cannot be made, or the response is too large for a schema.
    #[error("schema registry: {0}")]
    Unusable(Str),
    /// The registry cannot be reached, read or written.
    #[error("schema registry: {0}")]
    Unavailable(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl SchemaError {
    /// Returns the stable code of the fault.
    pub fn code(&self) -> Code {
        match self {
            SchemaError::SubjectNotFound(_) => codes::SCHEMA_SUBJECT_NOT_FOUND,
            SchemaError::VersionNotFound { .. } => codes::SCHEMA_VERSION_NOT_FOUND,
            SchemaError::SchemaNotFound(_) => codes::SCHEMA_NOT_FOUND,
            SchemaError::Invalid(_) => codes::SCHEMA_INVALID,
            SchemaError::Incompatible { .. } => codes::SCHEMA_INCOMPATIBLE,
            SchemaError::Denied(_) => codes::SCHEMA_REGISTRY_DENIED,
            SchemaError::Unusable(_) => codes::SCHEMA_REGISTRY_UNUSABLE,
            SchemaError::Unavailable(_) => codes::SCHEMA_REGISTRY_UNAVAILABLE,
        }
    }
}

impl From<SchemaError> for Fault {
    /// An unavailable registry is a transient fault. A denied request is fatal, but retried for a while in case the
    /// credentials are being replaced. Other errors are record faults.
    fn from(error: SchemaError) -> Self {
        let class = match error {
            SchemaError::Unavailable(_) => FaultClass::Transient,
            SchemaError::Denied(_) | SchemaError::Unusable(_) => FaultClass::Fatal,
            _ => FaultClass::Record,
        };
        let is_of_login = matches!(error, SchemaError::Denied(_));
        let fault = Fault::new(class, error.code(), error);
        if is_of_login { fault.of_login() } else { fault }
    }
}

/// A store of schemas. The schema of a version or an id never changes. The registry of a run is a [`Cached`] one, so
/// callers may use it once per record.
#[async_trait]
pub trait SchemaRegistry: Send + Sync {
    /// Registers a schema under a subject. If the subject already contains an equal text, its version is returned;
    /// equal texts under different subjects have the same id.
    ///
    /// # Errors
    /// [`SchemaError::Invalid`], [`SchemaError::Incompatible`], or the registry is not available.
    async fn create(&self, subject: &Str, kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError>;

    /// Returns a version of a subject.
    ///
    /// # Errors
    /// [`SchemaError::SubjectNotFound`], [`SchemaError::VersionNotFound`], or the registry is not available.
    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError>;

    /// Returns the text with the given id.
    ///
    /// # Errors
    /// [`SchemaError::SchemaNotFound`], or the registry is not available.
    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError>;

    /// Returns the versions of a subject, in order; never empty.
    ///
    /// # Errors
    /// [`SchemaError::SubjectNotFound`], or the registry is not available.
    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError>;
}

/// An in-memory registry for trials and tests. It accepts any text as a schema.
#[derive(Debug, Default)]
pub struct MemoryRegistry(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    /// Definitions by id, from 1.
    definitions: Vec<Arc<Definition>>,
    /// Schemas by version, from 1.
    subjects: BTreeMap<Str, Vec<Arc<Schema>>>,
}

impl MemoryRegistry {
    /// Creates a registry without subjects.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, f: impl FnOnce(&mut Memory) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn full() -> SchemaError {
    SchemaError::Unavailable(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from("all ids are used")))
}

fn position(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX) - 1
}

impl Memory {
    fn define(&mut self, kind: SchemaKind, text: &Str) -> Result<Arc<Definition>, SchemaError> {
        if let Some(found) = self.definitions.iter().find(|d| d.kind == kind && d.text == *text) {
            return Ok(found.clone());
        }
        let id = u32::try_from(self.definitions.len() + 1).ok().and_then(SchemaId::new).ok_or_else(full)?;
        let definition = Arc::new(Definition { id, kind, text: text.clone() });
        self.definitions.push(definition.clone());
        Ok(definition)
    }

    fn versions(&self, subject: &Str) -> Result<&[Arc<Schema>], SchemaError> {
        self.subjects.get(subject).map(Vec::as_slice).ok_or_else(|| SchemaError::SubjectNotFound(subject.clone()))
    }
}

#[async_trait]
impl SchemaRegistry for MemoryRegistry {
    async fn create(&self, subject: &Str, kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError> {
        self.with(|memory| {
            let id = memory.define(kind, text)?.id;
            let versions = memory.subjects.entry(subject.clone()).or_default();
            if let Some(found) = versions.iter().find(|schema| schema.id == id) {
                return Ok(found.clone());
            }
            let number = u32::try_from(versions.len() + 1).ok();
            let version = number.and_then(SchemaVersion::new).ok_or_else(full)?;
            let schema = Arc::new(Schema { subject: subject.clone(), version, id, kind, text: text.clone() });
            versions.push(schema.clone());
            Ok(schema)
        })
    }

    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError> {
        self.with(|memory| {
            let found = memory.versions(subject)?.get(position(version.get())).cloned();
            found.ok_or_else(|| SchemaError::VersionNotFound { subject: subject.clone(), version })
        })
    }

    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError> {
        self.with(|memory| {
            let found = memory.definitions.get(position(id.get())).cloned();
            found.ok_or_else(|| SchemaError::SchemaNotFound(format!("id {id}").into()))
        })
    }

    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError> {
        self.with(|memory| Ok(memory.versions(subject)?.iter().map(|schema| schema.version).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn versions_count_by_subject_and_ids_by_text() {
        let registry = MemoryRegistry::new();
        let create = async |subject: &'static str, text: &'static str| {
            let schema = registry.create(&subject.into(), SchemaKind::Avro, &text.into()).await.unwrap();
            (schema.version.get(), schema.id.get())
        };
        assert_eq!(create("a", "1").await, (1, 1));
        assert_eq!(create("a", "2").await, (2, 2));
        assert_eq!(create("b", "2").await, (1, 2));
        assert_eq!(create("a", "1").await, (1, 1));
        let second = SchemaVersion::new(2).unwrap();
        assert_eq!(registry.get(&"a".into(), second).await.unwrap().text.as_str(), "2");
        assert_eq!(registry.by_id(SchemaId::FIRST).await.unwrap().text.as_str(), "1");
        assert_eq!(registry.versions(&"a".into()).await.unwrap(), [SchemaVersion::FIRST, second]);
        let code = |error: SchemaError| error.code().name();
        assert_eq!(registry.get(&"b".into(), second).await.map_err(code), Err("schema_version_not_found"));
        assert_eq!(registry.get(&"c".into(), second).await.map_err(code), Err("schema_subject_not_found"));
        assert_eq!(registry.by_id(SchemaId::new(3).unwrap()).await.map_err(code), Err("schema_not_found"));
    }

    #[test]
    fn numbers_fit_where_protocols_keep_them() {
        for bad in ["0", "-1", "2147483648", "", "x"] {
            assert_eq!(bad.parse::<SchemaVersion>(), Err(NotANumber), "{bad}");
        }
        let last: SchemaId = "2147483647".parse().unwrap();
        assert_eq!((last.next(), SchemaId::FIRST.next().map(SchemaId::get)), (None, Some(2)));
    }
}
