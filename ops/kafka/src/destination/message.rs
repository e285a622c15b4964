//! Records as messages of Kafka.

use anabranch_plugin::format::RecordFormat;
use anabranch_plugin::parameters::Choice;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::json::write_data;
use anabranch_record::metadata::key;
use anabranch_record::text::Str;
use anabranch_record::{Data, Operation, Record};
use anabranch_template::{InSetting, NO_VALUE, Template};
use bytes::Bytes;
use chrono::DateTime;

use crate::codes;
use crate::headers;
use crate::topic::not_a_topic;

/// Value of records with the operation delete.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Deletes {
    /// The record, in the format of the destination.
    Record,
    /// Null.
    Tombstone,
}

impl Choice for Deletes {
    const CHOICES: &'static [(&'static str, Self)] = &[("record", Deletes::Record), ("tombstone", Deletes::Tombstone)];
}

/// How the values of messages are written.
pub(super) enum ValueFormat {
    /// The record in a format.
    Formatted(RecordFormat),
    /// The payload after the change, which the layer around the destination has encoded; null if it is absent.
    Encoded,
}

/// How records become messages.
pub(super) struct Layout {
    pub(super) topic: Template,
    pub(super) key: Option<Template>,
    pub(super) partition: Option<Template>,
    pub(super) timestamp: Option<Template>,
    pub(super) headers: bool,
    pub(super) deletes: Deletes,
    /// Maximum size of a message, in bytes.
    pub(super) largest: usize,
    pub(super) value: ValueFormat,
}

impl Layout {
    /// Returns `true` if the topic of each record is its collection.
    pub(super) fn topic_is_collection(&self) -> bool {
        let named = |collection: Str| {
            let mut record = Record::default();
            record.set_collection(collection.clone());
            self.topic(&record).is_ok_and(|topic| topic == *collection)
        };
        self.topic.reads() == Access::metadata(key::COLLECTION)
            && ["a", "B-2"].into_iter().all(|name| named(name.into()))
    }

    /// Returns the message for a record.
    ///
    /// # Errors
    /// A fault of the record: a template fails or produces an invalid value, or the message is too large.
    pub(super) fn message(&self, record: &Record) -> Result<krafka::Record, Fault> {
        let mut message = krafka::Record::new(self.topic(record)?, Bytes::new());
        message.key = self.key(record)?;
        message.value = self.value(record)?;
        message.partition = self.partition.as_ref().map(|template| partition(template, record)).transpose()?;
        message.timestamp = self.timestamp.as_ref().map(|template| timestamp(template, record)).transpose()?;
        if self.headers {
            message.headers = headers::from_metadata(&record.metadata)
                .map_err(|error| Fault::record(codes::RECORD_INVALID, error))?;
        }
        let size = message.estimated_size();
        if size > self.largest {
            let text = format!(
                "the record has {size} bytes in Kafka, more than batchBytes allows ({}); raise batchBytes, and \
                 max.message.bytes of the topic {}",
                self.largest, message.topic
            );
            return Err(Fault::record(codes::RECORD_TOO_LARGE, text));
        }
        Ok(message)
    }

    pub(super) fn topic(&self, record: &Record) -> Result<String, Fault> {
        let name = match self.topic.literal() {
            Some(name) => name.trim().to_owned(),
            None => rendered(&self.topic, "topic", record)?.trim().to_owned(),
        };
        match not_a_topic(&name) {
            Some(why) => {
                let text = format!("the template of topic produces {name:?}: the name of a topic {why}");
                Err(Fault::record(codes::RECORD_INVALID, text))
            }
            None => Ok(name),
        }
    }

    fn key(&self, record: &Record) -> Result<Option<Bytes>, Fault> {
        if let Some(template) = &self.key {
            return rendered(template, "key", record).map(|text| Some(Bytes::from(text)));
        }
        Ok(match &record.key {
            Data::Absent => None,
            Data::Raw(bytes) => Some(bytes.clone()),
            data @ Data::Structured(_) => {
                let mut text = Vec::new();
                write_data(data, &mut text)?;
                Some(Bytes::from(text))
            }
        })
    }

    fn value(&self, record: &Record) -> Result<Option<Bytes>, Fault> {
        if record.operation == Operation::Delete && self.deletes == Deletes::Tombstone {
            return Ok(None);
        }
        let format = match (&self.value, &record.payload.after) {
            (ValueFormat::Encoded, Data::Absent) => return Ok(None),
            (ValueFormat::Encoded | ValueFormat::Formatted(RecordFormat::Raw), Data::Raw(bytes)) => {
                return Ok(Some(bytes.clone()));
            }
            (ValueFormat::Encoded, Data::Structured(_)) => {
                let text = "encode.payload: this program was built without the feature avro";
                return Err(Fault::fatal(codes::SETTINGS_INVALID, text));
            }
            (ValueFormat::Formatted(format), _) => format,
        };
        let mut value = Vec::new();
        format.encode(record, &mut value)?;
        Ok(Some(Bytes::from(value)))
    }
}

/// Renders the template of a setting.
fn rendered(template: &Template, setting: &'static str, record: &Record) -> Result<String, Fault> {
    let mut text = String::new();
    template.render(record, &mut text).map_err(|error| {
        Fault::record(codes::TEMPLATE_FAILED, InSetting { setting: Str::from_static(setting), error })
    })?;
    if text.contains(NO_VALUE) {
        let why = template.why_no_value(record);
        let text = format!("the template of {setting} produces {text:?}: {why}");
        return Err(Fault::record(codes::TEMPLATE_FAILED, text));
    }
    Ok(text)
}

fn partition(template: &Template, record: &Record) -> Result<i32, Fault> {
    let text = rendered(template, "partition", record)?;
    let number = text.trim().parse().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| {
        let text = format!("the template of partition produces {text:?}, which is not the number of a partition");
        Fault::record(codes::RECORD_INVALID, text)
    })
}

/// The last millisecond of the year 9999, since 1970.
const LATEST: i64 = 253_402_300_799_999;

/// Returns milliseconds since 1970.
fn timestamp(template: &Template, record: &Record) -> Result<i64, Fault> {
    let text = rendered(template, "timestamp", record)?;
    let written = text.trim();
    let time = written.parse().ok().filter(|time| *time >= 0);
    let time = time.or_else(|| DateTime::parse_from_rfc3339(written).ok().map(|time| time.timestamp_millis()));
    if time.is_some_and(|time| time > LATEST) {
        let text = format!(
            "the template of timestamp produces {text:?}, which is after the year 9999 in milliseconds; for the time of the \
             record, set timestamp: '{{{{ .Metadata.GetCreatedAt.UnixMilli }}}}'"
        );
        return Err(Fault::record(codes::RECORD_INVALID, text));
    }
    time.ok_or_else(|| {
        let text = format!(
            "the template of timestamp produces {text:?}, which is neither a number of milliseconds nor a time in \
             RFC 3339"
        );
        Fault::record(codes::RECORD_INVALID, text)
    })
}
