//! Processors that change fields.

pub mod convert;
pub mod default;
pub mod exclude;
pub mod flatten;
pub mod hash;
mod items;
pub mod mask;
pub mod rename;
pub(crate) mod scalar_text;
pub mod set;
