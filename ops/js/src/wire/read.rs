//! Reads records from a message.

use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Change, Data, Operation, Position, Record};
use bytes::Bytes;
use chrono::DateTime;

use super::write::{SAME_METADATA, data, value};
use super::{MOST_DEPTH, Malformed, Want, Wants};

type Result<T> = std::result::Result<T, Malformed>;

/// Field and metadata names of the previous record, in order. The next record mostly has the same ones and shares them.
#[derive(Debug, Default)]
pub(crate) struct NameCache {
    seen: Vec<Str>,
    next: usize,
}

/// Maximum number of names that are kept, and their maximum length in bytes.
const MOST_NAMES: usize = 256;
const LONGEST_NAME: usize = 128;

impl NameCache {
    /// Begins a record.
    fn begin(&mut self) {
        self.next = 0;
    }

    /// Returns the text of these bytes. A known name needs no UTF-8 check.
    fn name(&mut self, bytes: &[u8]) -> Result<Str> {
        let at = self.next;
        self.next += 1;
        if let Some(seen) = self.seen.get(at)
            && seen.as_bytes() == bytes
        {
            return Ok(seen.clone());
        }
        let name = std::str::from_utf8(bytes).map(Str::from).map_err(|_| Malformed)?;
        if bytes.len() <= LONGEST_NAME && at < MOST_NAMES {
            if self.seen.len() <= at {
                self.seen.resize(at + 1, Str::default());
            }
            self.seen[at] = name.clone();
        }
        Ok(name)
    }
}

/// A message and the read position. Raw data is a slice of the message, everything else a copy.
pub(crate) struct Reader<'n> {
    message: Bytes,
    at: usize,
    names: &'n mut NameCache,
}

impl<'n> Reader<'n> {
    /// Reads a message from its start.
    pub(crate) fn new(message: Bytes, names: &'n mut NameCache) -> Self {
        Reader { message, at: 0, names }
    }

    /// Returns `true` at the end of the message.
    pub(crate) fn is_empty(&self) -> bool {
        self.left().is_empty()
    }

    fn left(&self) -> &[u8] {
        &self.message[self.at..]
    }

    /// Returns the read position, for [`Reader::since`].
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// Returns the bytes read since `place`.
    pub(super) fn since(&self, place: usize) -> Bytes {
        self.message.slice(place..self.at)
    }

    /// Skips these bytes if they come next; returns whether they did.
    pub(super) fn skip(&mut self, bytes: &[u8]) -> bool {
        let is_next = self.left().starts_with(bytes);
        self.at += if is_next { bytes.len() } else { 0 };
        is_next
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        let byte = *self.left().first().ok_or(Malformed)?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for (at, byte) in self.left().iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.at += at + 1;
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// Reads the number of items that take at least one byte each.
    pub(crate) fn count(&mut self) -> Result<usize> {
        let count = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        if count > self.left().len() { Err(Malformed) } else { Ok(count) }
    }

    /// Reads bytes as a slice of the message.
    pub(crate) fn bytes(&mut self) -> Result<Bytes> {
        let length = self.count()?;
        let bytes = self.message.slice(self.at..self.at + length);
        self.at += length;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<Str> {
        let length = self.count()?;
        let text = std::str::from_utf8(&self.left()[..length]).map(Str::from).map_err(|_| Malformed)?;
        self.at += length;
        Ok(text)
    }

    pub(super) fn name(&mut self) -> Result<Str> {
        let length = self.count()?;
        let name = self.names.name(&self.message[self.at..self.at + length])?;
        self.at += length;
        Ok(name)
    }

    /// Reads the wanted parts of a record; `before` is the previous record in this message.
    pub(crate) fn record(&mut self, wants: &Wants, before: Option<&Record>) -> Result<Record> {
        self.begin();
        let first = self.byte()?;
        let operation = Operation::from_number((first & !SAME_METADATA).into()).ok_or(Malformed)?;
        let position = if wants.position { Position(self.bytes()?) } else { Position::default() };
        let mut record = Record::at(position);
        record.operation = operation;
        record.metadata = match first & SAME_METADATA {
            0 => self.metadata(&wants.metadata)?,
            _ => before.ok_or(Malformed)?.metadata.clone(),
        };
        record.key = self.wanted(&wants.key)?;
        record.payload = Change { before: self.wanted(&wants.before)?, after: self.wanted(&wants.after)? };
        Ok(record)
    }

    pub(super) fn begin(&mut self) {
        self.names.begin();
    }

    pub(super) fn operation(&mut self) -> Result<Operation> {
        Operation::from_number(self.byte()?.into()).ok_or(Malformed)
    }

    fn metadata(&mut self, want: &Want) -> Result<Metadata> {
        let entries = match want {
            Want::Nothing => return Ok(Metadata::new()),
            Want::Fields(names) => {
                let mut entries = Vec::new();
                for name in names {
                    if self.byte()? != 0 {
                        // Values, too, are often the same as in the previous record.
                        entries.push((name.clone(), self.name()?));
                    }
                }
                entries
            }
            Want::Whole => {
                let count = self.count()?;
                (0..count).map(|_| Ok((self.name()?, self.name()?))).collect::<Result<Vec<_>>>()?
            }
        };
        Ok(Metadata::from_entries(entries))
    }

    fn wanted(&mut self, want: &Want) -> Result<Data> {
        let tag = match want {
            Want::Nothing => return Ok(Data::Absent),
            Want::Fields(_) | Want::Whole => self.byte()?,
        };
        match want {
            Want::Fields(names) if tag == data::STRUCTURED => {
                let mut entries = Vec::new();
                for name in names {
                    if self.left().first() == Some(&value::MISSING) {
                        self.at += 1;
                    } else {
                        entries.push((name.clone(), self.value(0)?));
                    }
                }
                Ok(Data::from(Object::from_entries(entries)))
            }
            _ => self.data_of(tag),
        }
    }

    pub(super) fn data_of(&mut self, tag: u8) -> Result<Data> {
        Ok(match tag {
            data::ABSENT => Data::Absent,
            data::RAW => Data::Raw(self.bytes()?),
            data::STRUCTURED => Data::from(self.fields(0)?),
            _ => return Err(Malformed),
        })
    }

    fn fields(&mut self, depth: usize) -> Result<Object> {
        let count = self.count()?;
        let entries = (0..count).map(|_| Ok((self.name()?, self.value(depth)?))).collect::<Result<Vec<_>>>()?;
        Ok(Object::from_entries(entries))
    }

    pub(super) fn value(&mut self, depth: usize) -> Result<Value> {
        let tag = self.byte()?;
        if matches!(tag, value::LIST | value::MAP) && depth >= MOST_DEPTH {
            return Err(Malformed);
        }
        Ok(match tag {
            value::NULL => Value::Null,
            value::FALSE => Value::Bool(false),
            value::TRUE => Value::Bool(true),
            value::INT => Value::Int(self.signed()?),
            value::UINT => Value::UInt(self.number()?),
            value::FLOAT => {
                let bytes = *self.left().first_chunk::<8>().ok_or(Malformed)?;
                self.at += bytes.len();
                Value::Float(f64::from_bits(u64::from_le_bytes(bytes)))
            }
            value::TEXT => Value::Text(self.text()?),
            value::BYTES => {
                let length = self.count()?;
                let bytes = self.left()[..length].into();
                self.at += length;
                Value::Bytes(bytes)
            }
            value::TIME => {
                let (seconds, nanos) = (self.signed()?, self.number()?);
                let nanos = u32::try_from(nanos).map_err(|_| Malformed)?;
                Value::Time(DateTime::from_timestamp(seconds, nanos).ok_or(Malformed)?)
            }
            value::LIST => {
                let count = self.count()?;
                Value::from((0..count).map(|_| self.value(depth + 1)).collect::<Result<Vec<_>>>()?)
            }
            value::MAP => Value::from(self.fields(depth + 1)?),
            _ => return Err(Malformed),
        })
    }
}
