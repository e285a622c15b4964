//! Processors that encode a field as a row of CSV, or decode it.

pub mod decode;
pub mod encode;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::Argument;
use anabranch_record::text::Str;

/// The mark that some programs write at the start of a text in UTF-8.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The characters that separate and quote values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    pub(crate) delimiter: u8,
    pub(crate) quote: u8,
}

impl Dialect {
    /// Reads the settings, which must be different ASCII characters.
    pub(crate) fn new(delimiter: &Argument<Str>, quote: &Argument<Str>) -> Result<Dialect, Diagnostics> {
        let dialect = Dialect { delimiter: byte(delimiter)?, quote: byte(quote)? };
        match dialect.delimiter == dialect.quote {
            true => Err(quote.invalid("delimiter and quote are the same").into()),
            false => Ok(dialect),
        }
    }
}

/// Returns the only byte of a setting.
fn byte(setting: &Argument<Str>) -> Result<u8, Diagnostics> {
    match setting.as_bytes() {
        [byte] if byte.is_ascii() && *byte != b'\n' && *byte != b'\r' => Ok(*byte),
        br"\t" => Ok(b'\t'),
        _ => Err(setting.invalid("expected one ASCII character, such as ; or \\t").into()),
    }
}
