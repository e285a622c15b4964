//! Processors in WebAssembly, based on wasmtime.
//!
//! A guest is a WASI command: its `_start` requests commands and answers each one before it requests the next. It runs
//! on its own thread (`guest`), and sees five host functions (`guest::calls`) and as much of WASI as a program without
//! files needs (`guest::wasi`). `budget` limits its memory. `directory` finds guests and their specifications, `operator` is
//! the processor in a pipeline, and `egress` is the network access of guests.
//!
//! A guest starts within seconds: `module` has it compiled by the fast one of two compilers (`compiler`) when a pipeline
//! first opens it. `optimiser` then compiles it once more, and the pipeline uses that code when it is opened next: a guest
//! holds state, so its code is never exchanged. `cache` keeps code and specifications on disk.

mod budget;
mod cache;
pub mod codes;
mod compiler;
mod directory;
mod egress;
mod guest;
mod module;
mod operator;
mod optimiser;
mod output;

pub use self::directory::{DirectoryContent, Options, load};
pub use self::egress::{Ceiling, Endpoint, InvalidEndpoint};
pub use self::guest::Limits;
pub use self::module::{Compiling, LARGE};
