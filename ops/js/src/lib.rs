//! The processor `custom.javascript`, on the Boa engine.

use anabranch_graph::registry::Registry;

/// Adds everything in this crate.
pub fn register(_registry: &mut Registry) {}
