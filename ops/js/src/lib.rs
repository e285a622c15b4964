//! The processor `custom.javascript`, on the Boa engine.
//!
//! `program` checks a script when the pipeline is compiled, `isolate` runs it, `envelope` and
//! `view` show records to it and `conversion` carries values across; `globals` is what scripts find beside the language.
//! `uses` tells which objects of a record a script cannot keep; those are `lasting`, all others new for each record.

mod conversion;
mod envelope;
mod globals;
mod isolate;
mod javascript;
mod lasting;
mod position;
mod program;
#[cfg(test)]
mod testing;
mod text;
mod uses;
mod view;

use anabranch_graph::registry::Registry;

/// Adds everything in this crate.
pub fn register(registry: &mut Registry) {
    registry.add_operator(javascript::kind());
}
