//! Reads protobuf messages from shared bytes.

use bytes::Bytes;

use super::write::{FIXED32, FIXED64, LEN, VARINT};

/// Maximum nesting depth of values: each level takes few bytes, and deep nesting would exhaust the stack.
pub(super) const DEPTH: usize = 200;

/// Error for bytes that are not the expected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A field ends after its message.
    #[error("the message ends inside a field")]
    Truncated,
    /// The bytes are not protobuf, or a field has another type.
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

/// The unread rest of a message. Reads its fields one by one and copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'b> {
    /// The buffer that contains the message; fields of bytes become slices of it.
    whole: &'b Bytes,
    left: &'b [u8],
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub enum Field<'b> {
    /// A number, a boolean or an enum.
    Varint(u64),
    /// A floating-point number.
    Double(f64),
    /// Text, bytes or a message.
    Len(Reader<'b>),
    /// A field of a type that no message here has.
    Other,
}

const UNEXPECTED: DecodeError = DecodeError::Malformed("a field has an unexpected type");

impl<'b> Field<'b> {
    /// Returns the number.
    ///
    /// # Errors
    /// The field is not a number.
    pub fn varint(self) -> Result<u64, DecodeError> {
        match self {
            Field::Varint(number) => Ok(number),
            _ => Err(UNEXPECTED),
        }
    }

    /// Returns the fields of the message.
    ///
    /// # Errors
    /// The field is not a message.
    pub fn message(self) -> Result<Reader<'b>, DecodeError> {
        match self {
            Field::Len(message) => Ok(message),
            _ => Err(UNEXPECTED),
        }
    }

    /// Returns the bytes.
    ///
    /// # Errors
    /// The field is not bytes.
    pub fn bytes(self) -> Result<&'b [u8], DecodeError> {
        self.message().map(|bytes| bytes.left)
    }

    /// Returns the text.
    ///
    /// # Errors
    /// The field is not text, or not UTF-8.
    pub fn text(self) -> Result<&'b str, DecodeError> {
        self.message()?.text()
    }
}

impl<'b> Reader<'b> {
    /// Reads the message that `whole` is.
    pub fn new(whole: &'b Bytes) -> Self {
        Reader { whole, left: whole }
    }

    /// Reads the message in the first `length` bytes of a buffer.
    pub fn first(whole: &'b Bytes, length: usize) -> Self {
        Reader { whole, left: &whole[..length.min(whole.len())] }
    }

    /// Reads the next field with its number; returns `None` at the end.
    ///
    /// # Errors
    /// The rest is not a message.
    #[inline(always)]
    #[expect(clippy::should_implement_trait, reason = "an iterator would be of results")]
    pub fn next(&mut self) -> Result<Option<(u32, Field<'b>)>, DecodeError> {
        // Nearly all are bytes, with one byte for the tag and one for the length.
        match *self.left {
            [] => Ok(None),
            [tag @ 8..0x80, length @ ..0x80, ref rest @ ..]
                if u32::from(tag & 7) == LEN && rest.len() >= usize::from(length) =>
            {
                let (bytes, rest) = rest.split_at(usize::from(length));
                self.left = rest;
                Ok(Some((u32::from(tag >> 3), Field::Len(Reader { whole: self.whole, left: bytes }))))
            }
            _ => self.any(),
        }
    }

    fn any(&mut self) -> Result<Option<(u32, Field<'b>)>, DecodeError> {
        let tag = u32::try_from(self.varint()?).map_err(|_| DecodeError::Malformed("a field number out of range"))?;
        if tag >> 3 == 0 {
            return Err(DecodeError::Malformed("a field with the number 0"));
        }
        let field = match tag & 7 {
            VARINT => Field::Varint(self.varint()?),
            FIXED64 => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(self.take(8)?);
                Field::Double(f64::from_le_bytes(bytes))
            }
            LEN => {
                let length = usize::try_from(self.varint()?).map_err(|_| DecodeError::Truncated)?;
                Field::Len(Reader { whole: self.whole, left: self.take(length)? })
            }
            FIXED32 => {
                self.take(4)?;
                Field::Other
            }
            _ => return Err(DecodeError::Malformed("an unknown wire type")),
        };
        Ok(Some((tag >> 3, field)))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, DecodeError> {
        // Nearly all are tags, lengths and numbers of one byte.
        match self.left.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.left = rest;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for (i, &byte) in self.left.iter().enumerate() {
            // The tenth byte contains only the last bit.
            if i == 9 && byte > 1 {
                return Err(DecodeError::Malformed("a number of more than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.left = &self.left[i + 1..];
                return Ok(value);
            }
        }
        Err(DecodeError::Truncated)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], DecodeError> {
        let (head, tail) = self.left.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.left = tail;
        Ok(head)
    }

    /// Returns the end of the message: no bytes.
    pub(super) fn end(&self) -> Self {
        Reader { whole: self.whole, left: &[] }
    }

    /// Returns the unread bytes.
    pub fn slice(&self) -> &'b [u8] {
        self.left
    }

    /// Returns the unread bytes, which share the memory of the buffer.
    pub fn bytes(&self) -> Bytes {
        self.whole.slice_ref(self.left)
    }

    /// Returns the unread bytes as text.
    ///
    /// # Errors
    /// They are not UTF-8.
    pub fn text(&self) -> Result<&'b str, DecodeError> {
        std::str::from_utf8(self.left).map_err(|_| DecodeError::NotUtf8)
    }
}
