//! HTTP client of the processors, with pooled connections, a limit on requests in flight, and retries with back-off.
//!
//! Connections are pooled per process and TLS configuration, whatever the number of processors. The settings of a
//! single processor (timeouts, attempts, requests in flight) are in its [`Policy`].

mod accept;
mod error;
mod login;
mod pace;
mod pause;
mod retry;
mod trust;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anabranch_plugin::host::Network;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use bytes::{Bytes, BytesMut};
use reqwest::header::HeaderMap;
use reqwest::tls::Certificate;
use reqwest::{ClientBuilder, Proxy, Response, redirect};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::codes;

pub use accept::{Accept, InvalidAccept};
pub use error::{HttpError, RequestProblem};
pub(crate) use login::{AuthorizedClient, AuthorizedError, Login, LoginSettings};
use pace::Pace;
use pause::Pause;
pub use reqwest::{Method, Request, StatusCode, Url, header};
pub use retry::{Retries, Retry};
pub use trust::{ServerTrust, TrustSettings};

/// Maximum time to establish a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time after which an idle connection is closed: less than on servers, so that they rarely close one that is about to
/// be reused.
const IDLE: Duration = Duration::from_secs(30);

/// Settings for the requests of one processor.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Maximum number of requests in flight; at least 1.
    pub concurrency: usize,
    /// Maximum number of attempts per minute, evenly spaced; `None` = unlimited.
    pub per_minute: Option<f64>,
    /// Time limit of one attempt, from connecting to the last byte of the answer; `None` = unlimited.
    pub timeout: Option<Duration>,
    /// Retries of failed attempts.
    pub retry: Retry,
    /// Statuses that count as success.
    pub accept: Accept,
    /// Maximum number of bytes of an answer's body.
    pub body_limit: u64,
    /// Finds an error in the body of a successful answer.
    pub disguised: Option<FindError>,
}

/// A function that finds an error in a body.
pub type FindError = fn(&[u8]) -> Option<HiddenError>;

/// An error in an answer with a success status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenError {
    /// Message of the server.
    pub said: String,
    /// True if a retry may succeed.
    pub transient: bool,
}

/// Trusted certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tls {
    /// PEM text of certificates that are trusted in addition to those of the system.
    pub roots: Option<Vec<u8>>,
    /// True to accept any certificate.
    pub skip_verify: bool,
}

/// Client of one processor, shared by its workers.
pub struct Client {
    http: reqwest::Client,
    network: Network,
    policy: Policy,
    turns: Semaphore,
    pace: Pace,
    pause: Pause,
    /// Remedy for a redirect.
    advice: Str,
}

/// Permission to have a request in flight.
pub struct RequestPermit<'a> {
    _permit: Option<SemaphorePermit<'a>>,
}

/// A successful answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status of the answer.
    pub status: StatusCode,
    /// Headers of the answer.
    pub headers: HeaderMap,
    /// Body of the answer. If it arrived in one piece, it is a slice of the connection's read buffer.
    pub body: Bytes,
}

impl Client {
    /// Creates a client on the connections of this TLS configuration and network. Does not connect.
    ///
    /// # Errors
    /// `tls_invalid` if the roots are not certificates.
    pub fn new(tls: &Tls, network: Network, policy: Policy) -> Result<Client, Fault> {
        let turns = Semaphore::new(policy.concurrency.clamp(1, Semaphore::MAX_PERMITS));
        let pace = Pace::new(policy.per_minute);
        let advice = Str::from_static("correct the URL");
        Ok(Client { http: pooled(tls, network)?, network, policy, turns, pace, pause: Pause::default(), advice })
    }

    /// Sets the remedy at the end of the error about a redirect, such as `correct baseURL`.
    #[must_use]
    pub fn advising(mut self, advice: impl Into<Str>) -> Client {
        self.advice = advice.into();
        self
    }

    /// Creates a request without headers and body. Credentials in the URL become its `Authorization` header.
    ///
    /// # Errors
    /// [`RequestProblem::Invalid`] if the URL cannot be used for requests.
    pub fn request(&self, method: Method, url: Url) -> Result<Request, HttpError> {
        if url.username().is_empty() && url.password().is_none() {
            return Ok(Request::new(method, url));
        }
        let shown = error::shown(&method, Some(&url));
        self.http.request(method, url).build().map_err(|error| HttpError::of(shown, error))
    }

    /// Returns the retries of failed attempts.
    pub(crate) fn retry(&self) -> Retry {
        self.policy.retry
    }

    /// Waits until another request may be in flight, in order of arrival. Build the request after that, so that no more
    /// bodies are in memory than requests in flight.
    pub async fn turn(&self) -> RequestPermit<'_> {
        // The semaphore is never closed.
        RequestPermit { _permit: self.turns.acquire().await.ok() }
    }

    /// Sends a request and retries it as the policy allows. Dropping the future aborts the request.
    ///
    /// An answer with `Retry-After` (429 or 503) delays all requests of this client, and is logged. A request that is
    /// not retried fails without waiting.
    ///
    /// # Errors
    /// Returns the error of the last attempt.
    pub async fn send(&self, turn: RequestPermit<'_>, mut request: Request) -> Result<Answer, HttpError> {
        *request.timeout_mut() = self.policy.timeout;
        let mut made = 0;
        let error = loop {
            self.clearance().await;
            let spare = if made < self.policy.retry.count { request.try_clone() } else { None };
            let error = match self.attempt(request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            made += 1;
            if let Some((status, wait)) = error.throttled_for()
                && self.pause.extend(wait)
            {
                let (request, seconds) = (error.request(), wait.as_secs_f64().ceil());
                tracing::warn!(
                    "{request}: the server asks to wait {seconds} s ({}): requests are delayed",
                    status.as_u16()
                );
            }
            let Some(again) = spare.filter(|_| error.is_worth_another_attempt()) else { break error };
            tracing::debug!(%error, attempt = made, "the request is retried");
            tokio::time::sleep(self.policy.retry.delay(made, error.retry_after())).await;
            request = again;
        };
        drop(turn);
        Err(error.after(made))
    }

    /// Waits until an attempt may be made.
    async fn clearance(&self) {
        self.pace.keep(&self.pause).await;
    }

    async fn attempt(&self, request: Request) -> Result<Answer, HttpError> {
        let method = request.method().clone();
        let mut request = request;
        if self.network != Network::Open {
            lay_open(&mut request);
        }
        let mut response = match self.http.execute(request).await {
            Ok(response) => response,
            Err(error) => return Err(HttpError::of(error::shown(&method, error.url()), error)),
        };
        let status = response.status();
        if self.policy.accept.contains(status) {
            let headers = std::mem::take(response.headers_mut());
            let answer = body(&mut response, self.policy.body_limit).await.and_then(|body| {
                match self.policy.disguised.and_then(|find| find(&body)) {
                    Some(HiddenError { said, transient }) => {
                        Err(RequestProblem::Disguised { status, said: error::in_a_line(&said), transient })
                    }
                    None => Ok(Answer { status, headers, body }),
                }
            });
            return answer.map_err(|problem| HttpError::new(error::shown(&method, Some(response.url())), problem));
        }
        let shown = error::shown(&method, Some(response.url()));
        if let Some(to) = error::pointed_at(&response) {
            return Err(HttpError::new(shown, RequestProblem::Redirect { status, to, advice: self.advice.clone() }));
        }
        let retry_after = retry::retry_after(response.headers());
        Err(HttpError::new(
            shown,
            RequestProblem::Status { status, said: error::said(&mut response).await, retry_after },
        ))
    }
}

/// Reads the whole body.
async fn body(response: &mut Response, limit: u64) -> Result<Bytes, RequestProblem> {
    let too_large = || RequestProblem::TooLarge { limit };
    let announced = response.content_length();
    if announced.is_some_and(|n| n > limit) {
        return Err(too_large());
    }
    let Some(first) = response.chunk().await? else { return Ok(Bytes::new()) };
    let Some(second) = response.chunk().await? else {
        return if first.len() as u64 > limit { Err(too_large()) } else { Ok(first) };
    };
    // The announced size reserves at most 1 MiB; above that, memory grows with the received bytes.
    let expected = announced.and_then(|n| usize::try_from(n).ok()).unwrap_or(0).min(1 << 20);
    let mut whole = BytesMut::with_capacity(expected.max(first.len() + second.len()));
    let mut next = Some(second);
    whole.extend_from_slice(&first);
    while let Some(chunk) = next {
        if (whole.len() + chunk.len()) as u64 > limit {
            return Err(too_large());
        }
        whole.extend_from_slice(&chunk);
        next = response.chunk().await?;
    }
    Ok(whole.freeze())
}

/// Passes the scheme of the request to a proxy that replaces all services, and switches to plain HTTP.
fn lay_open(request: &mut Request) {
    if request.url().scheme() == "https" && request.url_mut().set_scheme("http").is_ok() {
        request.headers_mut().insert(Network::SCHEME, header::HeaderValue::from_static("https"));
    }
}

/// Returns the builder with common settings.
fn bare() -> ClientBuilder {
    // Following a redirect can turn a POST into a GET, and send credentials to another host.
    reqwest::Client::builder()
        .user_agent(concat!("anabranch/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
}

/// Maximum number of pooled configurations: each rotated CA bundle is a new one.
const POOLED: usize = 32;

/// Pools by configuration, each with the number of its last use. The least recently used ones are dropped; clients that
/// use them keep them.
#[derive(Default)]
struct Pools {
    pools: HashMap<Tls, (u64, reqwest::Client)>,
    uses: u64,
}

impl Pools {
    fn get(&mut self, tls: &Tls) -> Option<reqwest::Client> {
        self.uses += 1;
        let (used, pool) = self.pools.get_mut(tls)?;
        *used = self.uses;
        Some(pool.clone())
    }

    fn insert(&mut self, tls: &Tls, pool: reqwest::Client) {
        if self.pools.len() >= POOLED {
            let oldest = self.pools.iter().min_by_key(|(_, (used, _))| *used).map(|(tls, _)| tls.clone());
            oldest.map(|oldest| self.pools.remove(&oldest));
        }
        self.pools.insert(tls.clone(), (self.uses, pool));
    }
}

/// Returns the connections of a TLS configuration and network.
fn pooled(tls: &Tls, network: Network) -> Result<reqwest::Client, Fault> {
    static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);
    if let Network::Through(proxy) = network {
        return through(proxy);
    }
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(tls) {
        return Ok(pool);
    }
    // Another component may have installed it already; this program has only one provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder =
        || bare().connect_timeout(CONNECT).pool_idle_timeout(IDLE).tls_danger_accept_invalid_certs(tls.skip_verify);
    let invalid = |error: reqwest::Error| Fault::fatal(codes::TLS_INVALID, error);
    let pool = match &tls.roots {
        Some(pem) => {
            let roots = Certificate::from_pem_bundle(pem).map_err(invalid)?;
            if roots.is_empty() {
                return Err(Fault::fatal(codes::TLS_INVALID, "the file contains no certificate; expected PEM text"));
            }
            builder().tls_certs_merge(roots).build().map_err(invalid)?
        }
        None => match builder().build() {
            Ok(pool) => pool,
            // A machine without certificates can still use plain HTTP.
            Err(error) => {
                tracing::warn!(%error, "no system certificates: https works only with configured root certificates");
                builder().tls_certs_only([]).build().map_err(invalid)?
            }
        },
    };
    pools.insert(tls, pool.clone());
    Ok(pool)
}

/// Returns connections to a proxy that replaces all services. They are not pooled with others, and no certificates are
/// trusted.
fn through(proxy: SocketAddr) -> Result<reqwest::Client, Fault> {
    // Another component may have installed it already; this program has only one provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let unusable = |error: reqwest::Error| Fault::fatal(codes::PROXY_UNUSABLE, error);
    bare().proxy(Proxy::all(format!("http://{proxy}")).map_err(unusable)?).tls_certs_only([]).build().map_err(unusable)
}

#[cfg(test)]
mod tests;
