//! Parameters that all sources, destinations or processors accept.
//!
//! The executor implements them: a plugin only lists them in its specification. A specification may lack some of them;
//! a switch is then `None`.

use std::time::Duration;

use anabranch_record::text::Str;

use super::{Argument, Choice, Parameter, Parameters, declared};

/// Batches of a source.
#[derive(Clone, Debug, Parameters)]
pub struct SourceBatching {
    /// Maximum number of records per batch; 0 = as they arrive.
    #[parameter(name = "sdk.batch.size", default = 0, greater_than = -1)]
    pub size: usize,
    /// Maximum time a batch waits for more records after its first one; 0 = it does not wait.
    #[parameter(name = "sdk.batch.delay", default = "0s")]
    pub delay: Duration,
}

/// Schema inference of a source.
#[derive(Clone, Debug, Parameters)]
pub struct Inference {
    /// Language of inferred schemas.
    #[parameter(name = "sdk.schema.extract.type", default = "avro", one_of = ["avro"])]
    pub language: Str,
    /// Infers and registers the schema of structured keys, and adds its subject and version to the metadata.
    #[parameter(name = "sdk.schema.extract.key.enabled", default = false)]
    pub key: Argument<Option<bool>>,
    /// Subject of inferred schemas of keys. If the record has a collection, its name and a dot come first.
    #[parameter(
        name = "sdk.schema.extract.key.subject",
        default = "key",
        only_with = "sdk.schema.extract.key.enabled"
    )]
    pub key_subject: Str,
    /// Infers and registers the schema of structured payloads, and adds its subject and version to the metadata.
    #[parameter(name = "sdk.schema.extract.payload.enabled", default = false)]
    pub payload: Argument<Option<bool>>,
    /// Subject of inferred schemas of payloads. If the record has a collection, its name and a dot come first.
    #[parameter(
        name = "sdk.schema.extract.payload.subject",
        default = "payload",
        only_with = "sdk.schema.extract.payload.enabled"
    )]
    pub payload_subject: Str,
    /// Prefixes subjects with the name of the schema context and a colon.
    #[parameter(name = "sdk.schema.context.enabled", default = true)]
    pub has_context: bool,
    /// Name of the schema context. By default it consists of the ids of pipeline and connector; if it is set to an
    /// empty text, there is no context.
    #[parameter(name = "sdk.schema.context.name", only_with = "sdk.schema.context.enabled")]
    pub context: Argument<Option<Str>>,
}

/// Batches of a destination.
#[derive(Clone, Debug, Parameters)]
pub struct DestinationBatching {
    /// Maximum number of records per write; 0 = the plugin's default.
    #[parameter(name = "sdk.batch.size", default = 0, greater_than = -1)]
    pub size: usize,
    /// Maximum time a write waits for more records; 0 = the plugin's default.
    #[parameter(name = "sdk.batch.delay", default = "0s")]
    pub delay: Duration,
    /// Maximum number of records per second; 0 = no limit.
    #[parameter(name = "sdk.rate.perSecond", default = 0, greater_than = -1)]
    pub rate: f64,
    /// Maximum number of records in a burst if a rate is set; 0 = as many as in one second.
    #[parameter(name = "sdk.rate.burst", default = 0, greater_than = -1, only_with = "sdk.rate.perSecond")]
    pub burst: usize,
}

/// Decoding of data with a schema before a destination.
#[derive(Clone, Debug, Parameters)]
pub struct Decoding {
    /// Decodes raw keys with the schema in the metadata.
    #[parameter(name = "sdk.schema.extract.key.enabled", default = true)]
    pub key: Option<bool>,
    /// Decodes raw payloads with the schema in the metadata.
    #[parameter(name = "sdk.schema.extract.payload.enabled", default = true)]
    pub payload: Option<bool>,
}

/// Decoding of schema-encoded data before a processor and encoding after it (spec § 2.6).
#[derive(Clone, Debug, Parameters)]
pub struct Recoding {
    /// Decodes the key with the schema in the metadata before processing.
    #[parameter(name = "sdk.schema.decode.key.enabled", default = true)]
    pub decodes_key: Option<bool>,
    /// Decodes the payload with the schema in the metadata before processing.
    #[parameter(name = "sdk.schema.decode.payload.enabled", default = true)]
    pub decodes_payload: Option<bool>,
    /// Encodes the key with its schema after processing.
    #[parameter(name = "sdk.schema.encode.key.enabled", default = true)]
    pub encodes_key: Option<bool>,
    /// Encodes the payload with its schema after processing.
    #[parameter(name = "sdk.schema.encode.payload.enabled", default = true)]
    pub encodes_payload: Option<bool>,
}

/// Encoding of keys and payloads with schemas of the schema registry, by a destination of messages. A destination that
/// includes these parameters receives the encoded data as raw data.
#[derive(Clone, Debug, Parameters)]
pub struct MessageEncoding {
    /// Encoding of the key: none (unchanged) or avro (Avro in the Confluent wire format, with a schema of the schema
    /// registry).
    #[parameter(name = "encode.key", default = "none")]
    pub key: Argument<MessageFormat>,
    /// Encoding of the value: none (the format of `sdk.record.format`) or avro (the payload after the change, as Avro in
    /// the Confluent wire format, with a schema of the schema registry; null if it is absent).
    #[parameter(name = "encode.payload", default = "none")]
    pub payload: Argument<MessageFormat>,
    /// Schema of encoded data: register (the schema with which the data was decoded, or one that is inferred; it is
    /// registered) or latest (the latest version of the subject; nothing is registered).
    #[parameter(name = "encode.schema", default = "register")]
    pub schema: Argument<SchemaChoice>,
    /// Subject of schemas: TopicNameStrategy (`TOPIC-key`, `TOPIC-value`), RecordNameStrategy (the full name of the
    /// record in the schema) or TopicRecordNameStrategy (`TOPIC-NAME`).
    #[parameter(name = "encode.subject", default = "TopicNameStrategy")]
    pub subject: Argument<SubjectStrategy>,
}

/// Encoding of a key or payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFormat {
    /// The data is written as it is.
    Unchanged,
    /// Avro in the Confluent wire format.
    Avro,
}

impl Choice for MessageFormat {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("none", MessageFormat::Unchanged), ("avro", MessageFormat::Avro)];
}

/// Source of the schema of encoded data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaChoice {
    /// The schema of the data, registered under the subject.
    Register,
    /// The latest version of the subject.
    Latest,
}

impl Choice for SchemaChoice {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("register", SchemaChoice::Register), ("latest", SchemaChoice::Latest)];
}

/// Names of subjects, as Confluent's serializers form them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectStrategy {
    /// `TOPIC-key` and `TOPIC-value`.
    Topic,
    /// The full name of the record.
    Record,
    /// The topic, a hyphen and the full name of the record.
    TopicRecord,
}

impl Choice for SubjectStrategy {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("TopicNameStrategy", SubjectStrategy::Topic),
        ("RecordNameStrategy", SubjectStrategy::Record),
        ("TopicRecordNameStrategy", SubjectStrategy::TopicRecord),
    ];
}

/// Returns the parameters of every source: batching, and schema inference, which is off by default.
pub fn source() -> Vec<Parameter> {
    declared::<(SourceBatching, Inference)>()
}

/// Returns the parameters of [`source`] for a source of structured data: schema inference is on by default.
pub fn structured_source() -> Vec<Parameter> {
    source().into_iter().map(|parameter| with_default(parameter, "false", "true")).collect()
}

/// Returns the parameters of every destination: batching, rate limit, and decoding of data with a schema.
pub fn destination() -> Vec<Parameter> {
    declared::<(DestinationBatching, Decoding)>()
}

/// Returns the parameters of every processor: decoding of schema-encoded data before it and encoding after it.
pub fn processor() -> Vec<Parameter> {
    declared::<Recoding>()
}

/// Returns the parameters of [`processor`] for one that uses no data: there is no decoding and encoding by default.
pub fn processor_without_data() -> Vec<Parameter> {
    processor().into_iter().map(|parameter| with_default(parameter, "true", "false")).collect()
}

/// Returns the parameter with the default `new` if its default is `old`.
fn with_default(parameter: Parameter, old: &'static str, new: &'static str) -> Parameter {
    if parameter.default.as_deref() == Some(old) { parameter.default_value(new) } else { parameter }
}
