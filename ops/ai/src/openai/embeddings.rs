//! `openai.embeddings`: replaces a text with its embedding.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::operator::OperatorKind;
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use serde_json::Map;

use crate::embedding::{EmbeddingFormat, EmbeddingProcessor, Model, Protocol};
use crate::openai::Api;
use crate::service::Requests;

/// Returns the `openai.embeddings` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification = Specification::builtin("openai.embeddings", "Replaces a text with its OpenAI embedding.")
        .describe(
            "Replaces the text in `field` with its embedding as a JSON array: raw data in `.Payload.After`, text \
             in a field. Structured data is embedded as JSON text. Many texts are sent in one request; if a \
             request is rejected because of a text, only the record of that text fails.",
        )
        .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// Name of the model, such as text-embedding-3-small.
    model: Str,
    /// The text.
    #[parameter(default = ".Payload.After", within = [".Metadata", ".Key", ".Payload"])]
    field: Argument<Reference>,
    #[parameter(flatten)]
    api: Api,
    /// Length of the embedding. The default is that of the model.
    #[parameter(greater_than = 0)]
    dimensions: Option<u32>,
    /// Encoding of embeddings in answers; the stored value is the same.
    #[parameter(name = "encoding_format", default = "float", one_of = ["float", "base64"])]
    encoding: Str,
    /// Identifier of the end user, for the service.
    user: Option<Str>,
    /// Maximum number of texts per request.
    #[parameter(default = 96, greater_than = 0, less_than = 2049)]
    max_texts_per_request: usize,
    #[parameter(flatten)]
    requests: Requests,
}

fn configure(settings: Settings) -> Result<EmbeddingProcessor, Diagnostics> {
    let field = crate::question::output(&settings.field)?;
    let protocol = Protocol::OpenAi;
    let address = settings.api.address(protocol.path(), &settings.requests)?;
    let mut more = Map::new();
    more.insert("encoding_format".to_owned(), settings.encoding.as_str().into());
    more.extend(settings.user.map(|user| ("user".to_owned(), user.as_str().into())));
    let model = Model { protocol, name: settings.model, dimensions: settings.dimensions, more };
    Ok(EmbeddingProcessor {
        address,
        model,
        input: ("field", field.clone()),
        output: ("field", field),
        form: EmbeddingFormat::Json,
        batch: settings.max_texts_per_request,
        remember: false,
        note: None,
    })
}
