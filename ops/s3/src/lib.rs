//! The `s3` source and destination.

use anabranch_graph::registry::Registry;

/// Adds everything in this crate.
pub fn register(_registry: &mut Registry) {}
