//! Records of a simulation. A record represents a [`Copy`]: its payload contains the id, and its metadata the
//! mark.

use anabranch_record::{Data, Position, Record};

use crate::oracle::Copy;

/// The metadata key of the mark.
pub const MARK: &str = "mark";

/// Builds the record of a copy.
pub fn record(copy: Copy, at: Position) -> Record {
    let mut record = Record::create(at, Data::Absent, payload(copy.id));
    record.metadata.insert(MARK, [b'0' + copy.mark].map(char::from).iter().collect::<String>());
    record
}

/// Builds the payload with a number.
pub fn payload(id: u64) -> Data {
    Data::Raw(bytes::Bytes::copy_from_slice(&id.to_le_bytes()))
}

/// Returns the number in a payload.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Returns the copy that a record represents.
pub fn copy(record: &Record) -> Copy {
    let id = match &record.payload.after {
        Data::Raw(bytes) => number(bytes),
        _ => 0,
    };
    let mark = record.metadata.get(MARK).and_then(|mark| mark.as_str().parse().ok()).unwrap_or(9);
    Copy { id, mark }
}
