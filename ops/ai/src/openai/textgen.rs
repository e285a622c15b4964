//! `openai.textgen`: replaces a text with the output of a language model.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::operator::{ConfiguredOperator, OperatorKind};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use serde_json::{Map, Value as Json, json};

use crate::finding::finding;
use crate::question::{Asking, Question, text_in};
use crate::service::{Address, request_parameters};
use crate::text::text_at;

/// Settings that are passed as fields of the request: name of the setting and of the field.
const INTS: [(&str, &str); 5] = [
    ("max_tokens", "max_tokens"),
    ("max_completion_tokens", "max_completion_tokens"),
    ("n", "n"),
    ("seed", "seed"),
    ("top_log_probs", "top_logprobs"),
];
const FLOATS: [&str; 4] = ["temperature", "top_p", "presence_penalty", "frequency_penalty"];
const BOOLS: [(&str, &str); 2] = [("log_probs", "logprobs"), ("store", "store")];
const TEXTS: [&str; 2] = ["user", "reasoning_effort"];

/// Returns the `openai.textgen` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    anabranch_plugin::kind::operator(specification(), configure)
}

fn specification() -> Specification {
    use ParameterKind::{Bool, Float, Int, List, Text};
    let any = Parameter::new;
    Specification::builtin("openai.textgen", "Generates text with an OpenAI model.")
        .describe(
            "Sends `developer_message` and the text in `field` to the chat completions of OpenAI or of a \
             compatible service (`base_url`), one request per record, and replaces the text with the first \
             choice. Structured data is sent as JSON.\n\n\
             Requests are retried after 429, 5xx or no answer; any other error fails the record.",
        )
        .with(any("model", Text, "Name of the model, such as gpt-4o-mini.").required())
        .with(any("developer_message", Text, "Instructions for the model.").required())
        .with(any("field", ParameterKind::Reference, "The text.").default_value(".Payload.After").validate(
            Validation::Within([".Metadata", ".Key", ".Payload"].into_iter().map(Str::from_static).collect()),
        ))
        .with_all(super::parameters())
        .with(any("temperature", Float, "Randomness, 0 to 2."))
        .with(any("top_p", Float, "Share of likely tokens that are considered."))
        .with(any("n", Int, "Number of choices; the first is used."))
        .with(any("max_tokens", Int, "Maximum number of tokens of an answer (older models)."))
        .with(any("max_completion_tokens", Int, "Maximum number of tokens of an answer, including reasoning."))
        .with(any("stop", List, "Texts at which the answer ends."))
        .with(any("presence_penalty", Float, "Penalty for tokens that occur already, -2 to 2."))
        .with(any("frequency_penalty", Float, "Penalty for frequent tokens, -2 to 2."))
        .with(any("seed", Int, "Seed for reproducible answers."))
        .with(any("logit_bias.*", Int, "Bias of a token, by its number, -100 to 100."))
        .with(any("log_probs", Bool, "Requests probabilities of tokens, which are not stored."))
        .with(any("top_log_probs", Int, "Number of tokens whose probabilities are requested."))
        .with(any("user", Text, "Identifier of the end user, for the service."))
        .with(any("store", Bool, "Whether the service keeps the conversation."))
        .with(any("reasoning_effort", Text, "Reasoning effort of the model: low, medium, high."))
        .with(any("metadata.*", Text, "Metadata of a stored conversation."))
        .with(any("stream", Bool, "Accepted without effect: answers are stored as a whole."))
        .with(any("strict_output", Bool, "Whether a truncated answer is an error.").default_value("false"))
        .with_all(request_parameters())
        .with_all(shared::processor())
}

fn configure(arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
    let field = crate::question::output(arguments, "field")?;
    let retry = super::retry(arguments);
    let address = Address::configure(arguments, "base_url", "/chat/completions", Some("api_key"), retry)?;
    let text = |name: &str| arguments.text(name).map_or("", Str::as_str);
    let mut body = Map::new();
    body.insert("model".into(), text("model").into());
    for (setting, name) in INTS {
        body.extend(arguments.int(setting).map(|value| (name.to_owned(), value.into())));
    }
    for (setting, name) in BOOLS {
        body.extend(arguments.bool(setting).map(|value| (name.to_owned(), value.into())));
    }
    for name in FLOATS {
        body.extend(arguments.float(name).map(|value| (name.to_owned(), value.into())));
    }
    for name in TEXTS {
        body.extend(arguments.text(name).map(|value| (name.to_owned(), value.as_str().into())));
    }
    let stop: Vec<&str> = arguments.list("stop").iter().map(Str::as_str).collect();
    if !stop.is_empty() {
        body.insert("stop".into(), stop.into());
    }
    let mut bias = Map::new();
    for name in arguments.matching("logit_bias.*") {
        let token = name.strip_prefix("logit_bias.").unwrap_or(name);
        if token.parse::<u32>().is_err() {
            return Err(finding(arguments, name, format!("{name}: {token:?} is not the number of a token")).into());
        }
        bias.extend(arguments.int(name).map(|value| (token.to_owned(), value.into())));
    }
    let kept = arguments.matching("metadata.*").filter_map(|name| {
        Some((name.strip_prefix("metadata.")?.to_owned(), Json::from(arguments.text(name)?.as_str())))
    });
    let kept: Map<String, Json> = kept.collect();
    for (name, map) in [("logit_bias", bias), ("metadata", kept)] {
        if !map.is_empty() {
            body.insert(name.into(), map.into());
        }
    }
    let question = Arc::new(Completion {
        field,
        body,
        developer_message: text("developer_message").to_owned(),
        strict: arguments.bool("strict_output").unwrap_or(false),
    });
    Ok(Arc::new(Asking { address, question }))
}

struct Completion {
    field: Reference,
    /// The request without the messages.
    body: Map<String, Json>,
    developer_message: String,
    strict: bool,
}

impl Question for Completion {
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
