//! Dead letters: records that failed, as they were when they failed, and why.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::metadata::{Metadata, key};
use crate::record::{Data, Operation, Record};
use crate::state::LaneId;
use crate::text::Str;
use crate::trace::SpanContext;
use crate::value::{Object, Value};

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
    /// The generation of the lane, see [`Mark`](crate::source::Mark).
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
        let mut metadata = Metadata::with_capacity(5);
        let nanos = self.at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        metadata.insert(key::CREATED_AT, nanos.to_string());
        metadata.insert(key::SOURCE_CONNECTOR_ID, format!("{pipeline}:{}", self.lane.connector));
        metadata.insert(key::DLQ_NACK_ERROR, self.message.clone());
        metadata.insert(key::DLQ_NACK_CODE, self.code.clone());
        metadata.insert(key::DLQ_NACK_NODE_ID, self.node.clone());
        let position = self.record.position().clone();
        let mut letter = Record::create(position, Data::text(self.name.to_string()), Data::from(content(&self.record)));
        letter.operation = Operation::Create;
        letter.metadata = metadata;
        letter
    }
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
