//! Idempotency keys: the identity of records, which is the same when they are sent again.

use anabranch_record::fault::Fault;
use anabranch_record::json::write_data;
use anabranch_record::metadata::key;
use anabranch_record::{Data, Record};
use sha2::{Digest as _, Sha256};

/// Number of bytes of a key: as many as a UUID.
const LENGTH: usize = 16;

/// Identity of a record in its pipeline.
pub(super) type RecordHash = [u8; 32];

/// Identifies the records of one destination.
pub(super) struct Identities {
    /// Hash of pipeline and connector.
    owner: Sha256,
    scratch: Vec<u8>,
}

impl Identities {
    /// Creates the identities of a destination.
    pub(super) fn new(pipeline: &str, connector: &str) -> Identities {
        let mut owner = Sha256::new();
        part(&mut owner, pipeline.as_bytes());
        part(&mut owner, connector.as_bytes());
        Identities { owner, scratch: Vec::new() }
    }

    /// Returns the identity of a record: its source connector and position, which identify the record that was read, and
    /// its content. Two records that were split or copied from one have one position, and differ in content or number.
    /// The other metadata do not count, because the time of the read is among them.
    ///
    /// # Errors
    /// Fails if the record contains numbers that JSON cannot represent.
    pub(super) fn of(&mut self, record: &Record) -> Result<RecordHash, Fault> {
        let mut sum = self.owner.clone();
        part(&mut sum, &record.position().0);
        for key in [key::SOURCE_CONNECTOR_ID, key::SPLIT_INDEX, key::CLONE_INDEX] {
            part(&mut sum, record.metadata.get(key.as_str()).map_or(b"", |text| text.as_bytes()));
        }
        sum.update([record.operation as u8]);
        for data in [&record.key, &record.payload.before, &record.payload.after] {
            match data {
                Data::Absent => sum.update([0]),
                Data::Raw(bytes) => {
                    sum.update([1]);
                    part(&mut sum, bytes);
                }
                Data::Structured(_) => {
                    self.scratch.clear();
                    write_data(data, &mut self.scratch)?;
                    sum.update([2]);
                    part(&mut sum, &self.scratch);
                }
            }
        }
        Ok(sum.finalize().into())
    }
}

/// Returns the key of a request with these records, in hexadecimal digits.
pub(super) fn idempotency_key<'r>(records: impl IntoIterator<Item = &'r RecordHash>) -> String {
    let mut sum = Sha256::new();
    for record in records {
        sum.update(record);
    }
    sum.finalize().iter().take(LENGTH).map(|byte| format!("{byte:02x}")).collect()
}

fn part(sum: &mut Sha256, bytes: &[u8]) {
    sum.update((bytes.len() as u64).to_le_bytes());
    sum.update(bytes);
}

#[cfg(test)]
mod tests {
    use anabranch_record::Position;

    use super::*;

    fn record(position: &str, payload: &str) -> Record {
        Record::create(Position::copy_from(position.as_bytes()), Data::Absent, Data::text(payload))
    }

    #[test]
    fn a_record_that_is_read_again_has_the_same_key() {
        let key =
            |connector: &str, record: &Record| idempotency_key([&Identities::new("p", connector).of(record).unwrap()]);
        let first = record("1", "a");
        let mut again = first.clone();
        again.metadata.insert(key::READ_AT, "1764329461000000000");
        assert_eq!(key("p:out", &first), key("p:out", &again));
        assert_eq!(key("p:out", &first).len(), 2 * LENGTH);

        let (mut other_source, mut piece) = (first.clone(), first.clone());
        other_source.metadata.insert(key::SOURCE_CONNECTOR_ID, "p:other");
        piece.metadata.insert(key::SPLIT_INDEX, "1");
        for other in [record("2", "a"), record("1", "b"), other_source, piece] {
            assert_ne!(key("p:out", &first), key("p:out", &other));
        }
        assert_ne!(key("p:out", &first), key("p:second", &first));
    }

    #[test]
    fn the_key_of_a_batch_depends_on_its_records_and_their_order() {
        let mut identities = Identities::new("p", "out");
        let [a, b] = ["1", "2"].map(|position| identities.of(&record(position, "x")).unwrap());
        let keys = [idempotency_key([&a]), idempotency_key([&a, &b]), idempotency_key([&b, &a]), idempotency_key([])];
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key));
        }
    }
}
