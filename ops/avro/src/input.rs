//! The input of a processor, to decide afterwards whether the schema in the metadata still is that of the data.

use anabranch_record::metadata::Metadata;
use anabranch_record::reference::Side;
use anabranch_record::{Data, Record};

use crate::part::SchemaPart;

/// Kinds of the data in the key and both payload sides: one bit each for raw and for structured data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DataKinds(u8);

impl DataKinds {
    const SIDES: u8 = 3;

    #[inline]
    fn of(record: &Record) -> DataKinds {
        let bit = |side: Side| match side.of(record) {
            Data::Absent => 0,
            Data::Raw(_) => 1 << side as u8,
            Data::Structured(_) => 1 << (side as u8 + Self::SIDES),
        };
        DataKinds(bit(Side::Key) | bit(Side::Before) | bit(Side::After))
    }

    fn raw(self, part: SchemaPart) -> u8 {
        self.0 & part.sides().iter().fold(0, |bits, side| bits | 1 << *side as u8)
    }

    fn structured(self, part: SchemaPart) -> u8 {
        DataKinds(self.0 >> Self::SIDES).raw(part)
    }

    /// Returns `true` if a part became raw, other than by moving raw data from the other side.
    fn became_raw(self, now: DataKinds, part: SchemaPart) -> bool {
        now.raw(part) & !self.raw(part) != 0 && (self.structured(part) != 0 || self.raw(part) == 0)
    }
}

/// Kinds of the data in each input row. It is reused between strips for its lists; it does not keep records.
pub(crate) struct InputRows {
    kinds: Vec<DataKinds>,
    metadata: Option<Vec<Metadata>>,
}

impl InputRows {
    /// Creates it without rows. `renames` is true if the processor may name other schemas. Otherwise, metadata is not
    /// compared, and need not be copied when the processor writes to it.
    pub(crate) fn new(renames: bool) -> InputRows {
        InputRows { kinds: Vec::new(), metadata: renames.then(Vec::new) }
    }

    /// Records the data of a row; call it in row order.
    #[inline]
    pub(crate) fn note(&mut self, row: usize, record: &Record) {
        self.kinds.resize(row, DataKinds::default());
        self.kinds.push(DataKinds::of(record));
        if let Some(metadata) = &mut self.metadata {
            metadata.resize(row, Metadata::new());
            metadata.push(record.metadata.clone());
        }
    }

    /// Returns `true` if a record has other kinds of data than its input row.
    #[inline]
    pub(crate) fn differs(&self, row: usize, record: &Record) -> bool {
        self.kinds.get(row).is_some_and(|kinds| *kinds != DataKinds::of(record))
    }

    /// Returns `true` if the schema that a record names is not that of its data: the data became raw since the input,
    /// and the processor did not name another schema.
    pub(crate) fn is_outdated(&self, row: usize, part: SchemaPart, record: &Record) -> bool {
        let became_raw = |kinds: &DataKinds| kinds.became_raw(DataKinds::of(record), part);
        self.kinds.get(row).is_some_and(became_raw) && self.names_the_same(row, part, record)
    }

    /// Returns `true` if a record names the same schema as its input row.
    pub(crate) fn names_the_same(&self, row: usize, part: SchemaPart, record: &Record) -> bool {
        let Some(input) = self.metadata.as_ref().and_then(|metadata| metadata.get(row)) else { return true };
        let (subject, version) = part.names();
        input.shares(&record.metadata)
            || [subject, version].iter().all(|key| input.get(key) == record.metadata.get(key))
    }

    /// Drops all rows.
    pub(crate) fn clear(&mut self) {
        self.kinds.clear();
        self.metadata.iter_mut().for_each(Vec::clear);
    }
}
