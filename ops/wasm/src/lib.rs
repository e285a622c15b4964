//! Processors in WebAssembly, based on wasmtime.
//!
//! A guest is a WASI command: its `_start` requests commands and answers each one before it requests the next. It runs
//! on its own thread (`guest`), and sees five host functions (`guest::calls`) and as much of WASI as a program without
//! files needs (`guest::wasi`). `budget` limits its memory. `directory` finds guests and their specifications, `module`
//! compiles them once, `operator` is the processor in a pipeline, and `egress` is the network access of guests.
//!
//! ```
//! use anabranch_ops_wasm::Endpoint;
//!
//! assert!(Endpoint::parse("api.example.com:8443").is_ok());
//! assert!(Endpoint::parse("*.example.com").is_err(), "a pattern is not an endpoint");
//! ```

mod budget;
pub mod codes;
mod directory;
mod egress;
mod guest;
mod module;
mod operator;
mod output;

pub use self::directory::{Found, Options, load};
pub use self::egress::{Ceiling, Endpoint, InvalidEndpoint};
pub use self::guest::Limits;
