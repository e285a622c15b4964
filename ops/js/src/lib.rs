//! The processor `custom.javascript`, on the Boa engine.
//!
//! `program` checks a script when the pipeline is compiled, with `nesting` before it. Scripts run in processes of their
//! own: `client` is what the chain sees of one, `worker` is that process, `wire` what goes between them. In it,
//! `interpreter` keeps an `isolate`, which runs the script; `envelope` and `view` show records to it and `conversion`
//! carries values across; `globals` is what scripts find beside the language. `uses` tells which objects of a record a
//! script cannot keep, and which fields of them it names. Those objects are `lasting`, all others new for each record, and
//! no other fields are sent to the worker. `acts` tells what a script does with the record, `ending` whether it returns
//! anything, `slips` what is wrong whatever the records are, and `mistakes` which of that can never be meant for the
//! records that come; `spot` follows the ways into the record.

mod acts;
mod client;
mod conversion;
mod ending;
mod envelope;
mod globals;
mod inner;
mod interpreter;
mod isolate;
mod javascript;
mod lasting;
mod mistakes;
mod nesting;
mod position;
mod process;
mod program;
mod properties;
mod slips;
mod spot;
#[cfg(test)]
mod testing;
mod text;
mod uses;
mod view;
mod wire;
pub mod worker;

use anabranch_plugin::registry::Registry;

pub use client::Launch;

/// Checks a script as `configure` does, for fuzzing.
///
/// # Errors
/// It is refused; where, as line and column from 1, if that is at a place.
pub fn check(script: &str) -> Result<(), Option<(usize, usize)>> {
    let program = program::Program { text: script.into(), name: "script".into() };
    program.check().map(drop).map_err(|flaw| flaw.position.map(|at| (at.line, at.column)))
}

/// Adds everything in this crate. Scripts run in processes that are launched so; without `launch` they run in this
/// process, which a script may then end: for tests, and programs that cannot be called as workers.
pub fn register(registry: &mut Registry, launch: Option<Launch>) {
    registry.add_operator(javascript::kind(launch));
}
