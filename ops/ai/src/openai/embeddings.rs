//! `openai.embeddings`: replaces a text by its embedding.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::operator::{ConfiguredOperator, OperatorKind};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_record::text::Str;
use serde_json::Map;

use crate::embedding::{Form, Model, Protocol, Rows};
use crate::service::{Address, request_parameters};

/// The kind, for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    use ParameterKind::{Int, Reference, Text};
    let specification = Specification::builtin("openai.embeddings", "Replaces a text by its embedding by OpenAI.")
        .describe(
            "Puts the embedding of the text at `field` in its place, as a JSON array: raw data at `.Payload.After`, \
             text in a field. Structured data are embedded as JSON text. Many texts are sent in one request; where a \
             request is refused for a text, only the record of that text fails.",
        )
        .with(Parameter::new("model", Text, "Name of the model, as text-embedding-3-small.").required())
        .with(Parameter::new("field", Reference, "The text.").default_value(".Payload.After").validate(
            Validation::Within([".Metadata", ".Key", ".Payload"].into_iter().map(Str::from_static).collect()),
        ))
        .with_all(super::parameters())
        .with(
            Parameter::new("dimensions", Int, "Length of the embedding; the model's own if not given.")
                .validate(Validation::GreaterThan(0.0)),
        )
        .with(
            Parameter::new("encoding_format", Text, "How the service writes embeddings; what is stored is the same.")
                .default_value("float")
                .one_of(&["float", "base64"]),
        )
        .with(Parameter::new("user", Text, "Whom the service is to hold responsible."))
        .with(
            Parameter::new("maxTextsPerRequest", Int, "Most texts of one request.")
                .default_value("96")
                .validate(Validation::GreaterThan(0.0))
                .validate(Validation::LessThan(2049.0)),
        )
        .with_all(request_parameters())
        .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

fn configure(arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
    let field = crate::question::output(arguments, "field")?;
    let protocol = Protocol::OpenAi;
    let retry = super::retry(arguments);
    let address = Address::configure(arguments, "base_url", protocol.path(), Some("api_key"), retry)?;
    let mut more = Map::new();
    for name in ["encoding_format", "user"] {
        more.extend(arguments.text(name).map(|text| (name.to_owned(), text.as_str().into())));
    }
    let model = Model {
        protocol,
        name: arguments.text("model").cloned().unwrap_or_default(),
        dimensions: arguments.int("dimensions").and_then(|n| u32::try_from(n).ok()),
        more,
    };
    Ok(Arc::new(Rows {
        address,
        model,
        input: ("field", field.clone()),
        output: ("field", field),
        form: Form::Json,
        batch: arguments.size("maxTextsPerRequest").unwrap_or(1),
        remember: false,
        note: None,
    }))
}
