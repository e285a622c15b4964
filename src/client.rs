//! A client of a running service: HTTP with or without TLS, one connection per request, and the websockets of
//! inspections.
//!
//! It connects only to services of this program, whose errors have a known form. So it has no connection pool, follows
//! no redirects and ignores proxies.

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anabranch_ops_tls::TlsError;
use anabranch_record::text::Str;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST};
use axum::http::{HeaderValue, Method, Request, StatusCode};
use futures::StreamExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use anabranch_settings::ApiSettings;

use crate::codes;

/// Time limit of a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit of a response: longer than the limit of the service.
const ANSWER: Duration = Duration::from_secs(35);
/// Maximum bytes of a response.
const BODY: usize = 256 << 20;

/// A websocket to the service.
pub type Socket = WebSocketStream<Connection>;
/// A connection to the service, with or without TLS.
pub type Connection = Box<dyn Stream>;
/// A message of a [`Socket`].
pub type SocketMessage = Message;

/// A stream of bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A client of a running service. Cheap to create: nothing is sent before the first request.
#[derive(Clone)]
pub struct Client {
    host: String,
    port: u16,
    token: Option<Str>,
    tls: Option<TlsConnector>,
}

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The settings turn HTTP off.
    #[error("api.enabled is false: the service has no HTTP API")]
    Disabled,
    /// The settings leave the port to the system.
    #[error("api.http.address has port 0: set the port that the log of the service shows")]
    NoPort,
    /// The token cannot be read.
    #[error("api.http.token-file: {0}")]
    Token(String),
    /// The files for TLS cannot be used.
    #[error("api.http.tls: {0}")]
    Tls(#[from] TlsError),
    /// The server is not trusted, or does not support TLS.
    #[error("cannot open a secure connection to {url}: {what}")]
    Untrusted {
        /// URL of the service.
        url: String,
        /// The error of TLS.
        what: String,
    },
    /// No server accepts connections there.
    #[error("no service answers at {url}: {}", anabranch_process::files::system(.error))]
    Unreachable {
        /// URL of the service.
        url: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The response took too long.
    #[error("the service at {url} did not answer within {} s", .after.as_secs())]
    Silent {
        /// URL of the service.
        url: String,
        /// The time limit.
        after: Duration,
    },
    /// The server does not answer with HTTP, for example because it expects TLS.
    #[error("the program at {url} does not respond with valid HTTP: {what}")]
    NotHttp {
        /// URL of the service.
        url: String,
        /// Description of the error.
        what: String,
    },
    /// The file for the response cannot be written.
    #[error("cannot write {}: {}", .path.display(), anabranch_process::files::system(.error))]
    Unwritten {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The connection broke.
    #[error("the response from {url} is incomplete: {what}")]
    Broken {
        /// URL of the service.
        url: String,
        /// Description of the error.
        what: String,
    },
    /// The server is not this service, or has another version.
    #[error("the program at {url} is not an Anabranch service that supports this request ({status}{what})")]
    Foreign {
        /// URL of the service.
        url: String,
        /// Status of the response.
        status: StatusCode,
        /// Reason why the response cannot be read; empty, or text after a colon.
        what: String,
    },
    /// The service refused the request.
    #[error("{}", .0.message)]
    Refused(ErrorResponse),
}

/// An error response of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// Status of the response.
    pub status: StatusCode,
    /// Stable code: `pipeline.not_found`.
    pub reason: String,
    /// Description of the error.
    pub message: String,
    /// Remedy.
    pub suggestion: Option<String>,
    /// JSON pointer to the invalid part of the request.
    pub path: Option<String>,
}

impl ClientError {
    /// Returns the stable code of the error.
    pub fn code(&self) -> &str {
        let own = match self {
            ClientError::Disabled | ClientError::NoPort => codes::SERVICE_NO_ADDRESS,
            ClientError::Token(_) => codes::API_TOKEN_UNREADABLE,
            ClientError::Tls(_) => codes::API_CERTIFICATE_UNUSABLE,
            ClientError::Untrusted { .. } => codes::SERVICE_UNTRUSTED,
            ClientError::Unreachable { .. } => codes::SERVICE_UNREACHABLE,
            ClientError::Silent { .. } => codes::SERVICE_TIMEOUT,
            ClientError::Broken { .. } | ClientError::NotHttp { .. } => codes::SERVICE_BROKEN_ANSWER,
            ClientError::Unwritten { .. } => codes::CLI_SYSTEM,
            ClientError::Foreign { .. } => codes::SERVICE_FOREIGN,
            ClientError::Refused(refusal) => return &refusal.reason,
        };
        own.name()
    }

    /// Returns the remedy, if there is one.
    pub fn suggestion(&self) -> Option<&str> {
        match self {
            ClientError::Disabled | ClientError::NoPort | ClientError::Unreachable { .. } => {
                Some("start a service with `anabranch run`, or set another address with --api.http.address")
            }
            ClientError::Foreign { .. } => Some("set another address with --api.http.address"),
            ClientError::Untrusted { .. } => Some(
                "set the certificate of its authority with --api.http.tls.ca, and use the host name that its own \
                 certificate contains",
            ),
            ClientError::Refused(refusal) if refusal.status == StatusCode::UNAUTHORIZED => {
                Some("set the token with --api.http.token-file or the variable ANABRANCH_API_HTTP_TOKEN")
            }
            ClientError::Refused(refusal) => match (&refusal.suggestion, refusal.reason.as_str()) {
                (None, reason) if reason == codes::PIPELINE_NOT_FOUND.name() => {
                    Some("`anabranch pipelines list` lists them")
                }
                (suggestion, _) => suggestion.as_deref(),
            },
            ClientError::NotHttp { url, .. } if url.starts_with("http://") => {
                Some("if the service uses TLS, use an address that begins with https://")
            }
            ClientError::Token(_)
            | ClientError::Tls(_)
            | ClientError::Silent { .. }
            | ClientError::Broken { .. }
            | ClientError::NotHttp { .. }
            | ClientError::Unwritten { .. } => None,
        }
    }

    /// Returns `true` if no service is running there.
    pub fn is_absence(&self) -> bool {
        matches!(self, ClientError::Disabled | ClientError::NoPort | ClientError::Unreachable { .. })
    }
}

/// Characters to escape in one segment of a path, or in a value of a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Escapes a text for one segment of a path, or for a value of a query.
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

impl Client {
    /// Creates a client of the service that `run` would start with these settings; `None` means that HTTP is off.
    ///
    /// # Errors
    /// The settings do not contain the address, or the token or the files for TLS cannot be read.
    pub fn of(settings: Option<&ApiSettings>) -> Result<Client, ClientError> {
        let settings = settings.ok_or(ClientError::Disabled)?;
        if settings.port == 0 {
            return Err(ClientError::NoPort);
        }
        let token = settings.read_token().map_err(ClientError::Token)?;
        // An unspecified address means all addresses of this machine; the loopback address is one of them.
        let host = match settings.host.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) if address.is_unspecified() => "127.0.0.1",
            Ok(IpAddr::V6(address)) if address.is_unspecified() => "::1",
            _ if settings.host.is_empty() => "localhost",
            _ => &settings.host,
        };
        let tls = settings.trust().map(|trust| trust.client(None)).transpose()?;
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        Ok(Client { host: host.to_owned(), port: settings.port, token, tls })
    }

    /// Returns the URL of the service: `http://127.0.0.1:8080`.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.authority())
    }

    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Gets the resource at a path, which may have a query. Its parts must be [`escaped`].
    ///
    /// # Errors
    /// The service cannot be reached, or refuses.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(Method::GET, path, None).await
    }

    /// Posts JSON and returns the JSON response.
    ///
    /// # Errors
    /// The service cannot be reached, or refuses.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.json(Method::POST, path, Some(self.written(body)?)).await
    }

    /// Puts JSON at a path and returns the JSON response.
    ///
    /// # Errors
    /// The service cannot be reached, or refuses.
    pub async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.json(Method::PUT, path, Some(self.written(body)?)).await
    }

    /// Deletes the resource at a path.
    ///
    /// # Errors
    /// The service cannot be reached, or refuses.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(Method::DELETE, path, None).await
    }

    /// Gets the resource at a path as text, such as a drawing or metrics.
    ///
    /// # Errors
    /// The service cannot be reached, or refuses.
    pub async fn text(&self, path: &str) -> Result<String, ClientError> {
        let (_, bytes) = self.ask(Method::GET, path, None).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Opens a websocket without a limit on the size of messages.
    ///
    /// # Errors
    /// The service cannot be reached, or refuses.
    pub async fn websocket(&self, path: &str) -> Result<Socket, ClientError> {
        let broken = |what: String| ClientError::Broken { url: self.url(), what };
        let mut request =
            format!("ws://{}{path}", self.authority()).into_client_request().map_err(|e| broken(e.to_string()))?;
        if let Some(token) = self.authorization() {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        let unbounded = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let shaken = client_async_with_config(request, self.connect().await?, Some(unbounded));
        match timeout(ANSWER, shaken).await {
            Ok(Ok((socket, _))) => Ok(socket),
            Ok(Err(tungstenite::Error::Http(answer))) => {
                let status = answer.status();
                Err(self.refused(status, answer.body().as_deref().unwrap_or_default()))
            }
            Ok(Err(error)) => Err(broken(error.to_string())),
            Err(_) => Err(ClientError::Silent { url: self.url(), after: ANSWER }),
        }
    }

    /// Posts a request and writes the response into a file piece by piece.
    ///
    /// # Errors
    /// The service cannot be reached or refuses, or the file cannot be written.
    pub async fn download(&self, path: &str, to: &Path) -> Result<(), ClientError> {
        let broken = |what: String| ClientError::Broken { url: self.url(), what };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, self.authority())
            .header(CONNECTION, "close");
        if let Some(token) = self.authorization() {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Body::empty()).map_err(|error| broken(error.to_string()))?;
        let stream = self.connect().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.failed(&error))?;
        let unwritten = |error: io::Error| ClientError::Unwritten { path: to.into(), error };
        let answered = async move {
            let silent = || ClientError::Silent { url: self.url(), after: ANSWER };
            let answer = timeout(ANSWER, sender.send_request(request)).await.map_err(|_| silent())?;
            let (head, body) = answer.map_err(|error| self.failed(&error))?.into_parts();
            if !head.status.is_success() {
                let body = to_bytes(Body::new(body), BODY).await.map_err(|error| broken(error.to_string()))?;
                return Err(self.refused(head.status, &body));
            }
            let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(to).map_err(unwritten)?;
            let mut parts = Body::new(body).into_data_stream();
            while let Some(part) = timeout(ANSWER, parts.next()).await.map_err(|_| silent())? {
                let part = part.map_err(|error| broken(error.to_string()))?;
                file.write_all(&part).map_err(unwritten)?;
            }
            Ok(())
        };
        // The connection transfers the bytes; its errors also show in the response.
        let (answered, _) = tokio::join!(answered, connection);
        answered
    }

    /// Returns the error for a response without a head.
    fn failed(&self, error: &hyper::Error) -> ClientError {
        let (url, what) = (self.url(), readable(error));
        match error.is_parse() {
            true => ClientError::NotHttp { url, what },
            false => ClientError::Broken { url, what },
        }
    }

    fn written(&self, body: &impl Serialize) -> Result<Vec<u8>, ClientError> {
        serde_json::to_vec(body).map_err(|error| ClientError::Broken { url: self.url(), what: error.to_string() })
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<T, ClientError> {
        let (status, bytes) = self.ask(method, path, body).await?;
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| ClientError::Foreign {
            url: self.url(),
            status,
            what: format!(": {error}"),
        })
    }

    /// Sends one request over its own connection.
    async fn ask(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<(StatusCode, Bytes), ClientError> {
        let broken = |what: String| ClientError::Broken { url: self.url(), what };
        let mut request =
            Request::builder().method(method).uri(path).header(HOST, self.authority()).header(CONNECTION, "close");
        if let Some(token) = self.authorization() {
            request = request.header(AUTHORIZATION, token);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request =
            request.body(body.map_or_else(Body::empty, Body::from)).map_err(|error| broken(error.to_string()))?;
        let stream = self.connect().await?;
        let answered = async {
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.failed(&error))?;
            let answer = async move {
                let answer = sender.send_request(request).await;
                let (head, body) = answer.map_err(|error| self.failed(&error))?.into_parts();
                let bytes = to_bytes(Body::new(body), BODY).await.map_err(|error| broken(error.to_string()))?;
                Ok::<_, ClientError>((head.status, bytes))
            };
            // The connection transfers the bytes; its errors also show in the response.
            let (answer, _) = tokio::join!(answer, connection);
            answer
        };
        let (status, bytes) = match timeout(ANSWER, answered).await {
            Ok(answer) => answer?,
            Err(_) => return Err(ClientError::Silent { url: self.url(), after: ANSWER }),
        };
        if status.is_success() { Ok((status, bytes)) } else { Err(self.refused(status, &bytes)) }
    }

    async fn connect(&self) -> Result<Connection, ClientError> {
        match timeout(CONNECT, TcpStream::connect((self.host.as_str(), self.port))).await {
            Ok(Ok(stream)) => self.secured(stream).await,
            Ok(Err(error)) => Err(ClientError::Unreachable { url: self.url(), error }),
            Err(_) => {
                let error = io::Error::new(io::ErrorKind::TimedOut, "the connection took too long");
                Err(ClientError::Unreachable { url: self.url(), error })
            }
        }
    }

    /// Returns the connection, with TLS if configured.
    async fn secured(&self, stream: TcpStream) -> Result<Connection, ClientError> {
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let untrusted = |what: String| ClientError::Untrusted { url: self.url(), what };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_| untrusted("the host name cannot be in a certificate".to_owned()))?;
        match timeout(CONNECT, tls.connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(untrusted(anabranch_ops_tls::said(&error))),
            Err(_) => Err(ClientError::Silent { url: self.url(), after: CONNECT }),
        }
    }

    fn authorization(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.token.as_ref()?)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        let foreign = || ClientError::Foreign { url: self.url(), status, what: String::new() };
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return foreign() };
        let detail = &body["details"][0];
        let (Some(message), Some(reason)) = (body["message"].as_str(), detail["reason"].as_str()) else {
            return foreign();
        };
        let of = |name: &str| detail["metadata"][name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        ClientError::Refused(ErrorResponse {
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            suggestion: of("suggestion"),
            path: of("configPath"),
        })
    }
}

/// Returns the message of an error of the library with its cause.
fn readable(error: &hyper::Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(host: &str, port: u16) -> ApiSettings {
        let host = host.to_owned();
        ApiSettings {
            host,
            port,
            token: None,
            token_file: None,
            identity: None,
            authorities: None,
            secure: false,
            origins: Vec::new(),
            schemas: None,
            page: false,
            open_metrics: false,
            asked: true,
            named: true,
        }
    }

    /// A server that reads a request and answers with these bytes.
    async fn answering(answer: &'static [u8]) -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        #[allow(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(1..) = stream.read_buf(&mut head).await else { break };
                }
                let _ = stream.write_all(answer).await;
            }
        });
        Client::of(Some(&settings("127.0.0.1", port))).unwrap()
    }

    #[tokio::test]
    async fn only_what_speaks_no_http_is_taken_for_a_server_with_tls() {
        let cut = answering(b"").await.text("/v1/pipelines").await.unwrap_err();
        assert!(matches!(&cut, ClientError::Broken { .. }) && cut.suggestion().is_none(), "{cut:?}");
        let half = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
        let half = half.text("/v1/pipelines").await.unwrap_err();
        assert!(matches!(&half, ClientError::Broken { .. }) && half.suggestion().is_none(), "{half:?}");
        // An alert of TLS.
        let alert = answering(b"\x15\x03\x01\x00\x02\x02\x16").await.text("/v1/pipelines").await.unwrap_err();
        assert!(alert.suggestion().is_some_and(|suggestion| suggestion.contains("https://")), "{alert:?}");
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_not_the_fault_of_the_answer() {
        let client = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ncopy").await;
        let full = client.download("/v1/backup", Path::new("/dev/full")).await.unwrap_err();
        assert_eq!(full.to_string(), "cannot write /dev/full: no space left on device");
        assert_eq!(full.suggestion(), None);
    }

    fn url(host: &str) -> String {
        Client::of(Some(&settings(host, 80))).unwrap().url()
    }

    #[test]
    fn the_service_is_looked_for_where_it_listens() {
        assert_eq!(url("127.0.0.1"), "http://127.0.0.1:80");
        assert_eq!(url("::1"), "http://[::1]:80");
        assert_eq!(url("0.0.0.0"), "http://127.0.0.1:80");
        assert_eq!(url("::"), "http://[::1]:80");
        assert_eq!(url(""), "http://localhost:80");
        assert!(matches!(Client::of(Some(&settings("h", 0))), Err(ClientError::NoPort)));
        assert!(matches!(Client::of(None), Err(ClientError::Disabled)));
        let nowhere = ApiSettings { authorities: Some("/no/such/file".into()), ..settings("h", 1) };
        assert!(matches!(Client::of(Some(&nowhere)), Err(ClientError::Tls(_))));
    }

    #[test]
    fn errors_are_read_in_the_form_of_the_service_only() {
        let client = Client::of(Some(&settings("h", 1))).unwrap();
        let body = br#"{"code":5,"message":"m","details":[{"reason":"a.b","metadata":{"suggestion":"s"}}]}"#;
        let ClientError::Refused(refusal) = client.refused(StatusCode::NOT_FOUND, body) else { panic!("its own form") };
        assert_eq!((refusal.reason.as_str(), refusal.message.as_str()), ("a.b", "m"));
        assert_eq!((refusal.suggestion.as_deref(), refusal.path), (Some("s"), None));
        for other in [&b"<html>"[..], b"", br#"{"message":"m"}"#, b"[]"] {
            assert!(matches!(client.refused(StatusCode::NOT_FOUND, other), ClientError::Foreign { .. }));
        }
    }

    #[test]
    fn ids_are_one_segment() {
        assert_eq!(escaped("a b/c?d#e%"), "a%20b%2Fc%3Fd%23e%25");
        assert_eq!(escaped("a-b_c.d~é"), "a-b_c.d~%C3%A9");
    }
}
