//! Avro: the codec, schemas inferred from data, the processors `avro.encode` and `avro.decode`, a client of Confluent's
//! schema registry, and what native plugins need to see decoded data.

pub mod around;
pub mod codec;
#[cfg(feature = "confluent")]
pub mod confluent;
pub mod decode;
pub mod desk;
pub mod destination;
pub mod encode;
mod field;
mod given;
pub mod guest;
pub mod infer;
pub mod inline;
mod pieces;
pub mod record;
mod shape;
pub mod source;
mod strip;
#[cfg(test)]
mod testing;
mod wire;
mod wrapped;

use anabranch_plugin::registry::Registry;
use apache_avro::schema_compatibility::{Compatibility, SchemaCompatibility};

/// Adds everything in this crate.
pub fn register(registry: &mut Registry) {
    registry.add_operator(decode::kind());
    registry.add_operator(encode::kind());
}

/// Whether this text is an Avro schema.
///
/// # Errors
/// Why it is not.
pub fn check(text: &str) -> Result<(), String> {
    codec::Codec::parse(text).map(drop).map_err(|error| error.to_string())
}

/// Whether data written by the schema `writer` can all be read by the schema `reader`.
///
/// # Errors
/// Why they cannot, or which text is no Avro schema.
pub fn can_read(writer: &str, reader: &str) -> Result<(), String> {
    let parse = |text| apache_avro::Schema::parse_str(text).map_err(|error| error.to_string());
    match SchemaCompatibility::can_read(&parse(writer)?, &parse(reader)?) {
        Ok(Compatibility::Full) => Ok(()),
        Ok(Compatibility::Partial) => Err("some values that it may hold have no place in the other".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
