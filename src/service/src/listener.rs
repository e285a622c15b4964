//! The HTTP listener of a service: what the service needs of it. The crate of the API implements it.

use std::net::SocketAddr;

use anabranch_ops_tls::TlsError;
use anabranch_plugin::registry::Registry;
use anabranch_settings::{ApiSettings, ClusterSettings};
use anabranch_store::Store;
use tokio::sync::watch;

use crate::control::Control;
use crate::inputs::InputPlaces;

/// Reason why the listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program uses the port.
    #[error("api.http.address: {0} is in use by another program, or by another Anabranch process")]
    InUse(String),
    /// A system call failed.
    #[error("api.http.address: cannot listen on {address}: {error}")]
    System {
        /// The address as it was configured.
        address: String,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The file with the token cannot be used.
    #[error("api.http.token-file: {0}")]
    Token(String),
    /// The certificate or its key cannot be used.
    #[error("api.http.tls: {0}")]
    Tls(#[from] TlsError),
    /// The address requires TLS, but no certificate is configured.
    #[error("api.http.address: {0} requires TLS, but no certificate is configured")]
    NoCertificate(String),
}

/// A listener, open from its creation on: clients that connect before they are answered wait.
pub trait Listener: Sized {
    /// Opens the listener.
    ///
    /// # Errors
    /// The address cannot be bound, or the token or the certificate cannot be read.
    fn listen(settings: &ApiSettings) -> impl Future<Output = Result<Self, ListenError>>;

    /// Returns the address of the listener, with the port that the system chose.
    fn address(&self) -> SocketAddr;

    /// Returns the URL of the listener, such as `https://127.0.0.1:8080`.
    fn url(&self) -> String;

    /// Answers probes until `stop`: the service is alive, and waits for its store.
    fn wait_for_store(&self, why: watch::Receiver<String>, stop: impl Future<Output = ()>) -> impl Future<Output = ()>;

    /// Answers requests until `stop`, and finishes those that arrived before.
    fn serve(self, service: Served, stop: impl Future<Output = ()>) -> impl Future<Output = ()>;
}

/// The parts of a running service that requests concern.
#[derive(Clone)]
pub struct Served {
    /// The state store.
    pub store: Store,
    /// The plugin registry.
    pub registry: Registry,
    /// The handle for requests to pipelines.
    pub control: Control,
    /// The cluster that the service is a node of.
    pub cluster: Option<ClusterSettings>,
    /// The places of the inputs that the nodes of a cluster compare.
    pub inputs: InputPlaces,
}
