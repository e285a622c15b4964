//! The processor `webhook.http`, and the HTTP client that it shares with the AI processors.

pub mod client;
pub mod codes;
pub mod testing;
pub mod webhook;

use anabranch_plugin::registry::Registry;

/// Registers every plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_operator(webhook::kind());
}
