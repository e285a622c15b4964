//! The HTTP listener: probes, the API of pipelines, and the built-in schema registry for other tools.
//!
//! It runs on the control runtime, separate from the pipelines: a connection is a future, and no thread wakes while
//! there are no requests. Each module answers the requests of one subject.
//!
//! ```
//! let document = anabranch_api::openapi::document();
//! assert!(document.paths.paths.contains_key("/v1/pipelines/{id}"));
//! ```

pub mod access;
mod apply;
mod backup;
mod body;
mod cluster;
pub mod codes;
pub mod connections;
mod credentials;
mod dead_letters;
mod edit;
mod error;
mod graph;
mod health;
mod inspect;
mod lifecycle;
mod listener;
mod live;
mod metrics;
mod namesakes;
pub mod openapi;
mod paths;
mod peers;
mod pipelines;
mod plugins;
mod positions;
mod presentation;
mod query;
#[cfg(feature = "avro")]
mod schemas;
mod sessions;
mod shapes;
mod status;
pub mod testing;
mod ui;
mod view;
mod viewer;

pub use credentials::ending;
pub use listener::Api;
