//! The built-in sources, processors and destinations that need no heavy dependency.

mod arena;
mod offload;

pub mod clone;
pub mod drop;
pub mod error;
pub mod field;
pub mod file;
pub mod filter;
pub mod generator;
pub mod json;
pub mod log;
mod ordinal;
mod prototype;
pub mod split;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use anabranch_graph::registry::Registry;

/// Adds all operators of this crate: the table of contents.
pub fn register(registry: &mut Registry) {
    registry.add_source(Arc::new(file::FileSource::default()));
    registry.add_source(Arc::new(generator::Generator::default()));
    registry.add_operator(clone::kind());
    registry.add_operator(error::kind());
    registry.add_operator(field::set::kind());
    registry.add_operator(filter::kind());
    registry.add_operator(json::decode::kind());
    registry.add_operator(json::encode::kind());
    registry.add_operator(split::kind());
    registry.add_destination(Arc::new(drop::DropDestination::default()));
    registry.add_destination(Arc::new(file::FileDestination::default()));
    registry.add_destination(Arc::new(log::LogDestination::default()));
}
