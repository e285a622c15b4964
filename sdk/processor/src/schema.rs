//! Schemas: the calls of the registry, and the decoding and encoding of records that carry a schema.
//!
//! Where the metadata of a record name the schema of its key or payload, raw Avro data are decoded before the
//! processor sees them, and structured data are encoded after it. Users of the processor switch these steps by
//! `sdk.schema.decode.key.enabled`, `sdk.schema.decode.payload.enabled`, `sdk.schema.encode.key.enabled` and
//! `sdk.schema.encode.payload.enabled`, all `true` by default.
//!
//! Changed data are encoded with their schema as long as they fit it. Where they do not, a schema is inferred from
//! them and becomes a new version under the same subject. A processor that names another schema in the metadata
//! gets that one, and its data must fit it.

mod avro;
mod codec;
mod infer;

use crate::error::Error;
use crate::{host, wire};

pub(crate) use codec::Codec;

/// An Avro schema of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The subject.
    pub subject: String,
    /// The version within the subject, from 1 on.
    pub version: i32,
    /// The id within the registry.
    pub id: i32,
    /// The schema itself, in JSON.
    pub text: String,
}

/// Registers an Avro schema; the same schema under the same subject gives the version that is there.
///
/// # Errors
/// [`HostError::INVALID_SCHEMA`](crate::HostError::INVALID_SCHEMA), or what is wrong with the registry.
pub fn create(subject: &str, text: &str) -> Result<Schema, Error> {
    Ok(wire::schema_answer(&host::create_schema(wire::create_schema(subject, text))?)?)
}

/// Looks a schema up.
///
/// # Errors
/// [`HostError::SUBJECT_NOT_FOUND`](crate::HostError::SUBJECT_NOT_FOUND),
/// [`HostError::VERSION_NOT_FOUND`](crate::HostError::VERSION_NOT_FOUND), or what is wrong with the registry.
pub fn get(subject: &str, version: i32) -> Result<Schema, Error> {
    Ok(wire::schema_answer(&host::get_schema(wire::get_schema(subject, version))?)?)
}
