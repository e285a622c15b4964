//! Schemas of keys and payloads, and the registry that keeps them.
//!
//! A record carries the subject and version of its schemas in its metadata; the registry turns them into the text
//! of a schema. Subjects have versions that count from one; every distinct text has an id that is the same under
//! all subjects.

mod cached;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;

pub use cached::Cached;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The first one.
            pub const FIRST: Self = Self(NonZeroU32::MIN);

            /// From a number from 1 to 2³¹ − 1, which is what protocols have room for.
            pub fn new(number: u32) -> Option<Self> {
                NonZeroU32::new(number).filter(|n| n.get() <= i32::MAX.unsigned_abs()).map(Self)
            }

            /// The number.
            pub fn get(self) -> u32 {
                self.0.get()
            }

            /// The one after it; `None` after the last.
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
    /// What identifies the text of a schema in its registry.
    SchemaId
}

/// A text that is neither a version nor an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a whole number from 1 to 2147483647")]
pub struct NotANumber;

/// The language a schema is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaKind {
    /// Apache Avro, as JSON text.
    Avro,
}

impl SchemaKind {
    /// The name in settings and on the wire of registries, upper case there.
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
    /// The version under it.
    pub version: SchemaVersion,
    /// The id of the text.
    pub id: SchemaId,
    /// The language of the text.
    pub kind: SchemaKind,
    /// The schema.
    pub text: Str,
}

/// The text of a schema, whatever subjects it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its id.
    pub id: SchemaId,
    /// The language of the text.
    pub kind: SchemaKind,
    /// The schema.
    pub text: Str,
}

/// Why a registry did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SchemaError {
    /// There is no such subject.
    #[error("schema subject {0:?} not found")]
    SubjectNotFound(Str),
    /// The subject has no such version.
    #[error("schema subject {subject:?} has no version {version}")]
    VersionNotFound {
        /// The subject.
        subject: Str,
        /// What was asked for.
        version: SchemaVersion,
    },
    /// There is no schema with this id, or the subject has none with this text.
    #[error("schema not found: {0}")]
    SchemaNotFound(Str),
    /// The text is no schema, or not one the registry takes.
    #[error("invalid schema: {0}")]
    Invalid(Str),
    /// The subject takes only schemas that are compatible with its earlier ones.
    #[error("schema subject {subject:?} refused an incompatible schema: {message}")]
    Incompatible {
        /// The subject.
        subject: Str,
        /// What the registry said.
        message: Str,
    },
    /// The registry refused us: credentials, permissions.
    #[error("schema registry refused the request: {0}")]
    Denied(Str),
    /// The request cannot be made, or the answer is larger than any schema.
    #[error("schema registry: {0}")]
    Unusable(Str),
    /// The registry cannot be reached, read or written.
    #[error("schema registry: {0}")]
    Unavailable(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl SchemaError {
    /// The stable code of the fault.
    pub fn code(&self) -> &'static str {
        match self {
            SchemaError::SubjectNotFound(_) => "schema_subject_not_found",
            SchemaError::VersionNotFound { .. } => "schema_version_not_found",
            SchemaError::SchemaNotFound(_) => "schema_not_found",
            SchemaError::Invalid(_) => "schema_invalid",
            SchemaError::Incompatible { .. } => "schema_incompatible",
            SchemaError::Denied(_) => "schema_registry_denied",
            SchemaError::Unusable(_) => "schema_registry_unusable",
            SchemaError::Unavailable(_) => "schema_registry_unavailable",
        }
    }
}

impl From<SchemaError> for Fault {
    /// A registry that is away comes back, one that denies us stays so unless the credentials are being replaced; all
    /// else is the record's.
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

/// Keeps schemas. A version and an id never change what they stand for; the registry of a run is [`Cached`], so that
/// one may ask it once per record.
#[async_trait]
pub trait SchemaRegistry: Send + Sync {
    /// Registers a schema under a subject. Equal text under the same subject gives the version that is there
    /// already; equal text under another subject has the same id.
    ///
    /// # Errors
    /// [`SchemaError::Invalid`], [`SchemaError::Incompatible`], or the registry does not answer.
    async fn create(&self, subject: &Str, kind: SchemaKind, text: &Str) -> Result<Arc<Schema>, SchemaError>;

    /// A version of a subject.
    ///
    /// # Errors
    /// [`SchemaError::SubjectNotFound`], [`SchemaError::VersionNotFound`], or the registry does not answer.
    async fn get(&self, subject: &Str, version: SchemaVersion) -> Result<Arc<Schema>, SchemaError>;

    /// The text that has an id.
    ///
    /// # Errors
    /// [`SchemaError::SchemaNotFound`], or the registry does not answer.
    async fn by_id(&self, id: SchemaId) -> Result<Arc<Definition>, SchemaError>;

    /// The versions of a subject, in order; never empty.
    ///
    /// # Errors
    /// [`SchemaError::SubjectNotFound`], or the registry does not answer.
    async fn versions(&self, subject: &Str) -> Result<Vec<SchemaVersion>, SchemaError>;
}

/// A registry that forgets with the process: for trials and tests. It takes any text for a schema.
#[derive(Debug, Default)]
pub struct MemoryRegistry(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    /// By id, from one.
    definitions: Vec<Arc<Definition>>,
    /// By version, from one.
    subjects: BTreeMap<Str, Vec<Arc<Schema>>>,
}

impl MemoryRegistry {
    /// One without subjects.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, f: impl FnOnce(&mut Memory) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn full() -> SchemaError {
    SchemaError::Unavailable(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from("all numbers are used up")))
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
        let code = |error: SchemaError| error.code();
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
