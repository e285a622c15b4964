//! Messages of a tap become records and positions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anabranch_plugin::parameters::Choice;
use anabranch_plugin::schema::{SchemaKind, SchemaRegistry};
use anabranch_plugin::source::Read;
use anabranch_record::code::Code;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::Partition;
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Change, Data, Operation, Record};
use serde_json::Number;

use crate::avro;
use crate::codes;
use crate::convert::{self, Converted};
use crate::declared::Properties;
use crate::message::{self, MessageError, RecordMessage, SchemaMessage, TapMessage};
use crate::output::OutputLine;
use crate::place::StatePlace;
use crate::tap::Tap;

/// Metadata with the time at which the tap read a record, as the tap wrote it.
pub(crate) const TIME_EXTRACTED: Str = Str::from_static("singer.timeExtracted");
/// Metadata with the version of the stream of a record.
pub(crate) const VERSION: Str = Str::from_static("singer.version");

/// Reaction to ACTIVATE_VERSION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnVersion {
    Ignore,
    Fail,
}

impl Choice for OnVersion {
    const CHOICES: &'static [(&'static str, Self)] = &[("ignore", OnVersion::Ignore), ("fail", OnVersion::Fail)];
}

/// How messages become records.
#[derive(Clone, Debug)]
pub(crate) struct RecordRules {
    pub(crate) operation: Operation,
    pub(crate) deleted_at: Option<Str>,
    pub(crate) on_version: OnVersion,
}

/// Where the schemas of streams are registered.
pub(crate) struct Subjects {
    pub(crate) registry: Arc<dyn SchemaRegistry>,
    /// The text before subjects: the name of the schema context and a colon, or nothing.
    pub(crate) context: String,
}

/// Decodes the messages of one tap.
pub(crate) struct MessageDecoder {
    tap: Arc<Tap>,
    options: RecordRules,
    subjects: Option<Subjects>,
    streams: HashMap<Str, TapStream>,
    place: StatePlace,
    /// True if the place is not the position of a record, and not reported otherwise.
    is_unreported: bool,
    /// A SCHEMA message whose schemas are not registered yet. No message is decoded before.
    unregistered: Option<SchemaMessage>,
    /// A record that cannot be passed on. No message is decoded before it is reported.
    failed: Option<(Box<Record>, Fault)>,
    /// The reason why the tap cannot be read on, which is reported after all records before it.
    refused: Option<Fault>,
    /// Streams for which the log says that ACTIVATE_VERSION is ignored.
    noted: HashSet<Str>,
}

/// A stream after its SCHEMA message.
struct TapStream {
    properties: Properties,
    key: Vec<Str>,
    metadata: Metadata,
    /// The same with the names of the schemas, for records that have only declared properties.
    declared: Metadata,
    recent: Option<RecentMetadata>,
}

/// Metadata that many records share.
struct RecentMetadata {
    time_extracted: Option<String>,
    version: Option<Number>,
    is_declared: bool,
    metadata: Metadata,
}

impl MessageDecoder {
    pub(crate) fn new(
        tap: Arc<Tap>,
        options: RecordRules,
        subjects: Option<Subjects>,
        place: StatePlace,
    ) -> MessageDecoder {
        MessageDecoder {
            tap,
            options,
            subjects,
            streams: HashMap::new(),
            place,
            is_unreported: false,
            unregistered: None,
            failed: None,
            refused: None,
            noted: HashSet::new(),
        }
    }

    /// Returns the place of the last STATE message.
    pub(crate) fn place(&self) -> &StatePlace {
        &self.place
    }

    /// Returns `true` if a message must be finished ([`MessageDecoder::register`], [`MessageDecoder::reported`]) before the next one.
    pub(crate) fn is_blocked(&self) -> bool {
        self.unregistered.is_some() || self.failed.is_some() || self.refused.is_some()
    }

    /// Decodes the line with a number, counted from 1, and adds a record to `records`, or changes the position of the last
    /// one.
    pub(crate) fn line(&mut self, line: &OutputLine<'_>, number: u64, records: &mut Vec<Record>) {
        self.refused = self.decode(line, number, records).err();
    }

    /// # Errors
    /// The line is not a message, or one that the source does not support.
    fn decode(&mut self, line: &OutputLine<'_>, number: u64, records: &mut Vec<Record>) -> Result<(), Fault> {
        let line = match line {
            OutputLine::Whole(line) if line.trim_ascii().is_empty() => return Ok(()),
            OutputLine::Whole(line) => line,
            OutputLine::TooLong { head, bytes } => return self.too_long(head, *bytes, number),
        };
        let message = match message::parse(line) {
            Ok(message) => message,
            Err(error) => return self.unparsed(line, number, &error),
        };
        match message {
            TapMessage::Record(message) => self.record(&message, number, records),
            TapMessage::State(state) => {
                if self.place.state() != Some(state.get()) {
                    self.place = StatePlace::new(Some(state.to_owned()).filter(|state| state.get() != "null"));
                }
                match records.pop() {
                    Some(last) => records.push(last.with_position(self.place.exact().clone())),
                    None => self.is_unreported = true,
                }
                Ok(())
            }
            TapMessage::Schema(schema) => {
                self.unregistered = Some(schema);
                Ok(())
            }
            TapMessage::ActivateVersion { stream, version } => self.activate(&stream, version.as_ref()),
        }
    }

    /// Returns what was decoded and is not reported yet.
    ///
    /// # Errors
    /// All is reported, and the line after it cannot be decoded.
    pub(crate) fn reported(&mut self, records: Vec<Record>) -> Result<Option<Read>, Fault> {
        if !records.is_empty() {
            self.is_unreported = false;
            return Ok(Some(Read::Rows { partition: Partition::ONLY, records }));
        }
        if std::mem::take(&mut self.is_unreported) {
            return Ok(Some(Read::Progress(Partition::ONLY, self.place.exact().clone())));
        }
        if let Some((record, fault)) = self.failed.take() {
            return Ok(Some(Read::Failed { partition: Partition::ONLY, record, fault }));
        }
        self.refused.take().map_or(Ok(None), Err)
    }

    /// Registers the schemas of a SCHEMA message. Cancel-safe.
    ///
    /// # Errors
    /// The registry is not available, or refuses a schema.
    pub(crate) async fn register(&mut self) -> Result<(), Fault> {
        let Some(message) = &self.unregistered else { return Ok(()) };
        let properties = Properties::of(&message.schema);
        let metadata = Metadata::from_entries(vec![(key::COLLECTION, message.stream.clone())]);
        let mut declared = metadata.clone();
        if let Some(subjects) = &self.subjects {
            if let Some(text) = avro::payload(&properties) {
                let (subject, version) = subjects.register(&message.stream, "payload", &text).await?;
                declared.insert(key::PAYLOAD_SCHEMA_SUBJECT, subject);
                declared.insert(key::PAYLOAD_SCHEMA_VERSION, version);
            } else {
                tracing::warn!(
                    stream = %message.stream,
                    "records get no schema: the name of a property is not a name in Avro"
                );
            }
            let key_text = if message.key.is_empty() { None } else { avro::key(&properties, &message.key) };
            if let Some(text) = key_text {
                let (subject, version) = subjects.register(&message.stream, "key", &text).await?;
                declared.insert(key::KEY_SCHEMA_SUBJECT, subject);
                declared.insert(key::KEY_SCHEMA_VERSION, version);
            }
        }
        if let Some(SchemaMessage { stream, key, .. }) = self.unregistered.take() {
            self.streams.insert(stream, TapStream { properties, key, metadata, declared, recent: None });
        }
        Ok(())
    }

    fn record(&mut self, message: &RecordMessage<'_>, number: u64, records: &mut Vec<Record>) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(&*message.stream) else {
            return Err(self.tap.unknown_stream(&message.stream, number));
        };
        let Some(raw) = message.record else {
            return self.invalid(message, number, &"wrote a RECORD message without a record");
        };
        let converted = match convert::record(raw, &stream.properties) {
            Ok(converted) => converted,
            Err(error) => {
                return self.invalid(message, number, &format_args!("wrote a record that is not valid: {error}"));
            }
        };
        let Converted { fields, is_declared, mismatch } = converted;
        let (found, flaw) = stream.key_of(&fields);
        let is_deleted = self.options.deleted_at.as_ref().and_then(|name| fields.get(name));
        let is_deleted = is_deleted.is_some_and(|at| *at != Value::Null) && !found.is_empty();
        let flaw = flaw.map(|flaw| (codes::TAP_KEY_MISSING, flaw)).or_else(|| {
            mismatch.map(|mismatch| (codes::TAP_TYPE_MISMATCH, format!("wrote a record that is not valid: {mismatch}")))
        });
        let mut record = Record::at(self.place.partial().clone());
        record.metadata = stream.metadata_of(message, is_declared && flaw.is_none());
        record.operation = self.options.operation;
        if !found.is_empty() {
            record.key = Data::from(found);
        }
        record.payload = Change::default();
        match is_deleted {
            true => {
                record.operation = Operation::Delete;
                record.payload.before = Data::from(fields);
            }
            false => record.payload.after = Data::from(fields),
        }
        match flaw {
            None => records.push(record),
            Some((code, flaw)) => self.fail(record, code, number, &flaw),
        }
        Ok(())
    }

    /// Fails a record whose message is not valid. Its data is the text of the message, if there is one.
    ///
    /// # Errors
    /// The stream has no schema yet.
    fn invalid(&mut self, message: &RecordMessage<'_>, number: u64, what: &dyn std::fmt::Display) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(&*message.stream) else {
            return Err(self.tap.unknown_stream(&message.stream, number));
        };
        let mut record = Record::at(self.place.partial().clone());
        record.metadata = stream.metadata_of(message, false);
        if let Some(raw) = message.record {
            record.payload.after = Data::from(raw.get());
        }
        self.fail(record, codes::TAP_RECORD_INVALID, number, what);
        Ok(())
    }

    fn fail(&mut self, record: Record, code: Code, number: u64, what: &dyn std::fmt::Display) {
        let fault = self.tap.fault(FaultClass::Record, code, &format_args!("{what} (line {number})"));
        self.failed = Some((Box::new(record), fault));
    }

    /// Fails the record of a line that is not JSON only because of numbers such as NaN, which Python writes.
    ///
    /// # Errors
    /// The line is not a message for another reason.
    fn unparsed(&mut self, line: &[u8], number: u64, error: &MessageError) -> Result<(), Fault> {
        if let Some((word, text)) = message::without_unreal_numbers(line)
            && let Ok(TapMessage::Record(message)) = message::parse(&text)
        {
            let what = format!("wrote a record with {word}, which is not a number in JSON");
            return self.invalid(&message, number, &what);
        }
        Err(self.refusal(line, number, error))
    }

    fn too_long(&mut self, head: &[u8], bytes: u64, number: u64) -> Result<(), Fault> {
        let limit = self.tap.message_limit;
        let text = format!("wrote a message of {bytes} bytes (line {number}), and maxMessageBytes is {limit}");
        if !message::begins_record(head) {
            return Err(self.tap.fatal(codes::TAP_MESSAGE_TOO_LARGE, &text));
        }
        let record = Record::at(self.place.partial().clone());
        let fault = self.tap.fault(FaultClass::Record, codes::RECORD_TOO_LARGE, &text);
        self.failed = Some((Box::new(record), fault));
        Ok(())
    }

    fn activate(&mut self, stream: &str, version: Option<&Number>) -> Result<(), Fault> {
        let version = version.map_or_else(|| "?".to_owned(), ToString::to_string);
        if self.options.on_version == OnVersion::Fail {
            let text = format!(
                "says that only records of the version {version} of the stream {stream:?} are valid (ACTIVATE_VERSION), \
                 and activateVersion is fail"
            );
            return Err(self.tap.fatal(codes::TAP_UNSUPPORTED, &text));
        }
        if self.noted.insert(stream.into()) {
            tracing::info!(
                stream,
                version,
                "the tap activates a version of the stream; records of other versions stay at the destination"
            );
        }
        Ok(())
    }

    fn refusal(&self, line: &[u8], number: u64, error: &MessageError) -> Fault {
        match error {
            MessageError::Unsupported(kind) => {
                let hint = match kind.as_str() {
                    "BATCH" => "; remove batch_config from the configuration of the tap",
                    _ => "",
                };
                self.tap.fatal(codes::TAP_UNSUPPORTED, &format!("cannot be used: {error} (line {number}){hint}"))
            }
            _ => {
                let text = format!("wrote a line that is not a message (line {number}): {error}{}", quoted(line));
                self.tap.fatal(codes::TAP_GARBAGE, &text)
            }
        }
    }
}

/// Quotes the beginning of a line, unless it is an object, which may contain data.
fn quoted(line: &[u8]) -> String {
    const QUOTED: usize = 100;
    match line.trim_ascii_start().first() {
        Some(b'{' | b'[') => String::new(),
        _ => {
            let text = String::from_utf8_lossy(&line[..line.len().min(4 * QUOTED)]);
            format!("; it begins with {:?}", text.chars().take(QUOTED).collect::<String>())
        }
    }
}

impl TapStream {
    /// Returns the key of a record without nulls, and a phrase about a property that a complete key needs.
    fn key_of(&self, fields: &Object) -> (Object, Option<String>) {
        let flaw = self.key.iter().find_map(|name| match fields.get(name) {
            None => Some(format!("wrote a record without the property {name:?} of its key")),
            Some(Value::Null) => Some(format!("wrote a record with null in the property {name:?} of its key")),
            Some(_) => None,
        });
        let value = |name: &Str| fields.get(name).filter(|value| **value != Value::Null).cloned();
        let found = self.key.iter().filter_map(|name| Some((name.clone(), value(name)?)));
        (Object::from_entries(found.collect()), flaw)
    }

    fn metadata_of(&mut self, message: &RecordMessage<'_>, is_declared: bool) -> Metadata {
        if let Some(recent) = &self.recent
            && recent.is_declared == is_declared
            && recent.time_extracted.as_deref() == message.time_extracted.as_deref()
            && recent.version == message.version
        {
            return recent.metadata.clone();
        }
        let mut metadata = if is_declared { self.declared.clone() } else { self.metadata.clone() };
        if let Some(time) = &message.time_extracted {
            metadata.insert(TIME_EXTRACTED, &**time);
        }
        if let Some(version) = &message.version {
            metadata.insert(VERSION, version.to_string());
        }
        self.recent = Some(RecentMetadata {
            time_extracted: message.time_extracted.as_deref().map(ToOwned::to_owned),
            version: message.version.clone(),
            is_declared,
            metadata: metadata.clone(),
        });
        metadata
    }
}

impl Subjects {
    async fn register(&self, stream: &str, part: &str, text: &str) -> Result<(Str, Str), Fault> {
        let subject = Str::from(format!("{}{stream}_{part}", self.context));
        let created = self.registry.create(&subject, SchemaKind::Avro, &Str::from(text)).await;
        let schema = created.map_err(|error| {
            let fault = Fault::from(error);
            // The schema concerns all records of the stream.
            let class = if fault.class() == FaultClass::Record { FaultClass::Fatal } else { fault.class() };
            fault.with_class(class)
        })?;
        Ok((subject, schema.version.to_string().into()))
    }
}
