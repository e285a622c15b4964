//! The processor `webhook.http` and the HTTP client it shares with the AI processors.

use anabranch_graph::registry::Registry;

/// Adds everything in this crate.
pub fn register(_registry: &mut Registry) {}
