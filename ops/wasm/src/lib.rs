//! Processors in WebAssembly, on wasmtime.
//!
//! A guest is a WASI command: its `_start` asks for commands and answers each one before it asks for the next. It
//! runs on a thread of its own (`guest`), sees five calls of ours (`calls`) and as much of WASI as a program without
//! files needs (`wasi`); `budget` counts the memory it takes. `directory` finds guests and learns what they are, `module` compiles them once, `operator`
//! is the processor in a pipeline, `egress` the network as far as a guest may reach it.

mod budget;
mod calls;
mod directory;
mod egress;
mod guest;
mod module;
mod operator;
mod output;
mod wasi;

pub use self::directory::{Found, Options, load};
pub use self::egress::{Ceiling, InvalidPlace, Place};
pub use self::guest::Limits;
