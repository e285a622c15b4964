//! The `s3` source and destination: objects in a bucket of Amazon S3 or of a compatible server.
//!
//! ```
//! let mut registry = anabranch_plugin::registry::Registry::new();
//! anabranch_ops_s3::register(&mut registry);
//! assert!(registry.source("s3").is_ok());
//! assert!(registry.destination("s3").is_ok());
//! ```

pub mod codes;
mod connection;
mod destination;
mod fingerprint;
mod retry;
mod source;

use anabranch_plugin::registry::Registry;

/// Registers every plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_source(source::kind());
    registry.add_destination(destination::kind());
}
