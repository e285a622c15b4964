//! Batches of a fetched partition: which records are read, and where the next fetch starts.
//!
//! A broker sends whole batches, so that the first may begin before the wanted offset, and the last may be cut. It sends the
//! batches of aborted transactions too, and says which they are (KIP-98). Batches of which compaction removed all records
//! still have offsets.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec::IntoIter;

use bytes::Bytes;
use krafka::__private::protocol::{AbortedTransaction, Record, RecordBatch, RecordBatchHeader};

/// Maximum size of a batch after decompression, in bytes.
const LARGEST: usize = 256 << 20;
/// Bytes before the length of a batch, and the length.
const PREFIX: usize = 12;
/// Type of the control record that ends an aborted transaction.
const ABORT: [u8; 2] = [0, 0];

/// A record of a batch, with what the batch says of it.
pub(super) struct FetchedRecord {
    pub(super) offset: i64,
    /// The epoch of the leader that wrote the record.
    pub(super) epoch: i32,
    /// Milliseconds since 1970; -1 if the producer set none.
    pub(super) timestamp: i64,
    pub(super) record: Record,
}

/// Where batches end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchesEnd {
    /// The offset after the last complete batch. Without batches, it is the offset that was asked for.
    pub(super) next: i64,
    /// The epoch of the leader that wrote the last complete batch, if there is one.
    pub(super) epoch: Option<i32>,
}

/// Batches that are decoded one after the other, so that the memory of one is needed at a time.
pub(super) struct Walk {
    bytes: Bytes,
    from: i64,
    aborted: Peekable<IntoIter<AbortedTransaction>>,
    /// The producers whose transaction is aborted at this place.
    producers: BTreeSet<i64>,
    end: BatchesEnd,
}

impl Walk {
    /// Begins with the first batch. Records before the offset `from` are left out.
    pub(super) fn new(bytes: Bytes, from: i64, mut aborted: Vec<AbortedTransaction>) -> Walk {
        aborted.sort_unstable_by_key(|transaction| transaction.first_offset);
        let (aborted, end) = (aborted.into_iter().peekable(), BatchesEnd { next: from, epoch: None });
        Walk { bytes, from, aborted, producers: BTreeSet::new(), end }
    }

    /// Returns where the batches end that were decoded.
    pub(super) fn end(&self) -> BatchesEnd {
        self.end
    }

    /// Decodes the next complete batch, and calls `each` for its records in order. Returns `false` if there is none.
    ///
    /// # Errors
    /// The batch cannot be decoded. Its offset is in the error.
    pub(super) fn step(&mut self, each: impl FnMut(FetchedRecord)) -> Result<bool, (i64, krafka::KrafkaError)> {
        if self.bytes.len() < PREFIX {
            return Ok(false);
        }
        let length = [8, 9, 10, 11].map(|at| self.bytes[at]);
        let is_cut = usize::try_from(i32::from_be_bytes(length)).is_ok_and(|it| self.bytes.len() < PREFIX + it);
        if is_cut {
            return Ok(false);
        }
        let offset = self.end.next;
        let header = RecordBatchHeader::peek(&self.bytes).map_err(|error| (offset, error))?;
        while let Some(begun) = self.aborted.next_if(|transaction| transaction.first_offset <= header.base_offset) {
            self.producers.insert(begun.producer_id);
        }
        let is_aborted = header.attributes.is_transactional && self.producers.contains(&header.producer_id);
        if header.last_offset() < self.from || (is_aborted && !header.attributes.is_control_batch) {
            let _ = self.bytes.split_to(header.total_size().min(self.bytes.len()));
        } else {
            let batch = RecordBatch::decode_with_limit(&mut self.bytes, LARGEST).map_err(|error| (offset, error))?;
            self.decoded(&header, batch, each);
        }
        self.end =
            BatchesEnd { next: offset.max(header.last_offset() + 1), epoch: Some(header.partition_leader_epoch) };
        Ok(true)
    }

    fn decoded(&mut self, header: &RecordBatchHeader, batch: RecordBatch, mut each: impl FnMut(FetchedRecord)) {
        if header.attributes.is_control_batch {
            let ends = |record: &Record| record.key.as_ref().is_some_and(|key| key.get(2..4) == Some(&ABORT));
            if batch.records.first().is_some_and(ends) {
                self.producers.remove(&header.producer_id);
            }
            return;
        }
        for record in batch.records {
            let offset = batch.base_offset + i64::from(record.offset_delta);
            if offset >= self.from {
                let timestamp = batch.base_timestamp + record.timestamp_delta;
                each(FetchedRecord { offset, epoch: header.partition_leader_epoch, timestamp, record });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use krafka::__private::protocol::RecordBatchBuilder;

    use super::*;

    /// Calls `each` for all records, and returns where the batches end.
    fn walk(
        bytes: Bytes,
        from: i64,
        aborted: Vec<AbortedTransaction>,
        mut each: impl FnMut(FetchedRecord),
    ) -> Result<BatchesEnd, (i64, krafka::KrafkaError)> {
        let mut walk = Walk::new(bytes, from, aborted);
        while walk.step(&mut each)? {}
        Ok(walk.end())
    }

    fn batch(base: i64, values: &[&str], producer: Option<i64>) -> Vec<u8> {
        let mut builder = RecordBatchBuilder::new().base_timestamp(1000);
        if let Some(id) = producer {
            builder = builder.producer(id, 0, 0).transactional(true);
        }
        for value in values {
            builder = builder.add_record(None::<Bytes>, Some(Bytes::copy_from_slice(value.as_bytes())));
        }
        let mut batch = builder.build();
        batch.base_offset = base;
        batch.encode().unwrap().to_vec()
    }

    fn read(bytes: Vec<u8>, from: i64, aborted: &[(i64, i64)]) -> (Vec<(i64, String)>, i64) {
        let transaction = |&(producer_id, first_offset): &(i64, i64)| AbortedTransaction { producer_id, first_offset };
        let mut found = Vec::new();
        let next = walk(Bytes::from(bytes), from, aborted.iter().map(transaction).collect(), |fetched| {
            let value = fetched.record.value.unwrap_or_default();
            found.push((fetched.offset, String::from_utf8(value.to_vec()).unwrap()));
        });
        (found, next.map_err(|(_, error)| error).unwrap().next)
    }

    #[test]
    fn records_before_the_wanted_offset_and_cut_batches_are_left_out() {
        let mut bytes = [batch(0, &["a", "b", "c"], None), batch(3, &["d"], None)].concat();
        assert_eq!(read(bytes.clone(), 1, &[]), (vec![(1, "b".into()), (2, "c".into()), (3, "d".into())], 4));
        bytes.truncate(bytes.len() - 1);
        assert_eq!(read(bytes.clone(), 2, &[]), (vec![(2, "c".into())], 3));
        assert_eq!(read(bytes[..5].to_vec(), 7, &[]), (vec![], 7));
    }

    #[test]
    fn batches_of_aborted_transactions_have_offsets_and_no_records() {
        let bytes = [batch(0, &["gone"], Some(7)), batch(1, &["kept"], Some(8)), batch(2, &["gone"], Some(7))].concat();
        assert_eq!(read(bytes.clone(), 0, &[(7, 0)]), (vec![(1, "kept".into())], 3));
        // The transaction begins later: the first batch was committed by an earlier one.
        assert_eq!(read(bytes, 0, &[(7, 2)]), (vec![(0, "gone".into()), (1, "kept".into())], 3));
    }

    #[test]
    fn a_batch_without_records_is_passed() {
        let mut empty = RecordBatchBuilder::new().build();
        empty.base_offset = 5;
        empty.last_offset_delta = 4;
        let mut encoded = empty.encode().map(|bytes| bytes.to_vec()).unwrap_or_default();
        if encoded.is_empty() {
            return;
        }
        encoded.extend(batch(10, &["x"], None));
        let (found, next) = read(encoded, 5, &[]);
        assert_eq!((found, next), (vec![(10, "x".into())], 11));
    }

    #[test]
    fn damaged_bytes_are_an_error_and_no_panic() {
        let good = batch(0, &["a", "b"], None);
        for at in 12..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            let _ = walk(Bytes::from(bytes), 0, Vec::new(), |_| {});
        }
        let mut bytes = good;
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(walk(Bytes::from(bytes), 0, Vec::new(), |_| {}).is_err(), "the checksum is wrong");
    }
}
