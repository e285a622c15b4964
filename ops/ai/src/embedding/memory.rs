//! Cache of embeddings.

use std::sync::Arc;

use anabranch_plugin::state::{ResultCache, ResultKey};
use anabranch_record::value::Value;
use bytes::Bytes;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::{Embedding, Model};

/// Key space in the store. The number is the version of the format of keys and values.
const SPACE: &str = "ai.embedding.1";

/// Cache of embeddings. The key contains everything that an embedding depends on: the service, the model with all
/// parameters, and the text. A failing store costs additional requests, but fails no records.
pub(crate) struct EmbeddingCache {
    result_cache: Arc<dyn ResultCache>,
    /// Address of the service: another one may have other weights under the same name.
    service: String,
}

impl EmbeddingCache {
    pub(crate) fn new(result_cache: Arc<dyn ResultCache>, service: String) -> EmbeddingCache {
        EmbeddingCache { result_cache, service }
    }

    /// Returns the cached embedding of each text.
    pub(super) async fn recall(&self, model: &Model, texts: &[&str]) -> Vec<Option<Embedding>> {
        let context = self.context(model);
        let keys: Vec<ResultKey> = texts.iter().map(|text| key(&context, text)).collect();
        match self.result_cache.recall(SPACE, &keys).await {
            Ok(found) if found.len() == texts.len() => {
                found.into_iter().map(|bytes| decode(&bytes?, model.dimensions)).collect()
            }
            Ok(_) => vec![None; texts.len()],
            Err(error) => {
                tracing::warn!(%error, "cached embeddings cannot be read: they are requested again");
                vec![None; texts.len()]
            }
        }
    }

    /// Stores embeddings.
    pub(super) async fn keep(&self, model: &Model, embeddings: impl Iterator<Item = (&str, &Embedding)>) {
        let context = self.context(model);
        let entry = |(text, embedding): (&str, &Embedding)| Some((key(&context, text), encode(embedding)?));
        let entries: Vec<_> = embeddings.filter_map(entry).collect();
        if entries.is_empty() {
            return;
        }
        if let Err(error) = self.result_cache.keep(SPACE, entries).await {
            tracing::warn!(%error, "embeddings cannot be cached: they will be requested again");
        }
    }

    fn context(&self, model: &Model) -> Sha256 {
        let dimensions = model.dimensions.map_or_else(String::new, |n| n.to_string());
        // Formatting a value cannot fail, so two models never share a key.
        let more = Json::Object(model.more.clone()).to_string();
        let mut hash = Sha256::new();
        for part in [self.service.as_str(), &format!("{:?}", model.protocol), &model.name, &dimensions, &more] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash
    }
}

fn key(context: &Sha256, text: &str) -> ResultKey {
    context.clone().chain_update(text).finalize().into()
}

/// Encodes an embedding as little-endian 64-bit floats, without loss.
fn encode(embedding: &Embedding) -> Option<Bytes> {
    let Value::List(numbers) = embedding else { return None };
    let mut out = Vec::with_capacity(numbers.len() * 8);
    for number in numbers.iter() {
        let Value::Float(number) = number else { return None };
        out.extend_from_slice(&number.to_le_bytes());
    }
    Some(out.into())
}

fn decode(bytes: &Bytes, dimensions: Option<u32>) -> Option<Embedding> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    let fits = dimensions.is_none_or(|wanted| numbers.len() == wanted as usize);
    let good = rest.is_empty() && !numbers.is_empty() && fits;
    good.then(|| Value::from(numbers.iter().map(|bytes| Value::Float(f64::from_le_bytes(*bytes))).collect::<Vec<_>>()))
}
