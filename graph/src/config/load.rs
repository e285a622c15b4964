//! From the texts of pipeline files to pipelines, with all that is wrong with them.

use super::PipelineConfig;
use crate::diagnostic::{Diagnostics, FileId, Files, Span};
use crate::text::Str;

/// Where the values behind `${...}` come from.
pub trait Variables {
    /// The value of `${NAME}`; `None` where it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The content behind `${file:PATH}`.
    ///
    /// # Errors
    /// Why there is none, as a phrase: `permission denied`.
    fn file(&self, path: &str) -> Result<String, String>;
}

/// What the pipeline files say.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Pipelines without errors, in the order of files, documents and lists.
    pub pipelines: Vec<PipelineConfig>,
    /// Pipelines with errors.
    pub invalid: Vec<InvalidPipeline>,
    /// Files of which a document did not parse. Which pipelines those declare is unknown, so their stored
    /// state must be left alone.
    pub broken: Vec<FileId>,
    /// All findings in all files, in the order of files and lines.
    pub diagnostics: Diagnostics,
}

/// A pipeline that could be told apart from the others, but has errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPipeline {
    /// Its id, where it has one.
    pub id: Option<Str>,
    /// Its list item.
    pub span: Span,
}

/// Reads pipeline files, replaces variables and validates. All problems of all files are found in one pass.
pub fn load(files: &Files, variables: &dyn Variables) -> Loaded {
    let _ = (files, variables);
    Loaded::default()
}
