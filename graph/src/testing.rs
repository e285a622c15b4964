//! Plans by hand and pipelines in a line each per part, for tests of the compiler, of the executor and of what is built
//! on them. The scripted ends are those of [`anabranch_plugin::testing`].

pub mod notation;
mod plan;
pub mod scripted;

pub use plan::{Pipeline, services};

use crate::config::Variables;

/// No variable is set and no file is there.
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
