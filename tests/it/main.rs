//! Behaviour of the `anabranch` binary, and of the service as a library: one binary, a file per subject.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "one crate, shared by its modules")]

mod analyze;
mod bad_input;
mod branching;
mod copy;
mod crash;
mod dead_letter;
mod demo;
mod dependencies;
mod drawing;
mod edits;
mod generated;
mod javascript;
mod plan;
mod process;
mod processors;
mod readme;
mod schema;
mod stop;
mod store;
mod tools;
mod upstream;
mod validate;
