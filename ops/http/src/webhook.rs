//! `webhook.http`: sends a request per record, and stores the answer in the record.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Texts, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{
    AsyncOperator, BuiltAsync, ConfiguredOperator, Decision, OperatorContext, OperatorKind, Signature,
};
use anabranch_plugin::parameters::{Argument, ByteSize, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Reference, Target};
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::FutureExt;
use futures::stream::{self, Stream, StreamExt};
use reqwest::StatusCode;

use crate::client::{Accept, Answer, Client, Policy, Retries, ServerTrust, TrustSettings};
use crate::message::{self, Message};

/// Maximum size of bodies that are copied out of the connection's read buffer, so that they do not keep it in memory.
const COPIED: usize = 64 << 10;

/// Returns the `webhook.http` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::operator(specification(), configure)
}

#[derive(Parameters)]
struct Settings {
    #[parameter(nested)]
    request: message::Settings,
    #[parameter(flatten)]
    concurrency: message::Concurrency,
    #[parameter(flatten)]
    content: message::BodySettings,
    #[parameter(flatten)]
    headers: message::Headers,
    #[parameter(flatten)]
    retries: Retries,
    #[parameter(nested)]
    response: Response,
    #[parameter(nested)]
    tls: TrustSettings,
}

#[derive(Parameters)]
struct Response {
    /// Field for the body of the answer.
    #[parameter(default = ".Payload.After", within = [".Metadata", ".Key", ".Payload"])]
    body: Argument<Reference>,
    /// Field for the status of the answer, as text.
    #[parameter(within = [".Metadata", ".Key", ".Payload"])]
    status: Option<Argument<Reference>>,
    /// Statuses that count as success in addition to 2xx: `404`, `4xx`, `400-404`.
    accept: Argument<Vec<Str>>,
    /// Maximum size of an answer; a larger one fails the record.
    #[parameter(default = "16MiB", greater_than = 0)]
    max_bytes: ByteSize,
}

fn specification() -> Specification {
    Specification::builtin("webhook.http", "Sends an HTTP request per record and stores the answer in the record.")
        .describe(
            "Sends a request per record. URL, headers and body are templates over the record; a text without `{{` \
             is a constant. Values that a template puts into a URL are not escaped: write `{{ urlquery .x }}`, \
             and `{{ urlquery (printf \"%s\" .Key) }}` for raw data.\n\n\
             The body of the answer replaces the field `response.body`: raw data in `.Key` and `.Payload.After`, \
             text in a field (bytes if it is not UTF-8).\n\n\
             A status outside 2xx fails the record, unless `response.accept` contains it. After 408, 429, 5xx, \
             and broken or failed connections, the request is retried `backoffRetry.count` times, not before the \
             time in `Retry-After`. So a request may reach the server more than once.\n\n\
             A 429 or 503 with a `Retry-After` of at most 5 minutes also delays later requests of the processor, \
             even without retries; a warning is logged. Records that arrived together leave together, so an error \
             is reported after the last of them.\n\n\
             A 401 or 407 means that the credentials are invalid, and not the record. The pipeline recovers and \
             sends the request again for `pipelines.error-recovery.login-patience`, with secrets that are read \
             again, and no record is lost. If the server or the credentials depend on the record (a template \
             before the path of `request.url`, or in a header such as `Authorization`), the record fails instead. \
             A 403 always fails the record.\n\n\
             Redirects are not followed: a 3xx fails the record with an error that names the target, and is not \
             retried. Services with Go's HTTP client follow redirects: a pipeline that comes from such a service \
             may need another `request.url`.\n\n\
             Up to `request.concurrency` requests are in flight. Records leave in the order in which they \
             arrived; with a concurrency of 1, the requests are in that order too.\n\n\
             `pipelines dry-run`, `plan --analyze`, `processors run` and replays of dead letters send the \
             requests too. If requests change data, test the pipeline with the address of a test server.",
        )
        .with_all(shared::processor())
}

fn configure(settings: Settings) -> Result<Webhook, Diagnostics> {
    let Settings { request, concurrency, content, headers, retries, response, tls } = settings;
    let mut findings = Diagnostics::new();
    let message = message::compile_with_body(&request, content, &headers, &mut findings);
    let destination = destination(&response, &mut findings);
    let accept = Accept::of(&response.accept, &mut findings);
    let policy = Policy {
        concurrency: concurrency.requests,
        per_minute: Some(request.per_minute).filter(|most| *most > 0.0),
        timeout: Some(request.timeout).filter(|limit| !limit.is_zero()),
        retry: retries.retry(),
        accept,
        body_limit: response.max_bytes.0,
        disguised: None,
    };
    let trust = tls.trust();
    match (message, destination) {
        (Some(message), Some(destination)) if !findings.has_errors() => {
            let is_body_placed = response.body.is_given();
            Ok(Webhook { message: Arc::new(message), destination, policy, is_body_placed, trust })
        }
        _ => Err(findings),
    }
}

/// Fields for the parts of an answer.
#[derive(Clone)]
struct Destination {
    body: Reference,
    status: Option<Reference>,
}

fn destination(response: &Response, findings: &mut Diagnostics) -> Option<Destination> {
    let place = |setting: &Argument<Reference>, findings: &mut Diagnostics| {
        let reference: &Reference = setting;
        let hint = match reference.target() {
            Target::Metadata => "name one entry, for example .Metadata.answer",
            Target::Payload => "did you mean .Payload.After?",
            _ => return Some(reference.clone()),
        };
        findings.push(setting.invalid(format_args!("{reference} cannot be set to a text")).with_hint(hint));
        None
    };
    let body = place(&response.body, findings);
    let status = response.status.as_ref().map(|setting| (setting, place(setting, findings)));
    if let (Some(body), Some((setting, Some(status)))) = (&body, &status)
        && body.access().overlaps(&status.access())
    {
        let what = format!("{status} and the response.body {body} would overwrite each other");
        findings.push(setting.invalid(what).with_related(response.body.span(), "the body goes here"));
    }
    Some(Destination { body: body?, status: status.and_then(|(_, status)| status) })
}

struct Webhook {
    message: Arc<Message>,
    destination: Destination,
    policy: Policy,
    /// True if the settings contain the field for the answer.
    is_body_placed: bool,
    trust: ServerTrust,
}

impl ConfiguredOperator for Webhook {
    type Built = BuiltAsync;

    fn signature(&self) -> Signature {
        let Destination { body, status } = &self.destination;
        Signature::new()
            // With several strips in flight, the order of requests would be undefined.
            .max_workers((self.policy.concurrency == 1).then_some(1))
            .reads(self.message.reads())
            .writes(Access::union([body].into_iter().chain(status).map(Reference::access)))
    }

    fn flow(&self, flow: &mut Flow) {
        self.message.flow(flow);
        flow.may_fail();
        let Destination { body, status } = &self.destination;
        self.message.judge(flow, self.is_body_placed);
        if let Some(limit) = self.policy.timeout {
            let message = format!("no server answers in {limit:?}: every request fails");
            flow.need_unit("request.timeout", limit, message, "10s");
        }
        flow.set("response.body", body, Type::of(Kinds::TEXT | Kinds::BYTES));
        if let Some(status) = status {
            flow.set("response.status", status, Type::of(Kinds::TEXT));
            if let Target::Entry(key) = status.target() {
                let good = (100..600).filter_map(|code| StatusCode::from_u16(code).ok());
                let good = good.filter(|code| code.is_success() || self.policy.accept.contains(*code));
                let texts = good.map(|code| Str::from(code.as_str())).collect();
                let hint = "any other status fails the record; to accept a status, add it to response.accept";
                flow.record.metadata.insert_one_of(key.clone(), Texts::Listed { texts: Arc::new(texts), hint });
            }
        }
    }

    fn build(&self, context: &OperatorContext) -> Result<BuiltAsync, Fault> {
        let tls = self.trust.read()?;
        let client = Client::new(&tls, context.host.network, self.policy.clone())?;
        Ok(Arc::new(Requests {
            message: self.message.clone(),
            destination: self.destination.clone(),
            concurrency: self.policy.concurrency,
            client: client.advising("set request.url to it"),
        }))
    }
}

struct Requests {
    message: Arc<Message>,
    destination: Destination,
    concurrency: usize,
    client: Client,
}

#[async_trait]
impl AsyncOperator for Requests {
    async fn call(&self, rows: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
        self.exchanges(rows).collect().await
    }
}

impl Requests {
    fn exchanges<'r>(&'r self, rows: &'r mut [Record]) -> impl Stream<Item = Decision> + Send + 'r {
        // The future of an exchange takes kilobytes: box it, because it is moved several times.
        stream::iter(rows).map(|record| self.exchange(record).boxed()).buffered(self.concurrency)
    }

    async fn exchange(&self, record: &mut Record) -> Decision {
        let done = self.answer(record).await.and_then(|answer| self.destination.put(answer, record));
        done.map_or_else(Decision::Fail, |()| Decision::Keep)
    }

    async fn answer(&self, record: &Record) -> Result<Answer, Fault> {
        self.destination.check(record)?;
        let turn = self.client.turn().await;
        let request = self.message.request(record, &self.client)?;
        self.client.send(turn, request).await.map_err(|error| {
            match error.is_of_login() && self.message.is_one_login() {
                true => error.into_login_fault(),
                false => error.into(),
            }
        })
    }
}

impl Destination {
    /// Fails if the answer could not be stored, before the request is sent.
    fn check(&self, record: &Record) -> Result<(), Fault> {
        self.body.has_parent(record)?;
        self.status.as_ref().map_or(Ok(false), |status| status.has_parent(record)).map(drop)
    }

    fn put(&self, answer: Answer, record: &mut Record) -> Result<(), Fault> {
        let Answer { status, body, .. } = answer;
        match self.body.target() {
            Target::Data(_) => self.body.set_data(record, Data::Raw(unpinned(body)))?,
            _ => match std::str::from_utf8(&body) {
                Ok(text) => self.body.set(record, Value::from(text))?,
                Err(_) => self.body.set_data(record, Data::Raw(body))?,
            },
        }
        match &self.status {
            Some(place) => place.set(record, Value::from(status.as_str())),
            None => Ok(()),
        }
    }
}

fn unpinned(body: Bytes) -> Bytes {
    if body.len() <= COPIED { Bytes::copy_from_slice(&body) } else { body }
}

#[cfg(test)]
mod tests;
