//! Processors that chunk text and ask language and embedding models.
//!
//! [`chunk`] computes; all others send requests: one per record ([`question`]), or one for many texts
//! ([`embedding`]). What the services have in common is in [`service`].

pub mod chunk;
pub mod cohere;
pub mod embed;
mod embedding;
mod finding;
mod indexed;
pub mod ollama;
pub mod openai;
mod question;
mod service;
#[cfg(test)]
mod testing;
mod text;

use anabranch_plugin::registry::Registry;

/// Adds everything in this crate.
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
