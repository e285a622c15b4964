//! Decodes bytes to values.

use std::sync::Arc;

use anabranch_record::text::{Str, hexadecimal};
use anabranch_record::value::{Object, Timestamp, Value};
use chrono::{DateTime, NaiveDate};

use super::{Codec, CodecError, DEPTH, Field, Node, Sized, Unit, decimal};

/// Maximum number of items without bytes (null, empty records) in one value, because a block can claim any number of
/// them.
const WEIGHTLESS: usize = 1 << 16;

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    weightless: usize,
}

pub(super) fn whole(codec: &Codec, bytes: &[u8]) -> Result<Value, CodecError> {
    let mut input = Input { bytes, at: 0, weightless: WEIGHTLESS };
    let value = input.value(codec, &codec.root, DEPTH)?;
    if input.at != bytes.len() {
        return Err(input.damaged("there are more bytes than the fields of the schema need"));
    }
    Ok(value)
}

impl<'a> Input<'a> {
    fn damaged(&self, what: &'static str) -> CodecError {
        CodecError::Damaged { at: self.at, what }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], CodecError> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..n).ok_or_else(|| self.damaged("the data ends in the middle of a value"))?;
        self.at += n;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let at = self.at;
        let wrong = CodecError::Damaged { at, what: "the data ends in the middle of a value" };
        self.take(N)?.try_into().map_err(|_| wrong)
    }

    /// Reads a zigzag integer in groups of seven bits.
    #[inline]
    fn long(&mut self) -> Result<i64, CodecError> {
        let mut number = 0u64;
        let bytes = &self.bytes[self.at..];
        for (i, &byte) in bytes.iter().take(10).enumerate() {
            self.at += 1;
            if i == 9 && byte > 1 {
                return Err(self.damaged("an integer is longer than 64 bits"));
            }
            number |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                return Ok((number >> 1) as i64 ^ -((number & 1) as i64));
            }
        }
        Err(self.damaged("the data ends in the middle of a value"))
    }

    fn int(&mut self) -> Result<i32, CodecError> {
        let number = self.long()?;
        i32::try_from(number).map_err(|_| self.damaged("an int is longer than 32 bits"))
    }

    fn counted(&mut self) -> Result<&'a [u8], CodecError> {
        let length = self.long()?;
        let length = usize::try_from(length).map_err(|_| self.damaged("a length is negative"))?;
        self.take(length)
    }

    fn text(&mut self) -> Result<&'a str, CodecError> {
        let bytes = self.counted()?;
        std::str::from_utf8(bytes).map_err(|_| self.damaged("a string is not UTF-8"))
    }

    fn digits(&mut self) -> Result<&'a [u8], CodecError> {
        let bytes = self.counted()?;
        if bytes.len() > decimal::LONGEST { Err(self.damaged("a decimal number is too long")) } else { Ok(bytes) }
    }

    fn value(&mut self, codec: &Codec, node: &Node, depth: usize) -> Result<Value, CodecError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.damaged("values are nested too deeply"));
        };
        Ok(match codec.resolve(node) {
            Node::Null => Value::Null,
            Node::Boolean => match self.array()? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                _ => return Err(self.damaged("a boolean is neither 0 nor 1")),
            },
            Node::Int | Node::TimeMillis => Value::Int(self.int()?.into()),
            Node::Long | Node::TimeMicros => Value::Int(self.long()?),
            Node::Float => Value::Float(f32::from_le_bytes(self.array()?).into()),
            Node::Double => Value::Float(f64::from_le_bytes(self.array()?)),
            Node::Bytes => Value::Bytes(self.counted()?.into()),
            Node::Fixed(size) => Value::Bytes(self.take(*size)?.into()),
            Node::Text | Node::UuidText => Value::from(self.text()?),
            Node::Enum(symbols) => {
                let number = usize::try_from(self.int()?).ok();
                let symbol = number.and_then(|number| symbols.get(number));
                Value::Text(symbol.ok_or_else(|| self.damaged("an enum has no such symbol"))?.clone())
            }
            Node::Union(variants) => {
                let number = usize::try_from(self.long()?).ok();
                let variant = number.and_then(|number| variants.get(number));
                let variant = variant.ok_or_else(|| self.damaged("a union has no such type"))?;
                return self.value(codec, variant, depth);
            }
            Node::Array(items) => {
                let mut list = Vec::new();
                self.blocks(|input| {
                    list.push(input.value(codec, items, depth)?);
                    Ok(())
                })?;
                Value::from(list)
            }
            Node::Map(values) => {
                let mut entries = Vec::new();
                self.blocks(|input| {
                    let key = Str::from(input.text()?);
                    entries.push((key, input.value(codec, values, depth)?));
                    Ok(())
                })?;
                Value::from(Object::from_entries(entries))
            }
            Node::Record(fields) => Value::Map(Arc::new(self.record(codec, fields, depth)?)),
            Node::Decimal(_, scale, Some(size)) => Value::from(decimal::text(self.take(*size)?, *scale)),
            Node::Decimal(_, scale, None) => Value::from(decimal::text(self.digits()?, *scale)),
            Node::BigDecimal => {
                let length = self.long()?;
                let start = self.at;
                let unscaled = self.digits()?;
                let scale = self.long()?;
                if i64::try_from(self.at - start) != Ok(length) {
                    return Err(self.damaged("a big-decimal has a wrong length"));
                }
                match usize::try_from(scale).ok().filter(|scale| *scale <= decimal::LONGEST) {
                    Some(scale) => Value::from(decimal::text(unscaled, scale)),
                    None if (-(decimal::LONGEST as i64)..0).contains(&scale) => {
                        let digits = decimal::text(unscaled, 0);
                        let zeros = usize::try_from(scale.unsigned_abs()).unwrap_or(0);
                        Value::from(if digits == "0" { digits } else { digits + &"0".repeat(zeros) })
                    }
                    None => return Err(self.damaged("a decimal number is too long")),
                }
            }
            Node::Uuid(sized) => {
                let bytes = match sized {
                    Sized::Fixed => self.take(16)?,
                    Sized::Bytes => self.counted()?,
                };
                let hex =
                    |range: std::ops::Range<usize>| -> String { hexadecimal(bytes.get(range).unwrap_or_default()) };
                if bytes.len() != 16 {
                    return Err(self.damaged("a uuid is not 16 bytes long"));
                }
                Value::from([hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-"))
            }
            Node::Date => {
                let days = self.int()?;
                let date = NaiveDate::from_epoch_days(days).and_then(|date| date.and_hms_opt(0, 0, 0));
                Value::Time(date.ok_or_else(|| self.damaged("a date is beyond the calendar"))?.and_utc())
            }
            Node::Timestamp(unit) => {
                let number = self.long()?;
                Value::Time(time(number, *unit).ok_or_else(|| self.damaged("a time is beyond the calendar"))?)
            }
            Node::Duration => {
                let mut part = || Ok(Value::Int(u32::from_le_bytes(self.array()?).into()));
                let (months, days, millis): (_, _, _) = (part()?, part()?, part()?);
                Value::from([("days", days), ("millis", millis), ("months", months)].into_iter().collect::<Object>())
            }
            Node::Named(_) => return Err(self.damaged("a type refers to another type")),
        })
    }

    fn record(&mut self, codec: &Codec, fields: &[Field], depth: usize) -> Result<Object, CodecError> {
        let mut entries = vec![(Str::default(), Value::Null); fields.len()];
        for field in fields {
            entries[field.rank] = (field.name.clone(), self.value(codec, &field.node, depth)?);
        }
        Ok(Object::from_entries(entries))
    }

    /// Reads items in blocks: each starts with the number of items. A negative number is followed by the size in bytes;
    /// 0 ends the list.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), CodecError>) -> Result<(), CodecError> {
        loop {
            let mut count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                self.long()?;
                count = count.checked_neg().ok_or_else(|| self.damaged("a block has a wrong number of items"))?;
            }
            for _ in 0..count {
                let before = self.at;
                item(self)?;
                if self.at == before {
                    let left = self.weightless.checked_sub(1);
                    self.weightless = left.ok_or_else(|| self.damaged("there are too many items without bytes"))?;
                }
            }
        }
    }
}

fn time(number: i64, unit: Unit) -> Option<Timestamp> {
    match unit {
        Unit::Millis => DateTime::from_timestamp_millis(number),
        Unit::Micros => DateTime::from_timestamp_micros(number),
        Unit::Nanos => Some(DateTime::from_timestamp_nanos(number)),
    }
}
