//! Names of the objects and files that a destination creates, one or more for each write.
//!
//! The name of an object is derived from its content: the records (position, operation, key and payload) and their
//! order. The same batch has the same name, so that writing it again overwrites it. A different batch has a different
//! name, even if it shares records. So an object is never overwritten by one that lacks some of its records, whatever
//! the engine replays.

use std::collections::HashMap;

use anabranch_record::json::write_data;
use anabranch_record::{Data, Record};
use sha2::{Digest, Sha256};

/// Number of characters of a name without its number.
pub const LENGTH: usize = 32;

/// Minimum number of remembered names. Equal batches are copies of the same records and come close together.
const REMEMBERED: usize = 1 << 16;

/// Hash of an object's records while they are collected.
#[derive(Debug)]
pub struct BatchHash {
    sum: Sha256,
    scratch: Vec<u8>,
}

impl Default for BatchHash {
    fn default() -> Self {
        BatchHash::new()
    }
}

impl BatchHash {
    /// Creates the hash of no records.
    pub fn new() -> Self {
        BatchHash { sum: Sha256::new(), scratch: Vec::new() }
    }

    /// Adds a record without its metadata, which include the time of the read.
    pub fn add(&mut self, record: &Record) {
        self.part(&record.position().0);
        self.part(&[record.operation as u8]);
        for data in [&record.key, &record.payload.before, &record.payload.after] {
            match data {
                Data::Absent => self.sum.update([0]),
                Data::Raw(bytes) => {
                    self.sum.update([1]);
                    self.part(bytes);
                }
                Data::Structured(_) => {
                    let mut text = std::mem::take(&mut self.scratch);
                    text.clear();
                    if write_data(data, &mut text).is_err() {
                        // Numbers that JSON cannot represent, such as an infinite one.
                        text.clear();
                        text.extend_from_slice(format!("{data:?}").as_bytes());
                    }
                    self.sum.update([2]);
                    self.part(&text);
                    self.scratch = text;
                }
            }
        }
    }

    fn part(&mut self, bytes: &[u8]) {
        self.sum.update((bytes.len() as u64).to_le_bytes());
        self.sum.update(bytes);
    }
}

/// Assigns unique names: a batch that equals an earlier one, but is not a repetition of it, gets a number.
#[derive(Debug)]
pub struct UniqueNames {
    /// Hash of pipeline and connector, so that two connectors may share a prefix.
    owner: Sha256,
    used: HashMap<u128, u32>,
    older: HashMap<u128, u32>,
    given: Vec<u128>,
}

impl UniqueNames {
    /// Creates the names of a connector. Those of other connectors and pipelines differ.
    pub fn new(pipeline: &str, connector: &str) -> Self {
        let mut owner = Sha256::new();
        for part in [pipeline, connector] {
            owner.update((part.len() as u64).to_le_bytes());
            owner.update(part);
        }
        UniqueNames { owner, used: HashMap::new(), older: HashMap::new(), given: Vec::new() }
    }

    /// Begins a write. If the last write was not committed, this one repeats it, with the same names.
    pub fn begin(&mut self) {
        self.given.clear();
    }

    /// Returns the name of an object.
    pub fn name(&mut self, folder: &str, identity: BatchHash) -> String {
        let mut sum = self.owner.clone();
        sum.update((folder.len() as u64).to_le_bytes());
        sum.update(folder);
        sum.update(identity.sum.finalize());
        let digest = sum.finalize();
        let name = digest.first_chunk::<16>().map_or(0, |bytes| u128::from_be_bytes(*bytes));
        let again = self.given.iter().filter(|given| **given == name).count() as u32;
        let number = self.times(name) + again;
        self.given.push(name);
        match number {
            0 => format!("{name:032x}"),
            number => format!("{name:032x}-{number}"),
        }
    }

    /// Commits the write.
    pub fn commit(&mut self) {
        for name in std::mem::take(&mut self.given) {
            let times = self.times(name) + 1;
            self.used.insert(name, times);
        }
        if self.used.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.used);
        }
    }

    fn times(&self, name: u128) -> u32 {
        self.used.get(&name).or_else(|| self.older.get(&name)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::Position;

    use super::*;

    fn identity(rows: &[(&str, &str)]) -> BatchHash {
        let mut identity = BatchHash::new();
        for (position, payload) in rows {
            let position = Position::copy_from(position.as_bytes());
            identity.add(&Record::create(position, Data::Absent, Data::text(*payload)));
        }
        identity
    }

    fn write(names: &mut UniqueNames, rows: &[(&str, &str)]) -> String {
        names.begin();
        let name = names.name("", identity(rows));
        names.commit();
        name
    }

    #[test]
    fn a_repetition_has_the_same_name_and_nothing_else_has() {
        let mut names = UniqueNames::new("p", "c");
        let batch = [("1", "a"), ("2", "b")];
        names.begin();
        let first = names.name("", identity(&batch));
        // The write failed, and the batch is written again.
        assert_eq!(write(&mut names, &batch), first);
        // An equal batch that is a copy of its own.
        assert_eq!(write(&mut names, &batch), format!("{first}-1"));
        assert_eq!(write(&mut names, &batch), format!("{first}-2"));
        for other in [&batch[..1], &[("1", "a"), ("2", "c")], &[("2", "b"), ("1", "a")], &[("1", "a"), ("3", "b")]] {
            assert!(!write(&mut names, other).starts_with(&first));
        }
        // After a restart.
        assert_eq!(write(&mut UniqueNames::new("p", "c"), &batch), first);
        assert_ne!(write(&mut UniqueNames::new("p", "d"), &batch), first);
    }

    #[test]
    fn two_objects_of_one_write_have_two_names() {
        let mut names = UniqueNames::new("p", "c");
        names.begin();
        let [a, b, c] = ["", "", "x/"].map(|folder| names.name(folder, identity(&[("1", "a")])));
        assert!(a != b && b != c && a != c && b == format!("{a}-1"));
    }
}
