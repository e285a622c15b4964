//! `openai.textgen`: replaces a text with the output of a language model.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::operator::OperatorKind;
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use serde_json::{Map, Value as Json, json};

use crate::openai::Api;
use crate::question::{RecordRequest, RequestOperator, text_in};
use crate::service::Requests;
use crate::text::text_at;

/// Returns the `openai.textgen` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    anabranch_plugin::kind::operator(specification(), |settings: Settings| configure(&settings))
}

fn specification() -> Specification {
    Specification::builtin("openai.textgen", "Generates text with an OpenAI model.")
        .describe(
            "Sends `developer_message` and the text in `field` to the chat completions of OpenAI or of a \
             compatible service (`base_url`), one request per record, and replaces the text with the first \
             choice. Structured data is sent as JSON.\n\n\
             Requests are retried after 429, 5xx or no answer; any other error fails the record.",
        )
        .with_all(shared::processor())
}

#[derive(Parameters)]
#[parameter(rename_all = "snake_case")]
struct Settings {
    /// Name of the model, such as gpt-4o-mini.
    model: Str,
    /// Instructions for the model.
    developer_message: Str,
    /// The text.
    #[parameter(default = ".Payload.After", within = [".Metadata", ".Key", ".Payload"])]
    field: Argument<Reference>,
    #[parameter(flatten)]
    api: Api,
    /// Randomness, 0 to 2.
    temperature: Option<f64>,
    /// Share of likely tokens that are considered.
    top_p: Option<f64>,
    /// Number of choices; the first is used.
    n: Option<i64>,
    /// Maximum number of tokens of an answer (older models).
    max_tokens: Option<i64>,
    /// Maximum number of tokens of an answer, including reasoning.
    max_completion_tokens: Option<i64>,
    /// Texts at which the answer ends.
    stop: Vec<Str>,
    /// Penalty for tokens that occur already, -2 to 2.
    presence_penalty: Option<f64>,
    /// Penalty for frequent tokens, -2 to 2.
    frequency_penalty: Option<f64>,
    /// Seed for reproducible answers.
    seed: Option<i64>,
    /// Bias of a token, by its number, -100 to 100.
    logit_bias: BTreeMap<Str, Argument<i64>>,
    /// Requests probabilities of tokens, which are not stored.
    log_probs: Option<bool>,
    /// Number of tokens whose probabilities are requested.
    top_log_probs: Option<i64>,
    /// Identifier of the end user, for the service.
    user: Option<Str>,
    /// Whether the service keeps the conversation.
    store: Option<bool>,
    /// Reasoning effort of the model: low, medium, high.
    reasoning_effort: Option<Str>,
    /// Metadata of a stored conversation.
    metadata: BTreeMap<Str, Str>,
    /// Accepted without effect: answers are stored as a whole.
    #[parameter(name = "stream")]
    _stream: Option<bool>,
    /// Whether a truncated answer is an error.
    #[parameter(default = false)]
    strict_output: bool,
    #[parameter(flatten)]
    requests: Requests,
}

fn configure(settings: &Settings) -> Result<RequestOperator<Completion>, Diagnostics> {
    let field = crate::question::output(&settings.field)?;
    let address = settings.api.address("/chat/completions", &settings.requests)?;
    let question = Arc::new(Completion {
        field,
        body: settings.body()?,
        developer_message: settings.developer_message.to_string(),
        strict: settings.strict_output,
    });
    Ok(RequestOperator { address, question })
}

impl Settings {
    /// Returns the request without the messages.
    fn body(&self) -> Result<Map<String, Json>, Diagnostics> {
        let text = |text: &Option<Str>| text.as_ref().map(|text| Json::from(text.as_str()));
        let mut bias = Map::new();
        for (token, value) in &self.logit_bias {
            if token.parse::<u32>().is_err() {
                return Err(value.invalid(format_args!("{token:?} is not the number of a token")).into());
            }
            bias.insert(token.to_string(), (**value).into());
        }
        let metadata = self.metadata.iter().map(|(name, value)| (name.to_string(), value.as_str().into()));
        let metadata: Map<String, Json> = metadata.collect();
        let stop: Vec<&str> = self.stop.iter().map(Str::as_str).collect();
        let fields = [
            ("model", Some(self.model.as_str().into())),
            ("max_tokens", self.max_tokens.map(Json::from)),
            ("max_completion_tokens", self.max_completion_tokens.map(Json::from)),
            ("n", self.n.map(Json::from)),
            ("seed", self.seed.map(Json::from)),
            ("top_logprobs", self.top_log_probs.map(Json::from)),
            ("logprobs", self.log_probs.map(Json::from)),
            ("store", self.store.map(Json::from)),
            ("temperature", self.temperature.map(Json::from)),
            ("top_p", self.top_p.map(Json::from)),
            ("presence_penalty", self.presence_penalty.map(Json::from)),
            ("frequency_penalty", self.frequency_penalty.map(Json::from)),
            ("user", text(&self.user)),
            ("reasoning_effort", text(&self.reasoning_effort)),
            ("stop", (!stop.is_empty()).then(|| stop.into())),
            ("logit_bias", (!bias.is_empty()).then(|| bias.into())),
            ("metadata", (!metadata.is_empty()).then(|| metadata.into())),
        ];
        Ok(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    }
}

struct Completion {
    field: Reference,
    /// The request without the messages.
    body: Map<String, Json>,
    developer_message: String,
    strict: bool,
}

impl RecordRequest for Completion {
    fn ask(&self, record: &Record) -> Result<Json, Fault> {
        let text = text_at(record, &self.field)?;
        let mut body = self.body.clone();
        let messages = json!([
            { "role": "developer", "content": self.developer_message },
            { "role": "user", "content": text },
        ]);
        body.insert("messages".into(), messages);
        Ok(body.into())
    }

    fn read(&self, answer: &Json) -> Result<String, String> {
        let choice = answer.pointer("/choices/0").ok_or("it has no choice")?;
        if let Some(refusal) = choice.pointer("/message/refusal").and_then(Json::as_str) {
            return Err(format!("the model refused to answer: {refusal}"));
        }
        match choice.get("finish_reason").and_then(Json::as_str) {
            Some(reason) if self.strict && reason != "stop" => Err(format!("it was truncated: {reason}")),
            _ => text_in(choice, "/message/content"),
        }
    }

    fn put(&self, text: String, record: &mut Record) -> Result<(), Fault> {
        self.field.set(record, Value::from(text))
    }

    fn input(&self) -> &Reference {
        &self.field
    }

    fn output(&self) -> &Reference {
        &self.field
    }

    fn flow(&self, flow: &mut Flow) {
        flow.get("field", &self.field);
        flow.set("field", &self.field, Type::of(Kinds::TEXT));
    }
}
