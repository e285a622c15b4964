//! Processors that encode a field as JSON text, or decode it.

pub mod decode;
pub mod encode;
