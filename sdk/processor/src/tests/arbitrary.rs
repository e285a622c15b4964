//! Records for tests, any number of them, the same in each run.

use anabranch_record::metadata::Metadata;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Position, Record};

/// Numbers without order: xorshift64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// Empty, short, or longer than what is kept for the next record.
    pub(crate) fn text(&mut self) -> String {
        let length = self.pick(&[0, 1, 7, 8, 9, 30, 127, 128, 300, 5000]);
        "aé0".chars().cycle().skip(self.below(3) as usize).take(length).collect()
    }

    /// Metadata of which many have the same keys.
    pub(crate) fn metadata(&mut self) -> Metadata {
        let keys = ["recfmt.createdAt", "recfmt.readAt", "svc.source.connector.id", "own", "recfmt", ""];
        let mut metadata = Metadata::new();
        for key in keys {
            if self.below(8) > 0 {
                metadata.insert(key, self.text());
            }
        }
        metadata
    }

    /// Fields of which many have the same names; values are those that survive the wire.
    pub(crate) fn map(&mut self, levels: u64) -> Object {
        let mut map = Object::new();
        for key in ["a", "ab", "b", "long_enough_for_words"] {
            if self.below(8) > 0 {
                map.insert(key, self.value(levels));
            }
        }
        map
    }

    fn value(&mut self, levels: u64) -> Value {
        match self.below(if levels == 0 { 4 } else { 6 }) {
            0 => Value::Null,
            1 => Value::Bool(self.below(2) == 0),
            2 => Value::Float(self.below(1000) as f64 + 0.125),
            3 => Value::from(self.text()),
            4 => Value::from((0..self.below(3)).map(|_| self.value(levels - 1)).collect::<Vec<_>>()),
            _ => Value::from(self.map(levels - 1)),
        }
    }

    fn data(&mut self) -> Data {
        match self.below(4) {
            0 => Data::Absent,
            1 => Data::from(self.text()),
            _ => Data::from(self.map(2)),
        }
    }

    pub(crate) fn record(&mut self) -> Record {
        let position = Position::copy_from(self.text().as_bytes());
        let mut record = Record::create(position, self.data(), self.data());
        record.operation = self.pick(&Operation::ALL);
        record.metadata = self.metadata();
        record.payload.before = self.data();
        record
    }

    pub(crate) fn records(&mut self) -> Vec<Record> {
        (0..self.below(4)).map(|_| self.record()).collect()
    }
}
