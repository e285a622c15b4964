//! `ollama`: transforms a record with a model of an Ollama server.

use std::sync::Arc;

use anabranch_ops_http::client::Retries;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::operator::OperatorKind;
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::json::parse_value;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use serde_json::{Value as Json, json};

use crate::codes;
use crate::question::{RecordRequest, RequestOperator, output, text_in};
use crate::service::{Address, Requests};
use crate::text::text_at;

/// Returns the `ollama` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("ollama", "Transforms data with a model of an Ollama server.")
        .describe(
            "Asks the model to follow `prompt` on the data in `field`, and replaces the data with the JSON object \
             in the answer. Sends one request per record. If the prompt including the data is longer than \
             `maxPromptLength` or contains one of the texts in `refuse` (case-insensitive), the record fails.",
        )
        .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// Address of the server, such as http://localhost:11434.
    #[parameter(aliases = ["baseURL"])]
    url: Argument<Str>,
    /// Name of the model.
    #[parameter(default = "llama3.2")]
    model: Str,
    /// Instructions for the model.
    prompt: Option<Str>,
    /// The data, which is replaced with the answer.
    #[parameter(default = ".Payload.After", within = [".Payload"])]
    field: Argument<Reference>,
    /// Maximum size of a prompt in bytes, including the data.
    #[parameter(default = 4096, greater_than = 0)]
    max_prompt_length: usize,
    /// Texts that a prompt must not contain; `none` = no restriction.
    #[parameter(default = "rm -rf,drop table,<script>,javascript:,data:text/html")]
    refuse: Vec<Str>,
    #[parameter(flatten)]
    backoff: Retries,
    #[parameter(flatten)]
    requests: Requests,
}

fn configure(settings: Settings) -> Result<RequestOperator<Transformation>, Diagnostics> {
    let field = output(&settings.field)?;
    let (base, retry) = ((&settings.url, settings.url.as_str()), settings.backoff.retry());
    let address = Address::new(base, "/api/generate", None, retry, &settings.requests)?;
    let refuse = settings.refuse.iter().map(|text| text.to_lowercase());
    let question = Transformation {
        field,
        model: settings.model,
        prompt: settings.prompt.unwrap_or_default(),
        longest: settings.max_prompt_length,
        refuse: refuse.filter(|text| !text.is_empty() && text != "none").collect(),
    };
    Ok(RequestOperator { address, question: Arc::new(question) })
}

struct Transformation {
    field: Reference,
    model: Str,
    prompt: Str,
    longest: usize,
    /// Texts that a prompt must not contain, in lower case.
    refuse: Vec<String>,
}

impl RecordRequest for Transformation {
    fn ask(&self, record: &Record) -> Result<Json, Fault> {
        let data = text_at(record, &self.field)?;
        let prompt = format!(
            "Follow the instructions on the record. Answer with one JSON object and nothing else.\n\
             Instructions: {}\nRecord: {data}\n",
            self.prompt
        );
        let refused = |why: String| Fault::record(codes::PROMPT_REFUSED, why);
        if prompt.len() > self.longest {
            let why =
                format!("the prompt has {} bytes, more than maxPromptLength allows ({})", prompt.len(), self.longest);
            return Err(refused(why));
        }
        let lower = prompt.to_lowercase();
        if let Some(text) = self.refuse.iter().find(|text| lower.contains(text.as_str())) {
            return Err(refused(format!("the prompt contains {text:?}, which the setting `refuse` forbids")));
        }
        Ok(json!({ "model": self.model.as_str(), "prompt": prompt, "format": "json", "stream": false }))
    }

    fn read(&self, answer: &Json) -> Result<String, String> {
        match answer.get("done").and_then(Json::as_bool) {
            Some(true) => text_in(answer, "/response"),
            _ => Err("it is not complete (`done` is not true)".to_owned()),
        }
    }

    fn put(&self, text: String, record: &mut Record) -> Result<(), Fault> {
        let unusable = |why: String| {
            Fault::record(codes::ANSWER_UNUSABLE, format!("the answer of the model is not a JSON object: {why}"))
        };
        match parse_value(text.as_bytes()) {
            Ok(value @ Value::Map(_)) => self.field.set(record, value),
            Ok(other) => Err(unusable(format!("it is {}", other.type_name()))),
            Err(error) => Err(unusable(error.to_string())),
        }
    }

    fn input(&self) -> &Reference {
        &self.field
    }

    fn output(&self) -> &Reference {
        &self.field
    }

    fn flow(&self, flow: &mut Flow) {
        flow.get("field", &self.field);
        flow.set("field", &self.field, Type::of(Kinds::MAP));
    }
}
