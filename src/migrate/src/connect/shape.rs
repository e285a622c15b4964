//! The form of a record at a place of a pipeline.

use super::draft::Draft;
use crate::document::Part;
use crate::expression::metadata;

/// Metadata key of the topic.
pub(super) const TOPIC: &str = "recfmt.collection";
/// Reference of the topic.
pub(super) const TOPIC_REFERENCE: &str = ".Metadata[\"recfmt.collection\"]";

/// The form of a key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Absent.
    Absent,
    /// Raw data: a text or bytes.
    Raw,
    /// Raw data that is the JSON text of a value.
    Json,
    /// Fields.
    Fields,
    /// The envelope of Debezium, which is made where the record is written.
    Envelope,
}

/// The name of the topic of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    /// In the metadata.
    InMetadata,
    /// The output of a template.
    Template(String),
}

/// The timestamp of a message of Kafka Connect, and where a record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timestamp {
    /// In the metadata `recfmt.createdAt`.
    InMetadata,
    /// It is the time at which the source read the record.
    Read,
    /// Some records have none.
    Partial,
}

/// The keys and values that a converter writes as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WrittenAsJson {
    pub(super) key: bool,
    pub(super) value: bool,
}

/// The form of the records between two processors.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) key: Form,
    pub(super) value: Form,
    pub(super) topic: Topic,
    /// `true` if Kafka Connect knows the types of the fields: its logical types are times and decimals.
    pub(super) has_schema: bool,
    /// `true` if deletions occur, whose value is absent.
    pub(super) has_deletions: bool,
    pub(super) timestamp: Timestamp,
    /// What the pipeline writes as JSON; nothing in the pipeline of a sink connector.
    pub(super) as_json: WrittenAsJson,
}

impl Shape {
    /// Returns the form of the messages of a sink connector before they are decoded.
    pub(super) fn of_messages() -> Self {
        Shape {
            key: Form::Raw,
            value: Form::Raw,
            topic: Topic::InMetadata,
            has_schema: false,
            has_deletions: true,
            timestamp: Timestamp::InMetadata,
            as_json: WrittenAsJson::default(),
        }
    }

    /// Returns the expression that reads the topic. If the metadata does not contain it, a processor adds it.
    pub(super) fn topic(&mut self, draft: &mut Draft<'_>) -> String {
        if let Topic::Template(template) = &self.topic {
            draft.add(Part::new("topic", "field.set").with("field", TOPIC_REFERENCE).with("value", template.as_str()));
            self.topic = Topic::InMetadata;
        }
        metadata(TOPIC)
    }
}

/// The expression that is true for deletions.
pub(super) const IS_DELETION: &str = "eq .Operation.String \"delete\"";
/// The expression that is true for all other records.
pub(super) const IS_NOT_DELETION: &str = "ne .Operation.String \"delete\"";

/// Returns an expression for the JSON text of a key or value.
pub(super) fn json_of(form: Form, expression: &str) -> String {
    match form {
        Form::Raw => format!("toJson (printf \"%s\" {expression})"),
        Form::Json => format!("printf \"%s\" {expression}"),
        Form::Absent | Form::Fields | Form::Envelope => format!("toJson {expression}"),
    }
}
