//! Hand-written plans and pipelines in a one-line-per-part notation, for tests of the compiler, the executor and the
//! code built on them. The scripted connectors are in [`anabranch_plugin::testing`].

#[cfg(test)]
pub(crate) mod any_pipeline;
#[allow(clippy::unwrap_used, reason = "a text that is not in the notation fails the test that has it")]
pub mod notation;
mod plan;
#[allow(clippy::unwrap_used, reason = "a wrong script fails the test that has it")]
pub mod scripted;

pub use plan::{Pipeline, services};

use anabranch_config::Variables;

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
