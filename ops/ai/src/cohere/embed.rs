//! `cohere.embed`: replaces a text with its embedding.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::operator::{ConfiguredOperator, OperatorKind};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_record::text::Str;
use serde_json::{Map, json};

use crate::embedding::{Form, Model, Protocol, Rows};
use crate::finding::finding;
use crate::service::{Address, backoff};

const TYPES: [&str; 5] = ["search_document", "search_query", "classification", "clustering", "image"];

/// Returns the `cohere.embed` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    use ParameterKind::{Int, Text};
    let specification = Specification::builtin("cohere.embed", "Replaces a text with its Cohere embedding.")
        .describe(
            "Stores the embedding of the text in `inputField` as a JSON array in `outputField`, and the name of \
             the model in the metadata `cohere.embed.model`. Structured data is embedded as JSON text. Many texts \
             are sent in one request; if a request is rejected because of a text, only the record of that text \
             fails.",
        )
        .with(Parameter::new("model", Text, "Name of the model.").default_value("embed-english-v2.0"))
        .with(
            Parameter::new("inputType", Text, "Purpose of the texts; required from version 3 of the models.")
                .one_of(&TYPES),
        )
        .with(super::place("inputField", "The text."))
        .with(super::place("outputField", "Field for the embedding."))
        .with(
            Parameter::new("maxTextsPerRequest", Int, "Maximum number of texts per request.")
                .default_value("96")
                .validate(Validation::GreaterThan(0.0))
                .validate(Validation::LessThan(97.0)),
        )
        .with_all(super::parameters())
        .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

fn configure(arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
    let input = crate::question::input(arguments, "inputField")?;
    let output = crate::question::output(arguments, "outputField")?;
    let name = arguments.text("model").cloned().unwrap_or_default();
    let kind = arguments.text("inputType");
    if kind.is_none() && !name.contains("v2") {
        let what = format!("inputType is required for the model {name:?}");
        return Err(finding(arguments, "model", what)
            .with_hint(format!("inputType: one of {}", TYPES.join(", ")))
            .into());
    }
    let protocol = Protocol::Cohere;
    let address = Address::configure(arguments, "baseURL", protocol.path(), Some("apiKey"), backoff(arguments))?;
    let mut more = Map::from_iter([("embedding_types".to_owned(), json!(["float"]))]);
    more.extend(kind.map(|kind| ("input_type".to_owned(), kind.as_str().into())));
    Ok(Arc::new(Rows {
        address,
        model: Model { protocol, name, dimensions: None, more },
        input: ("inputField", input),
        output: ("outputField", output),
        form: Form::Json,
        batch: arguments.size("maxTextsPerRequest").unwrap_or(1),
        remember: false,
        note: Some(Str::from_static("cohere.embed.model")),
    }))
}
