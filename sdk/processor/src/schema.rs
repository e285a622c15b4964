//! Schemas: calls of the registry, and decoding and encoding of records with a schema.
//!
//! If the metadata of a record names the schema of its key or payload, raw Avro data is decoded before the processor
//! sees it, and structured data is encoded afterwards. Users of the processor enable these steps with
//! `sdk.schema.decode.key.enabled`, `sdk.schema.decode.payload.enabled`, `sdk.schema.encode.key.enabled` and
//! `sdk.schema.encode.payload.enabled`; the default is `true`.
//!
//! Changed data is encoded with its schema if it fits. Otherwise, a schema is inferred from the data and registered as
//! a new version of the subject. If a processor names another schema in the metadata, that schema is used, and the data
//! must fit it.

mod avro;
mod codec;
pub(crate) mod message;

use crate::error::Error;
use crate::host;

pub(crate) use codec::Codec;

/// An Avro schema in the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Subject of the schema.
    pub subject: String,
    /// Version within the subject, from 1 on.
    pub version: i32,
    /// Id within the registry.
    pub id: i32,
    /// Text of the schema, in JSON.
    pub text: String,
}

/// Registers an Avro schema. If the subject already has the same schema, returns that version.
///
/// # Errors
/// [`HostError::INVALID_SCHEMA`](crate::HostError::INVALID_SCHEMA), or an error of the registry.
pub fn create(subject: &str, text: &str) -> Result<Schema, Error> {
    Ok(message::answer(host::create_schema(message::create(subject, text))?)?)
}

/// Returns a schema.
///
/// # Errors
/// [`HostError::SUBJECT_NOT_FOUND`](crate::HostError::SUBJECT_NOT_FOUND),
/// [`HostError::VERSION_NOT_FOUND`](crate::HostError::VERSION_NOT_FOUND), or an error of the registry.
pub fn get(subject: &str, version: i32) -> Result<Schema, Error> {
    Ok(message::answer(host::get_schema(message::get(subject, version))?)?)
}
