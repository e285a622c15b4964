//! The encoded values of a row: parameters of a statement.

use std::error::Error as StdError;
use std::fmt;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{Format, IsNull, ToSql, Type};

/// Iterator over the values of an encoded row.
pub(crate) struct EncodedValues<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for EncodedValues<'a> {
    type Item = EncodedValue<'a>;

    fn next(&mut self) -> Option<EncodedValue<'a>> {
        let (length, rest) = self.0.split_first_chunk()?;
        match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) => {
                let (value, rest) = rest.split_at_checked(length)?;
                self.0 = rest;
                Some(EncodedValue(Some(value)))
            }
            Err(_) => {
                self.0 = rest;
                Some(EncodedValue(None))
            }
        }
    }
}

/// An encoded value.
pub(crate) struct EncodedValue<'a>(pub(crate) Option<&'a [u8]>);

impl fmt::Debug for EncodedValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncodedValue(..)")
    }
}

impl ToSql for EncodedValue<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self.0 {
            Some(value) => {
                out.put_slice(value);
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        self.to_sql(ty, out)
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Binary
    }
}
