//! Hand-written plans and pipelines in a one-line-per-part notation, for tests of the compiler, the executor and the
//! code built on them. The scripted connectors are in [`anabranch_plugin::testing`].

pub mod notation;
mod plan;
pub mod scripted;

pub use plan::{Pipeline, services};

use crate::config::Variables;

/// An environment without variables and files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVariables;

impl Variables for NoVariables {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Err("there are no files here".to_owned())
    }
}
