//! The other nodes of the cluster, and connections to them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch_cluster::{LeaseError, Membership, NodeId, NodeState};
use anabranch_ops_tls::Trust;
use anabranch_record::text::Str;
use anabranch_service::listener::Served;
use anabranch_settings::Credential;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, ORIGIN, UPGRADE};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::access::{Access, FORWARDED};
use crate::codes;
use crate::error::{ApiError, Kind};
use crate::sessions::Sessions;

/// The header of a response, with the name of the node that gave it.
const ANSWERED: HeaderName = HeaderName::from_static("anabranch-node");

/// Time limit of a connection to another node: a node that does not answer has no lease soon.
const CONNECT: Duration = Duration::from_secs(2);
/// Time limit for the numbers of another node.
const NUMBERS: Duration = Duration::from_secs(3);
/// Time between two looks whether a node that answers late still has a lease.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum size of an answer with numbers, in bytes.
const BODY: usize = 64 << 20;

/// The other nodes of the cluster.
pub(crate) struct Peers {
    membership: Membership,
    token: Option<Credential>,
    access: Arc<Access>,
    /// Without it, no connection with TLS is opened.
    tls: Option<TlsConnector>,
}

/// Another node, whose address is known.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its name.
    pub(crate) name: Str,
    pub(crate) id: NodeId,
    host: String,
    port: u16,
    is_secure: bool,
}

/// A connection to another node.
pub(crate) type Connection = Box<dyn Stream>;

/// A websocket to another node.
pub(crate) type PeerSocket = WebSocketStream<Connection>;

/// A stream of bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Stream for T {}

/// Why another node does not answer.
#[derive(Debug, thiserror::Error)]
#[error("node {node}, which runs the pipeline, does not answer: {why}")]
pub(crate) struct PeerError {
    node: Str,
    why: String,
}

impl From<PeerError> for ApiError {
    fn from(error: PeerError) -> ApiError {
        ApiError::new(Kind::Unavailable, codes::CLUSTER_NODE_UNREACHABLE, error.to_string())
    }
}

impl axum::response::IntoResponse for PeerError {
    fn into_response(self) -> Response {
        ApiError::from(self).into_response()
    }
}

impl Peers {
    /// Creates the view of a node on the others; `None` if the service runs alone. Reads the certificates of the
    /// authorities, which blocks.
    pub(crate) fn of(served: &Served, access: &Arc<Access>, authorities: Option<PathBuf>) -> Option<Peers> {
        let (membership, settings) = (served.store.membership()?.clone(), served.cluster.as_ref()?);
        let trust = match authorities {
            Some(file) => Trust::ChainAndName.with_roots(file),
            None => Trust::ChainAndName,
        };
        let tls = match trust.client(None) {
            Ok(config) => Some(TlsConnector::from(Arc::new(config))),
            Err(error) => {
                tracing::warn!("this node reaches no other node over TLS: {error}");
                None
            }
        };
        Some(Peers { membership, token: settings.token.clone(), access: access.clone(), tls })
    }

    /// Returns the membership of this node.
    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Returns the other nodes that have units of a pipeline and whose address is known.
    pub(crate) async fn owners(&self, pipeline: &str) -> Vec<Peer> {
        let overview = self.membership.overview(Some(pipeline)).await.unwrap_or_default();
        self.others_of(overview.owners(pipeline))
    }

    /// Returns all other nodes whose address is known.
    pub(crate) async fn others(&self) -> Vec<Peer> {
        self.others_of(self.nodes().await.unwrap_or_default().iter())
    }

    fn others_of<'a>(&self, nodes: impl Iterator<Item = &'a NodeState>) -> Vec<Peer> {
        let here = self.membership.standing().borrow().id;
        nodes.filter(|node| Some(node.id) != here).filter_map(Peer::of).collect()
    }

    /// Returns all nodes with a lease.
    async fn nodes(&self) -> Result<Vec<NodeState>, LeaseError> {
        // No pipeline has an empty id: the overview has no units.
        self.membership.overview(Some("")).await.map(|overview| overview.nodes)
    }

    /// Connects to another node.
    ///
    /// # Errors
    /// The node does not accept the connection, or its certificate is refused.
    pub(crate) async fn connect(&self, peer: &Peer) -> Result<Connection, PeerError> {
        let failed = |why: String| PeerError { node: peer.name.clone(), why };
        let connected = async {
            let system = |error: io::Error| failed(anabranch_process::files::system(&error).to_string());
            let stream = TcpStream::connect((peer.host.as_str(), peer.port)).await.map_err(system)?;
            if !peer.is_secure {
                return Ok(Box::new(stream) as Connection);
            }
            let tls = self.tls.as_ref().ok_or_else(|| failed("this node has no root certificates".to_owned()))?;
            let name = ServerName::try_from(peer.host.clone()).map_err(|error| failed(error.to_string()))?;
            let secured = tls.connect(name, stream).await;
            secured
                .map(|stream| Box::new(stream) as Connection)
                .map_err(|error| failed(anabranch_ops_tls::said(&error)))
        };
        timeout(CONNECT, connected)
            .await
            .unwrap_or_else(|_| Err(failed(format!("no connection within {} s", CONNECT.as_secs()))))
    }

    /// Sends a request to another node and returns its answer. A websocket stays open until one of its ends closes, or
    /// the service ends.
    pub(crate) async fn pass(
        &self,
        peer: &Peer,
        connection: Connection,
        mut request: Request,
        sessions: &Sessions,
    ) -> Response {
        let failed = |why: String| PeerError { node: peer.name.clone(), why }.into_response();
        let is_upgrade = request.headers().contains_key(UPGRADE);
        let mut permit = None;
        if is_upgrade {
            match sessions.enter() {
                Ok(entered) => permit = Some(entered),
                Err(refused) => return refused.into_response(),
            }
        }
        let ours = hyper::upgrade::on(&mut request);
        let (mut head, body) = request.into_parts();
        head.uri = target(&head.uri);
        // Checked here already. The other node would compare it with its own host.
        head.headers.remove(ORIGIN);
        head.headers.remove(AUTHORIZATION);
        if !is_upgrade {
            head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.sign(peer, &mut head.headers);
        let (mut sender, driver) = match http1::handshake(TokioIo::new(connection)).await {
            Ok(pair) => pair,
            Err(error) => return failed(error.to_string()),
        };
        // It transfers the body of the answer, which this function does not wait for.
        #[expect(clippy::disallowed_methods, reason = "it ends with the connection")]
        tokio::spawn(async move {
            let _ = driver.with_upgrades().await;
        });
        let mut answer = tokio::select! {
            answer = sender.send_request(Request::from_parts(head, body)) => match answer {
                Ok(answer) => answer,
                Err(error) => return failed(error.to_string()),
            },
            () = self.gone(peer) => return failed("its lease has ended".to_owned()),
        };
        if let (StatusCode::SWITCHING_PROTOCOLS, Some(mut permit)) = (answer.status(), permit) {
            let theirs = hyper::upgrade::on(&mut answer);
            #[expect(clippy::disallowed_methods, reason = "the permit ends it with the service")]
            tokio::spawn(async move {
                let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
                let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
                tokio::select! {
                    _ = copy_bidirectional(&mut ours, &mut theirs) => {}
                    () = permit.closing() => {}
                }
            });
        }
        let mut answer = answer.map(Body::new);
        if !is_upgrade {
            // It concerns the connection to the other node.
            answer.headers_mut().remove(CONNECTION);
        }
        if let Ok(name) = HeaderValue::from_str(&peer.name) {
            answer.headers_mut().insert(ANSWERED, name);
        }
        answer
    }

    /// Opens a websocket to another node; `None` if it does not answer. `target` is the path with its query.
    pub(crate) async fn websocket(&self, peer: &Peer, target: &str) -> Option<PeerSocket> {
        let opened = async {
            let stream = self.connect(peer).await.ok()?;
            let mut request = format!("ws://{}{target}", peer.authority()).into_client_request().ok()?;
            self.sign(peer, request.headers_mut());
            let unbounded = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
            client_async_with_config(request, stream, Some(unbounded)).await.ok().map(|(socket, _)| socket)
        };
        timeout(NUMBERS, opened).await.ok().flatten()
    }

    /// Waits until a node has no lease any more.
    async fn gone(&self, peer: &Peer) {
        loop {
            sleep(LOOK).await;
            if self.nodes().await.is_ok_and(|nodes| nodes.iter().all(|node| node.id != peer.id)) {
                return;
            }
        }
    }

    /// Gets JSON from another node; `None` if it does not answer in time.
    pub(crate) async fn get(&self, peer: &Peer, path: &str) -> Option<Value> {
        let request = Request::builder().uri(path).body(Body::empty()).ok()?;
        let (status, body) = timeout(NUMBERS, self.exchange(peer, request)).await.ok()?.ok()?;
        status.is_success().then(|| serde_json::from_slice(&body).ok()).flatten()
    }

    /// Has another node do what JSON asks for, and returns the status of its answer.
    ///
    /// # Errors
    /// The node does not answer in time.
    pub(crate) async fn post(&self, peer: &Peer, path: &str, body: &Value) -> Result<StatusCode, PeerError> {
        let failed = |why: String| PeerError { node: peer.name.clone(), why };
        let request = Request::post(path).header(CONTENT_TYPE, "application/json").body(Body::from(body.to_string()));
        let request = request.map_err(|error| failed(error.to_string()))?;
        match timeout(CONNECT, self.exchange(peer, request)).await {
            Ok(answer) => answer.map(|(status, _)| status),
            Err(_) => Err(failed(format!("no answer within {} s", CONNECT.as_secs()))),
        }
    }

    /// Sends a request to another node over a connection of its own, and reads the whole answer.
    async fn exchange(&self, peer: &Peer, mut request: Request) -> Result<(StatusCode, Bytes), PeerError> {
        let failed = |why: String| PeerError { node: peer.name.clone(), why };
        let stream = self.connect(peer).await?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        self.sign(peer, request.headers_mut());
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, driver) = shaken.map_err(|error| failed(error.to_string()))?;
        let answered = async move {
            let answer = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
            let status = answer.status();
            let body = to_bytes(Body::new(answer.into_body()), BODY).await;
            Ok((status, body.map_err(|error| failed(error.to_string()))?))
        };
        // The connection transfers the bytes; its errors also show in the answer.
        tokio::join!(answered, driver).0
    }

    /// Adds what a forwarded request needs.
    fn sign(&self, peer: &Peer, headers: &mut HeaderMap) {
        let token = self.token.as_ref().map(|token| token.at_start().into()).or_else(|| self.access.token());
        let bearer = token.and_then(|token: Str| HeaderValue::try_from(format!("Bearer {token}")).ok());
        if let Some(mut bearer) = bearer {
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let by = HeaderValue::from_str(self.membership.name()).unwrap_or(HeaderValue::from_static("another node"));
        headers.insert(FORWARDED, by);
        if let Ok(host) = HeaderValue::try_from(peer.authority()) {
            headers.insert(HOST, host);
        }
    }
}

impl Peer {
    /// Returns the peer that a node has announced; `None` without a usable address.
    fn of(node: &NodeState) -> Option<Peer> {
        let url: Uri = node.announced.url.parse().ok()?;
        let is_secure = url.scheme_str() == Some("https");
        let host = url.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        Some(Peer { name: node.announced.name.clone(), id: node.id, host, port, is_secure })
    }

    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Returns the target of a request without scheme and authority, and without a token in the query.
pub(crate) fn target(uri: &Uri) -> Uri {
    let query =
        uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("token="));
    let query = query.collect::<Vec<_>>().join("&");
    let text = if query.is_empty() { uri.path().to_owned() } else { format!("{}?{query}", uri.path()) };
    PathAndQuery::try_from(text).map_or_else(|_| uri.clone(), Uri::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_an_address_is_not_forwarded() {
        let uri = |text: &'static str| target(&Uri::from_static(text)).to_string();
        assert_eq!(uri("http://n:1/v1/pipelines/p/inspect?token=secret&at=in"), "/v1/pipelines/p/inspect?at=in");
        assert_eq!(uri("/v1/pipelines/p?token=secret"), "/v1/pipelines/p");
        assert_eq!(uri("/v1/pipelines/a%2Fb?a=1&b=2"), "/v1/pipelines/a%2Fb?a=1&b=2");
    }
}
