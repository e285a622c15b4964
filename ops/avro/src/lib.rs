//! Avro: the codec, the processors `avro.encode` and `avro.decode`, a client of Confluent's schema
//! registry, and schema handling around native plugins.
//!
//! ```
//! let old = r#"{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}"#;
//! let new = r#"{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}"#;
//! assert!(anabranch_ops_avro::can_read(old, old).is_ok());
//! assert!(anabranch_ops_avro::can_read(old, new).is_err(), "a number is not a string");
//! ```

pub mod around;
pub mod cache;
pub mod codec;
pub mod codes;
#[cfg(feature = "confluent")]
pub mod confluent;
pub mod decode;
pub mod destination;
pub mod encode;
pub mod guest;
pub mod inline;
mod input;
mod messages;
pub mod part;
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

/// Registers every plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_operator(decode::kind());
    registry.add_operator(encode::kind());
}

/// Checks that the text is an Avro schema.
///
/// # Errors
/// Returns why it is not.
pub fn check(text: &str) -> Result<(), String> {
    codec::Codec::parse(text).map(drop).map_err(|error| error.to_string())
}

/// Checks that all data written with the schema `writer` can be read with the schema `reader`.
///
/// # Errors
/// Returns why not, or which text is not an Avro schema.
pub fn can_read(writer: &str, reader: &str) -> Result<(), String> {
    let parse = |text| apache_avro::Schema::parse_str(text).map_err(|error| error.to_string());
    match SchemaCompatibility::can_read(&parse(writer)?, &parse(reader)?) {
        Ok(Compatibility::Full) => Ok(()),
        Ok(Compatibility::Partial) => Err("some values of one schema cannot be read with the other".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
