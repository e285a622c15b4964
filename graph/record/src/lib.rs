//! The records of Anabranch: sources read them, processors change them and destinations write them.
//!
//! A [`Record`] has a position, an operation, metadata, a key and a payload before and after. Data is raw bytes or
//! [`value`]s with fields; a [`reference`] names a part of a record (`.Payload.After.user.id`), and [`json`] reads and
//! writes records; [`protobuf`] is their form for plugins elsewhere. A [`mark`] is the settled position of a lane of records, a [`fault`] is the reason of a failure.
//! A [`specification`] is what a plugin says of itself. This crate does no I/O and knows neither plugins nor the executor.
//!
//! # Example
//!
//! ```
//! use anabranch_record::json;
//! use anabranch_record::reference::{Part, Reference};
//! use anabranch_record::value::Value;
//!
//! let record = json::parse_record(br#"{"operation": "create", "payload": {"after": {"user": {"id": 7}}}}"#).unwrap();
//! let id = Reference::parse(".Payload.After.user.id").unwrap();
//! assert_eq!(id.get(&record).unwrap(), Some(Part::Value(&Value::Int(7))));
//! ```

pub mod access;
#[cfg(test)]
#[path = "tests/arbitrary.rs"]
mod arbitrary;
pub mod avro;
pub mod clock;
pub mod code;
pub mod codes;
pub mod extent;
pub mod fault;
pub mod json;
pub mod mark;
pub mod mask;
pub mod metadata;
pub mod near;
pub mod phrase;
pub mod protobuf;
mod record;
pub mod reference;
pub mod specification;
pub mod text;
pub mod value;

pub use record::*;

// `arbitrary` names this crate, so that tests of other crates can include it.
#[cfg(test)]
extern crate self as anabranch_record;
