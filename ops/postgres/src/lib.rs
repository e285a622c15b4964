//! The `postgres` destination.
//!
//! A batch becomes a plan ([`batch`]): per table, rows with one key compacted to the last, deletions before rows, one
//! step per set of columns. A step is written ([`session`]) by a multi-row statement with parameters, or by `COPY`
//! into a temporary table and one statement that merges it.

mod batch;
mod catalog;
mod column;
mod connection;
mod create;
mod destination;
mod encode;
mod fault;
mod marks;
mod name;
mod session;
mod statement;
mod table;
mod writer;

use anabranch_graph::registry::Registry;

/// Adds everything in this crate.
pub fn register(registry: &mut Registry) {
    registry.add_destination(destination::kind());
}

#[cfg(test)]
#[path = "../../../tests/it/servers/postgres.rs"]
mod server;
