//! The command line, the generated documentation, and the protocol by which assistants call commands.
//!
//! A program of your own links this crate to have all commands with further plugins, or to run the service in process:
//! [`Service`]. The page
//! `docs/write-a-connector.md` builds one from nothing. [`Allocator`] is the allocator of the `anabranch` binary. The
//! modules are public only so that tests can call them. What commands work with has crates of its own, in folders below
//! this one.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use anabranch::Service;
//!
//! fn main() -> ExitCode {
//!     Service::builder().register(anabranch_ops::filter::kind()).main()
//! }
//! ```

pub mod cli;
pub mod client;
pub mod codes;
pub mod docs;
pub mod fixing;
pub mod mcp;
mod program;
mod renamed;

pub use anabranch_allocator::Allocator;
pub use anabranch_service::lifecycle::PipelineOutcome;
pub use anabranch_service::{RunSummary, ServiceError};
pub use program::{Builder, InProcess, Running, Service, StartError};
