//! `ai.embed`: adds the embedding of a text, from any service. Each text is sent only once.

use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::operator::{ConfiguredOperator, OperatorKind};
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation, shared};
use anabranch_record::reference::Target;
use anabranch_record::text::Str;
use serde_json::{Map, json};

use crate::embedding::{Form, Model, Protocol, Rows};
use crate::finding::finding;
use crate::service::{Address, backoff, backoff_parameters, request_parameters};

/// Returns the `ai.embed` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    use ParameterKind::{Bool, Int, Reference, Text};
    let within = || Validation::Within([".Key", ".Payload"].into_iter().map(Str::from_static).collect());
    let specification = Specification::builtin("ai.embed", "Adds the embedding of a text.")
        .describe(
            "Stores the embedding of the text in `inputField` in `outputField`: a list of floats; for a list of \
             texts, a list of embeddings. The texts of many records are sent in one request, and equal texts only \
             once. If a request is rejected because of a text, only the record of that text fails. An answer \
             whose embeddings have different lengths is rejected as a whole. An error with status 200 is retried \
             if its type, code or status denotes a transient error.\n\n\
             An embedding is cached under a hash of service, model, dimensions and text, also across runs if the \
             state store is persistent: unchanged texts cost nothing. With `cache: false`, every text is sent.\n\n\
             `provider` selects the protocol of the service, and `baseURL` its address, so that every server with \
             one of these protocols can be used.",
        )
        .with(
            Parameter::new("provider", Text, "Protocol of the service.")
                .default_value("openai")
                .one_of(&["openai", "ollama", "voyage", "cohere"]),
        )
        .with(Parameter::new("model", Text, "Name of the model, such as text-embedding-3-small.").required())
        .with(
            Parameter::new(
                "baseURL",
                Text,
                "Address of the service, such as http://localhost:11434. The default is that of the provider.",
            )
            .alias("base_url")
            .alias("openai.baseURL")
            .alias("ollama.baseURL")
            .alias("voyage.baseURL")
            .alias("cohere.baseURL"),
        )
        .with(Parameter::new("apiKey", Text, "Key of the service.").alias("api_key").secret())
        .with(
            Parameter::new("dimensions", Int, "Length of the embeddings. The default is that of the model.")
                .validate(Validation::GreaterThan(0.0)),
        )
        .with(Parameter::new("inputType", Text, "Purpose of the texts, in the terms of the provider (Cohere, Voyage)."))
        .with(
            Parameter::new("inputField", Reference, "The text, or list of texts.")
                .default_value(".Payload.After.text")
                .validate(within()),
        )
        .with(
            Parameter::new("outputField", Reference, "Field for the embedding.")
                .default_value(".Payload.After.vector")
                .validate(within()),
        )
        .with(
            Parameter::new("maxTextsPerRequest", Int, "Maximum number of texts per request.")
                .default_value("96")
                .validate(Validation::GreaterThan(0.0))
                .validate(Validation::LessThan(2049.0)),
        )
        .with(Parameter::new("cache", Bool, "Whether embeddings are cached.").default_value("true"))
        .with_all(backoff_parameters("3").into_iter().chain(request_parameters()).map(aliased).collect())
        .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

/// Adds the aliases of two parameters for this processor.
fn aliased(parameter: Parameter) -> Parameter {
    match parameter.name.as_str() {
        "backoffRetry.count" => parameter.alias("maxRetries"),
        "request.timeout" => parameter.alias("requestTimeout"),
        _ => parameter,
    }
}

fn configure(arguments: &Arguments) -> Result<Arc<dyn ConfiguredOperator>, Diagnostics> {
    let input = crate::question::input(arguments, "inputField")?;
    let output = crate::question::output(arguments, "outputField")?;
    if !matches!(output.target(), Target::Field(..)) {
        let what = format!("outputField: {output} cannot be a list");
        return Err(finding(arguments, "outputField", what)
            .with_hint("name a field, for example .Payload.After.vector")
            .into());
    }
    let (protocol, own) = match arguments.text("provider").map_or("", Str::as_str) {
        "ollama" => (Protocol::Ollama, "http://localhost:11434"),
        "voyage" => (Protocol::Voyage, "https://api.voyageai.com/v1"),
        "cohere" => (Protocol::Cohere, "https://api.cohere.com"),
        _ => (Protocol::OpenAi, "https://api.openai.com/v1"),
    };
    let retry = backoff(arguments);
    let address = Address::configure_or(arguments, ("baseURL", own), protocol.path(), Some("apiKey"), retry)?;
    let mut more = Map::new();
    if protocol == Protocol::Cohere {
        more.insert("embedding_types".into(), json!(["float"]));
    }
    more.extend(arguments.text("inputType").map(|kind| ("input_type".to_owned(), kind.as_str().into())));
    let model = Model {
        protocol,
        name: arguments.text("model").cloned().unwrap_or_default(),
        dimensions: arguments.int("dimensions").and_then(|n| u32::try_from(n).ok()),
        more,
    };
    Ok(Arc::new(Rows {
        address,
        model,
        input: ("inputField", input),
        output: ("outputField", output),
        form: Form::List,
        batch: arguments.size("maxTextsPerRequest").unwrap_or(1),
        remember: arguments.bool("cache").unwrap_or(true),
        note: None,
    }))
}
