//! Reads protobuf messages from shared bytes.

use bytes::Bytes;

use crate::write::{FIXED32, FIXED64, LEN, VARINT};

/// Maximum nesting depth of values: each level takes few bytes, and deep nesting would exhaust the stack.
pub(crate) const DEPTH: usize = 200;

/// Error for bytes that are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A field ends after its message.
    #[error("the message ends inside a field")]
    Truncated,
    /// The bytes are not protobuf.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
    /// A text is not UTF-8.
    #[error("a text is not valid UTF-8")]
    NotUtf8,
    /// Values are nested too deeply.
    #[error("values are nested deeper than {DEPTH}")]
    TooDeep,
    /// The number of the operation is unknown.
    #[error("unknown operation {0}")]
    UnknownOperation(u64),
}

/// The unread rest of a message.
pub(crate) struct Reader<'a> {
    /// The buffer that contains the message; fields of bytes become slices of it.
    whole: &'a Bytes,
    at: usize,
    end: usize,
}

/// A field of a message.
pub(crate) enum Field<'a> {
    Varint(u64),
    Double(f64),
    Len(Reader<'a>),
    Other,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(whole: &'a Bytes) -> Self {
        Reader { whole, at: 0, end: whole.len() }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, DecodeError> {
        // Nearly all are tags, lengths and numbers of one byte.
        match self.slice().first() {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.whole[..self.end].get(self.at).ok_or(DecodeError::Truncated)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Malformed("a number of more than ten bytes"))
    }

    fn skip(&mut self, length: usize) -> Result<usize, DecodeError> {
        let from = self.at;
        self.at = from.checked_add(length).filter(|end| *end <= self.end).ok_or(DecodeError::Truncated)?;
        Ok(from)
    }

    /// Reads the next field; returns `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Field<'a>)>, DecodeError> {
        if self.at == self.end {
            return Ok(None);
        }
        let tag = u32::try_from(self.varint()?).map_err(|_| DecodeError::Malformed("a field number out of range"))?;
        if tag >> 3 == 0 {
            return Err(DecodeError::Malformed("a field with the number 0"));
        }
        let field = match tag & 7 {
            VARINT => Field::Varint(self.varint()?),
            FIXED64 => {
                let at = self.skip(8)?;
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&self.whole[at..at + 8]);
                Field::Double(f64::from_le_bytes(bytes))
            }
            LEN => {
                let length = usize::try_from(self.varint()?).map_err(|_| DecodeError::Truncated)?;
                let at = self.skip(length)?;
                Field::Len(Reader { whole: self.whole, at, end: self.at })
            }
            FIXED32 => {
                self.skip(4)?;
                Field::Other
            }
            _ => return Err(DecodeError::Malformed("an unknown wire type")),
        };
        Ok(Some((tag >> 3, field)))
    }

    pub(crate) fn slice(&self) -> &'a [u8] {
        &self.whole[self.at..self.end]
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.whole.slice(self.at..self.end)
    }

    pub(crate) fn text(&self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.slice()).map_err(|_| DecodeError::NotUtf8)
    }
}
