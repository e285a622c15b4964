//! The body of a request: its size, its compression, and its records.

use std::io::Read as _;

use anabranch_plugin::parameters::Choice;
use anabranch_record::Data;
use anabranch_record::json::{JsonError, parse_value, write_value};
use anabranch_record::value::Value;
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;

/// Bytes that are decompressed before the limits are checked.
const PIECE: usize = 64 << 10;

/// How a body is divided into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// The body is one record, as raw data.
    Raw,
    /// The body is one record, in JSON.
    Json,
    /// The body is an array in JSON, of which each element is a record.
    Array,
    /// Each line of the body is a record, in JSON.
    Ndjson,
}

impl Choice for BodyFormat {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("json", BodyFormat::Json),
        ("array", BodyFormat::Array),
        ("ndjson", BodyFormat::Ndjson),
        ("raw", BodyFormat::Raw),
    ];
}

/// Reason why a body has no records.
#[derive(Debug, thiserror::Error)]
pub enum InvalidBody {
    /// The body is not JSON.
    #[error("the body is not valid JSON: {0}")]
    Json(JsonError),
    /// A line of the body is not JSON.
    #[error("line {line} of the body is not valid JSON: {error}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The reason.
        error: JsonError,
    },
    /// The body is another JSON value.
    #[error("the body is not an array, but {0}")]
    NoArray(&'static str),
    /// An element of the array has no text in JSON.
    #[error("element {0} of the array cannot be a record")]
    Element(usize),
    /// The body cannot be decompressed.
    #[error("the body is not valid gzip data")]
    Gzip,
    /// There are more records than the limit.
    #[error("the body has more than {0} records")]
    TooMany(usize),
}

impl BodyFormat {
    /// Divides a body into records, at most `most`. An object in JSON becomes structured data; any other value stays raw
    /// data, with its text. A body with an invalid part has no records at all.
    ///
    /// # Errors
    /// The body is not in the format, or has too many records.
    pub fn records(self, body: &Bytes, most: usize) -> Result<Vec<Data>, InvalidBody> {
        match self {
            BodyFormat::Raw => Ok(vec![Data::Raw(body.clone())]),
            BodyFormat::Json => {
                let value = parse_value(body).map_err(InvalidBody::Json)?;
                Ok(vec![data(value, || Some(body.clone())).ok_or(InvalidBody::Element(0))?])
            }
            BodyFormat::Array => {
                let value = parse_value(body).map_err(InvalidBody::Json)?;
                let elements = value.as_list().ok_or(InvalidBody::NoArray(value.type_name()))?;
                if elements.len() > most {
                    return Err(InvalidBody::TooMany(most));
                }
                let element = |(number, value): (usize, &Value)| {
                    let text = || {
                        let mut text = Vec::new();
                        write_value(value, &mut text).ok().map(|()| Bytes::from(text))
                    };
                    data(value.clone(), text).ok_or(InvalidBody::Element(number))
                };
                elements.iter().enumerate().map(element).collect()
            }
            BodyFormat::Ndjson => {
                let mut records = Vec::new();
                for (number, line) in body.split(|byte| *byte == b'\n').enumerate() {
                    let line = line.trim_ascii();
                    if line.is_empty() {
                        continue;
                    }
                    if records.len() == most {
                        return Err(InvalidBody::TooMany(most));
                    }
                    let value = parse_value(line).map_err(|error| InvalidBody::Line { line: number + 1, error })?;
                    records.push(data(value, || Some(body.slice_ref(line))).ok_or(InvalidBody::Element(number))?);
                }
                Ok(records)
            }
        }
    }
}

fn data(value: Value, text: impl FnOnce() -> Option<Bytes>) -> Option<Data> {
    match value {
        Value::Map(fields) => Some(Data::Structured(fields)),
        _ => text().map(Data::Raw),
    }
}

/// Reason why a body is not decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotInflated {
    /// The data is not gzip, or incomplete.
    Invalid,
    /// The decompressed body exceeds the limit.
    TooLarge,
    /// `grow` refused more bytes.
    Busy,
}

/// Decompresses a body to at most `limit` bytes. Calls `grow` before it takes more memory.
pub(super) fn inflate(body: &[u8], limit: usize, mut grow: impl FnMut(usize) -> bool) -> Result<Bytes, NotInflated> {
    let mut decoder = MultiGzDecoder::new(body);
    let mut whole = Vec::new();
    let mut reserved = 0;
    loop {
        let have = whole.len();
        // One byte more than allowed shows that there is more.
        let ask = PIECE.min(limit.saturating_add(1) - have);
        let missing = (have + ask).saturating_sub(reserved);
        if !grow(missing) {
            return Err(NotInflated::Busy);
        }
        reserved += missing;
        whole.resize(have + ask, 0);
        let read = loop {
            match decoder.read(&mut whole[have..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read.map_err(|_| NotInflated::Invalid)?,
            }
        };
        whole.truncate(have + read);
        match read {
            0 => return Ok(whole.into()),
            _ if whole.len() > limit => return Err(NotInflated::TooLarge),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
