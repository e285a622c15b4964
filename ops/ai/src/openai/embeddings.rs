//! `openai.embeddings`: replaces a text with its embedding.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::operator::{ConfiguredOperator, OperatorKind};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_record::text::Str;
use serde_json::Map;

use crate::embedding::{Form, Model, Protocol, Rows};
use crate::service::{Address, request_parameters};

/// Returns the `openai.embeddings` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    use ParameterKind::{Int, Reference, Text};
    let specification = Specification::builtin("openai.embeddings", "Replaces a text with its OpenAI embedding.")
        .describe(
            "Replaces the text in `field` with its embedding as a JSON array: raw data in `.Payload.After`, text \
             in a field. Structured data is embedded as JSON text. Many texts are sent in one request; if a \
             request is rejected because of a text, only the record of that text fails.",
        )
        .with(Parameter::new("model", Text, "Name of the model, such as text-embedding-3-small.").required())
        .with(Parameter::new("field", Reference, "The text.").default_value(".Payload.After").validate(
            Validation::Within([".Metadata", ".Key", ".Payload"].into_iter().map(Str::from_static).collect()),
        ))
        .with_all(super::parameters())
        .with(
            Parameter::new("dimensions", Int, "Length of the embedding. The default is that of the model.")
                .validate(Validation::GreaterThan(0.0)),
        )
        .with(
            Parameter::new("encoding_format", Text, "Encoding of embeddings in answers; the stored value is the same.")
                .default_value("float")
                .one_of(&["float", "base64"]),
        )
        .with(Parameter::new("user", Text, "Identifier of the end user, for the service."))
        .with(
            Parameter::new("maxTextsPerRequest", Int, "Maximum number of texts per request.")
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
