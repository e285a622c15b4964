//! What a processor was given, to tell afterwards whether the schema that metadata name is that of the data.

use anabranch_record::metadata::Metadata;
use anabranch_record::reference::Side;
use anabranch_record::{Data, Record};

use crate::record::Part;

/// Which places of a record hold raw data, and which fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held(u8);

impl Held {
    const SIDES: u8 = 3;

    #[inline]
    fn of(record: &Record) -> Held {
        let bit = |side: Side| match side.of(record) {
            Data::Absent => 0,
            Data::Raw(_) => 1 << side as u8,
            Data::Structured(_) => 1 << (side as u8 + Self::SIDES),
        };
        Held(bit(Side::Key) | bit(Side::Before) | bit(Side::After))
    }

    fn raw(self, part: Part) -> u8 {
        self.0 & part.sides().iter().fold(0, |bits, side| bits | 1 << *side as u8)
    }

    fn structured(self, part: Part) -> u8 {
        Held(self.0 >> Self::SIDES).raw(part)
    }

    /// Whether raw data came to be where there were none, and not by moving those of the other side.
    fn became_raw(self, now: Held, part: Part) -> bool {
        now.raw(part) & !self.raw(part) != 0 && (self.structured(part) != 0 || self.raw(part) == 0)
    }
}

/// What each row held when a processor was given it. Kept between strips for the memory of its lists, not of records.
pub(crate) struct Given {
    held: Vec<Held>,
    metadata: Option<Vec<Metadata>>,
}

impl Given {
    /// `renames`: whether the processor may name other schemas. Where it may not, metadata need not be compared, and
    /// those of a record that has them to itself need not be copied when the processor writes to them.
    pub(crate) fn new(renames: bool) -> Given {
        Given { held: Vec::new(), metadata: renames.then(Vec::new) }
    }

    /// Notes what a row holds; in the order of rows.
    #[inline]
    pub(crate) fn note(&mut self, row: usize, record: &Record) {
        self.held.resize(row, Held::default());
        self.held.push(Held::of(record));
        if let Some(metadata) = &mut self.metadata {
            metadata.resize(row, Metadata::new());
            metadata.push(record.metadata.clone());
        }
    }

    /// Whether a record holds other kinds of data than its row.
    #[inline]
    pub(crate) fn differs(&self, row: usize, record: &Record) -> bool {
        self.held.get(row).is_some_and(|held| *held != Held::of(record))
    }

    /// Whether the schema that a record names is not that of its data: they became raw since its row was noted, and the
    /// processor did not name another one for them.
    pub(crate) fn is_outdated(&self, row: usize, part: Part, record: &Record) -> bool {
        let became_raw = |held: &Held| held.became_raw(Held::of(record), part);
        self.held.get(row).is_some_and(became_raw) && self.names_the_same(row, part, record)
    }

    /// Whether a record names the schema that its row named.
    pub(crate) fn names_the_same(&self, row: usize, part: Part, record: &Record) -> bool {
        let Some(given) = self.metadata.as_ref().and_then(|metadata| metadata.get(row)) else { return true };
        let (subject, version) = part.names();
        given.shares(&record.metadata)
            || [subject, version].iter().all(|key| given.get(key) == record.metadata.get(key))
    }

    /// Lets go of the records.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.metadata.iter_mut().for_each(Vec::clear);
    }
}
