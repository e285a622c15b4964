//! The `http.poll` source: asks a server for records.

mod answer;
mod decimal;
mod end;
mod paging;
mod position;
mod reader;
mod schedule;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Keys, RecordShape, Shape};
use anabranch_plugin::host::Host;
use anabranch_plugin::kind;
use anabranch_plugin::parameters::{Argument, ByteSize, Parameter, Parameters, shared};
use anabranch_plugin::source::{Acker, OpenedSource, Source, SourceKind};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;
use anabranch_record::{Position, Record};
use anabranch_template::MissingKey;
use async_trait::async_trait;
use reqwest::header::AUTHORIZATION;

use crate::client::{
    Accept, AuthorizedClient, Client, Login, LoginSettings, Policy, Retries, ServerTrust, TrustSettings,
};
use crate::codes;
use crate::message::{self, Message};
use crate::pointer::JsonPointer;
use paging::Paging;
use position::{CursorValue, PollPosition};
use reader::PollReader;
use schedule::Schedule;

/// Returns the `http.poll` source for the registry.
pub fn kind() -> Arc<dyn SourceKind> {
    kind_by(SystemTime::now)
}

/// Returns the source with the clock that dates its polls.
fn kind_by(clock: fn() -> SystemTime) -> Arc<dyn SourceKind> {
    let specification = Specification::builtin("http.poll", "Reads records from an HTTP API on a schedule.")
        .describe(include_str!("poll/description.md"))
        .with_all(shared::structured_source());
    kind::source(specification, move |settings: Settings| configure(&settings, clock))
}

#[derive(Parameters)]
struct Settings {
    #[parameter(nested, adjust = without_template)]
    request: message::Settings,
    #[parameter(flatten)]
    headers: message::Headers,
    #[parameter(nested)]
    schedule: schedule::Settings,
    /// JSON pointer to the records in an answer, such as `/data/items`. Without it, the answer is the array, or one record.
    records: Argument<Option<Str>>,
    /// JSON pointer to the key in a record, such as `/id`.
    key: Argument<Option<Str>>,
    #[parameter(nested)]
    cursor: CursorSettings,
    #[parameter(nested)]
    paging: paging::Settings,
    #[parameter(flatten)]
    login: LoginSettings,
    #[parameter(flatten, adjust = retrying)]
    retries: Retries,
    #[parameter(nested)]
    response: AnswerLimits,
    #[parameter(nested)]
    tls: TrustSettings,
}

#[derive(Parameters)]
struct CursorSettings {
    /// JSON pointer to the field of a record whose largest value is kept, such as `/updatedAt`.
    field: Argument<Option<Str>>,
    /// Query parameter for the largest value, such as updated_since.
    parameter: Argument<Option<Str>>,
    /// Value of the parameter in the first poll. Without it, the first poll has no parameter.
    #[parameter(only_with = "cursor.field")]
    initial: Option<Str>,
}

#[derive(Parameters)]
struct AnswerLimits {
    /// Maximum size of an answer. A larger one stops the pipeline.
    #[parameter(default = "16MiB", greater_than = 0)]
    max_bytes: ByteSize,
}

fn retrying(parameter: Parameter) -> Parameter {
    if parameter.name == "backoffRetry.count" { parameter.default_value("3") } else { parameter }
}

fn without_template(parameter: Parameter) -> Parameter {
    match parameter.name.as_str() {
        "request.url" => Parameter {
            description: "URL of the first page, such as `https://api.example.com/items`.".into(),
            ..parameter
        },
        _ => parameter,
    }
}

fn configure(settings: &Settings, clock: fn() -> SystemTime) -> Result<Arc<dyn Source>, Diagnostics> {
    let mut findings = Diagnostics::new();
    let message = message::compile(&settings.request, &settings.headers, None, MissingKey::Error, &mut findings);
    if message.as_ref().is_some_and(|message| !message.is_same_for_all()) {
        let text =
            "request.url and headers.* cannot have templates here, because there is no record before the request";
        findings.push(settings.request.place_of_url().finding(codes::SETTINGS_INVALID, text));
    }
    let login = settings.login.login(&mut findings);
    if !matches!(login, Login::None) && message.as_ref().is_some_and(|message| message.sets(&AUTHORIZATION)) {
        let text = "the settings auth.* and headers.Authorization exclude each other";
        findings.push(settings.request.place_of_url().finding(codes::SETTINGS_INVALID, text));
    }
    let CursorSettings { field, parameter, initial } = &settings.cursor;
    let cursor = match (JsonPointer::of(field, &mut findings), parameter.as_ref()) {
        (Some(field), Some(parameter)) => Some(Cursor {
            field,
            parameter: parameter.trim().into(),
            initial: initial.as_ref().map(|text| CursorValue::Text(text.trim().to_owned())),
        }),
        (None, None) => None,
        (Some(_), None) => {
            findings
                .push(parameter.finding(codes::SETTINGS_REQUIRED, "cursor.parameter is required with cursor.field"));
            None
        }
        (None, Some(_)) => {
            if field.as_ref().is_none() {
                findings
                    .push(field.finding(codes::SETTINGS_REQUIRED, "cursor.field is required with cursor.parameter"));
            }
            None
        }
    };
    let schedule = settings.schedule.schedule(&mut findings);
    let records = JsonPointer::of(&settings.records, &mut findings);
    let key = JsonPointer::of(&settings.key, &mut findings);
    let paging = settings.paging.paging(&mut findings);
    if let (Some(cursor), Some(other)) = (&cursor, paging.parameter())
        && cursor.parameter == *other
    {
        let text = format!("{other} is the parameter of paging as well: a request cannot have both values");
        findings.push(settings.cursor.parameter.invalid(text));
    }
    let mut accept = Accept::default();
    // The text is valid.
    let _ = accept.add("304");
    let policy = Policy {
        concurrency: 1,
        per_minute: Some(settings.request.per_minute).filter(|most| *most > 0.0),
        timeout: Some(settings.request.timeout).filter(|limit| !limit.is_zero()),
        retry: settings.retries.retry(),
        accept,
        body_limit: settings.response.max_bytes.0,
        disguised: Some(answer::invalid_body),
    };
    let (Some(message), false) = (message, findings.has_errors()) else { return Err(findings) };
    Ok(Arc::new(PollSource {
        trust: settings.tls.trust(),
        login,
        policy,
        rules: Arc::new(PollRules { message, schedule, clock, records, key, cursor, paging }),
    }))
}

/// The incremental cursor.
struct Cursor {
    field: JsonPointer,
    parameter: Str,
    initial: Option<CursorValue>,
}

/// The settings of a source that concern polls.
struct PollRules {
    message: Message,
    schedule: Schedule,
    /// Returns the time at which a poll begins. Positions contain it.
    clock: fn() -> SystemTime,
    records: Option<JsonPointer>,
    key: Option<JsonPointer>,
    cursor: Option<Cursor>,
    paging: Paging,
}

struct PollSource {
    trust: ServerTrust,
    login: Login,
    policy: Policy,
    rules: Arc<PollRules>,
}

impl PollSource {
    fn client(&self, host: Option<&Host>) -> Result<AuthorizedClient, Fault> {
        let (tls, network) = (self.trust.read()?, host.map(|host| host.network).unwrap_or_default());
        let client = Client::new(&tls, network, self.policy.clone())?.advising("set request.url to it");
        AuthorizedClient::new(client, &self.login, &tls, network)
    }
}

#[async_trait]
impl Source for PollSource {
    fn catches_up(&self) -> bool {
        true
    }

    fn is_partitioned(&self) -> bool {
        false
    }

    /// The server keeps its records.
    fn rereads(&self) -> bool {
        true
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        Some(PollPosition::decode(position).map(drop))
    }

    fn shape(&self) -> RecordShape {
        let key = if self.rules.key.is_some() { Shape::RAW.join(&Shape::ABSENT) } else { Shape::ABSENT };
        let after = Shape::decoded_json().join(&Shape::RAW);
        RecordShape { metadata: Keys::none(), ..RecordShape::create(key, after) }
    }

    /// Requests the first page, as each poll does.
    async fn examine(&self) -> Result<Vec<String>, Fault> {
        let client = self.client(None)?;
        let request = self.rules.message.request(&Record::default(), client.client())?;
        match client.send(request).await {
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err(reader::refused(error)),
        }
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let position = resume.get(&Partition::ONLY).filter(|mark| !mark.position.0.is_empty());
        let position = position.map(|mark| PollPosition::decode(&mark.position)).transpose()?;
        let reader = PollReader::new(self.rules.clone(), self.client(Some(host))?, position)?;
        Ok(OpenedSource::new(Box::new(reader), Box::new(NoConfirmation)))
    }
}

/// Confirms nothing: the server keeps its records.
struct NoConfirmation;

#[async_trait]
impl Acker for NoConfirmation {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
