//! Errors of a run of the service.

use anabranch_plugin::state::StoreError;
use anabranch_store::OpenError;

use crate::listener::ListenError;

/// An error that keeps the service from running.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The HTTP listener cannot start.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The schema registry cannot be used.
    #[error("schema-registry.confluent: {0}")]
    Schemas(String),
    /// Traces cannot be exported.
    #[error("traces.endpoint: {0}")]
    Traces(String),
    /// A call of the operating system failed.
    #[error("cannot {what}: {error}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The error of the operating system.
        error: std::io::Error,
    },
}
