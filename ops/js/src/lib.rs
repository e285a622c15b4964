//! The processor `custom.javascript`, based on the Boa engine.
//!
//! `program` checks a script when the pipeline is compiled, after `nesting` has checked its depth. Scripts run in
//! processes of their own: `client` is the service's side, `worker` the process, `wire` the messages between them. In
//! the worker, `interpreter` holds an `isolate`, which runs the script: in it, `envelope` and `view` show records to
//! the script, `conversion` converts values, and `globals` defines globals in addition to the language. `uses` finds
//! the objects of a record that a script cannot keep, and the fields of them that it names. The isolate reuses those
//! objects (`lasting`), all others are new for each record, and no other fields are sent to the worker. `acts` finds
//! the script's accesses to the record, `ending` whether it returns a value, `slips` errors that do not depend on the
//! records, and `mistakes` those that depend on the shape of the input records. `spot` resolves paths into the record.
//!
//! ```
//! assert_eq!(anabranch_ops_js::check("function process(record) { return record; }"), Ok(()));
//! // A script that is not valid, with the line and the column.
//! assert_eq!(anabranch_ops_js::check("function process(record) { return }}"), Err(Some((1, 36))));
//! ```

mod acts;
mod client;
pub mod codes;
mod ending;
mod inner;
mod interpreter;
mod isolate;
mod javascript;
mod limits;
mod log;
mod mistakes;
mod nesting;
mod outcome;
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
mod visitor;
mod wire;
pub mod worker;

use anabranch_plugin::registry::Registry;

pub use client::Launch;

/// Checks a script as `configure` does, for fuzzing.
///
/// # Errors
/// Fails if the script is rejected, with the line and column from 1 if the flaw has a place.
pub fn check(script: &str) -> Result<(), Option<(usize, usize)>> {
    let program = program::Program { text: script.into(), name: "script".into() };
    program.check().map(drop).map_err(|flaw| flaw.position.map(|at| (at.line, at.column)))
}

/// Registers the plugin of this crate. `launch` configures the processes in which scripts run. Without it they run in
/// this process, which a script may then end: only for tests, and for programs that cannot be called as workers.
pub fn register(registry: &mut Registry, launch: Option<Launch>) {
    registry.add_operator(javascript::kind(launch));
}
