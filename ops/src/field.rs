//! Processors that change one field.

pub mod set;
