//! Pipeline files as typed values, each with the place where it was written.
//!
//! [`load`] goes through the texts once: `yaml` makes trees of them, `interpolate` replaces variables in values,
//! `pipeline` reads trees as pipelines, and `load` compares the pipelines of all files with each other. Every step
//! adds its findings and goes on with what is sound.

mod dead_letter;
mod field;
mod interpolate;
mod item;
mod literals;
mod load;
mod metadata;
mod nested;
mod pipeline;
mod processor;
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
pub use reread::Unreadable;
pub use schema::json_schema;
pub use settings::{SCRIPT_PATH, bare_name};

use anabranch_plugin::diagnostic::{Span, Spanned};
use anabranch_plugin::registry::Role;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;

/// What the file wants of a pipeline when the service starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DesiredStatus {
    /// Start it.
    #[default]
    Running,
    /// Leave it stopped.
    Stopped,
}

/// A pipeline as one document of one file declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineConfig {
    /// Identifies the pipeline over restarts.
    pub id: Spanned<Str>,
    /// Shown name; the id where none is given.
    pub name: Spanned<Str>,
    /// Free text.
    pub description: Str,
    /// Whether to start it.
    pub status: DesiredStatus,
    /// Sources and destinations.
    pub connectors: Vec<ConnectorConfig>,
    /// Processors between all sources and all destinations, in order.
    pub processors: Vec<ProcessorConfig>,
    /// Where failed records go.
    pub dead_letter_queue: DeadLetterConfig,
    /// The pipeline's list item.
    pub span: Span,
}

/// A source or a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectorConfig {
    /// Unique in the pipeline.
    pub id: Spanned<Str>,
    /// Source or destination.
    pub role: Spanned<Role>,
    /// Plugin reference, `file`, `builtin:file@v0.1.0`.
    pub plugin: Spanned<Str>,
    /// Shown name; the id where none is given.
    pub name: Spanned<Str>,
    /// The plugin's settings.
    pub settings: Settings,
    /// Processors on this connector alone: after a source, before a destination.
    pub processors: Vec<ProcessorConfig>,
    /// The connector's list item.
    pub span: Span,
}

/// A processor.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessorConfig {
    /// Unique among its siblings.
    pub id: Spanned<Str>,
    /// Plugin reference.
    pub plugin: Spanned<Str>,
    /// Template that says for which records it is applied; never blank.
    pub condition: Option<Written>,
    /// The plugin's settings, with `sdk.schema.*` from either place.
    pub settings: Settings,
    /// How many run in parallel, at least 1; the order of records is kept.
    pub workers: Spanned<u32>,
    /// The processor's list item.
    pub span: Span,
}

/// The dead-letter queue of a pipeline (feature map § 5.4).
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetterConfig {
    /// Destination plugin.
    pub plugin: Spanned<Str>,
    /// Its settings.
    pub settings: Settings,
    /// How many of the latest outcomes are looked at; 0 = failures are never too many.
    pub window_size: Spanned<u64>,
    /// The pipeline stops when more than this many in the window failed.
    pub window_nack_threshold: Spanned<u64>,
    /// Where it stands; the pipeline's id where the file says nothing of it.
    pub span: Span,
}
