//! The built-in sources, processors and destinations that need no heavy dependency.

mod arena;
mod offload;

pub mod drop;
pub mod file;
pub mod generator;
pub mod log;
