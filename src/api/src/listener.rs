//! The listener, and which router answers which path.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch_service::listener::{ListenError, Listener, Served};
use anabranch_settings::{ApiSettings, ServedSchemas};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::access::{Access, ErrorBody};
use crate::codes;
use crate::credentials::{Credentials, FileStamps};
use crate::error::{ApiError, Kind};
use crate::paths::paths;
use crate::peers::Peers;
#[cfg(feature = "avro")]
use crate::schemas;
use crate::view::View;
use crate::{access, cluster, connections, error, health, metrics, namesakes, openapi, presentation, ui, viewer};

/// Maximum body of a request in bytes.
const BODY: usize = 4 << 20;
/// Maximum time that a request waits until the service has loaded its pipelines.
const STARTING: Duration = Duration::from_secs(10);

/// An open listener.
pub struct Api {
    listener: TcpListener,
    address: SocketAddr,
    /// TLS settings of incoming connections.
    tls: watch::Sender<Option<TlsAcceptor>>,
    access: Arc<Access>,
    credentials: Credentials,
    /// File with the authorities of the certificates of other nodes.
    authorities: Option<PathBuf>,
    #[cfg_attr(not(feature = "avro"), expect(dead_code, reason = "schemas are served with the feature only"))]
    schemas: Option<ServedSchemas>,
    page: bool,
    open_metrics: bool,
}

impl Listener for Api {
    async fn listen(settings: &ApiSettings) -> Result<Api, ListenError> {
        let seen = FileStamps::now(settings);
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
        let authorities = settings.authorities.clone();
        Ok(Api { listener, address, tls, access, credentials, authorities, schemas, page, open_metrics })
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
        let peers = Peers::of(&service, &self.access, self.authorities.clone());
        if let Some(token) = service.cluster.as_ref().and_then(|cluster| cluster.token.clone()) {
            self.access.accept_nodes(token);
        }
        let view = Arc::new(View::new(service, peers));
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
            .layer(from_fn_with_state(view.clone(), cluster::forwarded))
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

/// Delays a request until the service has loaded its pipelines: before that, the list of pipelines would be empty.
async fn once_known(State(view): State<Arc<View>>, request: Request, next: Next) -> Response {
    let waited = timeout(STARTING, view.control.known()).await;
    if waited.is_ok() && view.control.is_ready() {
        return next.run(request).await;
    }
    let refused = ApiError::new(Kind::Unavailable, codes::SERVICE_STARTING, "the service is still starting");
    refused.suggest("try again in a moment").into_response()
}
