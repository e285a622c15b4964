//! Embeddings of texts: several texts per request, each distinct text once, and none that is cached.

mod memory;
mod protocol;
mod rows;

use std::collections::HashMap;

use anabranch_record::fault::Fault;
use anabranch_record::value::Value;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};

use crate::codes;
use crate::service::{AiServiceFailure, Service};

pub(crate) use memory::EmbeddingCache;
pub(crate) use protocol::{Model, Protocol};
pub(crate) use rows::{EmbeddingFormat, EmbeddingProcessor};

/// Embedding of a text: a list of floats. Cloning is O(1).
pub(crate) type Embedding = Value;

/// Requests embeddings from a model.
pub(crate) struct Embedder {
    pub(crate) service: Service,
    pub(crate) model: Model,
    /// Maximum number of texts per request.
    pub(crate) batch: usize,
    pub(crate) memory: Option<EmbeddingCache>,
}

impl Embedder {
    /// Returns the embedding of each text in order, or its fault.
    ///
    /// Sends `batch` texts per request, with concurrent requests up to the service's limit. If the service rejects the
    /// content of a request, sends its halves separately, so that one text cannot fail others. This takes at most about
    /// 2·log₂(batch) additional requests for each such text.
    pub(crate) async fn embed(&self, texts: &[&str]) -> Vec<Result<Embedding, Fault>> {
        let mut slots: HashMap<&str, usize> = HashMap::with_capacity(texts.len());
        let mut distinct: Vec<&str> = Vec::new();
        for &text in texts {
            slots.entry(text).or_insert_with(|| {
                distinct.push(text);
                distinct.len() - 1
            });
        }
        let mut known: Vec<Option<Result<Embedding, Fault>>> = match &self.memory {
            Some(memory) => memory.recall(&self.model, &distinct).await.into_iter().map(|v| v.map(Ok)).collect(),
            None => vec![None; distinct.len()],
        };
        let unknown: Vec<usize> = (0..distinct.len()).filter(|slot| known[*slot].is_none()).collect();
        let asked: Vec<&str> = unknown.iter().map(|slot| distinct[*slot]).collect();
        let requests: Vec<_> = asked.chunks(self.batch.max(1)).map(|texts| self.ask(texts)).collect();
        let answers: Vec<_> = stream::iter(requests).buffered(self.service.concurrency()).concat().await;
        if let Some(memory) = &self.memory {
            let fresh = asked.iter().zip(&answers).filter_map(|(text, answer)| Some((*text, answer.as_ref().ok()?)));
            memory.keep(&self.model, fresh).await;
        }
        for (slot, answer) in unknown.into_iter().zip(answers) {
            known[slot] = Some(answer);
        }
        let lost = || Err(Fault::record(codes::ANSWER_UNUSABLE, "the answer has no embedding of this text"));
        texts.iter().map(|text| slots.get(text).and_then(|slot| known[*slot].clone()).unwrap_or_else(lost)).collect()
    }

    /// Returns one result per text.
    fn ask<'a>(&'a self, texts: &'a [&'a str]) -> BoxFuture<'a, Vec<Result<Embedding, Fault>>> {
        async move {
            let fault = match self.model.ask(&self.service, texts).await {
                Ok(embeddings) => {
                    return embeddings
                        .into_iter()
                        .map(|found| found.map_err(|why| self.service.unusable(why)))
                        .collect();
                }
                Err(AiServiceFailure::Content(_)) if texts.len() > 1 => {
                    let (front, back) = texts.split_at(texts.len() / 2);
                    let (mut front, back) = futures::join!(self.ask(front), self.ask(back));
                    front.extend(back);
                    return front;
                }
                Err(refusal) => Fault::from(refusal),
            };
            vec![Err(fault); texts.len()]
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
