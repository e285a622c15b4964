//! The processor `vrl`: programs in the Vector Remap Language, through its published crate.
//!
//! `processor` has the settings. `program` checks and compiles a program when the pipeline is compiled: `source` is its
//! text, `syntax` its syntax tree, `functions` the functions that it can call, `spot` the places in a record that its
//! paths name. `worker` runs it: `loads` converts the parts of a record that it reads, `target` notes the changes that it
//! makes, `values` converts values in both directions, and `weight` measures them. `findings` applies a program to the
//! shapes of records, and `kinds` converts shapes to the types of programs.

pub mod codes;
#[cfg(test)]
mod conformance;
mod fields;
mod findings;
mod functions;
mod kinds;
mod loads;
mod processor;
mod program;
mod source;
mod spot;
mod syntax;
mod target;
mod values;
mod weight;
mod whole;
mod worker;
mod writes;

use anabranch_plugin::registry::Registry;

/// Registers the plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_operator(processor::kind());
}
