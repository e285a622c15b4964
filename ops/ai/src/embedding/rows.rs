//! Embeddings for the rows of a call.

use std::borrow::Cow;
use std::sync::Arc;

use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::operator::{AsyncOperator, BuiltAsync, ConfiguredOperator, Decision, OperatorContext, Signature};
use anabranch_record::Record;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::json::write_value;
use anabranch_record::reference::{Part, Reference};
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use async_trait::async_trait;

use super::{Embedder, Embedding, EmbeddingCache, Model};
use crate::codes;
use crate::service::Address;
use crate::text::{text_at, text_of};

/// Format of a stored embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmbeddingFormat {
    /// A list of floats; for a list of texts, a list of those.
    List,
    /// The JSON text of such a list.
    Json,
}

/// A processor that stores embeddings in records.
#[derive(Clone)]
pub(crate) struct EmbeddingProcessor {
    pub(crate) address: Address,
    pub(crate) model: Model,
    pub(crate) input: (&'static str, Reference),
    pub(crate) output: (&'static str, Reference),
    pub(crate) form: EmbeddingFormat,
    /// Maximum number of texts per request.
    pub(crate) batch: usize,
    /// True if embeddings are cached.
    pub(crate) remember: bool,
    /// Metadata key for the name of the model.
    pub(crate) note: Option<Str>,
}

impl ConfiguredOperator for EmbeddingProcessor {
    type Built = BuiltAsync;

    fn signature(&self) -> Signature {
        let note = self.note.iter().map(|key| vec![Str::from_static("Metadata"), key.clone()]);
        let writes = match self.output.1.access() {
            Access::These(paths) => Access::These(paths.into_iter().chain(note).collect()),
            Access::Everything => Access::Everything,
        };
        Signature::new().max_workers(self.address.max_workers()).reads(self.input.1.access()).writes(writes)
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        flow.get(self.input.0, &self.input.1);
        let kinds = if self.form == EmbeddingFormat::List { Kinds::LIST } else { Kinds::TEXT };
        flow.set(self.output.0, &self.output.1, Type::of(kinds));
        if let Some(key) = &self.note {
            flow.record.metadata.insert(key.clone());
        }
    }

    fn build(&self, context: &OperatorContext) -> Result<BuiltAsync, Fault> {
        let host = &context.host;
        let memory = self.remember.then(|| EmbeddingCache::new(host.result_cache.clone(), self.address.shown()));
        let service = self.address.open(host.network)?;
        let embedder = Embedder { service, model: self.model.clone(), batch: self.batch, memory };
        Ok(Arc::new(EmbeddingOperator { rows: self.clone(), embedder }))
    }
}

struct EmbeddingOperator {
    rows: EmbeddingProcessor,
    embedder: Embedder,
}

/// The texts of a row, and whether they are a list.
struct Texts<'r> {
    texts: Vec<Cow<'r, str>>,
    list: bool,
}

#[async_trait]
impl AsyncOperator for EmbeddingOperator {
    async fn call(&self, records: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
        let embeddings = {
            let rows: Vec<Result<Texts<'_>, Fault>> = records.iter().map(|record| self.rows.texts(record)).collect();
            let all: Vec<&str> = rows.iter().flatten().flat_map(|row| row.texts.iter().map(AsRef::as_ref)).collect();
            let mut found = self.embedder.embed(&all).await.into_iter();
            let mut value = |row: Result<Texts<'_>, Fault>| {
                let row = row?;
                let mine: Vec<Result<Embedding, Fault>> = found.by_ref().take(row.texts.len()).collect();
                let mut mine = mine.into_iter().collect::<Result<Vec<_>, _>>()?;
                Ok(if row.list { Value::from(mine) } else { mine.pop().unwrap_or_default() })
            };
            rows.into_iter().map(&mut value).collect::<Vec<Result<Value, Fault>>>()
        };
        let put = |(record, value): (&mut Record, Result<Value, Fault>)| {
            let done = value.and_then(|value| self.rows.put(value, record));
            done.map_or_else(Decision::Fail, |()| Decision::Keep)
        };
        records.iter_mut().zip(embeddings).map(put).collect()
    }
}

impl EmbeddingProcessor {
    fn texts<'r>(&self, record: &'r Record) -> Result<Texts<'r>, Fault> {
        let input = &self.input.1;
        self.output.1.has_parent(record)?;
        let (texts, list) = match input.get(record)? {
            Some(Part::Value(Value::List(items))) if self.form == EmbeddingFormat::List => {
                (items.iter().map(|item| text_of(item, input)).collect::<Result<_, _>>()?, true)
            }
            _ => (vec![text_at(record, input)?], false),
        };
        Ok(Texts { texts, list })
    }

    fn put(&self, value: Value, record: &mut Record) -> Result<(), Fault> {
        let value = match self.form {
            EmbeddingFormat::List => value,
            EmbeddingFormat::Json => {
                let mut text = Vec::new();
                write_value(&value, &mut text)?;
                Value::from(String::from_utf8(text).map_err(|error| Fault::record(codes::ANSWER_UNUSABLE, error))?)
            }
        };
        self.output.1.set(record, value)?;
        if let Some(key) = &self.note {
            record.metadata.insert(key.clone(), self.model.name.clone());
        }
        Ok(())
    }
}
