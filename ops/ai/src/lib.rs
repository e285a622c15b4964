//! Processors that split text into chunks and call language and embedding models.
//!
//! [`chunk`] computes locally. All others send requests: one per record ([`question`]), or one for many texts
//! ([`embedding`]). [`service`] contains the common parts.
//!
//! ```
//! let mut registry = anabranch_plugin::registry::Registry::new();
//! anabranch_ops_ai::register(&mut registry);
//! assert!(registry.operator("ai.embed").is_ok());
//! ```

pub mod chunk;
pub mod codes;
pub mod cohere;
pub mod embed;
mod embedding;
mod indexed;
pub mod ollama;
pub mod openai;
mod question;
mod service;
#[cfg(test)]
mod testing;
mod text;

use anabranch_plugin::registry::Registry;

/// Registers every plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_operator(chunk::kind());
    registry.add_operator(cohere::command::kind());
    registry.add_operator(cohere::embed::kind());
    registry.add_operator(cohere::rerank::kind());
    registry.add_operator(embed::kind());
    registry.add_operator(ollama::kind());
    registry.add_operator(openai::embeddings::kind());
    registry.add_operator(openai::textgen::kind());
}
