//! Pipeline files as typed values, each with its place in the file.
//!
//! [`load`] makes one pass over the files: `yaml` parses them to trees, `interpolate` replaces variables in values,
//! `pipeline` reads trees as pipelines, and `load` compares the pipelines of all files. Every step adds its findings
//! and continues with the valid parts.
//!
//! ```
//! use anabranch_config::{Variables, load};
//! use anabranch_plugin::diagnostic::Files;
//!
//! struct NoVariables;
//!
//! impl Variables for NoVariables {
//!     fn variable(&self, _: &str) -> Option<String> {
//!         None
//!     }
//!
//!     fn file(&self, _: &str) -> Result<String, String> {
//!         Err("there are no files here".to_owned())
//!     }
//! }
//!
//! let mut files = Files::new();
//! files.add("copy.yaml", r#"
//! version: "2.2"
//! pipelines:
//!   - id: copy
//!     connectors:
//!       - { id: in, type: source, plugin: file, settings: { path: in.txt } }
//!       - { id: out, type: destination, plugin: file, settings: { path: out.txt } }
//! "#);
//! let loaded = load(&files, &NoVariables);
//! assert_eq!(&*loaded.pipelines[0].connectors[1].id.value, "out");
//! ```

pub mod codes;
mod dead_letter;
mod field;
mod interpolate;
mod item;
pub mod limits;
mod literals;
mod load;
mod metadata;
mod nested;
mod pipeline;
mod processor;
mod quote;
mod reread;
mod schema;
mod settings;
mod syntax;
mod unknown;
mod version;
pub mod yaml;

#[cfg(test)]
mod tests;

pub use load::{InvalidPipeline, Loaded, MAX_FILE_BYTES, Variables, load, value_of};
pub use reread::UnreadableFile;
pub use schema::json_schema;
pub use settings::{CODE_PATHS, bare_name};

use anabranch_plugin::diagnostic::{Span, Spanned};
use anabranch_plugin::registry::Role;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;

/// Status of a pipeline after the service starts, as the file requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DesiredStatus {
    /// The service starts the pipeline.
    #[default]
    Running,
    /// The pipeline stays stopped.
    Stopped,
}

/// A pipeline as declared in one document of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineConfig {
    /// Identifies the pipeline across restarts.
    pub id: Spanned<Str>,
    /// Displayed name; defaults to the id.
    pub name: Spanned<Str>,
    /// Free-text description.
    pub description: Str,
    /// Status after the service starts.
    pub status: DesiredStatus,
    /// Sources and destinations.
    pub connectors: Vec<ConnectorConfig>,
    /// Processors between all sources and all destinations, in order.
    pub processors: Vec<ProcessorConfig>,
    /// What becomes of records that fulfil the condition of no destination: the word or the id of a connector as
    /// written. `None` if the file does not say it.
    pub unmatched: Option<Written>,
    /// Where nodes of a cluster may run the pipeline: a label of nodes, or [`PipelineConfig::SHARED`]. `None` = anywhere.
    pub placement: Option<Written>,
    /// Dead-letter queue for failed records.
    pub dead_letter_queue: DeadLetterConfig,
    /// Place of the list item of the pipeline.
    pub span: Span,
}

impl PipelineConfig {
    /// The placement of a pipeline whose files all nodes of a cluster see.
    pub const SHARED: &str = "shared";

    /// Returns the label that a node of a cluster needs to run the pipeline; `None` = none.
    pub fn label(&self) -> Option<&Str> {
        self.placement.as_ref().map(Written::value).filter(|label| !label.is_empty() && *label != Self::SHARED)
    }
}

/// A source or a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectorConfig {
    /// Id, unique within the pipeline.
    pub id: Spanned<Str>,
    /// Source or destination.
    pub role: Spanned<Role>,
    /// Plugin reference, for example `file` or `builtin:file@v0.1.0`.
    pub plugin: Spanned<Str>,
    /// Displayed name; defaults to the id.
    pub name: Spanned<Str>,
    /// Template that selects the records for this destination; never blank, and `None` for a source.
    pub condition: Option<Written>,
    /// Settings of the plugin.
    pub settings: Settings,
    /// Processors of this connector only: after a source, before a destination.
    pub processors: Vec<ProcessorConfig>,
    /// Place of the list item of the connector.
    pub span: Span,
}

/// A processor.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessorConfig {
    /// Id, unique among its siblings.
    pub id: Spanned<Str>,
    /// Plugin reference.
    pub plugin: Spanned<Str>,
    /// Template that selects the records to process; never blank.
    pub condition: Option<Written>,
    /// Settings of the plugin, including `sdk.schema.*` fields next to `plugin`.
    pub settings: Settings,
    /// Number of parallel workers, at least 1. The order of records is preserved.
    pub workers: Spanned<u32>,
    /// Place of the list item of the processor.
    pub span: Span,
}

/// The dead-letter queue of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetterConfig {
    /// Destination plugin.
    pub plugin: Spanned<Str>,
    /// Settings of the plugin.
    pub settings: Settings,
    /// Number of latest outcomes in the window; 0 = failures are not limited.
    pub window_size: Spanned<u64>,
    /// Maximum number of failures in the window; one more stops the pipeline.
    pub window_nack_threshold: Spanned<u64>,
    /// Place in the file; that of the pipeline id if the file does not configure the queue.
    pub span: Span,
}
