//! The source and the destination against a server on this machine that fails on demand.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "one crate, shared by its modules")]

#[path = "s3/ahead.rs"]
mod ahead;
#[path = "s3/destination.rs"]
mod destination;
#[path = "s3/foreign.rs"]
mod foreign;
#[path = "s3/prefixes.rs"]
mod prefixes;
#[path = "s3/reading.rs"]
mod reading;
#[path = "../../../tests/it/servers/s3.rs"]
mod server;
#[path = "s3/source.rs"]
mod source;
