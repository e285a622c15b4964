//! Avro: the codec, schemas inferred from data, the processors `avro.encode` and `avro.decode`, a client of Confluent's
//! schema registry, and what native plugins need to see decoded data.

pub mod around;
pub mod codec;
pub mod confluent;
pub mod decode;
pub mod desk;
pub mod destination;
pub mod encode;
mod field;
pub mod infer;
pub mod record;
pub mod source;
#[cfg(test)]
mod testing;
mod wire;

use anabranch_graph::registry::Registry;

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
