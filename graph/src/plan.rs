//! The plan of a pipeline: what the compiler makes of a configuration.

pub mod stage;
