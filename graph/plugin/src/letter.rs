//! Dead letters: records that failed, with the reason.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_record::mark::LaneId;
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Record, json};
use async_trait::async_trait;

use crate::flow::{Field, Fields, Keys, Kinds, RecordShape, Shape, Type};
use crate::state::{Epoch, StoreError};
use crate::trace::SpanContext;

/// A record that failed. All parts that leave the process are already masked.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// Name of the copy that failed, unique among the dead letters of the pipeline. If a source is read again after a
    /// crash, the same copies get the same names.
    pub name: Str,
    /// Time of the failure.
    pub at: SystemTime,
    /// Slot of the unit that had the lane, see [`Unit`](crate::state::Unit).
    pub slot: u32,
    /// The lane of its source row.
    pub lane: LaneId,
    /// The generation of the lane, see [`Mark`](anabranch_record::mark::Mark).
    pub generation: u64,
    /// The number of the source row in its lane.
    pub seq: u64,
    /// Id of the processor or destination where it failed; empty if unknown.
    pub node: Str,
    /// Stable code of the failure.
    pub code: Str,
    /// Message of the failure.
    pub message: Str,
    /// The record as the failed processor or destination received it, with its own position.
    pub record: Record,
    /// The span in which it was dead-lettered, if the record is traced: its replay links to it.
    pub trace: Option<SpanContext>,
}

impl Letter {
    /// Converts the dead letter to a record for generic destinations: the failed record is the payload, the name is the
    /// key, and the metadata contains the failure.
    pub fn to_record(&self, pipeline: &str) -> Record {
        let key = Data::text(self.name.to_string());
        self.with(pipeline, key, content(&self.record))
    }

    /// Converts the dead letter to a record whose fields can be the columns of a table: the name is the key, so that a
    /// repeated letter replaces itself, and the failed record is one JSON text, regardless of the types of its fields.
    pub fn to_columns(&self, pipeline: &str) -> Record {
        let mut text = Vec::new();
        // If JSON cannot represent a number, the record stays a map and the destination reports the error.
        let record = match json::write_record(&self.record, &mut text) {
            Ok(()) => storable(&String::from_utf8_lossy(&text)),
            Err(_) => Value::Map(content(&self.record).into()),
        };
        let fields = [
            (Str::from_static("pipeline"), storable(pipeline)),
            (Str::from_static("source"), storable(&self.lane.connector)),
            (Str::from_static("node"), storable(&self.node)),
            (Str::from_static("code"), storable(&self.code)),
            (Str::from_static("error"), storable(&self.message)),
            (FAILED_AT, Value::Time(self.at.into())),
            (RECORD, record),
        ];
        let key: Object = [(NAME, storable(&self.name))].into_iter().collect();
        self.with(pipeline, Data::from(key), fields.into_iter().collect())
    }

    fn with(&self, pipeline: &str, key: Data, fields: Object) -> Record {
        let mut metadata = Metadata::with_capacity(5);
        let nanos = self.at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        metadata.insert(key::CREATED_AT, nanos.to_string());
        metadata.insert(key::SOURCE_CONNECTOR_ID, format!("{pipeline}:{}", self.lane.connector));
        metadata.insert(key::DLQ_NACK_ERROR, self.message.clone());
        metadata.insert(key::DLQ_NACK_CODE, self.code.clone());
        metadata.insert(key::DLQ_NACK_NODE_ID, self.node.clone());
        let position = self.record.position().clone();
        let mut letter = Record::create(position, key, Data::from(fields));
        letter.operation = Operation::Create;
        letter.metadata = metadata;
        letter
    }
}

/// The form in which a generic destination receives dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LetterForm {
    /// [`Letter::to_record`], for destinations of lines and of records.
    #[default]
    Record,
    /// [`Letter::to_columns`], for destinations of tables.
    Columns,
}

impl LetterForm {
    /// Converts a dead letter to this form.
    pub fn record(self, letter: &Letter, pipeline: &str) -> Record {
        match self {
            LetterForm::Record => letter.to_record(pipeline),
            LetterForm::Columns => letter.to_columns(pipeline),
        }
    }

    /// Returns the shape of all dead letters in this form.
    pub fn shape(self) -> RecordShape {
        let field = |(name, kinds): (&'static str, Kinds)| (Str::from_static(name), Field::present(Type::of(kinds)));
        let fields = |fields: &[(&'static str, Kinds)]| Fields::closed(fields.iter().copied().map(field));
        let data = Kinds::NULL | Kinds::BYTES | Kinds::MAP;
        let payload = || Type::map(fields(&[("before", data), ("after", data)]));
        let (key, after) = match self {
            LetterForm::Record => {
                let mut after = fields(&[
                    ("position", Kinds::BYTES),
                    ("operation", Kinds::TEXT),
                    ("metadata", Kinds::MAP),
                    ("key", data),
                ]);
                after.insert(Str::from_static("payload"), Field::present(payload()));
                (Shape::PLAIN, after)
            }
            LetterForm::Columns => {
                let texts = ["pipeline", "source", "node", "code", "error"].map(|name| (name, Kinds::TEXT));
                let mut after = fields(&texts);
                after.insert(FAILED_AT, Field::present(Type::of(Kinds::TIME)));
                after.insert(RECORD, Field::present(Type::of(Kinds::TEXT | Kinds::MAP)));
                (Shape::structured(fields(&[("name", Kinds::TEXT)])), after)
            }
        };
        let metadata =
            [key::CREATED_AT, key::SOURCE_CONNECTOR_ID, key::DLQ_NACK_ERROR, key::DLQ_NACK_CODE, key::DLQ_NACK_NODE_ID];
        RecordShape { metadata: Keys::of(metadata), ..RecordShape::create(key, Shape::structured(after)) }
    }
}

const NAME: Str = Str::from_static("name");
const FAILED_AT: Str = Str::from_static("failed_at");
const RECORD: Str = Str::from_static("record");

/// Replaces the character 0, which some databases reject.
fn storable(text: &str) -> Value {
    Value::from(text.replace('\0', "\u{fffd}"))
}

/// Converts a record to the fields of another one.
fn content(record: &Record) -> Object {
    let data = |data: &Data| match data {
        Data::Absent => Value::Null,
        Data::Raw(bytes) => Value::Bytes(bytes[..].into()),
        Data::Structured(fields) => Value::Map(fields.clone()),
    };
    let metadata: Object = record.metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let payload: Object =
        [("before", data(&record.payload.before)), ("after", data(&record.payload.after))].into_iter().collect();
    let fields = [
        ("position", Value::Bytes(record.position().0[..].into())),
        ("operation", Value::from(record.operation.as_str())),
        ("metadata", Value::from(metadata)),
        ("key", data(&record.key)),
        ("payload", Value::from(payload)),
    ];
    fields.into_iter().collect()
}

/// Limits of the dead letters of a pipeline in the store, and the action at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterBounds {
    /// Maximum number of dead letters.
    pub count: u64,
    /// Maximum number of bytes of all dead letters. An empty queue accepts one of any size.
    pub bytes: u64,
    /// Maximum age of dead letters; `None` = no limit. Older ones are removed, including the newest.
    pub age: Option<Duration>,
    /// Action when `count` or `bytes` is reached.
    pub full: WhenFull,
}

/// Action when a dead-letter queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// No further dead letter is accepted, so the pipeline stops.
    #[default]
    Stop,
    /// The oldest dead letters are removed. The newest one is kept, regardless of its size.
    DropOldest,
}

impl LetterBounds {
    /// No limits.
    pub const NONE: LetterBounds = LetterBounds { count: u64::MAX, bytes: u64::MAX, age: None, full: WhenFull::Stop };

    /// Returns the limit that a queue with `count` dead letters and `bytes` bytes exceeds. A single one exceeds none.
    pub fn exceeded(&self, count: u64, bytes: u64) -> Option<LetterBound> {
        if count <= 1 {
            None
        } else if count > self.count {
            Some(LetterBound::Count(self.count))
        } else if bytes > self.bytes {
            Some(LetterBound::Bytes(self.bytes))
        } else {
            None
        }
    }
}

/// A limit of a dead-letter queue, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterBound {
    /// `max-count`: number of dead letters.
    Count(u64),
    /// `max-bytes`: bytes of all dead letters.
    Bytes(u64),
}

impl fmt::Display for LetterBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LetterBound::Count(most) => write!(f, "`max-count` is {most}"),
            LetterBound::Bytes(most) => write!(f, "`max-bytes` is {most} bytes"),
        }
    }
}

/// A dead-letter queue that accepts no further dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullQueue {
    /// The limit that the next dead letter would exceed.
    pub bound: LetterBound,
    /// Number of dead letters in the queue.
    pub count: u64,
    /// Bytes of these dead letters.
    pub bytes: u64,
}

/// The outcome of storing dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptLetters {
    /// Number of dead letters, from the first, that are durable.
    pub kept: usize,
    /// Number of dead letters that were removed from the queue because of its limits.
    pub evicted: u64,
    /// Reason why the remaining dead letters are not stored; `None` if all are.
    pub full: Option<FullQueue>,
}

/// A store of dead letters, for pipelines whose dead-letter queue is in it ([`Destination::keeps_letters`]).
///
/// [`Destination::keeps_letters`]: crate::destination::Destination::keeps_letters
#[async_trait]
pub trait LetterStore: Send + Sync {
    /// Stores dead letters of a unit, durably, and returns how many were stored. The limits apply to the letters of all
    /// units of the pipeline. A letter replaces the one with the same name; limits do not apply to that. At a limit, the
    /// remaining letters are not stored ([`WhenFull::Stop`]) or the oldest letters are removed
    /// ([`WhenFull::DropOldest`]). Letters that exceed the maximum age are removed first.
    ///
    /// # Errors
    /// The store cannot be written, or another run has claimed the unit.
    async fn keep_letters(
        &self,
        epoch: &Epoch,
        letters: Vec<Letter>,
        bounds: &LetterBounds,
    ) -> Result<KeptLetters, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_exceeded_by_more_letters_or_bytes_but_never_by_one_letter() {
        let bounds = LetterBounds { count: 2, bytes: 100, ..LetterBounds::NONE };
        assert_eq!(bounds.exceeded(2, 100), None);
        assert_eq!(bounds.exceeded(3, 10), Some(LetterBound::Count(2)));
        assert_eq!(bounds.exceeded(2, 101), Some(LetterBound::Bytes(100)));
        assert_eq!(LetterBounds { count: 0, ..bounds }.exceeded(1, 5000), None);
    }
}
