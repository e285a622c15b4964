//! The service and its command line: the part of Anabranch that users interact with.
//!
//! It is a library only so that tests can use the service and its store. No other crate depends on it.

pub mod api;
pub mod backlog;
pub mod cli;
pub mod client;
pub mod dead_letters;
pub mod docs;
pub mod fixing;
pub mod mcp;
pub mod outputs;
pub mod paths;
pub mod pipelines;
pub mod positions;
pub mod service;
pub mod testing;
pub mod traces;
pub mod trial;
