//! The service: starts all valid pipelines, supervises them, and stops them.
//!
//! Pipelines run on a multi-thread runtime. Signals, timers and everything in this module run on a second,
//! current-thread runtime, so that a busy executor cannot delay a stop.
//!
//! [`Pipelines`](pipelines::Pipelines) compiles the files, [`Service`] runs what they declare, and a
//! [`Control`](control::Control) is the handle for all requests to a running service. The code that answers HTTP
//! implements [`Listener`](listener::Listener).
//!
//! ```
//! use anabranch_graph::plan::CompileOptions;
//! use anabranch_plugin::registry::Registry;
//! use anabranch_service::pipelines::Pipelines;
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
//! let pipelines = Pipelines::of_text("numbers.yaml", text.to_owned(), &registry, &CompileOptions::default());
//! assert!(!pipelines.has_errors());
//! assert_eq!(pipelines.good[0].config.id.value, "numbers");
//! ```

pub mod account;
mod addresses;
pub mod apply;
pub mod backlog;
pub mod codes;
pub mod control;
pub mod dead_letters;
mod document;
pub mod edit;
mod error;
mod farewell;
mod hold;
pub mod inputs;
pub mod lifecycle;
pub mod limits;
pub mod listener;
mod local;
pub mod outputs;
mod paths;
mod pipeline;
mod pipeline_table;
pub mod pipelines;
mod placement;
pub mod positions;
mod progress;
pub mod recovery;
pub mod renames;
pub mod replay;
mod run;
pub mod schemas;
mod sequence;
pub mod status;
mod status_line;
mod stops;
mod taken;
mod tasks;
pub mod traces;
mod units;
mod variables;

pub use document::text_of;
pub use error::ServiceError;
pub use run::{Companion, DeferredPipelines, RunSummary, Service};
pub use stops::StopSource;
