//! Protocols for requesting embeddings.

use anabranch_record::phrase::counted;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::Embedding;
use crate::indexed::by_index;
use crate::service::{AiServiceFailure, Service};

/// Format of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// OpenAI, and most model servers.
    OpenAi,
    /// Voyage: like OpenAI, with another name for the dimensions.
    Voyage,
    /// The format of Ollama.
    Ollama,
    /// Cohere, version 2.
    Cohere,
}

/// A model and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) protocol: Protocol,
    pub(crate) name: Str,
    /// Length of the embeddings; `None` = default of the model.
    pub(crate) dimensions: Option<u32>,
    /// Additional fields of the request.
    pub(crate) more: Map<String, Json>,
}

#[derive(Deserialize)]
struct OpenAiAnswer {
    data: Vec<OpenAiItem>,
}

#[derive(Deserialize)]
struct OpenAiItem {
    index: Option<usize>,
    embedding: OpenAiVector,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OpenAiVector {
    Numbers(Vec<f64>),
    /// Little-endian 32-bit floats.
    Base64(String),
}

#[derive(Deserialize)]
struct OllamaAnswer {
    embeddings: Vec<Vec<f64>>,
}

#[derive(Deserialize)]
struct CohereAnswer {
    embeddings: CohereFloats,
}

#[derive(Deserialize)]
struct CohereFloats {
    float: Vec<Vec<f64>>,
}

impl Protocol {
    /// Returns the path of the endpoint.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Protocol::OpenAi | Protocol::Voyage => "/embeddings",
            Protocol::Ollama => "/api/embed",
            Protocol::Cohere => "/v2/embed",
        }
    }

    fn texts(self) -> &'static str {
        if self == Protocol::Cohere { "texts" } else { "input" }
    }

    fn dimensions(self) -> &'static str {
        match self {
            Protocol::OpenAi | Protocol::Ollama => "dimensions",
            Protocol::Voyage | Protocol::Cohere => "output_dimension",
        }
    }
}

impl Model {
    /// Requests one embedding per text.
    pub(super) async fn ask(
        &self,
        service: &Service,
        texts: &[&str],
    ) -> Result<Vec<Result<Embedding, String>>, AiServiceFailure> {
        let mut question = self.more.clone();
        question.insert("model".into(), self.name.as_str().into());
        question.insert(self.protocol.texts().into(), texts.into());
        if let Some(dimensions) = self.dimensions {
            question.insert(self.protocol.dimensions().into(), dimensions.into());
        }
        let vectors = match self.protocol {
            Protocol::OpenAi | Protocol::Voyage => {
                let answer: OpenAiAnswer = service.ask(&question).await?;
                in_order(answer.data, texts.len()).map_err(|why| AiServiceFailure::Other(service.unusable(why)))?
            }
            Protocol::Ollama => {
                let answer: OllamaAnswer = service.ask(&question).await?;
                answer.embeddings.into_iter().map(Ok).collect()
            }
            Protocol::Cohere => {
                let answer: CohereAnswer = service.ask(&question).await?;
                answer.embeddings.float.into_iter().map(Ok).collect()
            }
        };
        if vectors.len() != texts.len() {
            let why = format!("it has {} for {}", counted(vectors.len(), "embedding"), counted(texts.len(), "text"));
            return Err(AiServiceFailure::Other(service.unusable(why)));
        }
        if self.dimensions.is_none() {
            alike(&vectors).map_err(|why| AiServiceFailure::Other(service.unusable(why)))?;
        }
        Ok(vectors.into_iter().map(|vector| self.checked(vector?)).collect())
    }

    fn checked(&self, vector: Vec<f64>) -> Result<Embedding, String> {
        match self.dimensions {
            _ if vector.is_empty() => Err("an embedding is empty".to_owned()),
            Some(wanted) if vector.len() != wanted as usize => {
                Err(format!("an embedding has {}, not {wanted}", counted(vector.len(), "dimension")))
            }
            _ => Ok(Value::from(vector.into_iter().map(Value::Float).collect::<Vec<_>>())),
        }
    }
}

/// Checks that all embeddings have the same length. Otherwise, it is unclear which ones are from the requested model.
fn alike(vectors: &[Result<Vec<f64>, String>]) -> Result<(), String> {
    let mut lengths = vectors.iter().flatten().map(Vec::len).filter(|length| *length > 0);
    let Some(first) = lengths.next() else { return Ok(()) };
    match lengths.find(|length| *length != first) {
        Some(other) => Err(format!("its embeddings have {first} and {other} dimensions")),
        None => Ok(()),
    }
}

/// Orders the items by their index; their order in the answer need not be that of the texts.
fn in_order(items: Vec<OpenAiItem>, texts: usize) -> Result<Vec<Result<Vec<f64>, String>>, String> {
    let vector = |(position, item): (usize, OpenAiItem)| {
        let vector = match item.embedding {
            OpenAiVector::Numbers(numbers) => Ok(numbers),
            OpenAiVector::Base64(text) => floats(&text),
        };
        (item.index.unwrap_or(position), vector)
    };
    by_index(items.into_iter().enumerate().map(vector), ("embedding", texts, "text"))
}

fn floats(text: &str) -> Result<Vec<f64>, String> {
    let bytes = BASE64.decode(text).map_err(|error| format!("an embedding is not base64: {error}"))?;
    let (floats, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(format!("an embedding has {} bytes, which is not a multiple of 4", bytes.len()));
    }
    Ok(floats.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect())
}
