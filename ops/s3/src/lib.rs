//! The `s3` source and destination: objects in a bucket of Amazon S3, or of a server that speaks its protocol.

mod connection;
mod destination;
mod fingerprint;
mod retry;
mod source;

use anabranch_plugin::registry::Registry;

/// Adds everything in this crate.
pub fn register(registry: &mut Registry) {
    registry.add_source(source::kind());
    registry.add_destination(destination::kind());
}
