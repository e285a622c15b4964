//! Messages of the schema functions.

use anabranch_record::protobuf::write::{bytes_unless_empty as bytes, number_unless_zero as number};
use anabranch_record::protobuf::{DecodeError, Reader};
use bytes::Bytes;

use super::Schema;

/// Avro, the only schema type of the protocol.
const AVRO: u64 = 1;

pub(super) fn create(subject: &str, text: &str) -> Vec<u8> {
    let mut to = Vec::new();
    bytes(&mut to, 1, subject.as_bytes());
    number(&mut to, 2, AVRO);
    bytes(&mut to, 3, text.as_bytes());
    to
}

pub(super) fn get(subject: &str, version: i32) -> Vec<u8> {
    let mut to = Vec::new();
    bytes(&mut to, 1, subject.as_bytes());
    // Negative numbers of 32 bits take 64 in the protocol.
    number(&mut to, 2, i64::from(version) as u64);
    to
}

/// Reads the answer to both functions.
pub(super) fn answer(answer: Vec<u8>) -> Result<Schema, DecodeError> {
    let answer = Bytes::from(answer);
    let mut from = Reader::new(&answer);
    let mut schema = Schema { subject: String::new(), version: 0, id: 0, text: String::new() };
    while let Some((number, field)) = from.next()? {
        if number != 1 {
            continue;
        }
        let mut from = field.message()?;
        while let Some((number, field)) = from.next()? {
            match number {
                1 => schema.subject = field.text()?.to_owned(),
                2 => schema.version = field.varint()? as i32,
                3 => schema.id = field.varint()? as i32,
                5 => schema.text = field.text()?.to_owned(),
                _ => {}
            }
        }
    }
    Ok(schema)
}

/// The other side, for the host of tests.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod host_side {
    use anabranch_record::protobuf::write::message;

    use super::*;

    /// Request of a schema function: the subject, and the version or the text.
    pub(crate) struct Asked<'b> {
        pub(crate) subject: &'b str,
        pub(crate) version: i32,
        pub(crate) text: &'b str,
    }

    pub(crate) fn asked(request: &Bytes, creates: bool) -> Result<Asked<'_>, DecodeError> {
        let mut from = Reader::new(request);
        let mut asked = Asked { subject: "", version: 0, text: "" };
        while let Some((number, field)) = from.next()? {
            match number {
                1 => asked.subject = field.text()?,
                2 if !creates => asked.version = field.varint()? as i32,
                3 => asked.text = field.text()?,
                _ => {}
            }
        }
        Ok(asked)
    }

    pub(crate) fn write_schema(schema: &Schema) -> Vec<u8> {
        let mut to = Vec::new();
        message(&mut to, 1, schema.text.len(), |to| {
            bytes(to, 1, schema.subject.as_bytes());
            number(to, 2, i64::from(schema.version) as u64);
            number(to, 3, i64::from(schema.id) as u64);
            number(to, 4, AVRO);
            bytes(to, 5, schema.text.as_bytes());
        });
        to
    }
}
