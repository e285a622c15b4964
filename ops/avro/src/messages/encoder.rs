//! Chooses schemas, and encodes records with them.

use std::sync::Arc;

use anabranch_plugin::parameters::shared::{SchemaChoice, SubjectStrategy};
use anabranch_plugin::schema::{SchemaId, SchemaVersion};
use anabranch_record::avro::infer;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::json::parse_value;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use bytes::Bytes;
use serde_json::Value as Json;

use crate::cache::{CompiledSchema, SchemaCache};
use crate::codec::{Codec, CodecError};
use crate::codes;
use crate::part::SchemaPart;
use crate::shape::FlatShape;
use crate::wire;

/// The settings.
#[derive(Clone, Debug)]
pub(super) struct Choices {
    pub(super) parts: Vec<SchemaPart>,
    pub(super) schema: SchemaChoice,
    pub(super) subject: SubjectStrategy,
}

/// Maximum number of remembered schemas.
const MOST_KNOWN: usize = 16;

pub(super) struct MessageEncoder {
    choices: Choices,
    /// Schemas of recent records, the latest first.
    known: Vec<KnownSchema>,
    buffer: Vec<u8>,
}

/// The registered schema for data of an origin that goes to a topic.
struct KnownSchema {
    part: SchemaPart,
    topic: Str,
    origin: Origin,
    schema: Arc<CompiledSchema>,
}

/// The reason for a schema.
enum Origin {
    /// The id in the metadata.
    Id(Str),
    /// Subject and version in the metadata.
    Version(Str, Str),
    /// The fields.
    Shape(FlatShape),
    /// Raw data, by its type.
    Type(&'static str),
}

/// Data of a part before it is encoded.
enum Content {
    Fields(Arc<Object>),
    Raw(Bytes),
}

impl MessageEncoder {
    pub(super) fn new(choices: Choices) -> MessageEncoder {
        MessageEncoder { choices, known: Vec::new(), buffer: Vec::new() }
    }

    /// Encodes the parts of a record that the settings name. Absent parts stay absent. On an error, the record is
    /// unchanged.
    ///
    /// # Errors
    /// The data does not fit the schema, or the registry fails.
    pub(super) fn encode(&mut self, cache: &mut SchemaCache, topic: &str, record: &mut Record) -> Result<(), Fault> {
        let mut encoded = [None, None];
        for (part, encoded) in SchemaPart::ALL.into_iter().zip(&mut encoded) {
            if self.choices.parts.contains(&part) {
                *encoded = self.part(cache, part, topic, record)?;
            }
        }
        let [key, after] = encoded;
        if let Some(key) = key {
            record.key = Data::Raw(key);
        }
        if let Some(after) = after {
            record.payload.after = Data::Raw(after);
        }
        Ok(())
    }

    fn part(
        &mut self,
        cache: &mut SchemaCache,
        part: SchemaPart,
        topic: &str,
        record: &Record,
    ) -> Result<Option<Bytes>, Fault> {
        let content = match of(part, record) {
            Data::Absent => return Ok(None),
            Data::Structured(fields) => Content::Fields(fields.clone()),
            Data::Raw(bytes) if wire::is_frame(bytes) => {
                let what = format!(
                    "{} is in the Confluent wire format already: set encode.{} to none, or decode it",
                    place(part),
                    part.as_str()
                );
                return Err(Fault::record(codes::AVRO_UNEXPECTED_TYPE, what));
            }
            Data::Raw(bytes) => Content::Raw(bytes.clone()),
        };
        let frame = match self.choices.schema {
            SchemaChoice::Latest => {
                let subject = self.subject(cache, part, topic, record)?;
                let newest = cache.newest(&subject)?;
                self.frame(&newest, &content).map_err(|error| {
                    let version = newest.schema.version;
                    let what = format!("cannot encode {} by schema {subject:?}, version {version}", place(part));
                    Fault::record(codes::AVRO_MISFIT, format!("{what}: {error}"))
                })?
            }
            SchemaChoice::Register => match self.given(cache, part, topic, record, &content)? {
                Some(frame) => frame,
                None => self.inferred(cache, part, topic, &content)?,
            },
        };
        Ok(Some(frame))
    }

    /// Encodes data with the schema that the metadata names, if it fits.
    fn given(
        &mut self,
        cache: &mut SchemaCache,
        part: SchemaPart,
        topic: &str,
        record: &Record,
        content: &Content,
    ) -> Result<Option<Bytes>, Fault> {
        let known = self.find(part, topic, |origin| origin.is_of(part, record));
        let known = match known {
            Some(known) => known,
            None => {
                let Some((origin, codec, text)) = named(cache, part, record)? else { return Ok(None) };
                if encode(&codec, content, &mut Vec::new()).is_err() {
                    return Ok(None);
                }
                let subject = self.subject_of(part, topic, &text)?;
                let known = cache.register(&subject, &text)?;
                self.remember(part, topic, origin, known.clone());
                known
            }
        };
        Ok(self.frame(&known, content).ok())
    }

    fn inferred(
        &mut self,
        cache: &mut SchemaCache,
        part: SchemaPart,
        topic: &str,
        content: &Content,
    ) -> Result<Bytes, Fault> {
        let (fields, kind) = match content {
            Content::Fields(fields) => (Some(fields.clone()), ""),
            Content::Raw(bytes) => match object(bytes) {
                Some(fields) => (Some(fields), ""),
                None if std::str::from_utf8(bytes).is_ok() => (None, "\"string\""),
                None => (None, "\"bytes\""),
            },
        };
        let is_of = |origin: &Origin| match (origin, &fields) {
            (Origin::Shape(shape), Some(fields)) => shape.is_of(fields),
            (Origin::Type(of), None) => *of == kind,
            _ => false,
        };
        let known = match self.find(part, topic, is_of) {
            Some(known) => known,
            None => {
                let mut text = kind.to_owned();
                if let Some(fields) = &fields {
                    infer(fields, &mut text).map_err(|error| {
                        let what = format!("cannot encode {}: {error}", place(part));
                        Fault::record(codes::AVRO_NO_SCHEMA, what)
                    })?;
                }
                // An inferred record has no name of its own.
                let subject = match self.choices.subject {
                    SubjectStrategy::Topic => topic_subject(part, topic),
                    SubjectStrategy::Record | SubjectStrategy::TopicRecord => return Err(nameless(part)),
                };
                let known = cache.register(&subject, &text)?;
                let origin = match &fields {
                    Some(fields) => FlatShape::of(fields).map(Origin::Shape),
                    None => Some(Origin::Type(kind)),
                };
                if let Some(origin) = origin {
                    self.remember(part, topic, origin, known.clone());
                }
                known
            }
        };
        self.frame(&known, content).map_err(|error| {
            Fault::record(codes::AVRO_MISFIT, format!("cannot encode {} by its inferred schema: {error}", place(part)))
        })
    }

    /// Returns the subject of the data for [`SchemaChoice::Latest`].
    fn subject(&self, cache: &mut SchemaCache, part: SchemaPart, topic: &str, record: &Record) -> Result<Str, Fault> {
        match self.choices.subject {
            SubjectStrategy::Topic => Ok(topic_subject(part, topic)),
            SubjectStrategy::Record | SubjectStrategy::TopicRecord => match named(cache, part, record)? {
                Some((_, _, text)) => self.subject_of(part, topic, &text),
                None => Err(nameless(part)),
            },
        }
    }

    /// Returns the subject for a schema.
    fn subject_of(&self, part: SchemaPart, topic: &str, text: &str) -> Result<Str, Fault> {
        Ok(match self.choices.subject {
            SubjectStrategy::Topic => topic_subject(part, topic),
            SubjectStrategy::Record => full_name(text).ok_or_else(|| nameless(part))?.into(),
            SubjectStrategy::TopicRecord => {
                format!("{topic}-{}", full_name(text).ok_or_else(|| nameless(part))?).into()
            }
        })
    }

    fn find(&self, part: SchemaPart, topic: &str, is_it: impl Fn(&Origin) -> bool) -> Option<Arc<CompiledSchema>> {
        let is_it = |known: &&KnownSchema| known.part == part && known.topic == *topic && is_it(&known.origin);
        self.known.iter().find(is_it).map(|known| known.schema.clone())
    }

    fn remember(&mut self, part: SchemaPart, topic: &str, origin: Origin, schema: Arc<CompiledSchema>) {
        self.known.truncate(MOST_KNOWN - 1);
        self.known.insert(0, KnownSchema { part, topic: topic.into(), origin, schema });
    }

    fn frame(&mut self, known: &CompiledSchema, content: &Content) -> Result<Bytes, CodecError> {
        self.buffer.clear();
        wire::begin(known.schema.id, &mut self.buffer);
        encode(&known.codec, content, &mut self.buffer)?;
        let frame = Bytes::copy_from_slice(&self.buffer);
        // A single huge record must not keep its memory allocated.
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        Ok(frame)
    }
}

impl Origin {
    /// Returns `true` if the metadata names this origin.
    fn is_of(&self, part: SchemaPart, record: &Record) -> bool {
        match (self, record.metadata.get(&part.decoded_with())) {
            (Origin::Id(id), Some(given)) => id == given,
            (Origin::Version(subject, version), None) => {
                let (subject_key, version_key) = part.names();
                record.metadata.get(&subject_key) == Some(subject) && record.metadata.get(&version_key) == Some(version)
            }
            _ => false,
        }
    }
}

/// Returns the schema that the metadata names. One that does not exist is none.
fn named(
    cache: &mut SchemaCache,
    part: SchemaPart,
    record: &Record,
) -> Result<Option<(Origin, Arc<Codec>, Str)>, Fault> {
    let found = if let Some(id) = record.metadata.get(&part.decoded_with()) {
        let Ok(number) = id.parse::<SchemaId>() else { return Ok(None) };
        cache.definition(number).map(|found| (Origin::Id(id.clone()), found.codec.clone(), found.text.clone()))
    } else {
        let (subject, version) = part.names();
        let (Some(subject), Some(version)) = (record.metadata.get(&subject), record.metadata.get(&version)) else {
            return Ok(None);
        };
        let Ok(number) = version.parse::<SchemaVersion>() else { return Ok(None) };
        let origin = Origin::Version(subject.clone(), version.clone());
        cache.version(subject, number).map(|found| (origin, found.codec.clone(), found.schema.text.clone()))
    };
    match found {
        Ok(found) => Ok(Some(found)),
        Err(fault) if fault.class() == FaultClass::Record => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn of(part: SchemaPart, record: &Record) -> &Data {
    match part {
        SchemaPart::Key => &record.key,
        SchemaPart::Payload => &record.payload.after,
    }
}

fn place(part: SchemaPart) -> &'static str {
    match part {
        SchemaPart::Key => ".Key",
        SchemaPart::Payload => ".Payload.After",
    }
}

fn topic_subject(part: SchemaPart, topic: &str) -> Str {
    match part {
        SchemaPart::Key => format!("{topic}-key").into(),
        SchemaPart::Payload => format!("{topic}-value").into(),
    }
}

fn nameless(part: SchemaPart) -> Fault {
    let what = format!(
        "cannot encode {}: its schema has no name, which encode.subject needs; set it to TopicNameStrategy",
        place(part)
    );
    Fault::record(codes::AVRO_NO_SCHEMA, what)
}

/// Returns the full name of the type that a schema defines.
fn full_name(text: &str) -> Option<String> {
    let schema: Json = serde_json::from_str(text).ok()?;
    let name = schema.get("name")?.as_str()?;
    match schema.get("namespace").and_then(Json::as_str) {
        Some(namespace) if !namespace.is_empty() && !name.contains('.') => Some(format!("{namespace}.{name}")),
        _ => Some(name.to_owned()),
    }
}

/// Returns the fields of the JSON text of an object.
fn object(bytes: &[u8]) -> Option<Arc<Object>> {
    let is_object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    match is_object.then(|| parse_value(bytes)) {
        Some(Ok(Value::Map(fields))) => Some(fields),
        _ => None,
    }
}

/// Appends encoded data. Raw data is the JSON text of an object, a text, the JSON text of another value, or bytes:
/// the first of them that fits the schema.
fn encode(codec: &Codec, content: &Content, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let bytes = match content {
        Content::Fields(fields) => return codec.encode(&Value::Map(fields.clone()), out),
        Content::Raw(bytes) => bytes,
    };
    let mut first = None;
    let mut attempt = |value: Value| codec.encode(&value, out).map_err(|error| first.get_or_insert(error).clone());
    if let Some(fields) = object(bytes)
        && attempt(Value::Map(fields)).is_ok()
    {
        return Ok(());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if attempt(Value::from(text)).is_ok() {
            return Ok(());
        }
        if let Ok(value) = parse_value(bytes)
            && attempt(value).is_ok()
        {
            return Ok(());
        }
    }
    attempt(Value::Bytes(bytes.as_ref().into()))
}
