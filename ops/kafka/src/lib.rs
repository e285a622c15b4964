//! The `kafka` source and destination: topics of Apache Kafka or of a compatible server.
//!
//! ```
//! let mut registry = anabranch_plugin::registry::Registry::new();
//! anabranch_ops_kafka::register(&mut registry);
//! assert!(registry.source("kafka").is_ok());
//! assert!(registry.destination("kafka").is_ok());
//! ```

pub mod codes;
mod connection;
mod destination;
mod examine;
mod fault;
mod group;
mod headers;
mod source;
mod topic;
mod waiting;

use anabranch_plugin::registry::Registry;

/// Registers every plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_source(source::kind());
    registry.add_destination(destination::kind());
}
