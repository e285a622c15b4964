//! The `postgres` destination.
//!
//! A batch becomes a plan ([`batch`]): per table, rows with one key compacted to the last, deletions before rows, one
//! step per set of columns. A step is written ([`session`]) by a multi-row statement with parameters, or by `COPY`
//! into a temporary table and one statement that merges it. What is cheaper depends on the number of rows. CPU time of
//! PostgreSQL 15 per row, in microseconds, for upserts of six columns by a text key (20,000 rows, new and existing
//! ones, on a busy machine, so the second digit means nothing):
//!
//! | rows of a batch | 1 | 8 | 32 | 64 | 128 | 512 | 4096 |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | parameters, new | 93 | 18 | 10 | 10 | 6.5 | 6.5 | 7 |
//! | copied, new | | 93 | 30 | 16 | 11 | 6 | 5 |
//! | parameters, existing | 90 | 25 | 15 | 13 | 9 | 5.5 | 7.5 |
//! | copied, existing | | 108 | 30 | 22 | 14 | 7 | 4 |
//!
//! This process pays less for a copy from 128 rows on. Hence 512.

pub mod address;
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
mod past;
mod refusal;
mod session;
mod statement;
mod table;
mod writer;

use anabranch_plugin::registry::Registry;

/// Adds everything in this crate.
pub fn register(registry: &mut Registry) {
    registry.add_destination(destination::kind());
}

#[cfg(test)]
#[path = "../../../tests/it/servers/postgres.rs"]
mod server;
