//! `ai.embed`: adds the embedding of a text, from any service. Each text is sent only once.

use std::sync::Arc;

use anabranch_ops_http::client::Retries;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::operator::OperatorKind;
use anabranch_plugin::parameters::{Argument, Choice, Parameter, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::reference::{Reference, Target};
use anabranch_record::text::Str;
use serde_json::{Map, json};

use crate::embedding::{EmbeddingFormat, EmbeddingProcessor, Model, Protocol};
use crate::service::{Address, Requests};

/// Returns the `ai.embed` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
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
        .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// Protocol of the service.
    #[parameter(default = "openai")]
    provider: Protocol,
    /// Name of the model, such as text-embedding-3-small.
    model: Str,
    /// Address of the service, such as http://localhost:11434. The default is that of the provider.
    #[parameter(
        name = "baseURL",
        aliases = ["base_url", "openai.baseURL", "ollama.baseURL", "voyage.baseURL", "cohere.baseURL"]
    )]
    base_url: Argument<Option<Str>>,
    /// Key of the service.
    #[parameter(aliases = ["api_key"], secret)]
    api_key: Option<Argument<Str>>,
    /// Length of the embeddings. The default is that of the model.
    #[parameter(greater_than = 0)]
    dimensions: Option<u32>,
    /// Purpose of the texts, in the terms of the provider (Cohere, Voyage).
    input_type: Option<Str>,
    /// The text, or list of texts.
    #[parameter(default = ".Payload.After.text", within = [".Key", ".Payload"])]
    input_field: Reference,
    /// Field for the embedding.
    #[parameter(default = ".Payload.After.vector", within = [".Key", ".Payload"])]
    output_field: Argument<Reference>,
    /// Maximum number of texts per request.
    #[parameter(default = 96, greater_than = 0, less_than = 2049)]
    max_texts_per_request: usize,
    /// Whether embeddings are cached.
    #[parameter(default = true)]
    cache: bool,
    #[parameter(flatten, adjust = adjusted)]
    backoff: Retries,
    #[parameter(flatten, adjust = adjusted)]
    requests: Requests,
}

impl Choice for Protocol {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("openai", Protocol::OpenAi),
        ("ollama", Protocol::Ollama),
        ("voyage", Protocol::Voyage),
        ("cohere", Protocol::Cohere),
    ];
}

/// Changes the parameters that other processors have too.
fn adjusted(parameter: Parameter) -> Parameter {
    match parameter.name.as_str() {
        "backoffRetry.count" => parameter.default_value("3").aliases(&["maxRetries"]),
        "request.timeout" => parameter.aliases(&["requestTimeout"]),
        _ => parameter,
    }
}

fn configure(settings: Settings) -> Result<EmbeddingProcessor, Diagnostics> {
    let output = crate::question::output(&settings.output_field)?;
    if !matches!(output.target(), Target::Field(..)) {
        return Err(settings
            .output_field
            .invalid(format_args!("{output} cannot be a list"))
            .with_hint("name a field, for example .Payload.After.vector")
            .into());
    }
    let protocol = settings.provider;
    let own = match protocol {
        Protocol::OpenAi => "https://api.openai.com/v1",
        Protocol::Ollama => "http://localhost:11434",
        Protocol::Voyage => "https://api.voyageai.com/v1",
        Protocol::Cohere => "https://api.cohere.com",
    };
    let address = Address::new(
        (&settings.base_url, settings.base_url.as_deref().unwrap_or(own)),
        protocol.path(),
        settings.api_key.as_ref(),
        settings.backoff.retry(),
        &settings.requests,
    )?;
    let mut more = Map::new();
    if protocol == Protocol::Cohere {
        more.insert("embedding_types".into(), json!(["float"]));
    }
    more.extend(settings.input_type.as_ref().map(|kind| ("input_type".to_owned(), kind.as_str().into())));
    let model = Model { protocol, name: settings.model, dimensions: settings.dimensions, more };
    Ok(EmbeddingProcessor {
        address,
        model,
        input: ("inputField", settings.input_field),
        output: ("outputField", output),
        form: EmbeddingFormat::List,
        batch: settings.max_texts_per_request,
        remember: settings.cache,
        note: None,
    })
}
