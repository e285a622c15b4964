//! Processors that change fields.

pub mod convert;
pub mod exclude;
mod items;
pub mod rename;
pub mod set;
