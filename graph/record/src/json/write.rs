//! Writing JSON into a byte buffer, without an intermediate tree and without allocations except the buffer's growth.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{Datelike, Timelike};
use smallvec::SmallVec;

use crate::codes;
use crate::fault::Fault;
use crate::metadata::Metadata;
use crate::record::{Data, Record};
use crate::reference::Side;
use crate::text::Str;
use crate::value::{Object, Timestamp, Value, timestamp_text};

/// Maximum nesting of lists and maps in values that are written. With the two levels of the surrounding record this
/// is the maximum depth that [`parse_record`](super::parse_record) reads, so that all output can be read again.
pub const MAX_DEPTH: usize = 125;

/// Appends a record as one line of JSON, without a line end. O(size of the record).
///
/// # Errors
/// `json_not_finite`, `json_too_deep`; the buffer then keeps its previous length.
pub fn write_record(record: &Record, out: &mut Vec<u8>) -> Result<(), Fault> {
    whole(out, |out| {
        record_start(record, out);
        write_metadata(&record.metadata, out);
        record_end(record, out)
    })
}

/// Writes a sequence of records in the form of [`write_record`]. If a record shares its metadata with the previous
/// record, which is usual for records of one read, the metadata is not formatted again.
#[derive(Debug, Default)]
pub struct RecordWriter<'a> {
    metadata: Option<&'a Metadata>,
    /// The metadata as JSON.
    text: Vec<u8>,
}

impl<'a> RecordWriter<'a> {
    /// Appends a record as one line of JSON, without a line end.
    ///
    /// # Errors
    /// The errors of [`write_record`].
    pub fn write(&mut self, record: &'a Record, out: &mut Vec<u8>) -> Result<(), Fault> {
        if !self.metadata.is_some_and(|metadata| metadata.shares(&record.metadata)) {
            self.text.clear();
            write_metadata(&record.metadata, &mut self.text);
            self.metadata = Some(&record.metadata);
        }
        whole(out, |out| {
            record_start(record, out);
            out.extend_from_slice(&self.text);
            record_end(record, out)
        })
    }
}

/// Appends the complete output of `write`; if it fails, restores the previous length.
fn whole(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Written) -> Result<(), Fault> {
    let before = out.len();
    write(out).map_err(|problem| {
        out.truncate(before);
        problem.into_fault()
    })
}

/// Appends key or payload data as JSON.
///
/// # Errors
/// The errors of [`write_record`].
pub fn write_data(data: &Data, out: &mut Vec<u8>) -> Result<(), Fault> {
    whole(out, |out| write_side(data, out))
}

/// Appends a value as JSON.
///
/// # Errors
/// The errors of [`write_record`].
pub fn write_value(value: &Value, out: &mut Vec<u8>) -> Result<(), Fault> {
    whole(out, |out| write_nested(value, 0, out))
}

/// Appends the fields before the metadata.
fn record_start(record: &Record, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"position\":");
    write_base64(&record.position().0, out);
    out.extend_from_slice(b",\"operation\":\"");
    out.extend_from_slice(record.operation.as_str().as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
}

/// Appends the fields after the metadata.
fn record_end(record: &Record, out: &mut Vec<u8>) -> Written {
    out.extend_from_slice(b",\"key\":");
    write_side(&record.key, out).map_err(|p| p.on(Side::Key))?;
    out.extend_from_slice(b",\"payload\":{\"before\":");
    write_side(&record.payload.before, out).map_err(|p| p.on(Side::Before))?;
    out.extend_from_slice(b",\"after\":");
    write_side(&record.payload.after, out).map_err(|p| p.on(Side::After))?;
    out.extend_from_slice(b"}}");
    Ok(())
}

/// Appends metadata as JSON, sorted by key.
pub fn write_metadata(metadata: &Metadata, out: &mut Vec<u8>) {
    let mut entries: SmallVec<[(&Str, &Str); 16]> = metadata.iter().collect();
    entries.sort_unstable_by(|a, b| a.0.cmp(b.0));
    out.push(b'{');
    for (i, (key, value)) in entries.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_text(key, out);
        out.push(b':');
        write_text(value, out);
    }
    out.push(b'}');
}

fn write_side(data: &Data, out: &mut Vec<u8>) -> Written {
    match data {
        Data::Absent => out.extend_from_slice(b"null"),
        Data::Raw(bytes) => write_base64(bytes, out),
        Data::Structured(object) => write_object(object, 0, out)?,
    }
    Ok(())
}

fn write_nested(value: &Value, depth: usize, out: &mut Vec<u8>) -> Written {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(v) => out.extend_from_slice(itoa::Buffer::new().format(*v).as_bytes()),
        Value::UInt(v) => out.extend_from_slice(itoa::Buffer::new().format(*v).as_bytes()),
        Value::Float(v) if v.is_finite() => {
            out.extend_from_slice(zmij::Buffer::new().format_finite(*v).as_bytes());
        }
        Value::Float(v) => return Err(Unwritable::boxed(Problem::NotFinite(*v))),
        Value::Text(text) => write_text(text, out),
        Value::Bytes(bytes) => write_base64(bytes, out),
        Value::Time(time) => write_time(time, out),
        Value::List(items) => {
            if depth == MAX_DEPTH {
                return Err(Unwritable::boxed(Problem::TooDeep));
            }
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_nested(item, depth + 1, out).map_err(|p| p.below(PathPart::Item(i)))?;
            }
            out.push(b']');
        }
        Value::Map(object) => write_object(object, depth, out)?,
    }
    Ok(())
}

fn write_object(object: &Object, depth: usize, out: &mut Vec<u8>) -> Written {
    if depth == MAX_DEPTH {
        return Err(Unwritable::boxed(Problem::TooDeep));
    }
    out.push(b'{');
    for (i, (key, value)) in object.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_text(key, out);
        out.push(b':');
        write_nested(value, depth + 1, out).map_err(|p| p.below(PathPart::Field(key.clone())))?;
    }
    out.push(b'}');
    Ok(())
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    #[expect(clippy::expect_used, reason = "the room is what padded base64 of this length takes")]
    STANDARD.encode_slice(bytes, &mut out[start..]).expect("room for the base64 text");
    out.push(b'"');
}

/// Appends the text of [`timestamp_text`] without its allocation and formatting machinery.
fn write_time(time: &Timestamp, out: &mut Vec<u8>) {
    fn digits(value: u32, width: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + width, b'0');
        let mut rest = value;
        for place in out[start..].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
    out.push(b'"');
    let nanos = time.nanosecond();
    match u32::try_from(time.year()) {
        // Other years need a sign, and nanoseconds from a billion up denote a leap second.
        Ok(year) if year <= 9999 && nanos < 1_000_000_000 => {
            digits(year, 4, out);
            for (separator, part) in [
                (b'-', time.month()),
                (b'-', time.day()),
                (b'T', time.hour()),
                (b':', time.minute()),
                (b':', time.second()),
            ] {
                out.push(separator);
                digits(part, 2, out);
            }
            if nanos > 0 {
                out.push(b'.');
                match nanos {
                    n if n % 1_000_000 == 0 => digits(n / 1_000_000, 3, out),
                    n if n % 1_000 == 0 => digits(n / 1_000, 6, out),
                    n => digits(n, 9, out),
                }
            }
            out.push(b'Z');
        }
        _ => out.extend_from_slice(timestamp_text(time).as_bytes()),
    }
    out.push(b'"');
}

/// Appends a text as JSON.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut rest = bytes;
    while let Some(at) = find_escaped(rest) {
        out.extend_from_slice(&rest[..at]);
        write_escape(rest[at], out);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn write_escape(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0x08 => out.extend_from_slice(b"\\b"),
        0x0c => out.extend_from_slice(b"\\f"),
        _ => {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
        }
    }
}

const fn must_be_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Returns the index of the first byte that must be escaped: a quote, a backslash, a control character.
///
/// Checks eight bytes at a time. The borrow of the subtraction can mark a wrong byte only above a byte
/// that is marked correctly, so the lowest mark is always correct.
fn find_escaped(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let (words, tail) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        let marks = ((quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word))
            & HIGH;
        if marks != 0 {
            return Some(i * 8 + marks.trailing_zeros() as usize / 8);
        }
    }
    tail.iter().position(|b| must_be_escaped(*b)).map(|i| words.len() * 8 + i)
}

type Written = Result<(), Box<Unwritable>>;

/// A value that JSON cannot represent. The path to it is collected while the recursion unwinds, so that successful
/// writes do not pay for it.
struct Unwritable {
    problem: Problem,
    side: Option<Side>,
    /// From the inside out.
    steps: Vec<PathPart>,
}

enum Problem {
    NotFinite(f64),
    TooDeep,
}

enum PathPart {
    Field(Str),
    Item(usize),
}

impl Unwritable {
    #[cold]
    fn boxed(problem: Problem) -> Box<Self> {
        Box::new(Unwritable { problem, side: None, steps: Vec::new() })
    }

    #[cold]
    fn below(mut self: Box<Self>, step: PathPart) -> Box<Self> {
        self.steps.push(step);
        self
    }

    #[cold]
    fn on(mut self: Box<Self>, side: Side) -> Box<Self> {
        self.side = Some(side);
        self
    }

    #[cold]
    fn into_fault(self) -> Fault {
        let mut place = String::from(self.side.map_or("", Side::as_str));
        // The path to a value that is nested too deeply is as long as the nesting is deep.
        for step in self.steps.iter().rev().take(8) {
            match step {
                PathPart::Field(key) => crate::reference::push_part(key, &mut place),
                PathPart::Item(i) => place.push_str(&format!("[{i}]")),
            }
        }
        if self.steps.len() > 8 {
            place.push('…');
        }
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        match self.problem {
            Problem::NotFinite(number) => {
                Fault::record(codes::JSON_NOT_FINITE, format!("JSON cannot represent the number {number}{at}"))
            }
            Problem::TooDeep => Fault::record(
                codes::JSON_TOO_DEEP,
                format!("lists and maps are nested deeper than {MAX_DEPTH} levels{at}"),
            ),
        }
    }
}
