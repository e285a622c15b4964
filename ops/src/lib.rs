//! The built-in operators of Anabranch that need no heavy dependency.

pub mod clone;
pub mod error;
pub mod field;
pub mod filter;
pub mod json;
mod ordinal;
mod prototype;
pub mod split;
#[cfg(test)]
mod testing;

use anabranch_graph::registry::Registry;

/// Adds all operators of this crate: the table of contents.
pub fn register(registry: &mut Registry) {
    registry.add_operator(clone::kind());
    registry.add_operator(error::kind());
    registry.add_operator(field::set::kind());
    registry.add_operator(filter::kind());
    registry.add_operator(json::decode::kind());
    registry.add_operator(json::encode::kind());
    registry.add_operator(split::kind());
}
