//! One HTTP request of a guest: checked, sent, and answered or rejected.

use std::error::Error;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anabranch_ops_opencdc::http as wire;
use bytes::BytesMut;
use flate2::read::MultiGzDecoder;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue,
};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, Proxy, Response, Url};

use anabranch_plugin::host::Network as Way;

use super::Egress;
use super::endpoint::{Endpoint, is_public};

/// Maximum time to establish a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time after which an idle connection is closed.
const IDLE: Duration = Duration::from_secs(30);
/// Prefix of the environment variable of a secret.
const SECRET: &str = "ANABRANCH_SECRET_";

/// Headers that a guest must not set: those of the connection, and those that the service sets.
const OURS: &[&str] = &[
    "host",
    "authorization",
    "accept-encoding",
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "keep-alive",
    "te",
    "trailer",
];

/// Headers of an answer that concern only the connection.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reason why a request has no answer. Of the request, it contains only the endpoint.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestFailure {
    #[error("the request is not valid: {0}")]
    Invalid(String),
    #[error("it is forbidden: {0}")]
    Forbidden(String),
    #[error("the name of the host cannot be resolved: {0}")]
    Dns(String),
    #[error("it took longer than {0:?}")]
    Timeout(Duration),
    #[error("the answer has more than {0} bytes")]
    TooLarge(u64),
    #[error("{0}")]
    Transport(String),
}

/// Network access of one processor, and its connections.
pub(crate) struct Network {
    egress: Egress,
    client: Client,
    way: Way,
}

impl Network {
    /// Creates the client. Does not connect.
    pub(crate) fn new(egress: Egress, way: Way) -> Result<Network, String> {
        // Another component may have installed it already; this program has only one provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let names = Arc::new(PermittedNames { endpoints: egress.endpoints.clone() });
        let proxy = match way {
            Way::Open => None,
            Way::Through(proxy) => Some(Proxy::all(format!("http://{proxy}")).map_err(|error| error.to_string())?),
        };
        let builder = || {
            let builder = Client::builder()
                .user_agent(concat!("anabranch/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT)
                .pool_idle_timeout(IDLE)
                .redirect(Policy::none())
                .referer(false)
                .no_proxy()
                .dns_resolver(names.clone());
            proxy.iter().cloned().fold(builder, ClientBuilder::proxy)
        };
        // A machine without certificates can still use plain HTTP.
        let client = builder().build().or_else(|_| builder().tls_certs_only([]).build());
        Ok(Network { egress, client: client.map_err(|error| error.to_string())?, way })
    }

    /// Sends a request and waits for the answer, at most for `patience`.
    pub(crate) async fn call(
        &self,
        node: &str,
        request: wire::Request,
        patience: Duration,
    ) -> Result<wire::Response, RequestFailure> {
        let url = Url::parse(&request.url).map_err(|error| RequestFailure::Invalid(format!("the URL: {error}")));
        let endpoint =
            url.as_ref().ok().and_then(Endpoint::of).map(|endpoint| endpoint.to_string()).unwrap_or_default();
        let timeout = self.egress.timeout.min(patience);
        let result = match url {
            Ok(url) => match tokio::time::timeout(timeout, self.exchange(request, url)).await {
                Ok(result) => result,
                Err(_) => Err(RequestFailure::Timeout(timeout)),
            },
            Err(refusal) => Err(refusal),
        };
        match &result {
            Ok(response) => {
                tracing::debug!(
                    processor = node,
                    place = endpoint,
                    status = response.status_code,
                    "a processor sent a request"
                );
            }
            Err(refusal) => {
                tracing::warn!(processor = node, place = endpoint, "a request of a processor failed: {refusal}");
            }
        }
        result
    }

    async fn exchange(&self, request: wire::Request, mut url: Url) -> Result<wire::Response, RequestFailure> {
        let invalid = |text: &str| RequestFailure::Invalid(text.to_owned());
        let method = match request.method.as_str() {
            "" => Method::GET,
            text => Method::from_bytes(text.to_ascii_uppercase().as_bytes()).map_err(|_| invalid("the method"))?,
        };
        if method == Method::CONNECT {
            return Err(invalid("the method CONNECT"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("credentials in the URL; use a secret"));
        }
        let endpoint = Endpoint::of(&url).ok_or_else(|| invalid("the URL is not an http or https URL"))?;
        if !self.egress.endpoints.contains(&endpoint) {
            return Err(RequestFailure::Forbidden(format!("{endpoint} is not among {}", super::ALLOW)));
        }
        let mut headers = self.headers(&request.headers)?;
        if !request.auth_secret_ref.is_empty() {
            headers.insert(AUTHORIZATION, self.secret(&request.auth_secret_ref)?);
        }
        let is_laid_open = self.way != Way::Open && url.scheme() == "https";
        if is_laid_open && url.set_scheme("http").is_ok() {
            headers.insert(Way::SCHEME, HeaderValue::from_static("https"));
        }
        let sent = self.client.request(method, url).headers(headers).body(request.body).send().await;
        let response = sent.map_err(|error| self.refusal(&error))?;
        let redirects = [301, 302, 303, 307, 308].contains(&response.status().as_u16());
        if redirects && response.headers().contains_key("location") {
            return Err(RequestFailure::Forbidden("the answer is a redirect".to_owned()));
        }
        self.answer(response).await
    }

    fn headers(&self, given: &[wire::Header]) -> Result<HeaderMap, RequestFailure> {
        let mut headers = HeaderMap::new();
        for header in given {
            let invalid = |what: &str| RequestFailure::Invalid(format!("{what} of the header {:?}", header.key));
            let name = HeaderName::from_bytes(header.key.as_bytes()).map_err(|_| invalid("the name"))?;
            if OURS.contains(&name.as_str()) {
                return Err(RequestFailure::Invalid(format!("a processor may not set the header {name}")));
            }
            for value in &header.values {
                let value = HeaderValue::from_str(value)
                    .or_else(|_| HeaderValue::from_bytes(value.as_bytes()))
                    .map_err(|_| invalid("a value"))?;
                headers.append(&name, value);
            }
        }
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        Ok(headers)
    }

    /// Returns the value of a secret that the processor may use.
    fn secret(&self, name: &str) -> Result<HeaderValue, RequestFailure> {
        if !self.egress.secrets.contains(name) {
            return Err(RequestFailure::Forbidden(format!("the secret {name:?} is not among {}", super::SECRETS)));
        }
        let capital = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let variable = format!("{SECRET}{}", name.chars().map(capital).collect::<String>());
        let value = std::env::var(&variable).ok().filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| RequestFailure::Forbidden(format!("the variable {variable} is not set")))?;
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| RequestFailure::Forbidden(format!("the variable {variable} cannot be a header")))?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn answer(&self, mut response: Response) -> Result<wire::Response, RequestFailure> {
        let most = self.egress.response_bytes;
        let compressed = response.headers().get(CONTENT_ENCODING).is_some_and(|value| value == "gzip");
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.refusal(&error))? {
            if (body.len() + chunk.len()) as u64 > most {
                return Err(RequestFailure::TooLarge(most));
            }
            body.extend_from_slice(&chunk);
        }
        let mut body = body.freeze();
        if compressed && !body.is_empty() {
            let mut whole = Vec::new();
            let read = MultiGzDecoder::new(&body[..]).take(most.saturating_add(1)).read_to_end(&mut whole);
            read.map_err(|error| RequestFailure::Transport(format!("the answer cannot be decompressed: {error}")))?;
            if whole.len() as u64 > most {
                return Err(RequestFailure::TooLarge(most));
            }
            body = whole.into();
        }
        let mut headers: Vec<wire::Header> = Vec::new();
        for name in response.headers().keys() {
            let of_the_packing = compressed && (name == CONTENT_ENCODING || name == CONTENT_LENGTH);
            if of_the_packing || HOP_BY_HOP.contains(&name.as_str()) {
                continue;
            }
            let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let values = response.headers().get_all(name).iter().map(text).collect();
            headers.push(wire::Header { key: capitalised(name.as_str()), values });
        }
        headers.sort_by(|a, b| a.key.cmp(&b.key));
        let status_code = i32::from(response.status().as_u16());
        Ok(wire::Response { status_code, headers, body })
    }

    /// Converts an error of the client, whose own text contains the whole URL.
    fn refusal(&self, error: &reqwest::Error) -> RequestFailure {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        let mut last = String::new();
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<NameError>() {
                return match error {
                    NameError::Unknown(text) => RequestFailure::Dns(text.clone()),
                    NameError::Inside => RequestFailure::Forbidden(error.to_string()),
                };
            }
            if !error.is::<reqwest::Error>() {
                last = error.to_string();
            }
            cause = error.source();
        }
        if error.is_timeout() {
            return RequestFailure::Timeout(if error.is_connect() { CONNECT } else { self.egress.timeout });
        }
        RequestFailure::Transport(if last.is_empty() { "the request failed".to_owned() } else { last })
    }
}

/// Returns a header name with capitalized words, as most programs write it.
fn capitalised(name: &str) -> String {
    let mut start = true;
    let letter = |c: char| {
        let letter = if start { c.to_ascii_uppercase() } else { c };
        start = c == '-';
        letter
    };
    name.chars().map(letter).collect()
}

/// Resolves names to permitted addresses.
struct PermittedNames {
    endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, thiserror::Error)]
enum NameError {
    #[error("{0}")]
    Unknown(String),
    #[error("the name resolves to an address of this machine or its neighbours")]
    Inside,
}

impl PermittedNames {
    /// Returns `true` if the address may be connected to. A private address must be allowed itself, with every port
    /// that is allowed for the name, because the port is not known here.
    fn lets(endpoints: &[Endpoint], host: &str, address: IpAddr) -> bool {
        let allowed =
            |port| endpoints.iter().any(|endpoint| endpoint.port() == port && endpoint.address() == Some(address));
        let mut meant = endpoints.iter().filter(|endpoint| endpoint.host() == host).peekable();
        is_public(address) || meant.peek().is_some() && meant.all(|endpoint| allowed(endpoint.port()))
    }
}

impl Resolve for PermittedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().trim_end_matches('.').to_ascii_lowercase();
        let endpoints = self.endpoints.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await;
            let found: Vec<SocketAddr> = found.map_err(|error| NameError::Unknown(error.to_string()))?.collect();
            let good: Vec<SocketAddr> =
                found.into_iter().filter(|address| PermittedNames::lets(&endpoints, &host, address.ip())).collect();
            if good.is_empty() {
                return Err(NameError::Inside.into());
            }
            Ok(Box::new(good.into_iter()) as Addrs)
        })
    }
}
