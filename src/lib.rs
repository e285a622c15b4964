//! The service and its command line: the part of Anabranch that users interact with.
//!
//! It is a library only so that tests can use the service and its store. No other crate depends on it.

pub mod cli;
pub mod client;
pub mod docs;
pub mod fixing;
pub mod mcp;
