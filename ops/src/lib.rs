//! The built-in sources, processors and destinations of Anabranch that need no heavy dependency.
//!
//! Each plugin has a file, which declares its parameters and its effect on the shape of records.
//!
//! ```
//! let mut registry = anabranch_plugin::registry::Registry::new();
//! anabranch_ops::register(&mut registry);
//! assert!(registry.source("generator").is_ok());
//! assert!(registry.operator("field.set").is_ok());
//! assert!(registry.destination("file").is_ok());
//! ```

mod arena;
pub mod base64;
pub mod clone;
pub mod codes;
pub mod csv;
pub mod drop;
pub mod error;
pub mod field;
pub mod file;
pub mod filter;
pub mod generator;
pub mod json;
pub mod log;
mod offload;
mod ordinal;
pub mod parse;
mod part_bytes;
pub mod sample;
mod scalar;
pub mod split;
pub mod store;
#[cfg(test)]
mod testing;
pub mod throttle;
pub mod time;
mod unacknowledged;
pub mod unwrap;

use anabranch_plugin::registry::Registry;

/// Registers every plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_source(file::source());
    registry.add_source(generator::kind());

    registry.add_operator(base64::decode::kind());
    registry.add_operator(base64::encode::kind());
    registry.add_operator(clone::kind());
    registry.add_operator(csv::decode::kind());
    registry.add_operator(csv::encode::kind());
    registry.add_operator(error::kind());
    registry.add_operator(field::convert::kind());
    registry.add_operator(field::default::kind());
    registry.add_operator(field::exclude::kind());
    registry.add_operator(field::flatten::kind());
    registry.add_operator(field::hash::kind());
    registry.add_operator(field::mask::kind());
    registry.add_operator(field::rename::kind());
    registry.add_operator(field::set::kind());
    registry.add_operator(filter::kind());
    registry.add_operator(json::decode::kind());
    registry.add_operator(json::encode::kind());
    registry.add_operator(parse::grok::kind());
    registry.add_operator(parse::keyvalue::kind());
    registry.add_operator(parse::regex::kind());
    registry.add_operator(sample::kind());
    registry.add_operator(split::kind());
    registry.add_operator(throttle::kind());
    registry.add_operator(time::format::kind());
    registry.add_operator(time::parse::kind());
    registry.add_operator(unwrap::debezium::kind());
    registry.add_operator(unwrap::kafkaconnect::kind());
    registry.add_operator(unwrap::opencdc::kind());

    registry.add_destination(drop::kind());
    registry.add_destination(file::destination());
    registry.add_destination(log::kind());
    registry.add_destination(store::kind());
}
