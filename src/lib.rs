//! The command line, the generated documentation, and the protocol by which assistants call commands.
//!
//! What commands work with has crates of its own, in folders below this one. This crate is a library only so that tests can
//! call it; no other crate depends on it.
//!
//! ```
//! let known = &anabranch::docs::errors::ALL;
//! assert!(known.iter().any(|code| code.name() == "plan.no_source"));
//! ```

pub mod cli;
pub mod client;
pub mod codes;
pub mod docs;
pub mod fixing;
pub mod mcp;
mod renamed;
