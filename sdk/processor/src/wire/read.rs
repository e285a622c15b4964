//! Reading protobuf.

use std::fmt;

/// Bytes that are no message of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Truncated,
    Varint,
    Tag,
    Type,
    Utf8,
    Depth,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed message of the host: ")?;
        f.write_str(match self {
            Malformed::Truncated => "it ends too early",
            Malformed::Varint => "a number has more than 64 bits",
            Malformed::Tag => "a field has the number 0",
            Malformed::Type => "a field has an unexpected type",
            Malformed::Utf8 => "text is not valid UTF-8",
            Malformed::Depth => "values are nested too deep",
        })
    }
}

impl std::error::Error for Malformed {}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field<'b> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'b [u8]),
    Fixed32,
}

impl<'b> Field<'b> {
    pub(crate) fn varint(self) -> Result<u64, Malformed> {
        match self {
            Field::Varint(number) => Ok(number),
            _ => Err(Malformed::Type),
        }
    }

    pub(crate) fn double(self) -> Result<f64, Malformed> {
        match self {
            Field::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(Malformed::Type),
        }
    }

    pub(crate) fn bytes(self) -> Result<&'b [u8], Malformed> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed::Type),
        }
    }

    pub(crate) fn text(self) -> Result<&'b str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Utf8)
    }

    pub(crate) fn message(self) -> Result<Reader<'b>, Malformed> {
        self.bytes().map(Reader)
    }
}

/// Reads the fields of a message one by one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    /// The next field with its number; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Field<'b>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?;
                let bits = bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
                Field::Fixed64(bits)
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed::Truncated)?;
                Field::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Field::Fixed32
            }
            _ => return Err(Malformed::Type),
        };
        if tag >> 3 == 0 {
            return Err(Malformed::Tag);
        }
        Ok(Some((tag >> 3, field)))
    }

    /// An entry of a map with text as keys.
    pub(crate) fn entry(mut self) -> Result<(&'b str, Option<Field<'b>>), Malformed> {
        let (mut key, mut value) = ("", None);
        while let Some((number, field)) = self.next()? {
            match number {
                1 => key = field.text()?,
                2 => value = Some(field),
                _ => {}
            }
        }
        Ok((key, value))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        // Nearly all are tags, lengths and numbers of one byte.
        match self.0.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.0 = rest;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for (i, &byte) in self.0.iter().enumerate() {
            // The tenth byte has the last bit.
            if i == 9 && byte > 1 {
                return Err(Malformed::Varint);
            }
            number |= u64::from(byte & 0x7F) << (7 * i);
            if byte < 0x80 {
                self.0 = &self.0[i + 1..];
                return Ok(number);
            }
        }
        Err(Malformed::Truncated)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(length).ok_or(Malformed::Truncated)?;
        self.0 = tail;
        Ok(head)
    }
}
