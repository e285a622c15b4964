//! The `http` source: receives records in requests.

mod address;
mod admission;
mod authentication;
mod body;
mod connections;
mod held;
mod idle;
mod intake;
mod path;
mod ports;
mod position;
mod receiver;
mod refusal;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anabranch_ops_tls::Identity;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Keys, RecordShape, Shape};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Argument, ByteSize, Choice, Parameters, shared};
use anabranch_plugin::source::{
    Acker, Backlog, OpenedSource, Read, Reader, RefusedRequests, Room, Source, SourceKind, Undelivered,
};
use anabranch_plugin::specification::Specification;
use anabranch_record::extent::Extent;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::phrase::counted;
use anabranch_record::text::Str;
use anabranch_record::{Data, Position};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use hyper::header::HeaderName;
use tokio_rustls::TlsAcceptor;

use crate::codes;
use address::ListenAddress;
use admission::RequestLoad;
use authentication::Authentication;
pub use body::{BodyFormat, InvalidBody};
use connections::{ConnectionRules, Listener};
use held::HeldRequests;
use intake::Intake;
use path::AcceptedPath;
use ports::ClaimedAddress;
use receiver::{Confirm, HttpReceiver, RequestRules};
use refusal::{RefusalLog, RefusedRequest};

/// Prefix of metadata with the value of a header.
const HEADER: &str = "http.header.";
/// Headers that carry credentials, and never become metadata.
const SECRET: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];
/// Parts of the names of other such headers, such as `x-hub-signature-256`, `stripe-signature` and `x-gitlab-token`.
const SECRET_PARTS: [&str; 5] = ["signature", "token", "secret", "api-key", "apikey"];

/// A request as [`decode_request`] reads it.
#[derive(Debug, Default)]
pub struct DecodedRequest {
    /// True if a signature of the request is valid.
    pub is_signed: bool,
    /// Records of the body, for each format in which it is valid.
    pub records: Vec<Vec<Data>>,
}

/// Reads a request as the source reads it, for fuzz targets. The first line is the value of a header with a signature, and
/// the rest is the body, which may be compressed.
pub fn decode_request(input: &[u8]) -> DecodedRequest {
    /// Maximum size and number of records.
    const MOST: (usize, usize) = (1 << 20, 1 << 20);
    let (header, body) = input.split_at(input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len()));
    let body = body.get(1..).unwrap_or_default();
    let is_signed = authentication::is_signed_by_nobody(header, body);
    let unpacked = body::inflate(body, MOST.0, |_| true).unwrap_or_else(|_| Bytes::copy_from_slice(body));
    let formats = BodyFormat::CHOICES.iter().map(|(_, format)| format.records(&unpacked, MOST.1));
    DecodedRequest { is_signed, records: formats.filter_map(Result::ok).collect() }
}

/// Returns the `http` source for the registry.
pub fn kind() -> Arc<dyn SourceKind> {
    let specification = Specification::builtin("http", "Receives records in HTTP requests.")
        .describe(include_str!("listen/description.md"))
        .with_all(shared::source());
    kind::source(specification, |settings: Settings| configure(&settings))
}

#[derive(Parameters)]
struct Settings {
    /// Address to listen on: `127.0.0.1:8080`, `0.0.0.0:8080` for all interfaces, port 0 for a free port (see the log).
    #[parameter(example = "127.0.0.1:8080")]
    address: Argument<Str>,
    /// Paths at which records are accepted, such as `/orders, /hooks/*`. `*` accepts every path below.
    #[parameter(default = "/")]
    paths: Argument<Vec<Str>>,
    /// Accepted methods.
    #[parameter(default = "POST", one_of = ["POST", "PUT", "PATCH"])]
    methods: Vec<Str>,
    /// Records of a body: json (the body is one record), array (each element of a JSON array), ndjson (each line, in
    /// JSON) or raw (the body is one record of raw data).
    #[parameter(default = "json")]
    format: BodyFormat,
    /// When a request is answered: delivered (its records are durable at their destinations) or accepted (the service
    /// has them in memory; they are lost if it ends before they are delivered).
    #[parameter(default = "delivered")]
    respond: Confirm,
    /// Time within which records must be delivered. After that, the answer is 503, and the client has to repeat the
    /// request.
    #[parameter(default = "30s", greater_than = 0)]
    timeout: Duration,
    /// Time within which the head of a request must arrive, and then its body. A connection without a request for this time is
    /// closed.
    #[parameter(default = "30s", greater_than = 0)]
    read_timeout: Duration,
    /// Delay after which clients repeat a request, in the header Retry-After of 429 and 503.
    #[parameter(default = "1s", greater_than = 0)]
    retry_after: Duration,
    /// Headers that become metadata: `X-GitHub-Event` becomes `http.header.x-github-event`.
    headers: Argument<Vec<Str>>,
    #[parameter(nested)]
    auth: authentication::Settings,
    #[parameter(nested)]
    limits: Limits,
    #[parameter(nested)]
    tls: Certificate,
}

#[derive(Parameters)]
struct Limits {
    /// Maximum size of a body, as received and as decompressed. A larger one is answered with 413.
    #[parameter(default = "1MiB", greater_than = 0, less_than = 1_073_741_825)]
    body_bytes: Argument<ByteSize>,
    /// Maximum number of records of a body. More are answered with 413.
    #[parameter(default = 10000, greater_than = 0)]
    records: usize,
    /// Maximum number of requests whose records are not delivered yet. Others are answered with 429.
    #[parameter(default = 1000, greater_than = 0)]
    requests: usize,
    /// Maximum size of all bodies whose records are not delivered yet. Others are answered with 429.
    #[parameter(default = "64MiB", greater_than = 0)]
    bytes: Argument<ByteSize>,
    /// Maximum number of connections. Another one replaces the connection that has waited longest for a request, or waits
    /// until a request is answered.
    #[parameter(default = 1024, greater_than = 0, less_than = 65536)]
    connections: usize,
}

#[derive(Parameters)]
struct Certificate {
    /// PEM file with the certificate of the server and its chain. With it, the source accepts only TLS.
    certificate: Argument<Option<PathBuf>>,
    /// PEM file with the private key of the certificate.
    key: Argument<Option<PathBuf>>,
}

impl Choice for Confirm {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("delivered", Confirm::Delivered), ("accepted", Confirm::Accepted)];
}

/// Returns `true` if a header has credentials or a signature.
fn is_secret(name: &HeaderName) -> bool {
    SECRET.contains(&name.as_str()) || SECRET_PARTS.iter().any(|part| name.as_str().contains(part))
}

fn configure(settings: &Settings) -> Result<Arc<dyn Source>, Diagnostics> {
    let mut findings = Diagnostics::new();
    let Settings { address, paths, headers, auth, limits, tls, .. } = settings;
    let port = address.rsplit_once(':').and_then(|(host, port)| {
        let is_host = !host.trim().is_empty() && !host.contains('/');
        is_host.then(|| port.trim().parse::<u16>())
    });
    if !matches!(port, Some(Ok(_))) {
        let hint = "for example 127.0.0.1:8080, without http:// and without a path";
        findings.push(address.invalid("this is not an address with a port").with_hint(hint));
    }
    let mut accepted = Vec::new();
    for path in paths.iter() {
        match AcceptedPath::parse(path) {
            Ok(path) => accepted.push(path),
            Err(why) => findings.push(paths.invalid(why).with_hint("for example /orders or /hooks/*")),
        }
    }
    let mut copied: Vec<(HeaderName, Str)> = Vec::new();
    for name in headers.iter() {
        match HeaderName::from_bytes(name.trim().as_bytes()) {
            Ok(name) if is_secret(&name) => {
                findings.push(headers.invalid(format_args!("{name} carries credentials, which never become metadata")));
            }
            Ok(name) if copied.iter().any(|(other, _)| *other == name) => {}
            Ok(name) => {
                let key = Str::from(format!("{HEADER}{name}"));
                copied.push((name, key));
            }
            Err(_) => findings.push(headers.invalid(format_args!("{:?} is not the name of a header", name.as_str()))),
        }
    }
    let (body_bytes, bytes) = (limits.body_bytes.to_usize(), limits.bytes.to_usize());
    if bytes / 2 < body_bytes {
        let text = "limits.bytes must be at least twice limits.bodyBytes, for a body and its decompressed form";
        findings.push(limits.bytes.finding(codes::SETTINGS_INVALID, text));
    }
    let identity = match (tls.certificate.as_ref(), tls.key.as_ref()) {
        (Some(certificates), Some(key)) => Some(Identity { certificates: certificates.clone(), key: key.clone() }),
        (Some(_), None) => {
            findings.push(tls.key.finding(codes::SETTINGS_REQUIRED, "tls.key is required with tls.certificate"));
            None
        }
        (None, Some(_)) => {
            let text = "tls.certificate is required with tls.key";
            findings.push(tls.certificate.finding(codes::SETTINGS_REQUIRED, text));
            None
        }
        (None, None) => None,
    };
    let authentication = auth.authentication(&mut findings);
    if findings.has_errors() {
        return Err(findings);
    }
    let methods = settings.methods.iter().filter_map(|name| Method::from_bytes(name.as_bytes()).ok()).collect();
    let rules = RequestRules {
        paths: accepted,
        methods,
        headers: copied,
        format: settings.format,
        confirm: settings.respond,
        timeout: settings.timeout,
        read_timeout: settings.read_timeout,
        retry_after: settings.retry_after,
        body_bytes,
        records: limits.records,
    };
    Ok(Arc::new(HttpSource {
        address: ListenAddress(address.trim().into()),
        rules: Arc::new(rules),
        authentication: Arc::new(authentication),
        load: RequestLoad { requests: limits.requests, bytes },
        held: OnceLock::new(),
        connections: limits.connections,
        identity,
    }))
}

struct HttpSource {
    address: ListenAddress,
    rules: Arc<RequestRules>,
    authentication: Arc<Authentication>,
    /// Maximum of what is in flight.
    load: RequestLoad,
    /// The confirmed requests of the connector; empty before the source is opened.
    held: OnceLock<Arc<HeldRequests>>,
    /// Maximum number of connections.
    connections: usize,
    identity: Option<Identity>,
}

impl HttpSource {
    /// Reads the certificate.
    async fn acceptor(&self) -> Result<Option<TlsAcceptor>, Fault> {
        let Some(identity) = self.identity.clone() else { return Ok(None) };
        let unusable = |error: String| Fault::fatal(codes::TLS_INVALID, error);
        let config = tokio::task::spawn_blocking(move || identity.server()).await;
        let mut config =
            config.map_err(|error| unusable(error.to_string()))?.map_err(|error| unusable(error.to_string()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(TlsAcceptor::from(Arc::new(config))))
    }
}

#[async_trait]
impl Source for HttpSource {
    fn catches_up(&self) -> bool {
        false
    }

    fn undelivered(&self) -> Undelivered {
        match self.rules.confirm {
            Confirm::Delivered => Undelivered::SentAgain,
            Confirm::Accepted => Undelivered::Lost(Some(self.held.get().map_or(0, |held| held.undelivered()))),
        }
    }

    /// Warns about a source that accepts records of anyone in the network.
    fn flow(&self, flow: &mut Flow) {
        if matches!(*self.authentication, Authentication::Anyone) && self.address.is_in_a_network() {
            let message = format!("{} accepts records from anyone who can reach it", self.address);
            let hint = "set one of the settings auth.*, or listen on 127.0.0.1";
            flow.warn(codes::FLOW_SUSPECT, "address", message, None, Some(hint.to_owned()));
        }
    }

    fn takes(&self) -> Option<Extent> {
        self.address.extent()
    }

    fn is_partitioned(&self) -> bool {
        false
    }

    /// Forgets the confirmed requests of a connector that does not exist any more.
    async fn deleted(&self, _: &BTreeMap<Partition, Mark>) -> Result<bool, Fault> {
        let Some(held) = self.held.get() else { return Ok(false) };
        let lost: usize = held.take_after(0).iter().map(|request| request.records.len()).sum();
        held.deliver(lost);
        if lost > 0 {
            tracing::error!(address = %self.address, "{} lost: the connector is deleted", counted(lost, "confirmed record"));
        }
        Ok(false)
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        Some(position::check(position))
    }

    fn shape(&self) -> RecordShape {
        let after = match self.rules.format {
            BodyFormat::Raw => Shape::RAW,
            BodyFormat::Json | BodyFormat::Array | BodyFormat::Ndjson => Shape::decoded_json().join(&Shape::RAW),
        };
        let mut metadata = Keys::of([receiver::METHOD, receiver::PATH]);
        for (_, key) in &self.rules.headers {
            metadata.allow(key.clone());
        }
        RecordShape { metadata, ..RecordShape::create(Shape::ABSENT, after) }
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        self.acceptor().await?;
        let mut warnings = Vec::new();
        let addresses = self.address.look_up().await.unwrap_or_default();
        if !self.address.is_free(&addresses).await? {
            let whose = "by this service if it runs, otherwise by another program";
            warnings.push(format!("{} is in use: {whose}", self.address));
        }
        let is_local = addresses.iter().all(|address| address.ip().is_loopback());
        if matches!(*self.authentication, Authentication::Anyone) && !is_local {
            warnings.push(format!("{} accepts records from anyone: set one of the settings auth.*", self.address));
        }
        if self.identity.is_none() && !matches!(*self.authentication, Authentication::Anyone) && !is_local {
            warnings.push(format!(
                "requests to {} are not encrypted: set tls.certificate, or accept them only from a proxy that uses TLS",
                self.address
            ));
        }
        Ok(warnings)
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        for mark in resume.values().filter(|mark| !mark.position.0.is_empty()) {
            position::check(&mark.position)?;
        }
        let tls = self.acceptor().await?;
        let (socket, claimed) = self.address.bind(host).await?;
        if let Ok(address) = socket.local_addr() {
            let scheme = if tls.is_some() { "https" } else { "http" };
            tracing::info!(
                pipeline = %host.pipeline, connector = %host.node,
                "records are received at {scheme}://{address}"
            );
        }
        let held = self.held.get_or_init(|| held::of(&Str::from(format!("{}:{}", host.pipeline, host.node)))).clone();
        held.admission.limit(self.load);
        let stored = resume.get(&Partition::ONLY).and_then(|mark| held.numbering.number(&mark.position));
        let intake = Intake::new(held.clone(), stored.unwrap_or(0));
        let refused = RefusedRequests::new(&RefusedRequest::REASONS);
        let receiver = HttpReceiver {
            rules: self.rules.clone(),
            authentication: self.authentication.clone(),
            held,
            intake: intake.clone(),
            refusals: RefusalLog::new(host.pipeline.clone(), host.node.clone(), refused.clone()),
        };
        let rules = ConnectionRules { most: self.connections, head: self.rules.read_timeout };
        let listener = Listener::start(socket, tls, Arc::new(receiver), rules);
        let reader = ReceivedRecords { intake: intake.clone(), refused, is_caught_up: false };
        let acker = Confirmations { intake, listener, _claimed: claimed };
        Ok(OpenedSource::new(Box::new(reader), Box::new(acker)))
    }
}

/// Reads the records of accepted requests.
struct ReceivedRecords {
    intake: Arc<Intake>,
    refused: RefusedRequests,
    /// True if the engine knows that nothing more is there.
    is_caught_up: bool,
}

#[async_trait]
impl Reader for ReceivedRecords {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        loop {
            let records = self.intake.take(room);
            if !records.is_empty() {
                self.is_caught_up = false;
                return Ok(Read::Rows { partition: Partition::ONLY, records });
            }
            // The engine then stores positions at once, so that requests do not wait for the next interval.
            if !std::mem::replace(&mut self.is_caught_up, true) {
                return Ok(Read::CaughtUp);
            }
            self.intake.arrival().await;
        }
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        let (records, refused) = (Some(self.intake.waiting()), self.refused.clone());
        Some(Backlog { records, refused, ..Backlog::default() })
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.intake.close();
        Ok(())
    }
}

impl Drop for ReceivedRecords {
    fn drop(&mut self) {
        self.intake.close();
    }
}

/// Confirms requests, and holds the connections.
struct Confirmations {
    intake: Arc<Intake>,
    listener: Listener,
    _claimed: ClaimedAddress,
}

#[async_trait]
impl Acker for Confirmations {
    async fn ack(&mut self, _: &Partition, positions: &[Position]) -> Result<(), Fault> {
        self.intake.acknowledge(positions.len());
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.intake.end();
        self.listener.close().await;
        Ok(())
    }
}

impl Drop for Confirmations {
    fn drop(&mut self) {
        self.intake.end();
    }
}

#[cfg(test)]
mod tests;
