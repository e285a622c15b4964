//! Processors that change fields.

pub mod convert;
pub mod exclude;
pub mod hash;
mod items;
pub mod mask;
pub mod rename;
mod scalar_text;
pub mod set;
