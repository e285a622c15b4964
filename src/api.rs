//! The HTTP listener: health, what there is and how it is changed, and the built-in schema registry for other tools.
//!
//! It runs on the control runtime, beside the pipelines: a connection is a future, and no thread wakes while nobody
//! asks. What is answered is in one file per subject below this one.

pub(crate) mod access;
mod apply;
mod body;
mod dead_letters;
mod edit;
mod error;
mod graph;
mod health;
mod inspect;
mod lifecycle;
mod live;
mod metrics;
mod namesakes;
pub mod openapi;
mod pipelines;
mod plugins;
mod positions;
mod presentation;
mod query;
#[cfg(feature = "avro")]
mod schemas;
mod shapes;
mod status;
pub(crate) mod testing;
mod ui;
mod viewer;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::registry::Registry;
use anabranch_ops_tls::{Identity, TlsError};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use futures::stream::{FuturesUnordered, StreamExt as _};
use hyper::server::conn::http1::{self, UpgradeableConnection};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use utoipa_axum::router::OpenApiRouter;

use crate::service::control::Control;
use crate::settings::{ApiSettings, ServedSchemas};
use crate::store::Store;
use access::{Access, ErrorBody};

/// Largest body of a request.
const BODY: usize = 4 << 20;
/// Connections at a time; more wait to be accepted. A pipeline must not lack files because of them.
const CONNECTIONS: usize = 256;
/// How long a client may take for the head of a request, and leave a connection unused.
const HEAD: Duration = Duration::from_secs(30);
/// How long a client may take to agree on how TLS is spoken.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long answers that are under way have when the service ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else has the port.
    #[error("api.http.address: {0} is in use by another program, or by another anabranch")]
    InUse(String),
    /// The system refuses.
    #[error("api.http.address: cannot listen on {address}: {error}")]
    System {
        /// As it was given.
        address: String,
        /// The system's message.
        error: std::io::Error,
    },
    /// The file with the token cannot be used.
    #[error("api.http.token-file: {0}")]
    Token(String),
    /// The certificate or its key cannot be used.
    #[error("api.http.tls: {0}")]
    Tls(#[from] TlsError),
    /// TLS is to be spoken, and with no certificate.
    #[error("api.http.address: {0} is to be served over TLS, and no certificate is given")]
    NoCertificate(String),
}

/// What the API sees of the service.
pub struct View {
    /// The state store.
    pub store: Store,
    /// The plugins.
    pub registry: Registry,
    /// The pipelines, and what is asked of them.
    pub control: Control,
    sessions: inspect::Sessions,
}

impl View {
    /// A view of a service of which nobody has asked anything yet.
    pub fn new(store: Store, registry: Registry, control: Control) -> Self {
        View { store, registry, control, sessions: inspect::Sessions::default() }
    }
}

/// An open listener.
pub struct Api {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    access: Arc<Access>,
    schemas: Option<ServedSchemas>,
    page: bool,
    open_metrics: bool,
}

/// The paths that are answered from the view, and need the token; each is declared beside what answers it.
fn paths() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .merge(pipelines::router())
        .merge(lifecycle::router())
        .merge(edit::router())
        .merge(apply::router())
        .merge(positions::router())
        .merge(live::router())
        .merge(graph::router())
        .merge(inspect::router())
        .merge(plugins::router())
        .merge(dead_letters::router())
        .merge(testing::router())
}

impl Api {
    /// Opens the listener. From now on clients wait for an answer.
    ///
    /// # Errors
    /// The address is not to be had, or the token or the certificate cannot be read.
    pub async fn listen(settings: &ApiSettings) -> Result<Api, ListenError> {
        let token = settings.read_token().map_err(ListenError::Token)?;
        let tls = match &settings.identity {
            Some(identity) => Some(acceptor(identity)?),
            None if settings.secure => return Err(ListenError::NoCertificate(settings.shown())),
            None => None,
        };
        let host = if settings.host.is_empty() { "::" } else { settings.host.as_str() };
        let mut bound = TcpListener::bind((host, settings.port)).await;
        if settings.host.is_empty() && bound.as_ref().is_err_and(|e| e.kind() != std::io::ErrorKind::AddrInUse) {
            // A system without IPv6.
            bound = TcpListener::bind(("0.0.0.0", settings.port)).await;
        }
        let refused = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AddrInUse => ListenError::InUse(settings.shown()),
            _ => ListenError::System { address: settings.shown(), error },
        };
        let listener = bound.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let access = Arc::new(Access::new(token, settings.is_local(), settings.origins.clone()));
        let ApiSettings { schemas, page, open_metrics, .. } = *settings;
        Ok(Api { listener, address, tls, access, schemas, page, open_metrics })
    }

    /// Where it listens, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same with how it is spoken to: `https://127.0.0.1:8080`.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// Answers until `stop`, and then only what was asked before.
    pub async fn serve(self, view: Arc<View>, stop: impl Future<Output = ()>) {
        let router = self.router(&view);
        serve(self.listener, self.tls, router, stop, view.sessions.close()).await;
    }

    fn router(&self, view: &Arc<View>) -> Router {
        let guarded = |body| from_fn_with_state((self.access.clone(), body), access::guard);
        let open = Router::from(health::router())
            .with_state((view.clone(), self.access.clone()))
            .merge(Router::from(openapi::router()))
            .merge(viewer::router())
            .merge(if self.page { ui::router() } else { Router::new() })
            .method_not_allowed_fallback(error::no_such_method);
        let router = Router::from(paths())
            .with_state(view.clone())
            .fallback(error::no_such_path)
            .method_not_allowed_fallback(error::no_such_method);
        let metrics = Router::from(metrics::router()).with_state(view.clone());
        let (router, open) = match self.open_metrics {
            true => (router, open.merge(metrics)),
            false => (router.merge(metrics), open),
        };
        let router = router.layer(guarded(ErrorBody::Own)).merge(open);
        #[cfg(feature = "avro")]
        let router = match self.schemas {
            Some(served) => {
                let schemas = schemas::router(view.store.clone(), served.compatibility);
                router.merge(schemas.layer(guarded(ErrorBody::Registry)))
            }
            None => router,
        };
        Router::new()
            .fallback_service(router)
            .layer(from_fn(namesakes::found))
            .layer(from_fn_with_state(self.access.clone(), access::same_site))
            .layer(from_fn(presentation::presented))
            .layer(DefaultBodyLimit::max(BODY))
    }
}

/// How TLS is spoken with this certificate. The files are read now, and not again.
///
/// # Errors
/// They are of no use.
pub(crate) fn acceptor(identity: &Identity) -> Result<TlsAcceptor, TlsError> {
    let mut config = identity.server()?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Answers what comes to the listener until `stop`, and then only what was asked before; `farewell` is waited for as well.
pub(crate) async fn serve<T>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: impl Future<Output = ()>,
    farewell: impl Future<Output = T>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let (open, closing) = watch::channel(());
    let mut connections = FuturesUnordered::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.push(shaken_hands(stream, tls.clone(), http.clone(), router.clone(), closing.clone()));
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    // Most likely there is no file left, which the next moment does not change.
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    drop(listener);
    drop(open);
    let connections = connections.for_each(async |_| {});
    let last = async { tokio::join!(connections, farewell) };
    let _ = timeout(LAST_ANSWERS, last).await;
}

/// Serves a connection, after a handshake where there is to be one.
async fn shaken_hands(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    http: http1::Builder,
    router: Router,
    mut closing: watch::Receiver<()>,
) {
    let service = TowerToHyperService::new(router);
    // What becomes a websocket is no connection of the listener any more.
    let Some(tls) = tls else {
        let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
        return served(connection, closing).await;
    };
    let shaken = tokio::select! {
        shaken = timeout(HANDSHAKE, tls.accept(stream)) => shaken,
        _ = closing.changed() => return,
    };
    match shaken {
        Ok(Ok(stream)) => {
            let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
            served(connection, closing).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a client does not speak TLS as it should"),
        Err(_) => tracing::debug!("a client took too long for the handshake of TLS"),
    }
}

/// Serves a connection until it ends or becomes something else; when nobody holds the other end of `closing` any more,
/// only what was asked before is answered.
async fn served<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    connection: UpgradeableConnection<TokioIo<S>, TowerToHyperService<Router>>,
    mut closing: watch::Receiver<()>,
) {
    let mut connection = pin!(connection);
    tokio::select! {
        _ = &mut connection => return,
        _ = closing.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
