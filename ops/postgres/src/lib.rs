//! The `postgres` destination.

use anabranch_graph::registry::Registry;

/// Adds everything in this crate.
pub fn register(_registry: &mut Registry) {}

#[cfg(test)]
#[path = "../../../tests/it/servers/postgres.rs"]
mod server;
