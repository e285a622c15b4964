//! Reads protobuf.

use std::fmt;

/// Error for bytes that are not a message of the protocol.
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
            Malformed::Depth => "values are nested too deeply",
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
        text(self.bytes()?)
    }

    pub(crate) fn message(self) -> Result<Reader<'b>, Malformed> {
        self.bytes().map(Reader)
    }
}

pub(crate) fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed::Utf8)
}

/// Reads the fields of a message one by one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    /// Reads the next field with its number; returns `None` at the end.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Field<'b>)>, Malformed> {
        // Nearly all are bytes, with one byte for the tag and one for the length.
        match *self.0 {
            [] => Ok(None),
            [tag @ 8..0x80, length @ ..0x80, ref rest @ ..] if tag & 7 == 2 && rest.len() >= usize::from(length) => {
                let (bytes, rest) = rest.split_at(usize::from(length));
                self.0 = rest;
                Ok(Some((u64::from(tag >> 3), Field::Bytes(bytes))))
            }
            _ => self.any(),
        }
    }

    fn any(&mut self) -> Result<Option<(u64, Field<'b>)>, Malformed> {
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

    /// Reads an entry of a map. Does not check that the key is valid text.
    pub(crate) fn entry(mut self) -> Result<(&'b [u8], Option<Field<'b>>), Malformed> {
        let (mut key, mut value): (&[u8], _) = (&[], None);
        while let Some((number, field)) = self.next()? {
            match number {
                1 => key = field.bytes()?,
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
            // The tenth byte contains only the last bit.
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
