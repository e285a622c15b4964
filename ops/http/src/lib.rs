//! The processor `webhook.http`, and the HTTP client that it shares with the AI processors.
//!
//! ```
//! let mut registry = anabranch_plugin::registry::Registry::new();
//! anabranch_ops_http::register(&mut registry);
//! assert!(registry.operator("webhook.http").is_ok());
//! ```

pub mod client;
pub mod codes;
pub mod testing;
pub mod webhook;

use anabranch_plugin::registry::Registry;

/// Registers every plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_operator(webhook::kind());
}
