//! The result of a migration: pipeline files, and what became of each setting.

use serde::Serialize;

use crate::variables::NeededVariable;

/// What became of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The pipeline does the same.
    Carried,
    /// The pipeline does something similar; the note says what differs.
    Changed,
    /// The pipeline does not do it; the note says why, or what to do.
    NotCarried,
}

/// What became of one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Name of the setting in the source.
    pub setting: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Place in the pipeline: `CONNECTOR.SETTING`, a processor, or a field of the pipeline; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// What differs, or what to do; empty if nothing differs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// `true` if the pipeline must not run before the user has done what the note says.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub blocks: bool,
}

/// A pipeline file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratedPipeline {
    /// Id of the pipeline, and name of its file without the ending `.yaml`.
    pub id: String,
    /// Text of the file.
    pub text: String,
}

/// One connector or file of the source, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Name in the source.
    pub name: String,
    /// Class of a connector, or kind of a file.
    pub kind: String,
    /// The pipeline; `None` if no plugin can do what the source does. The report says why.
    pub pipeline: Option<MigratedPipeline>,
    /// What became of the settings, in the order of their names within an outcome.
    pub lines: Vec<Line>,
}

impl Job {
    /// Returns `true` if the pipeline does not need changes by the user before it runs.
    pub fn is_complete(&self) -> bool {
        self.pipeline.is_some() && !self.lines.iter().any(|line| line.blocks)
    }
}

/// The result of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// The connectors or files of the source, in their order.
    pub jobs: Vec<Job>,
    /// Variables that must be set before the pipelines can run, by name.
    pub variables: Vec<NeededVariable>,
}
