//! Processors that chunk text and ask language and embedding models.

use anabranch_graph::registry::Registry;

/// Adds everything in this crate.
pub fn register(_registry: &mut Registry) {}
