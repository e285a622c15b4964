//! The `postgres` source and destination.
//!
//! The source is in [`source`]. In the destination,
//! [`batch`] turns a batch into a plan: per table, rows with the same key are compacted to the last one, deletions come
//! before rows, and each set of columns is a step. [`session`] writes a step either with a multi-row statement with
//! parameters, or with `COPY` into a temporary table and a statement that merges it. Which is cheaper depends on the
//! number of rows. CPU time of PostgreSQL 15 per row in microseconds, for upserts of six columns by a text key (20,000
//! rows, new and existing ones; on a busy machine, so the second digit is noise):
//!
//! | rows of a batch | 1 | 8 | 32 | 64 | 128 | 512 | 4096 |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | parameters, new | 93 | 18 | 10 | 10 | 6.5 | 6.5 | 7 |
//! | copied, new | | 93 | 30 | 16 | 11 | 6 | 5 |
//! | parameters, existing | 90 | 25 | 15 | 13 | 9 | 5.5 | 7.5 |
//! | copied, existing | | 108 | 30 | 22 | 14 | 7 | 4 |
//!
//! In this process, a copy is cheaper from 128 rows on. Therefore the limit is 512 rows.
//!
//! ```
//! let address = anabranch_ops_postgres::address::Address::parse("postgresql://ada@db.example:5433/shop").unwrap();
//! assert_eq!(address.config.get_dbname(), Some("shop"));
//! assert_eq!(address.config.get_ports(), [5433]);
//! ```

pub mod address;
mod batch;
mod catalog;
pub mod codes;
mod column;
mod connection;
mod create;
mod declared;
mod destination;
mod encode;
mod fault;
mod history;
mod marks;
mod name;
mod refusal;
mod row;
mod session;
mod settings;
mod source;
mod statement;
mod table;
mod writer;

use anabranch_plugin::registry::Registry;

pub use source::decode_stream;

/// Registers every plugin of this crate.
pub fn register(registry: &mut Registry) {
    registry.add_source(source::kind());
    registry.add_destination(destination::kind());
}

#[cfg(test)]
#[path = "../../../tests/it/servers/postgres.rs"]
mod server;
