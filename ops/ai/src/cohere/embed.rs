//! `cohere.embed`: replaces a text with its embedding.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::operator::OperatorKind;
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use serde_json::{Map, json};

use crate::codes;
use crate::cohere::Api;
use crate::embedding::{EmbeddingFormat, EmbeddingProcessor, Model, Protocol};

const TYPES: [&str; 5] = ["search_document", "search_query", "classification", "clustering", "image"];

/// Returns the `cohere.embed` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("cohere.embed", "Replaces a text with its Cohere embedding.")
        .describe(
            "Stores the embedding of the text in `inputField` as a JSON array in `outputField`, and the name of \
             the model in the metadata `cohere.embed.model`. Structured data is embedded as JSON text. Many texts \
             are sent in one request; if a request is rejected because of a text, only the record of that text \
             fails.",
        )
        .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// Name of the model.
    #[parameter(default = "embed-english-v2.0")]
    model: Argument<Str>,
    /// Purpose of the texts; required from version 3 of the models.
    #[parameter(one_of = TYPES)]
    input_type: Option<Str>,
    /// The text.
    #[parameter(default = ".Payload.After", within = [".Metadata", ".Key", ".Payload"])]
    input_field: Reference,
    /// Field for the embedding.
    #[parameter(default = ".Payload.After", within = [".Metadata", ".Key", ".Payload"])]
    output_field: Argument<Reference>,
    /// Maximum number of texts per request.
    #[parameter(default = 96, greater_than = 0, less_than = 97)]
    max_texts_per_request: usize,
    #[parameter(flatten)]
    api: Api,
}

fn configure(settings: Settings) -> Result<EmbeddingProcessor, Diagnostics> {
    let output = crate::question::output(&settings.output_field)?;
    let (name, kind) = (&settings.model, &settings.input_type);
    if kind.is_none() && !name.contains("v2") {
        let what = format!("inputType is required for the model {:?}", **name);
        return Err(name
            .finding(codes::SETTINGS_INVALID, what)
            .with_hint(format!("inputType: one of {}", TYPES.join(", ")))
            .into());
    }
    let protocol = Protocol::Cohere;
    let address = settings.api.address(protocol.path())?;
    let mut more = Map::from_iter([("embedding_types".to_owned(), json!(["float"]))]);
    more.extend(kind.as_ref().map(|kind| ("input_type".to_owned(), kind.as_str().into())));
    Ok(EmbeddingProcessor {
        address,
        model: Model { protocol, name: settings.model.into_value(), dimensions: None, more },
        input: ("inputField", settings.input_field),
        output: ("outputField", output),
        form: EmbeddingFormat::Json,
        batch: settings.max_texts_per_request,
        remember: false,
        note: Some(Str::from_static("cohere.embed.model")),
    })
}
