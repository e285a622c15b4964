//! The connectors against real servers of several releases.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "one crate, shared by its modules")]

#[path = "../../../../tests/it/servers/certificates.rs"]
mod certificates;
#[path = "../../../../tests/it/cdc/checker.rs"]
mod checker;
mod checking;
#[path = "../../../../tests/it/comparison.rs"]
mod comparison;
mod engine;
#[path = "../../../../tests/it/cdc/load.rs"]
mod load;
#[path = "../../../../tests/it/servers/proxy.rs"]
mod proxy;
#[path = "../../../../tests/it/servers/postgres.rs"]
mod server;
mod servers;
mod source;
