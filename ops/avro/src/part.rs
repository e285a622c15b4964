//! The parts of a record that have a schema.

use anabranch_record::metadata::key;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;
use anabranch_record::{Data, Record};

/// A part of a record with its own schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaPart {
    /// The key.
    Key,
    /// The payload: both sides share a schema.
    Payload,
}

impl SchemaPart {
    /// Both parts.
    pub const ALL: [SchemaPart; 2] = [SchemaPart::Key, SchemaPart::Payload];

    /// Returns the name in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            SchemaPart::Key => "key",
            SchemaPart::Payload => "payload",
        }
    }

    /// Returns the metadata keys of its subject and version.
    pub const fn names(self) -> (Str, Str) {
        match self {
            SchemaPart::Key => (key::KEY_SCHEMA_SUBJECT, key::KEY_SCHEMA_VERSION),
            SchemaPart::Payload => (key::PAYLOAD_SCHEMA_SUBJECT, key::PAYLOAD_SCHEMA_VERSION),
        }
    }

    /// Returns the metadata key of the id of the schema with which `avro.decode` decoded the data.
    pub const fn decoded_with(self) -> Str {
        match self {
            SchemaPart::Key => Str::from_static("avro.key.schema.id"),
            SchemaPart::Payload => Str::from_static("avro.payload.schema.id"),
        }
    }

    pub(crate) const fn sides(self) -> &'static [Side] {
        match self {
            SchemaPart::Key => &[Side::Key],
            SchemaPart::Payload => &[Side::After, Side::Before],
        }
    }

    pub(crate) fn any(self, record: &Record, is: impl Fn(&Data) -> bool) -> bool {
        self.sides().iter().any(|side| is(side.of(record)))
    }
}
