//! The `http` destination: sends records in requests.

mod identity;
mod results;
mod sending;

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::destination::{Destination, DestinationKind, Retry, WritePolicy, Writer};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::format::{FormatSettings, RecordFormat};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Argument, ByteSize, Choice, Parameter, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_template::MissingKey;
use async_trait::async_trait;
use reqwest::Method;
use reqwest::header::HeaderName;

use crate::client::{
    Accept, AuthorizedClient, AuthorizedError, Client, Login, LoginSettings, Policy, Retries, ServerTrust,
    TrustSettings,
};
use crate::codes;
use crate::message::{self, Message};
use results::ResultPlaces;
use sending::RecordSender;

/// Records of one write if each has its own request.
const SINGLE_ROWS: usize = 100;
/// Records of one batch.
const BATCH_ROWS: usize = 500;
/// Time for which a batch waits for more records.
const LINGER: Duration = Duration::from_millis(100);

/// Returns the `http` destination for the registry.
pub fn kind() -> Arc<dyn DestinationKind> {
    let specification = Specification::builtin("http", "Sends records in HTTP requests, one by one or in batches.")
        .describe(include_str!("destination/description.md"))
        .with_all(shared::destination());
    kind::destination(specification, |settings: Settings| configure(&settings))
}

#[derive(Parameters)]
struct Settings {
    #[parameter(nested, adjust = posting)]
    request: message::Settings,
    #[parameter(flatten)]
    concurrency: message::Concurrency,
    #[parameter(flatten)]
    headers: message::Headers,
    /// Records of a request: single (one), array (a batch, as a JSON array) or ndjson (a batch, one line per record).
    #[parameter(default = "single")]
    batch: BatchFormat,
    /// Order of requests: all (one after another), key (those of records with the same key) or none. With key and none,
    /// up to request.concurrency requests are in flight.
    #[parameter(default = "all")]
    order: SendOrder,
    /// Approximate maximum size of the body of a batch; a larger record is sent alone.
    #[parameter(default = "1MiB", greater_than = 0, less_than = 1_073_741_825)]
    max_body_bytes: ByteSize,
    /// Header with the idempotency key; none = no header.
    #[parameter(default = "Idempotency-Key")]
    idempotency_header: Argument<Str>,
    #[parameter(flatten, adjust = retrying)]
    retries: Retries,
    #[parameter(nested)]
    results: results::Settings,
    #[parameter(nested)]
    response: ResponseLimits,
    #[parameter(flatten)]
    login: LoginSettings,
    #[parameter(nested)]
    tls: TrustSettings,
    #[parameter(flatten, adjust = raw)]
    format: FormatSettings,
}

#[derive(Parameters)]
struct ResponseLimits {
    /// Statuses that count as success in addition to 2xx: `404`, `4xx`, `400-404`.
    accept: Argument<Vec<Str>>,
    /// Maximum size of an answer.
    #[parameter(default = "16MiB", greater_than = 0)]
    max_bytes: ByteSize,
}

fn posting(parameter: Parameter) -> Parameter {
    if parameter.name == "request.method" { parameter.default_value("POST") } else { parameter }
}

fn retrying(parameter: Parameter) -> Parameter {
    if parameter.name == "backoffRetry.count" { parameter.default_value("3") } else { parameter }
}

fn raw(parameter: Parameter) -> Parameter {
    if parameter.name == "sdk.record.format" { parameter.default_value("recfmt/raw") } else { parameter }
}

/// How records are put into the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchFormat {
    Single,
    Array,
    Ndjson,
}

impl Choice for BatchFormat {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("single", BatchFormat::Single), ("array", BatchFormat::Array), ("ndjson", BatchFormat::Ndjson)];
}

/// Which requests wait for earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendOrder {
    All,
    Key,
    None,
}

impl Choice for SendOrder {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("all", SendOrder::All), ("key", SendOrder::Key), ("none", SendOrder::None)];
}

fn configure(settings: &Settings) -> Result<Arc<dyn Destination>, Diagnostics> {
    let mut findings = Diagnostics::new();
    let media = match settings.batch {
        BatchFormat::Single | BatchFormat::Array => "application/json",
        BatchFormat::Ndjson => "application/x-ndjson",
    };
    let message = message::compile(&settings.request, &settings.headers, Some(media), MissingKey::Error, &mut findings);
    let login = settings.login.login(&mut findings);
    if let Some(message) = &message
        && !matches!(login, Login::None)
        && message.sets(&reqwest::header::AUTHORIZATION)
    {
        let text = "the settings auth.* and headers.Authorization exclude each other";
        findings.push(settings.request.place_of_url().finding(codes::SETTINGS_INVALID, text));
    }
    let header = settings.idempotency_header.trim();
    let idempotency = match HeaderName::from_bytes(header.as_bytes()) {
        _ if header.is_empty() || header.eq_ignore_ascii_case("none") => None,
        Ok(name) if message.as_ref().is_some_and(|message| message.sets(&name)) => {
            let text = "another setting sets this header: set idempotencyHeader to none, or remove that setting";
            findings.push(settings.idempotency_header.invalid(text));
            None
        }
        Ok(name) => Some(name),
        Err(_) => {
            findings.push(settings.idempotency_header.invalid("this is not the name of a header"));
            None
        }
    };
    let format = RecordFormat::new(&settings.format).map_err(|found| findings.0.extend(found)).ok();
    let results = settings.results.places(&mut findings);
    let accept = Accept::of(&settings.response.accept, &mut findings);
    let concurrency = if settings.order == SendOrder::All { 1 } else { settings.concurrency.requests };
    let policy = Policy {
        concurrency,
        per_minute: Some(settings.request.per_minute).filter(|most| *most > 0.0),
        timeout: Some(settings.request.timeout).filter(|limit| !limit.is_zero()),
        retry: settings.retries.retry(),
        accept,
        body_limit: settings.response.max_bytes.0,
        disguised: None,
    };
    let (Some(message), Some(format), false) = (message, format, findings.has_errors()) else {
        return Err(findings);
    };
    Ok(Arc::new(HttpDestination {
        trust: settings.tls.trust(),
        login,
        rules: Arc::new(SendingRules {
            message,
            format,
            batch: settings.batch,
            order: settings.order,
            body_bytes: settings.max_body_bytes.to_usize(),
            idempotency,
            results,
            policy,
        }),
    }))
}

/// The settings of a destination that concern single writes.
struct SendingRules {
    message: Message,
    format: RecordFormat,
    batch: BatchFormat,
    order: SendOrder,
    body_bytes: usize,
    /// Header with the idempotency key.
    idempotency: Option<HeaderName>,
    results: ResultPlaces,
    policy: Policy,
}

struct HttpDestination {
    trust: ServerTrust,
    login: Login,
    rules: Arc<SendingRules>,
}

impl HttpDestination {
    fn client(&self, host: &Host) -> Result<AuthorizedClient, Fault> {
        let tls = self.trust.read()?;
        let client = Client::new(&tls, host.network, self.rules.policy.clone())?.advising("set request.url to it");
        AuthorizedClient::new(client, &self.login, &tls, host.network)
    }
}

#[async_trait]
impl Destination for HttpDestination {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(RecordSender::new(self.rules.clone(), self.client(host)?, host)))
    }

    fn flow(&self, flow: &mut Flow) {
        let rules = &self.rules;
        rules.message.flow(flow);
        rules.message.judge(flow, true);
        rules.format.flow(flow, true);
        flow.may_fail();
        if let Some(limit) = rules.policy.timeout {
            let message = format!("no server answers in {limit:?}: every request fails");
            flow.need_unit("request.timeout", limit, message, "10s");
        }
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        let tls = self.trust.read()?;
        let policy = Policy { retry: crate::client::Retry::NEVER, ..self.rules.policy.clone() };
        let client = Client::new(&tls, Default::default(), policy)?;
        let client = AuthorizedClient::new(client, &self.login, &tls, Default::default())?;
        let Some(url) = self.rules.message.same_url() else { return Ok(Vec::new()) };
        // Any answer shows that the server can be reached.
        let request = client.client().request(Method::HEAD, url.clone())?;
        match client.send(request).await {
            Ok(_) => Ok(Vec::new()),
            Err(AuthorizedError::Unsent(fault)) => Err(fault),
            Err(AuthorizedError::Request(error)) => match error.status() {
                Some(status) if matches!(status.as_u16(), 401 | 407) => {
                    Ok(vec![format!("the server answers HEAD with {status}: check the credentials")])
                }
                Some(_) => Ok(Vec::new()),
                None => Err(error.into()),
            },
        }
    }

    fn policy(&self) -> WritePolicy {
        let (rows, linger) = match self.rules.batch {
            BatchFormat::Single => (SINGLE_ROWS, Duration::ZERO),
            BatchFormat::Array | BatchFormat::Ndjson => (BATCH_ROWS, LINGER),
        };
        WritePolicy { rows, bytes: self.rules.body_bytes, linger, retry: Retry::Idempotent }
    }

    fn written(&self, record: &Record) -> Option<Result<Vec<u8>, Fault>> {
        Some(self.rules.body(record))
    }
}

#[cfg(test)]
mod tests;
