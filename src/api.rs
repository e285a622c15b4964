//! The HTTP listener: probes, the API of pipelines, and the built-in schema registry for other tools.
//!
//! It runs on the control runtime, beside the pipelines: a connection is a future, and no thread wakes while there are
//! no requests. Each submodule answers the requests of one subject.

pub(crate) mod access;
mod apply;
mod backup;
mod body;
pub(crate) mod connections;
mod credentials;
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
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::registry::Registry;
use anabranch_service::control::Control;
use anabranch_service::listener::{ListenError, Listener, Served};
use anabranch_settings::{ApiSettings, ServedSchemas};
use anabranch_store::Store;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use utoipa_axum::router::OpenApiRouter;

use access::{Access, ErrorBody};
pub(crate) use credentials::ending;
use credentials::{Credentials, Seen};
use error::{ApiError, Kind};

/// Maximum body of a request in bytes.
const BODY: usize = 4 << 20;
/// How long a request waits until the service knows its pipelines.
const STARTING: Duration = Duration::from_secs(10);

/// The parts of the service that the API uses.
pub struct View {
    /// The state store.
    pub store: Store,
    /// The plugin registry.
    pub registry: Registry,
    /// The handle for requests to pipelines.
    pub control: Control,
    sessions: inspect::Sessions,
}

impl View {
    /// Creates a view without open inspections.
    fn new(Served { store, registry, control }: Served) -> Self {
        View { store, registry, control, sessions: inspect::Sessions::default() }
    }
}

/// An open listener.
pub struct Api {
    listener: TcpListener,
    address: SocketAddr,
    /// TLS settings of incoming connections.
    tls: watch::Sender<Option<TlsAcceptor>>,
    access: Arc<Access>,
    credentials: Credentials,
    schemas: Option<ServedSchemas>,
    page: bool,
    open_metrics: bool,
}

/// Returns the paths that need the token and use the view; each is declared beside its handler.
fn paths() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .merge(pipelines::router())
        .merge(lifecycle::router())
        .merge(edit::router())
        .merge(apply::router())
        .merge(positions::router())
        .merge(backup::router())
        .merge(live::router())
        .merge(graph::router())
        .merge(inspect::router())
        .merge(plugins::router())
        .merge(dead_letters::router())
        .merge(testing::router())
}

impl Listener for Api {
    async fn listen(settings: &ApiSettings) -> Result<Api, ListenError> {
        let seen = Seen::now(settings);
        let token = settings.read_token().map_err(ListenError::Token)?;
        let tls = match &settings.identity {
            Some(identity) => Some(connections::acceptor(identity)?),
            None if settings.secure => return Err(ListenError::NoCertificate(settings.shown())),
            None => None,
        };
        let host = if settings.host.is_empty() { "::" } else { settings.host.as_str() };
        let mut bound = connections::listen(host, settings.port).await;
        if settings.host.is_empty() && bound.as_ref().is_err_and(|e| e.kind() != std::io::ErrorKind::AddrInUse) {
            // A system without IPv6.
            bound = connections::listen("0.0.0.0", settings.port).await;
        }
        let refused = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AddrInUse => ListenError::InUse(settings.shown()),
            _ => ListenError::System { address: settings.shown(), error },
        };
        let listener = bound.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let access = Arc::new(Access::new(token, settings.is_local(), settings.origins.clone()));
        let tls = watch::Sender::new(tls);
        let credentials = Credentials::of(settings, seen, &access, &tls);
        credentials.warn();
        let ApiSettings { schemas, page, open_metrics, .. } = *settings;
        Ok(Api { listener, address, tls, access, credentials, schemas, page, open_metrics })
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn url(&self) -> String {
        format!("{}://{}", if self.tls.borrow().is_some() { "https" } else { "http" }, self.address)
    }

    async fn wait_for_store(&self, why: watch::Receiver<String>, stop: impl Future<Output = ()>) {
        let cloned = self.listener.as_fd().try_clone_to_owned().map(std::net::TcpListener::from);
        let Ok(listener) = cloned.and_then(TcpListener::from_std) else { return stop.await };
        let router = health::waiting().with_state((why, self.access.clone()));
        connections::serve(listener, self.tls.subscribe(), router, stop, async {}).await;
    }

    async fn serve(self, service: Served, stop: impl Future<Output = ()>) {
        let view = Arc::new(View::new(service));
        let router = self.router(&view);
        let reloads = view.control.reloads();
        let serving = connections::serve(self.listener, self.tls.subscribe(), router, stop, view.sessions.close());
        tokio::select! {
            () = serving => {}
            () = self.credentials.follow(reloads) => {}
        }
    }
}

impl Api {
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
            .layer(from_fn_with_state(view.clone(), once_known))
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
            .layer(from_fn(error::naming_methods))
            .layer(from_fn(namesakes::found))
            .layer(from_fn_with_state(self.access.clone(), access::same_site))
            .layer(from_fn(presentation::presented))
            .layer(DefaultBodyLimit::max(BODY))
    }
}

/// Delays a request until the service knows its pipelines: before that, the list of pipelines would be empty.
async fn once_known(State(view): State<Arc<View>>, request: Request, next: Next) -> Response {
    let waited = timeout(STARTING, view.control.known()).await;
    if waited.is_ok() && view.control.is_ready() {
        return next.run(request).await;
    }
    let refused = ApiError::new(Kind::Unavailable, "service.starting", "the service is still starting");
    refused.suggest("try again in a moment").into_response()
}
