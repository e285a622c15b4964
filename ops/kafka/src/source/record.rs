//! Messages of Kafka as records.

use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::{Data, Operation, Position, Record};
use bytes::{Bytes, BytesMut};

use super::batches::FetchedRecord;
use super::position::PositionEncoder;
use crate::headers;

/// Makes the records of a partition.
pub(super) struct RecordMaker {
    topic: Str,
    positions: PositionEncoder,
    buffer: BytesMut,
    /// The last timestamp and its metadata, which the next records share: producers send many records per millisecond.
    recent: Option<(i64, Metadata)>,
}

impl RecordMaker {
    pub(super) fn new(topic: Str, positions: PositionEncoder) -> RecordMaker {
        RecordMaker { topic, positions, buffer: BytesMut::new(), recent: None }
    }

    /// Prepares for `count` records.
    pub(super) fn expect(&mut self, count: usize) {
        self.buffer.reserve(self.positions.room(count));
    }

    /// Returns the position before the offset `next`, where batches end whose last one a leader of this epoch wrote.
    pub(super) fn progress(&mut self, next: i64, epoch: Option<i32>) -> Position {
        if let Some(epoch) = epoch {
            self.positions.set_epoch(epoch);
        }
        self.positions.one(next - 1)
    }

    /// Returns the record of a message. Its key and value share the memory of the answer of the broker.
    pub(super) fn make(&mut self, fetched: FetchedRecord) -> Record {
        let FetchedRecord { offset, epoch, timestamp, record } = fetched;
        self.positions.set_epoch(epoch);
        let position = self.positions.encode(offset, &mut self.buffer);
        let data = |bytes: Option<Bytes>| bytes.map_or(Data::Absent, Data::Raw);
        let operation = if record.value.is_none() { Operation::Delete } else { Operation::Create };
        let mut made = Record::create(position, data(record.key), data(record.value));
        made.operation = operation;
        made.metadata = self.metadata(timestamp);
        if !record.headers.is_empty() {
            let name = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
            let headers: headers::Headers =
                record.headers.into_iter().map(|header| (name(&header.key), header.value)).collect();
            headers::to_metadata(&headers, &mut made.metadata);
        }
        made
    }

    /// Returns the metadata of a record with this timestamp and no headers.
    fn metadata(&mut self, timestamp: i64) -> Metadata {
        if let Some((_, metadata)) = self.recent.as_ref().filter(|(recent, _)| *recent == timestamp) {
            return metadata.clone();
        }
        let mut entries = Vec::with_capacity(2);
        entries.push((key::COLLECTION, self.topic.clone()));
        if timestamp >= 0 {
            let mut nanoseconds = itoa::Buffer::new();
            let text = nanoseconds.format(i128::from(timestamp) * 1_000_000);
            entries.push((key::CREATED_AT, Str::from(text)));
        }
        let metadata = Metadata::from_entries(entries);
        self.recent = Some((timestamp, metadata.clone()));
        metadata
    }
}
