//! The HTTP client of the processors: pooled connections, bounded requests in flight, attempts that are repeated
//! with backoff.
//!
//! Connections are pooled per process and TLS configuration, whatever the number of processors; what a processor
//! decides for itself (timeouts, attempts, requests in flight) is its [`Policy`].

mod accept;
mod error;
mod pace;
mod pause;
mod retry;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anabranch_plugin::host::Network;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use bytes::{Bytes, BytesMut};
use reqwest::tls::Certificate;
use reqwest::{ClientBuilder, Proxy, Response, redirect};
use tokio::sync::{Semaphore, SemaphorePermit};

pub use accept::{Accept, InvalidAccept};
pub use error::{HttpError, Problem};
use pace::Pace;
use pause::Pause;
pub use reqwest::{Method, Request, StatusCode, Url, header};
pub use retry::Retry;

/// Longest time to establish a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept: less than servers do, so that they rarely close one as it is used again.
const IDLE: Duration = Duration::from_secs(30);

/// How the requests of one processor are made.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Most requests in flight; at least 1.
    pub concurrency: usize,
    /// Most attempts per minute, evenly spread; `None` = no limit.
    pub per_minute: Option<f64>,
    /// Longest time of one attempt, from connecting to the last byte of the answer; `None` = no limit.
    pub timeout: Option<Duration>,
    /// When an attempt is repeated.
    pub retry: Retry,
    /// Which statuses are good.
    pub accept: Accept,
    /// Most bytes of an answer's body.
    pub body_limit: u64,
    /// Finds the error that a body with a good status holds instead of an answer.
    pub disguised: Option<FindError>,
}

/// Finds an error in a body.
pub type FindError = fn(&[u8]) -> Option<Disguised>;

/// An error that came with a good status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disguised {
    /// The words of the server.
    pub said: String,
    /// Whether another attempt may go better.
    pub transient: bool,
}

/// Whom to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tls {
    /// PEM text of certificates that are trusted besides the system's.
    pub roots: Option<Vec<u8>>,
    /// Whether any certificate is good.
    pub skip_verify: bool,
}

/// The client of one processor. Its workers share it.
pub struct Client {
    http: reqwest::Client,
    network: Network,
    policy: Policy,
    turns: Semaphore,
    pace: Pace,
    pause: Pause,
    /// What to do about a redirect.
    advice: Str,
}

/// The right to have a request in flight.
pub struct Turn<'a> {
    _permit: Option<SemaphorePermit<'a>>,
}

/// An answer whose status is good.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body. If it came in one piece, this is a part of the connection's read buffer.
    pub body: Bytes,
}

impl Client {
    /// A client on the connections of this TLS configuration and network. Connects to nothing.
    ///
    /// # Errors
    /// `tls_invalid`: the roots are no certificates.
    pub fn new(tls: &Tls, network: Network, policy: Policy) -> Result<Client, Fault> {
        let turns = Semaphore::new(policy.concurrency.clamp(1, Semaphore::MAX_PERMITS));
        let pace = Pace::new(policy.per_minute);
        let advice = Str::from_static("correct the URL");
        Ok(Client { http: pooled(tls, network)?, network, policy, turns, pace, pause: Pause::default(), advice })
    }

    /// The same, whose error about a redirect ends with this advice: `correct baseURL`.
    #[must_use]
    pub fn advising(mut self, advice: impl Into<Str>) -> Client {
        self.advice = advice.into();
        self
    }

    /// A request without headers and body; credentials in the URL become its `Authorization`.
    ///
    /// # Errors
    /// [`Problem::Invalid`]: the URL cannot be used for requests.
    pub fn request(&self, method: Method, url: Url) -> Result<Request, HttpError> {
        if url.username().is_empty() && url.password().is_none() {
            return Ok(Request::new(method, url));
        }
        let shown = error::shown(&method, Some(&url));
        self.http.request(method, url).build().map_err(|error| HttpError::of(shown, error))
    }

    /// Waits until there may be one more request in flight; first come, first served. Make the request then, so
    /// that no more bodies are in memory than requests in flight.
    pub async fn turn(&self) -> Turn<'_> {
        // The semaphore is never closed.
        Turn { _permit: self.turns.acquire().await.ok() }
    }

    /// Sends a request until it has a good answer, as often as the policy allows. Dropping the future aborts the
    /// request.
    ///
    /// An answer with `Retry-After` to one request (429 or 503) holds back all others of the client too, which is
    /// logged; a request that is not repeated fails without waiting.
    ///
    /// # Errors
    /// What was wrong with the last attempt.
    pub async fn send(&self, turn: Turn<'_>, mut request: Request) -> Result<Answer, HttpError> {
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
                tracing::warn!("{request}: asks to wait {seconds} s ({}): requests wait", status.as_u16());
            }
            let Some(again) = spare.filter(|_| error.is_worth_another_attempt()) else { break error };
            tracing::debug!(%error, attempt = made, "request will be repeated");
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
            let answer = body(&mut response, self.policy.body_limit).await.and_then(|body| {
                match self.policy.disguised.and_then(|find| find(&body)) {
                    Some(Disguised { said, transient }) => {
                        Err(Problem::Disguised { status, said: error::in_a_line(&said), transient })
                    }
                    None => Ok(Answer { status, body }),
                }
            });
            return answer.map_err(|problem| HttpError::new(error::shown(&method, Some(response.url())), problem));
        }
        let shown = error::shown(&method, Some(response.url()));
        if let Some(to) = error::pointed_at(&response) {
            return Err(HttpError::new(shown, Problem::Redirect { status, to, advice: self.advice.clone() }));
        }
        let retry_after = retry::retry_after(response.headers());
        Err(HttpError::new(shown, Problem::Status { status, said: error::said(&mut response).await, retry_after }))
    }
}

/// The whole body.
async fn body(response: &mut Response, limit: u64) -> Result<Bytes, Problem> {
    let too_large = || Problem::TooLarge { limit };
    let announced = response.content_length();
    if announced.is_some_and(|n| n > limit) {
        return Err(too_large());
    }
    let Some(first) = response.chunk().await? else { return Ok(Bytes::new()) };
    let Some(second) = response.chunk().await? else {
        return if first.len() as u64 > limit { Err(too_large()) } else { Ok(first) };
    };
    // The announced size is bounded by the limit, but costs nobody anything: memory follows what really came.
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

/// Tells a proxy in the place of all services what an encrypted connection would keep from it.
fn lay_open(request: &mut Request) {
    if request.url().scheme() == "https" && request.url_mut().set_scheme("http").is_ok() {
        request.headers_mut().insert(Network::SCHEME, header::HeaderValue::from_static("https"));
    }
}

/// What all connections have in common.
fn bare() -> ClientBuilder {
    // A redirect that is followed can turn a POST into a GET, and hands headers with credentials to another host.
    reqwest::Client::builder()
        .user_agent(concat!("anabranch/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
}

/// Most configurations whose connections are pooled: each rotated CA bundle is another one.
const POOLED: usize = 32;

/// Pools by configuration, with the number of the latest use. Those that were not used for longest go; who holds a client
/// of one keeps it.
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

/// The connections of a TLS configuration and network.
fn pooled(tls: &Tls, network: Network) -> Result<reqwest::Client, Fault> {
    static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);
    if let Network::Through(proxy) = network {
        return through(proxy);
    }
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(tls) {
        return Ok(pool);
    }
    // Whoever was first may have installed it; there is but one provider in this program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder =
        || bare().connect_timeout(CONNECT).pool_idle_timeout(IDLE).tls_danger_accept_invalid_certs(tls.skip_verify);
    let invalid = |error: reqwest::Error| Fault::fatal("tls_invalid", error);
    let pool = match &tls.roots {
        Some(pem) => {
            let roots = Certificate::from_pem_bundle(pem).map_err(invalid)?;
            if roots.is_empty() {
                return Err(Fault::fatal("tls_invalid", "there is no certificate in the file, expected PEM text"));
            }
            builder().tls_certs_merge(roots).build().map_err(invalid)?
        }
        None => match builder().build() {
            Ok(pool) => pool,
            // A machine without certificates can still talk to its neighbours in plain text.
            Err(error) => {
                tracing::warn!(%error, "no system certificates: https will not work without an own root");
                builder().tls_certs_only([]).build().map_err(invalid)?
            }
        },
    };
    pools.insert(tls, pool.clone());
    Ok(pool)
}

/// Connections to a proxy that stands for all services: not pooled with others, and nothing is known of certificates.
fn through(proxy: SocketAddr) -> Result<reqwest::Client, Fault> {
    // Whoever was first may have installed it; there is but one provider in this program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let unusable = |error: reqwest::Error| Fault::fatal("proxy_unusable", error);
    bare().proxy(Proxy::all(format!("http://{proxy}")).map_err(unusable)?).tls_certs_only([]).build().map_err(unusable)
}

#[cfg(test)]
mod tests;
