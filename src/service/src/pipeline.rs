//! A compiled pipeline with its configuration.

use anabranch_config::PipelineConfig;
use anabranch_graph::plan::{CompileOptions, Compiled, compile};
use anabranch_plugin::diagnostic::Severity;
use anabranch_plugin::registry::Registry;

use crate::variables::Environment;

/// A pipeline that can run.
pub struct Pipeline {
    /// The configuration in its file.
    pub config: PipelineConfig,
    /// The compiled form.
    pub compiled: Compiled,
}

/// Reason why the values of a pipeline cannot be reloaded.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A file with the value of a setting cannot be read.
    #[error(transparent)]
    Unreadable(#[from] anabranch_config::UnreadableFile),
    /// The pipeline does not compile with the current values of the files.
    #[error("the pipeline has errors with the current values of its files: {0}")]
    Invalid(String),
}

impl Pipeline {
    /// Recompiles the pipeline with the current values of its files (`${file:PATH}`); returns `None` if they did not
    /// change. Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or the pipeline has errors with its content.
    pub fn read_again(&self, registry: &Registry, options: &CompileOptions) -> Result<Option<Pipeline>, ReloadError> {
        let environment = Environment::default();
        let Some(config) = self.config.read_again(&environment)? else { return Ok(None) };
        match compile(&config, registry, options) {
            Ok(mut compiled) => {
                compiled.keep_places(&self.compiled);
                Ok(Some(Pipeline { config, compiled }))
            }
            Err(mut findings) => {
                environment.hide(&mut findings);
                let error = findings.into_iter().find(|finding| finding.severity == Severity::Error);
                let error = error.map_or_else(String::new, |error| error.message);
                Err(ReloadError::Invalid(error))
            }
        }
    }
}
