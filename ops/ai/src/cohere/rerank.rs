//! `cohere.rerank`: scores the relevance of each record to a query.

use std::borrow::Cow;
use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::operator::{
    AsyncOperator, BuiltAsync, ConfiguredOperator, Decision, OperatorContext, OperatorKind, Signature,
};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::codes;
use crate::cohere::Api;
use crate::indexed::by_index;
use crate::question::output;
use crate::service::{Address, Service};
use crate::text::text_at;

/// Returns the `cohere.rerank` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    let specification =
        Specification::builtin("cohere.rerank", "Scores the relevance of each record to a query with a Cohere model.")
            .describe(
                "Sends the texts in `request.body` of all records of a batch as documents in one request. Stores the \
                 result of each document as JSON text: \
                 `{\"document\":{\"text\":…},\"index\":…,\"relevance_score\":…}`. The index is that of the record in \
                 its batch.",
            )
            .with_all(shared::processor());
    anabranch_plugin::kind::operator(specification, configure)
}

#[derive(Parameters)]
struct Settings {
    /// The query.
    query: Str,
    /// Name of the model.
    #[parameter(default = "rerank-v3.5")]
    model: Str,
    /// The text.
    #[parameter(name = "request.body", default = ".Payload.After", within = [".Metadata", ".Key", ".Payload"])]
    input: Reference,
    /// Field for the result.
    #[parameter(name = "response.body", default = ".Payload.After", within = [".Metadata", ".Key", ".Payload"])]
    output: Argument<Reference>,
    #[parameter(flatten)]
    api: Api,
}

fn configure(settings: Settings) -> Result<Rerank, Diagnostics> {
    let Settings { query, model, input, output: place, api } = settings;
    let (output, address) = (output(&place)?, api.address("/v2/rerank")?);
    Ok(Rerank { input, output, address, query, model })
}

#[derive(Clone)]
struct Rerank {
    input: Reference,
    output: Reference,
    address: Address,
    query: Str,
    model: Str,
}

impl ConfiguredOperator for Rerank {
    type Built = BuiltAsync;

    fn signature(&self) -> Signature {
        Signature::new().max_workers(self.address.max_workers()).reads(self.input.access()).writes(self.output.access())
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        flow.get("request.body", &self.input);
        flow.set("response.body", &self.output, Type::of(Kinds::TEXT));
    }

    fn build(&self, context: &OperatorContext) -> Result<BuiltAsync, Fault> {
        let service = self.address.open(context.host.network)?;
        Ok(Arc::new(RerankOperator { rerank: self.clone(), service }))
    }
}

#[derive(Serialize)]
struct RerankRequest<'a> {
    model: &'a str,
    query: &'a str,
    documents: &'a [Cow<'a, str>],
}

#[derive(Deserialize)]
struct RerankAnswer {
    results: Vec<Score>,
}

#[derive(Deserialize)]
struct Score {
    index: usize,
    relevance_score: f64,
}

#[derive(Serialize)]
struct Stored<'a> {
    document: RerankDocument<'a>,
    index: usize,
    relevance_score: f64,
}

#[derive(Serialize)]
struct RerankDocument<'a> {
    text: &'a str,
}

struct RerankOperator {
    rerank: Rerank,
    service: Service,
}

#[async_trait]
impl AsyncOperator for RerankOperator {
    async fn call(&self, records: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
        let results = {
            let texts: Vec<_> = records.iter().map(|record| self.text(record)).collect();
            let documents: Vec<Cow<'_, str>> = texts.iter().flatten().cloned().collect();
            let mut scores = self.scores(&documents).await.into_iter();
            let result = |text: Result<Cow<'_, str>, Fault>| text.and_then(|_| scores.next().unwrap_or_else(no_score));
            texts.into_iter().map(result).collect::<Vec<_>>()
        };
        let put = |(record, result): (&mut Record, Result<String, Fault>)| {
            let done = result.and_then(|text| self.rerank.output.set(record, Value::from(text)));
            done.map_or_else(Decision::Fail, |()| Decision::Keep)
        };
        records.iter_mut().zip(results).map(put).collect()
    }
}

impl RerankOperator {
    fn text<'r>(&self, record: &'r Record) -> Result<Cow<'r, str>, Fault> {
        self.rerank.output.has_parent(record)?;
        text_at(record, &self.rerank.input)
    }

    /// Returns the score of each document, in order.
    async fn scores(&self, documents: &[Cow<'_, str>]) -> Vec<Result<String, Fault>> {
        if documents.is_empty() {
            return Vec::new();
        }
        let question = RerankRequest { model: &self.rerank.model, query: &self.rerank.query, documents };
        let answer: RerankAnswer = match self.service.ask(&question).await {
            Ok(answer) => answer,
            Err(refusal) => return vec![Err(Fault::from(refusal)); documents.len()],
        };
        let scores = answer.results.into_iter().map(|Score { index, relevance_score }| (index, relevance_score));
        let scores = match by_index(scores, ("result", documents.len(), "document")) {
            Ok(scores) => scores,
            Err(why) => return vec![Err(self.service.unusable(why)); documents.len()],
        };
        let stored = |(index, (text, relevance_score)): (usize, (&Cow<'_, str>, f64))| {
            serde_json::to_string(&Stored { document: RerankDocument { text }, index, relevance_score })
                .map_err(|error| Fault::record(codes::ANSWER_UNUSABLE, error))
        };
        documents.iter().zip(scores).enumerate().map(stored).collect()
    }
}

fn no_score() -> Result<String, Fault> {
    Err(Fault::record(codes::ANSWER_UNUSABLE, "the answer has no result for this document"))
}
