//! Processors that send one request per record.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::operator::{AsyncOperator, BuiltAsync, ConfiguredOperator, Decision, OperatorContext, Signature};
use anabranch_plugin::parameters::Argument;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Reference, Target};
use async_trait::async_trait;
use futures::future::FutureExt;
use futures::stream::{self, Stream, StreamExt};
use serde_json::Value as Json;

use crate::service::{Address, Service};

/// A request for a record, and the use of its answer.
pub(crate) trait RecordRequest: Send + Sync + 'static {
    /// Returns the body of the request.
    fn ask(&self, record: &Record) -> Result<Json, Fault>;

    /// Returns the text in an answer, or why it is missing.
    fn read(&self, answer: &Json) -> Result<String, String>;

    /// Stores the text in the record.
    fn put(&self, text: String, record: &mut Record) -> Result<(), Fault>;

    /// Returns the part of a record that is read.
    fn input(&self) -> &Reference;

    /// Returns the part of a record that is written.
    fn output(&self) -> &Reference;

    /// Updates the shape of the records.
    fn flow(&self, flow: &mut Flow);
}

/// A question and the address of its service.
pub(crate) struct RequestOperator<Q> {
    pub(crate) address: Address,
    pub(crate) question: Arc<Q>,
}

impl<Q: RecordRequest> ConfiguredOperator for RequestOperator<Q> {
    type Built = BuiltAsync;

    fn signature(&self) -> Signature {
        Signature::new()
            .max_workers(self.address.max_workers())
            .reads(self.question.input().access())
            .writes(self.question.output().access())
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        self.question.flow(flow);
    }

    fn build(&self, context: &OperatorContext) -> Result<BuiltAsync, Fault> {
        let service = self.address.open(context.host.network)?;
        Ok(Arc::new(ConfiguredRequest { service, question: self.question.clone() }))
    }
}

struct ConfiguredRequest<Q> {
    service: Service,
    question: Arc<Q>,
}

#[async_trait]
impl<Q: RecordRequest> AsyncOperator for ConfiguredRequest<Q> {
    async fn call(&self, rows: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
        self.all(rows).collect().await
    }
}

impl<Q: RecordRequest> ConfiguredRequest<Q> {
    fn all<'r>(&'r self, rows: &'r mut [Record]) -> impl Stream<Item = Decision> + Send + 'r {
        // The future of a request takes kilobytes: box it, because it is moved several times.
        stream::iter(rows).map(|record| self.one(record).boxed()).buffered(self.service.concurrency())
    }

    async fn one(&self, record: &mut Record) -> Decision {
        let done = self.answer(record).await.and_then(|text| self.question.put(text, record));
        done.map_or_else(Decision::Fail, |()| Decision::Keep)
    }

    async fn answer(&self, record: &Record) -> Result<String, Fault> {
        self.question.output().has_parent(record)?;
        let question = self.question.ask(record)?;
        let answer: Json = self.service.ask(&question).await?;
        self.question.read(&answer).map_err(|why| self.service.unusable(why))
    }
}

/// Returns the reference in a setting; it must refer to a single part of a record that can hold a text.
///
/// # Errors
/// Fails if it refers to several parts.
pub(crate) fn output(setting: &Argument<Reference>) -> Result<Reference, Diagnostics> {
    let reference: &Reference = setting;
    let hint = match reference.target() {
        Target::Metadata => "name one entry, for example .Metadata.answer",
        Target::Payload => "did you mean .Payload.After?",
        _ => return Ok(reference.clone()),
    };
    Err(setting.invalid(format_args!("{reference} cannot be set as a whole")).with_hint(hint).into())
}

/// Returns the text at a JSON pointer of an answer.
pub(crate) fn text_in(answer: &Json, pointer: &str) -> Result<String, String> {
    match answer.pointer(pointer).and_then(Json::as_str) {
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("there is no text at {pointer}")),
    }
}

#[cfg(test)]
mod tests;
