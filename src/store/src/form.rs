//! The stored form of dead letters. It preserves every detail of a record, which the JSON form does not.

use std::num::{NonZeroU64, NonZeroU128};
use std::time::{Duration, UNIX_EPOCH};

use anabranch_plugin::letter::Letter;
use anabranch_plugin::state::StoreError;
use anabranch_plugin::trace::{SpanContext, SpanId, TraceId};
use anabranch_record::fault::MESSAGE_BYTES;
use anabranch_record::mark::{LaneId, Partition};
use anabranch_record::metadata::Metadata;
use anabranch_record::phrase::shortened;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Timestamp, Value};
use anabranch_record::{Change, Data, Operation, Position, Record};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::letters::{StoredLetter, key, nanos};

/// The first byte of a dead letter. Unknown values come from later versions.
const FORM: u8 = 1;
/// The first byte of a dead letter that is preceded by the ids of a trace and a span.
const TRACED: u8 = 2;
/// The first byte of a dead letter of a slot other than 0. The slot follows, four bytes, most significant first, and then
/// a dead letter with one of the other first bytes.
const SLOTTED: u8 = 3;

/// Returns the stored dead letter of a record that failed for the first time.
///
/// # Errors
/// The dead letter cannot be encoded, which is a defect.
pub fn stored(letter: &Letter) -> Result<StoredLetter, StoreError> {
    Ok(StoredLetter { first: nanos(letter.at), attempts: 1, key: key(&letter.name), content: encode(letter)? })
}

/// Encodes a dead letter.
///
/// # Errors
/// The dead letter cannot be encoded, which is a defect.
pub fn encode(letter: &Letter) -> Result<Bytes, StoreError> {
    let record = &letter.record;
    let form = LetterForm {
        name: letter.name.clone(),
        at: nanos(letter.at),
        connector: letter.lane.connector.clone(),
        partition: letter.lane.partition.0.clone(),
        generation: letter.generation,
        seq: letter.seq,
        node: letter.node.clone(),
        code: letter.code.clone(),
        message: letter.message.clone(),
        position: record.position().0.to_vec(),
        operation: record.operation as u8,
        metadata: record.metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        key: DataForm::from(&record.key),
        before: DataForm::from(&record.payload.before),
        after: DataForm::from(&record.payload.after),
    };
    let mut head = Vec::new();
    if letter.slot != 0 {
        head.push(SLOTTED);
        head.extend(letter.slot.to_be_bytes());
    }
    head.push(if letter.trace.is_some() { TRACED } else { FORM });
    if let Some(SpanContext { trace, span }) = letter.trace {
        head.extend(trace.0.get().to_be_bytes());
        head.extend(span.0.get().to_be_bytes());
    }
    let written = postcard::to_extend(&form, head);
    written.map(Bytes::from).map_err(|error| StoreError::Unavailable(Box::new(error)))
}

/// Decodes a dead letter.
///
/// # Errors
/// The bytes are not a dead letter, or a later version wrote them.
pub fn decode(bytes: &[u8]) -> Result<Letter, StoreError> {
    let damaged = |what: &str| StoreError::Damaged(format!("a dead letter cannot be read: {what}"));
    let (slot, bytes) = match bytes.split_first() {
        Some((&SLOTTED, rest)) => {
            let (slot, rest) = rest.split_first_chunk().ok_or_else(|| damaged("its slot is truncated"))?;
            (u32::from_be_bytes(*slot), rest)
        }
        _ => (0, bytes),
    };
    let (trace, rest) = match bytes.split_first() {
        Some((&FORM, rest)) => (None, rest),
        Some((&TRACED, rest)) => {
            let (context, rest) = context(rest).ok_or_else(|| damaged("its trace is truncated"))?;
            (Some(context), rest)
        }
        _ => return Err(damaged("a later version of this program wrote it")),
    };
    let form: LetterForm = postcard::from_bytes(rest).map_err(|error| damaged(&error.to_string()))?;
    let operation = Operation::from_number(form.operation.into()).ok_or_else(|| damaged("it has no operation"))?;
    let mut record = Record::at(Position(form.position.into()));
    record.operation = operation;
    record.metadata = Metadata::from_entries(form.metadata);
    record.key = form.key.into();
    record.payload = Change { before: form.before.into(), after: form.after.into() };
    Ok(Letter {
        name: form.name,
        at: UNIX_EPOCH + Duration::from_nanos(form.at),
        slot,
        lane: LaneId { connector: form.connector, partition: Partition(form.partition) },
        generation: form.generation,
        seq: form.seq,
        node: form.node,
        code: form.code,
        // Earlier versions stored messages of any length.
        message: shortened(form.message.to_string(), MESSAGE_BYTES).into(),
        record,
        trace,
    })
}

/// Decodes the span context at the start. Returns it with the remaining bytes.
fn context(bytes: &[u8]) -> Option<(SpanContext, &[u8])> {
    let (trace, rest) = bytes.split_first_chunk()?;
    let (span, rest) = rest.split_first_chunk()?;
    let trace = TraceId(NonZeroU128::new(u128::from_be_bytes(*trace))?);
    let span = SpanId(NonZeroU64::new(u64::from_be_bytes(*span))?);
    Some((SpanContext { trace, span }, rest))
}

#[derive(Serialize, Deserialize)]
struct LetterForm {
    name: Str,
    at: u64,
    connector: Str,
    partition: Str,
    generation: u64,
    seq: u64,
    node: Str,
    code: Str,
    message: Str,
    position: Vec<u8>,
    operation: u8,
    metadata: Vec<(Str, Str)>,
    key: DataForm,
    before: DataForm,
    after: DataForm,
}

#[derive(Serialize, Deserialize)]
enum DataForm {
    Absent,
    Raw(Vec<u8>),
    Structured(Vec<(Str, ValueForm)>),
}

#[derive(Serialize, Deserialize)]
enum ValueForm {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(Str),
    Bytes(Vec<u8>),
    /// Seconds since 1970, and nanoseconds.
    Time(i64, u32),
    List(Vec<ValueForm>),
    Map(Vec<(Str, ValueForm)>),
}

impl From<&Data> for DataForm {
    fn from(data: &Data) -> Self {
        match data {
            Data::Absent => DataForm::Absent,
            Data::Raw(bytes) => DataForm::Raw(bytes.to_vec()),
            Data::Structured(fields) => DataForm::Structured(entries(fields)),
        }
    }
}

impl From<DataForm> for Data {
    fn from(form: DataForm) -> Self {
        match form {
            DataForm::Absent => Data::Absent,
            DataForm::Raw(bytes) => Data::Raw(bytes.into()),
            DataForm::Structured(fields) => Data::from(object(fields)),
        }
    }
}

fn entries(object: &Object) -> Vec<(Str, ValueForm)> {
    object.iter().map(|(key, value)| (key.clone(), ValueForm::from(value))).collect()
}

fn object(entries: Vec<(Str, ValueForm)>) -> Object {
    Object::from_entries(entries.into_iter().map(|(key, value)| (key, Value::from(value))).collect())
}

impl From<&Value> for ValueForm {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => ValueForm::Null,
            Value::Bool(v) => ValueForm::Bool(*v),
            Value::Int(v) => ValueForm::Int(*v),
            Value::UInt(v) => ValueForm::UInt(*v),
            Value::Float(v) => ValueForm::Float(*v),
            Value::Text(v) => ValueForm::Text(v.clone()),
            Value::Bytes(v) => ValueForm::Bytes(v.to_vec()),
            Value::Time(v) => ValueForm::Time(v.timestamp(), v.timestamp_subsec_nanos()),
            Value::List(v) => ValueForm::List(v.iter().map(ValueForm::from).collect()),
            Value::Map(v) => ValueForm::Map(entries(v)),
        }
    }
}

impl From<ValueForm> for Value {
    fn from(form: ValueForm) -> Self {
        match form {
            ValueForm::Null => Value::Null,
            ValueForm::Bool(v) => Value::Bool(v),
            ValueForm::Int(v) => Value::Int(v),
            ValueForm::UInt(v) => Value::UInt(v),
            ValueForm::Float(v) => Value::Float(v),
            ValueForm::Text(v) => Value::Text(v),
            ValueForm::Bytes(v) => Value::Bytes(v.into()),
            ValueForm::Time(seconds, nanos) => {
                Timestamp::from_timestamp(seconds, nanos).map_or(Value::Null, Value::Time)
            }
            ValueForm::List(v) => Value::from(v.into_iter().map(Value::from).collect::<Vec<_>>()),
            ValueForm::Map(v) => Value::from(object(v)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_of_a_record_comes_back() {
        let fields = |values: &[Value]| -> Object {
            values.iter().enumerate().map(|(i, value)| (format!("f{i}"), value.clone())).collect()
        };
        let time = Timestamp::from_timestamp(-1, 999_999_999).unwrap();
        let values = [
            Value::Null,
            Value::Bool(true),
            Value::Int(i64::MIN),
            Value::UInt(u64::MAX),
            Value::Float(-0.5),
            Value::Float(f64::INFINITY),
            Value::from("ü\0"),
            Value::Bytes((*b"\xff\0").into()),
            Value::Time(time),
        ];
        let nested = [Value::from(values.to_vec()), Value::from(fields(&values))];
        let mut record = Record::at(Position::copy_from(b"\0\xffpos"));
        record.operation = Operation::Snapshot;
        record.metadata.insert("b", "2");
        record.metadata.insert("a", "1");
        record.key = Data::Raw(Bytes::from_static(b"\xff"));
        record.payload.before = Data::from(fields(&values));
        record.payload.after = Data::from(fields(&nested));
        let letter = Letter {
            name: "p:in//1/7///x".into(),
            at: UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789),
            slot: 0,
            lane: LaneId { connector: "in".into(), partition: Partition("3".into()) },
            generation: 1,
            seq: 7,
            node: "x".into(),
            code: "bad_row".into(),
            message: "it is bad".into(),
            record,
            trace: None,
        };
        let traced = SpanContext { trace: TraceId(NonZeroU128::MAX), span: SpanId(NonZeroU64::MIN) };
        let traced = Letter { trace: Some(traced), ..letter.clone() };
        let slotted = [&letter, &traced].map(|letter| Letter { slot: 258, ..letter.clone() });
        for letter in [letter, traced].into_iter().chain(slotted) {
            let bytes = encode(&letter).unwrap();
            assert_eq!(decode(&bytes).unwrap(), letter);
            for length in 0..bytes.len() {
                assert!(decode(&bytes[..length]).is_err(), "{length}");
            }
        }
        assert!(decode(&[SLOTTED + 1]).unwrap_err().to_string().contains("later version"));
    }
}
