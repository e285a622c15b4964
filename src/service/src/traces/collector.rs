//! A collector with the OpenTelemetry protocol: protobuf in HTTP requests.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_plugin::trace::{Attribute, Span, SpanError, SpanKind};
use anabranch_record::text::Str;
use anabranch_settings::TraceSettings;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind as Kind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as Outcome;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Sent, SpanFlags, Status};
use prost::Message as _;
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use tokio::task::spawn_blocking;

use super::SpansRejected;

/// Time limit of a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// Time limit of a request.
const REQUEST: Duration = Duration::from_secs(10);
/// Maximum wait that a collector may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Maximum bytes of a response that are read.
const ANSWER: usize = 64 << 10;
/// The flag of a sampled trace.
const SAMPLED: u32 = 1;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A collector.
pub(super) struct Collector {
    client: Client,
    url: String,
    headers: HeaderMap,
    settings: TraceSettings,
    resource: Resource,
}

impl Collector {
    /// Creates the client. Does not connect.
    pub(super) fn new(settings: &TraceSettings) -> Result<Self, String> {
        // Another module may have installed it; this program has only one provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            Client::builder()
                .user_agent(concat!("anabranch/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT)
                .timeout(REQUEST)
                .redirect(Policy::none())
        };
        let client = builder().build().or_else(|error| {
            // A machine without certificates can still use plain HTTP.
            tracing::warn!(%error, "no system certificates: traces cannot be sent to an https endpoint");
            builder().tls_certs_only([]).build()
        });
        let own = [("service.name", settings.service.as_str()), ("service.version", VERSION)];
        let more = settings.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let is_new = |(name, _): &(&str, &str)| own.iter().all(|(known, _)| known != name);
        let attributes = own.into_iter().chain(more.filter(is_new)).map(|(name, value)| text(name, value)).collect();
        Ok(Collector {
            client: client.map_err(|error| error.to_string())?,
            url: settings.endpoint.clone(),
            headers: header_map(&settings.headers)?,
            settings: settings.clone(),
            resource: Resource { attributes, ..Resource::default() },
        })
    }

    /// Encodes the body of a request.
    pub(super) fn encode(&self, spans: &[Span]) -> Bytes {
        let scope = InstrumentationScope {
            name: "anabranch".to_owned(),
            version: VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        let spans = ScopeSpans { scope: Some(scope), spans: spans.iter().map(sent).collect(), ..ScopeSpans::default() };
        let resource = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![spans],
            ..ResourceSpans::default()
        };
        ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec().into()
    }

    /// Returns the headers, with the current credentials of their file.
    async fn headers(&self) -> HeaderMap {
        if !self.settings.credential.is_in_file() {
            return self.headers.clone();
        }
        let settings = self.settings.clone();
        let now = spawn_blocking(move || header_map(&settings.headers_now())).await;
        now.ok().and_then(Result::ok).unwrap_or_else(|| self.headers.clone())
    }

    /// Posts a body. The collector may accept it partially.
    ///
    /// # Errors
    /// The collector accepted nothing.
    pub(super) async fn post(&self, body: Bytes) -> Result<Option<SpansRejected>, SpansRejected> {
        let request = self.client.post(&self.url).headers(self.headers().await).body(body);
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => {
                let what = said(&error.without_url());
                return Err(SpansRejected { what, spans: None, is_passing: true, wait: None });
            }
        };
        let status = answer.status();
        if !status.is_success() {
            return Err(refused(status, answer.headers()));
        }
        // Success counts even if the response cannot be decoded.
        let answer = ExportTraceServiceResponse::decode(beginning(answer).await).unwrap_or_default();
        let partial = answer.partial_success.filter(|partial| partial.rejected_spans > 0);
        Ok(partial.map(|partial| SpansRejected {
            what: format!("the collector did not accept all spans: {}", partial.error_message),
            spans: Some(partial.rejected_spans.unsigned_abs()),
            is_passing: false,
            wait: None,
        }))
    }
}

/// Returns the headers of a request.
fn header_map(given: &[(String, Str)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    for (name, value) in given {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn refused(status: StatusCode, headers: &HeaderMap) -> SpansRejected {
    let advice = match status.as_u16() {
        401 | 403 => "; check the credentials in traces.headers",
        404 => "; check traces.endpoint",
        300..=399 => "; the service does not follow redirects",
        _ => "",
    };
    let seconds = headers.get(header::RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.trim().parse().ok());
    SpansRejected {
        what: format!("the collector responded with {status}{advice}"),
        spans: None,
        is_passing: matches!(status.as_u16(), 429 | 502..=504),
        wait: seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT)),
    }
}

/// Returns the message of an error with its causes.
fn said(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Returns the body of a response, up to a broken connection; empty if it is too long.
async fn beginning(mut answer: Response) -> Bytes {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        if body.len() + chunk.len() > ANSWER {
            return Bytes::new();
        }
        body.extend_from_slice(&chunk);
    }
    body.into()
}

fn text(name: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) });
    KeyValue { key: name.to_owned(), value, ..KeyValue::default() }
}

fn attribute(name: &str, value: &Attribute) -> KeyValue {
    let value = match value {
        Attribute::Text(value) => return text(name, value),
        Attribute::Number(value) => Value::IntValue(*value),
        Attribute::Bool(value) => Value::BoolValue(*value),
    };
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn nanos(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Converts a span to its protobuf form.
fn sent(span: &Span) -> Sent {
    let kind = match span.kind {
        SpanKind::Record => Kind::Consumer,
        SpanKind::Step => Kind::Internal,
        SpanKind::Request => Kind::Client,
        SpanKind::Write => Kind::Producer,
    };
    let mut flags = SAMPLED | SpanFlags::ContextHasIsRemoteMask as u32;
    if span.parent_is_remote {
        flags |= SpanFlags::ContextIsRemoteMask as u32;
    }
    let mut attributes: Vec<KeyValue> = span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let status = span.error.as_ref().map(|SpanError { code, message }| {
        attributes.push(text("error.type", code));
        Status { message: message.to_string(), code: Outcome::Error as i32 }
    });
    let link = span.link.map(|link| Link {
        trace_id: link.trace.0.get().to_be_bytes().into(),
        span_id: link.span.0.get().to_be_bytes().into(),
        flags: SAMPLED,
        ..Link::default()
    });
    Sent {
        trace_id: span.context.trace.0.get().to_be_bytes().into(),
        span_id: span.context.span.0.get().to_be_bytes().into(),
        parent_span_id: span.parent.map(|parent| parent.0.get().to_be_bytes().into()).unwrap_or_default(),
        flags,
        name: span.name.to_string(),
        kind: kind as i32,
        start_time_unix_nano: nanos(span.start),
        end_time_unix_nano: nanos(span.end),
        attributes,
        links: link.into_iter().collect(),
        status,
        ..Sent::default()
    }
}
