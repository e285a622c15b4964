//! Records, the plan compiler and the executor of Anabranch.

pub mod diagnostic;
pub mod fault;
pub mod metadata;
pub mod record;
pub mod text;
pub mod value;
