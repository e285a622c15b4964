//! The sources `http` and `http.poll`, the destination `http` and the processor `webhook.http`, with the HTTP client that
//! they share with the AI processors.
//!
//! ```
//! let mut registry = anabranch_plugin::registry::Registry::new();
//! anabranch_ops_http::register(&mut registry);
//! assert!(registry.source("http").is_ok());
//! assert!(registry.operator("webhook.http").is_ok());
//! ```

pub mod client;
pub mod codes;
pub mod destination;
pub mod listen;
mod message;
mod pointer;
pub mod poll;
pub mod testing;
pub mod webhook;

use anabranch_plugin::registry::Registry;

/// Registers every plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_source(listen::kind());
    registry.add_source(poll::kind());
    registry.add_destination(destination::kind());
    registry.add_operator(webhook::kind());
}
