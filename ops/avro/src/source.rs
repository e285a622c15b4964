//! Schemas of records from native sources. If `sdk.schema.extract.*` enables it, infers and registers the schema of
//! structured data, and stores its subject and version in the metadata.
//!
//! The data stays structured, so that conditions and processors can read fields. It is encoded where records leave the
//! pipeline, see [`crate::record::encode`]. Records with a recently seen shape cost a comparison of their fields.
//! Records that share their metadata still share it afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, RecordShape};
use anabranch_plugin::host::Host;
use anabranch_plugin::parameters::shared::Inference;
use anabranch_plugin::source::{
    Backlog, OfferedStream, OpenedSource, Read, Reader, Replay, Request, Requested, Room, Source, SourceKind, Split,
    Start, Undelivered,
};
use anabranch_plugin::specification::Specification;
use anabranch_record::avro::infer;
use anabranch_record::extent::{CollectionSpace, Extent};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::{Data, Position, Record};
use async_trait::async_trait;

use crate::cache::SchemaCache;
use crate::codes;
use crate::part::SchemaPart;
use crate::shape::FlatShape;

/// Wraps a source with schema extraction.
pub fn around(kind: Arc<dyn SourceKind>) -> Arc<dyn SourceKind> {
    Arc::new(ExtractingKind(kind))
}

struct ExtractingKind(Arc<dyn SourceKind>);

impl SourceKind for ExtractingKind {
    fn specification(&self) -> &Specification {
        self.0.specification()
    }

    fn configure(&self, arguments: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        let inner = self.0.configure(arguments)?;
        let inference: Inference = arguments.read()?;
        let parts = SchemaPart::ALL.map(|part| match part {
            SchemaPart::Key => (part, &inference.key, &inference.key_subject),
            SchemaPart::Payload => (part, &inference.payload, &inference.payload_subject),
        });
        let parts: Vec<Extraction> = parts
            .into_iter()
            .filter(|(_, is_enabled, _)| ***is_enabled == Some(true))
            .map(|(part, is_enabled, subject)| {
                let parameter = self.specification().parameter(is_enabled.name());
                let by_default = parameter.and_then(|parameter| parameter.default.as_deref());
                Extraction { part, subject: subject.clone(), is_explicit: by_default != Some("true") }
            })
            .collect();
        if parts.is_empty() {
            return Ok(inner);
        }
        let context = match inference.context.as_ref() {
            _ if !inference.has_context => SubjectContext::None,
            Some(name) => SubjectContext::Named(name.clone()),
            None if inference.context.is_given() => SubjectContext::None,
            None => SubjectContext::Connector,
        };
        Ok(Arc::new(Extracting { inner, parts, context }))
    }
}

/// Part of a subject before the colon.
#[derive(Clone)]
enum SubjectContext {
    None,
    Named(Str),
    /// The id of the connector, with that of its pipeline.
    Connector,
}

#[derive(Clone)]
struct Extraction {
    part: SchemaPart,
    /// The subject, without context and collection.
    subject: Str,
    /// True if the setting enables it explicitly and not by default.
    is_explicit: bool,
}

struct Extracting {
    inner: Arc<dyn Source>,
    parts: Vec<Extraction>,
    context: SubjectContext,
}

#[async_trait]
impl Source for Extracting {
    fn catches_up(&self) -> bool {
        self.inner.catches_up()
    }

    fn replay(&self) -> Replay {
        self.inner.replay()
    }

    fn undelivered(&self) -> Undelivered {
        self.inner.undelivered()
    }

    fn flow(&self, flow: &mut Flow) {
        self.inner.flow(flow);
    }

    fn file(&self) -> Option<&str> {
        self.inner.file()
    }

    fn reads_file(&self, path: &str) -> bool {
        self.inner.reads_file(path)
    }

    fn reads(&self) -> Vec<Extent> {
        self.inner.reads()
    }

    fn reads_all_of(&self, extent: &Extent) -> bool {
        self.inner.reads_all_of(extent)
    }

    fn takes(&self) -> Option<Extent> {
        self.inner.takes()
    }

    fn collections(&self) -> Option<CollectionSpace> {
        self.inner.collections()
    }

    fn alone_if(&self) -> Option<&'static str> {
        self.inner.alone_if()
    }

    fn rereads(&self) -> bool {
        self.inner.rereads()
    }

    async fn discover(&self) -> Result<Option<Vec<OfferedStream>>, Fault> {
        self.inner.discover().await
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        self.inner.examine().await
    }

    fn backfills(&self) -> Option<&'static str> {
        self.inner.backfills()
    }

    fn takes_resets(&self) -> bool {
        self.inner.takes_resets()
    }

    async fn still_has(&self, position: &Position) -> Result<bool, Fault> {
        self.inner.still_has(position).await
    }

    fn shape(&self) -> RecordShape {
        let mut shape = self.inner.shape();
        for extraction in &self.parts {
            let sides = extraction.part.sides().iter().map(|side| shape.side(*side));
            if sides.into_iter().any(|side| !side.is_raw() && !side.is_absent()) {
                let (subject, version) = extraction.part.names();
                shape.metadata.allow(subject);
                shape.metadata.allow(version);
            }
        }
        shape
    }

    fn locate(&self, partition: &Partition, position: &Position) -> Option<String> {
        self.inner.locate(partition, position)
    }

    fn is_partitioned(&self) -> bool {
        self.inner.is_partitioned()
    }

    fn split(&self) -> Split {
        self.inner.split()
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        self.inner.check(position)
    }

    async fn deleted(&self, marks: &BTreeMap<Partition, Mark>) -> Result<bool, Fault> {
        self.inner.deleted(marks).await
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let mut opened = self.inner.open(resume, host).await?;
        let context = match &self.context {
            SubjectContext::None => String::new(),
            SubjectContext::Named(name) => format!("{name}:"),
            SubjectContext::Connector => format!("{}:{}:", host.pipeline, host.node),
        };
        let parts = self.parts.iter().map(|part| Extractor::new(part.clone(), &context, host)).collect();
        let cache = SchemaCache::new(host.schemas.clone());
        let namer = SchemaNamer { parts, names: Vec::new() };
        opened.reader = Box::new(ExtractingReader { inner: opened.reader, cache, namer, read: None });
        Ok(opened)
    }
}

struct ExtractingReader {
    inner: Box<dyn Reader>,
    cache: SchemaCache,
    namer: SchemaNamer,
    /// A read that waits for its schemas, so that a dropped call loses nothing.
    read: Option<Read>,
}

struct SchemaNamer {
    parts: Vec<Extractor>,
    /// Schema names of the current record; reused between records.
    names: Vec<Option<SchemaName>>,
}

#[async_trait]
impl Reader for ExtractingReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        if self.read.is_none() {
            self.read = Some(self.inner.read(room).await?);
        }
        let ExtractingReader { cache, namer, read, .. } = self;
        let named = match read {
            Some(Read::Rows { records, .. }) => cache.run(|cache| namer.name_schemas(cache, records)).await,
            _ => Ok(()),
        };
        match read.take() {
            Some(read) => named.map(|()| read),
            None => Ok(Read::CaughtUp),
        }
    }

    async fn change(&mut self) -> Result<Read, Fault> {
        // The records of this read were read before any change.
        if self.read.is_some() {
            std::future::pending::<()>().await;
        }
        self.inner.change().await
    }

    async fn request(&mut self, request: Request) -> Result<Requested, Fault> {
        self.inner.request(request).await
    }

    async fn go_on(&mut self, partition: &Partition, mark: Option<&Mark>) -> Result<Start, Fault> {
        self.inner.go_on(partition, mark).await
    }

    fn missing(&self) -> Option<String> {
        self.inner.missing()
    }

    fn left(&self) -> Option<String> {
        self.inner.left()
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        self.inner.backlog().await
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.inner.stop().await
    }
}

impl SchemaNamer {
    fn name_schemas(&mut self, cache: &mut SchemaCache, records: &mut [Record]) -> Result<(), Fault> {
        // Metadata before and after, of the last record that shares it with its successor.
        let mut shared: Option<(Metadata, Vec<Option<SchemaName>>, Metadata)> = None;
        for row in 0..records.len() {
            let record = &records[row];
            self.names.clear();
            for part in &mut self.parts {
                self.names.push(part.schema_of(cache, record)?);
            }
            if self.names.iter().all(Option::is_none) {
                continue;
            }
            if let Some((before, names, after)) = &shared
                && before.shares(&record.metadata)
                && *names == self.names
            {
                records[row].metadata = after.clone();
                continue;
            }
            let is_shared = records.get(row + 1).is_some_and(|next| next.metadata.shares(&record.metadata));
            let before = is_shared.then(|| record.metadata.clone());
            let metadata = &mut records[row].metadata;
            for (part, name) in self.parts.iter().zip(&self.names) {
                if let Some(name) = name {
                    let (subject, version) = part.part.names();
                    metadata.insert(subject, name.subject.clone());
                    metadata.insert(version, name.version.clone());
                }
            }
            shared = before.map(|before| (before, self.names.clone(), metadata.clone()));
        }
        Ok(())
    }
}

/// Subject and version for the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SchemaName {
    subject: Str,
    version: Str,
}

/// Maximum number of cached shapes, for several collections or for fields that are sometimes null.
const MOST_SHAPES: usize = 16;

/// Finds the schema of one part of records.
struct Extractor {
    part: SchemaPart,
    is_explicit: bool,
    pipeline: Str,
    connector: Str,
    context: Str,
    subject: Str,
    /// Recent schema names by collection and shape, the latest first.
    recent: Vec<(Option<Str>, FlatShape, SchemaName)>,
    /// Subjects by collection.
    subjects: BTreeMap<Option<Str>, Str>,
    warned: bool,
    text: String,
}

impl Extractor {
    fn new(extraction: Extraction, context: &str, host: &Host) -> Extractor {
        let Extraction { part, subject, is_explicit } = extraction;
        Extractor {
            part,
            is_explicit,
            pipeline: host.pipeline.clone(),
            connector: host.node.clone(),
            context: context.into(),
            subject,
            recent: Vec::new(),
            subjects: BTreeMap::new(),
            warned: false,
            text: String::new(),
        }
    }

    /// Returns the schema of this part; `None` if it has one already, or none can be inferred.
    fn schema_of(&mut self, cache: &mut SchemaCache, record: &Record) -> Result<Option<SchemaName>, Fault> {
        let (subject, version) = self.part.names();
        match (record.metadata.get(&subject), record.metadata.get(&version)) {
            (Some(_), Some(_)) => return Ok(None),
            (None, None) => {}
            (given, _) => {
                let (has, lacks) = if given.is_some() { (subject, version) } else { (version, subject) };
                let what = format!("the source set the metadata {has} of a record without {lacks}: it must set both");
                return Err(Fault::fatal(codes::SCHEMA_METADATA_INCOMPLETE, what));
            }
        }
        // Both sides share a schema, and raw data on the other side would be decoded with it.
        if self.part.any(record, |data| matches!(data, Data::Raw(_))) {
            self.warn(&"it is raw data");
            return Ok(None);
        }
        let Some(fields) = self.part.sides().iter().find_map(|side| side.of(record).fields()) else { return Ok(None) };
        let collection = record.metadata.get(&key::COLLECTION);
        let known =
            |(of, shape, _): &(Option<Str>, FlatShape, SchemaName)| of.as_ref() == collection && shape.is_of(fields);
        if let Some(found) = self.recent.iter().position(known) {
            return Ok(Some(self.recent[found].2.clone()));
        }
        self.text.clear();
        if let Err(error) = infer(fields, &mut self.text) {
            self.warn(&error);
            return Ok(None);
        }
        let collection = collection.cloned();
        let subject = self.subject(collection.clone());
        // A source cannot skip single records.
        let final_fault = |fault: Fault| match fault.class() {
            FaultClass::Record => fault.with_class(FaultClass::Fatal),
            FaultClass::Transient | FaultClass::Fatal => fault,
        };
        let known = cache.register(&subject, &self.text).map_err(final_fault)?;
        let name = SchemaName { subject, version: known.schema.version.to_string().into() };
        if let Some(shape) = FlatShape::of(fields) {
            self.recent.truncate(MOST_SHAPES - 1);
            self.recent.insert(0, (collection, shape, name.clone()));
        }
        Ok(Some(name))
    }

    fn subject(&mut self, collection: Option<Str>) -> Str {
        if self.subjects.len() >= 1024 {
            self.subjects.clear();
        }
        let (context, subject) = (&self.context, &self.subject);
        let made = self.subjects.entry(collection).or_insert_with_key(|collection| match collection {
            Some(collection) => format!("{context}{collection}.{subject}").into(),
            None => format!("{context}{subject}").into(),
        });
        made.clone()
    }

    /// Warns once per run, because the next record is probably the same.
    fn warn(&mut self, why: &dyn std::fmt::Display) {
        if std::mem::replace(&mut self.warned, true) {
            return;
        }
        let Extractor { pipeline, connector, .. } = &*self;
        let part = self.part.as_str();
        if self.is_explicit {
            tracing::warn!(
                %pipeline, %connector,
                "sdk.schema.extract.{part}.enabled: a record gets no schema for its {part}: {why}"
            );
        } else {
            tracing::debug!(%pipeline, %connector, "a record gets no schema for its {part}: {why}");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
