//! Trials: runs of a plan without side effects. Sources and destinations are passed in, no position is stored, and
//! nothing is acknowledged.
//!
//! [`testing`] runs the tests of pipelines, [`synthetic`] runs pipelines with synthetic records, [`tap`], [`watch`]
//! and [`trace`] show the results of records, and [`lines`] and [`output`] connect a trial to standard streams.
//!
//! ```
//! use anabranch_graph::plan::CompileOptions;
//! use anabranch_plugin::registry::Registry;
//! use anabranch_service::pipelines::Pipelines;
//! use anabranch_trial::synthetic::{self, TrialLimits};
//!
//! let mut registry = Registry::new();
//! anabranch_ops::register(&mut registry);
//! let text = r#"
//! version: 2.2
//! pipelines:
//!   - id: numbers
//!     connectors:
//!       - { id: in, type: source, plugin: generator, settings: { format.type: structured, format.options.id: int } }
//!       - { id: out, type: destination, plugin: log }
//! "#;
//! let mut pipelines = Pipelines::of_text("numbers.yaml", text.to_owned(), &registry, &CompileOptions::default());
//! synthetic::try_pipelines(&mut pipelines, TrialLimits::default());
//! assert!(pipelines.findings.is_empty());
//! ```

pub mod codes;
pub mod limited;
pub mod lines;
pub mod output;
pub mod schemas;
mod services;
pub mod stamp;
pub mod synthetic;
pub mod tap;
pub mod testing;
pub mod trace;
pub mod watch;

pub use services::{PreconfiguredPlugin, StderrLog, services};
