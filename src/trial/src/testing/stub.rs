//! Stubbed HTTP services of a test: a proxy on loopback that answers for all services.
//!
//! The operators send their requests through the proxy ([`Network::Through`]), so the URLs of the pipeline stay
//! unchanged and nothing leaves this machine. Requests without a matching stub are refused and make the test fail.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_plugin::diagnostic::{Span, Spanned};
use anabranch_plugin::host::Network;
use axum::body::{Body, to_bytes};
use futures::stream::{FuturesUnordered, StreamExt as _};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value as Json, json};
use tokio::net::TcpListener;

use super::pattern::Expected;
use super::view;

/// The responses to one kind of request.
#[derive(Debug)]
pub struct Stub {
    /// Place in the file.
    pub span: Span,
    /// The requests that the stub answers.
    pub request: Expected,
    /// The replies, one after the other; the last one repeats. At least one.
    pub replies: Vec<Reply>,
    /// The expected number of requests.
    pub times: Option<Spanned<usize>>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Body.
    pub body: Vec<u8>,
    /// Delay before the response.
    pub delay: Duration,
    /// `true` if the connection is closed without a response.
    pub close: bool,
}

/// The requests of a test run.
#[derive(Debug, Default)]
struct ReceivedRequests {
    /// All requests, in order.
    requests: Vec<Json>,
    /// Indices of requests without a matching stub.
    unmatched: Vec<usize>,
    /// Number of requests by stub.
    answered: Vec<usize>,
}

/// The proxy.
pub(super) struct StubProxy<'a> {
    listener: TcpListener,
    stubs: &'a [Stub],
    asked: Mutex<ReceivedRequests>,
}

/// Maximum size of a request body, in bytes.
const BODY: usize = 64 << 20;
impl<'a> StubProxy<'a> {
    /// Listens on a free port.
    pub(super) async fn start(stubs: &'a [Stub]) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let asked = ReceivedRequests { answered: vec![0; stubs.len()], ..ReceivedRequests::default() };
        Ok(StubProxy { listener, stubs, asked: Mutex::new(asked) })
    }

    /// Returns the address of the proxy.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves requests as long as it is polled.
    pub(super) async fn serve(&self) -> Infallible {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    let Ok((stream, _)) = accepted else { continue };
                    let service = service_fn(|request| self.answer(request));
                    // The client notices a broken connection.
                    connections.push(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                }
                Some(_) = connections.next() => {}
            }
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        if request.method() == Method::CONNECT {
            let target = format!("https://{}/", request.uri());
            let asked = json!({ "method": "CONNECT", "url": target, "headers": {}, "body": "" });
            let mut all = locked(&self.asked);
            let number = all.requests.len();
            all.requests.push(asked);
            all.unmatched.push(number);
            return Ok(refusal("a test cannot answer an encrypted connection"));
        }
        let (head, body) = request.into_parts();
        let body = to_bytes(Body::new(body), BODY).await.map_err(io::Error::other)?;
        let asked = asked(&head, &body);
        let reply = {
            let mut all = locked(&self.asked);
            let number = all.requests.len();
            let found = self.stubs.iter().position(|stub| stub.request.matches(Some(&asked)));
            all.requests.push(asked);
            match found {
                Some(at) => {
                    all.answered[at] += 1;
                    let stub = &self.stubs[at];
                    stub.replies.get(all.answered[at] - 1).or(stub.replies.last()).cloned()
                }
                None => {
                    all.unmatched.push(number);
                    None
                }
            }
        };
        let Some(reply) = reply else { return Ok(refusal("the test has no reply for this request")) };
        if !reply.delay.is_zero() {
            tokio::time::sleep(reply.delay).await;
        }
        if reply.close {
            return Err(io::Error::other("closed by the test"));
        }
        let mut response = Response::new(Body::from(reply.body));
        *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or_default();
        response.headers_mut().extend(reply.headers);
        Ok(response)
    }

    /// Returns the requests so far, the indices of those without a matching stub, and the number of requests by stub.
    pub(super) fn asked(&self) -> (Vec<Json>, Vec<usize>, Vec<usize>) {
        let asked = locked(&self.asked);
        (asked.requests.clone(), asked.unmatched.clone(), asked.answered.clone())
    }
}

fn locked(asked: &Mutex<ReceivedRequests>) -> MutexGuard<'_, ReceivedRequests> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refusal(text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
    response
}

/// Converts a request to the form that tests compare.
fn asked(head: &hyper::http::request::Parts, body: &[u8]) -> Json {
    let encrypted = head.headers.contains_key(Network::SCHEME);
    let mut url = head.uri.to_string();
    if let Some(rest) = url.strip_prefix("http://").filter(|_| encrypted) {
        url = format!("https://{rest}");
    }
    let mut headers = Map::new();
    for (name, value) in head.headers.iter().filter(|(name, _)| name.as_str() != Network::SCHEME) {
        headers.insert(name.to_string(), view::bytes(value.as_bytes()));
    }
    let mut asked = json!({
        "method": head.method.as_str(),
        "url": url,
        "path": head.uri.path(),
        "pathAndQuery": head.uri.path_and_query().map_or("", |path| path.as_str()),
        "headers": headers,
        "body": view::bytes(body),
    });
    if let (Ok(json), Some(asked)) = (serde_json::from_slice(body), asked.as_object_mut()) {
        asked.insert("json".to_owned(), json);
    }
    asked
}
