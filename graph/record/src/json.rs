//! The JSON form of records, data and values. All code of the service that reads or writes it uses this module.
//!
//! A record is one object whose fields stand in this order:
//!
//! ```text
//! {"position":"<base64>","operation":"create","metadata":{…},"key":D,"payload":{"before":D,"after":D}}
//! ```
//!
//! `D` is an object for structured data, base64 text (standard alphabet, padded) for raw data and `null`
//! for absent data. Entries of maps and of the metadata are sorted by key, so equal records print equal
//! texts. Integers stay exact, floats keep a fraction or an exponent (`1.0`), times are RFC 3339 text,
//! bytes base64 text. Only characters that JSON requires to be escaped are escaped.
//!
//! JSON has no NaN and no infinity: writing a record that contains one fails with an error that names its place.

mod read;
mod write;

pub use read::{JsonError, parse, parse_record, parse_value};
pub use write::{MAX_DEPTH, RecordWriter, write_data, write_record, write_value};
pub use write::{write_metadata, write_text};

use crate::record::Record;

impl Record {
    /// Reads a record from its JSON text; see [`parse_record`].
    ///
    /// # Errors
    /// The text is not JSON or not a record, with the place.
    pub fn from_json(text: &[u8]) -> Result<Record, JsonError> {
        parse_record(text)
    }
}

#[cfg(test)]
mod tests;
