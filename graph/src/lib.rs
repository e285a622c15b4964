//! Records, the plan compiler and the executor of Anabranch.

#[macro_use]
pub mod mutant;

pub mod ack;
#[cfg(test)]
mod arbitrary;
pub mod arguments;
pub mod batch;
pub mod condition;
pub mod config;
pub mod destination;
pub mod diagnostic;
pub mod exec;
pub mod fault;
pub mod format;
pub mod json;
pub mod metadata;
pub mod operator;
pub mod plan;
pub mod record;
pub mod reference;
pub mod registry;
pub mod source;
pub mod specification;
pub mod state;
pub mod template;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod value;
