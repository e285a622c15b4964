//! Dead letters: records that failed, as they were when they failed, and why.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_record::mark::LaneId;
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Record, json};

use crate::flow::{Field, Fields, Keys, Kinds, RecordShape, Shape, Type};
use crate::trace::SpanContext;

/// A record that failed. What leaves the process of it is masked already.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// Names the copy that failed, unique among the letters of the pipeline: when a source is read again after a crash,
    /// its letters have the same names.
    pub name: Str,
    /// When it failed.
    pub at: SystemTime,
    /// The lane from which its source row was read.
    pub lane: LaneId,
    /// The generation of the lane, see [`Mark`](anabranch_record::mark::Mark).
    pub generation: u64,
    /// The number of the source row in its lane.
    pub seq: u64,
    /// Id of the processor or destination where it failed; empty where that is not known.
    pub node: Str,
    /// Stable code of the failure.
    pub code: Str,
    /// The failure in words.
    pub message: Str,
    /// The record as it entered the step that failed, with its own position.
    pub record: Record,
    /// The span in which it was kept, where the record was traced: its replay refers to it.
    pub trace: Option<SpanContext>,
}

impl Letter {
    /// The letter as a record, for destinations that know nothing of letters: the failed record is its payload, its key
    /// the name, and why it failed stands in the metadata.
    pub fn to_record(&self, pipeline: &str) -> Record {
        let key = Data::text(self.name.to_string());
        self.with(pipeline, key, content(&self.record))
    }

    /// The letter as a record whose fields can be the columns of a table: its key is the name, so that a letter that comes
    /// again replaces itself, and the failed record is one text of JSON, whatever kinds of fields it has.
    pub fn to_columns(&self, pipeline: &str) -> Record {
        let mut text = Vec::new();
        // Numbers that JSON has not: what takes them apart says so.
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

/// How a destination that knows nothing of letters is given them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LetterForm {
    /// As [`Letter::to_record`]: for destinations of lines and of records.
    #[default]
    Record,
    /// As [`Letter::to_columns`]: for destinations of tables.
    Columns,
}

impl LetterForm {
    /// The letter in this form.
    pub fn record(self, letter: &Letter, pipeline: &str) -> Record {
        match self {
            LetterForm::Record => letter.to_record(pipeline),
            LetterForm::Columns => letter.to_columns(pipeline),
        }
    }

    /// What every letter in this form is like.
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

/// A text as every database takes it: without the character 0.
fn storable(text: &str) -> Value {
    Value::from(text.replace('\0', "\u{fffd}"))
}

/// A record as the fields of another one.
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

/// How many dead letters of a pipeline the store keeps, and what happens at a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterBounds {
    /// Most letters.
    pub count: u64,
    /// Most bytes of all letters. A queue without letters takes one of any size.
    pub bytes: u64,
    /// How old letters may become; `None` = any age. Older letters are removed, the newest included.
    pub age: Option<Duration>,
    /// Action when `count` or `bytes` is reached.
    pub full: WhenFull,
}

/// Action when a dead-letter queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// No further letter is kept, so the pipeline stops.
    #[default]
    Stop,
    /// The oldest letters are removed. The newest letter stays, whatever its size.
    DropOldest,
}

impl LetterBounds {
    /// Every letter is kept.
    pub const NONE: LetterBounds = LetterBounds { count: u64::MAX, bytes: u64::MAX, age: None, full: WhenFull::Stop };

    /// The bound that a queue with so many letters and bytes exceeds. One letter is never too much.
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

/// A bound of a dead-letter queue, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterBound {
    /// `max-count`: letters.
    Count(u64),
    /// `max-bytes`: bytes of all letters.
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

/// A dead-letter queue that takes no further letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullQueue {
    /// The bound that the next letter would exceed.
    pub bound: LetterBound,
    /// Letters in the queue.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The outcome of keeping letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptLetters {
    /// The first so many letters are durable.
    pub kept: usize,
    /// Letters that were removed from the queue because of its bounds.
    pub evicted: u64,
    /// Why the letters after those are not kept; `None` if all are.
    pub full: Option<FullQueue>,
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
