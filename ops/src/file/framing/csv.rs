//! Rows of CSV (RFC 4180): line breaks in quoted values do not end a row.

use super::Frame;
use crate::csv::BYTE_ORDER_MARK;

/// The characters that separate and quote values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) struct CsvDialect {
    pub(in crate::file) delimiter: u8,
    pub(in crate::file) quote: u8,
}

/// Search for the end of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CsvScan {
    /// Number of bytes of the row that were searched.
    searched: usize,
    /// True if the searched bytes end within quotes.
    quoted: bool,
}

impl CsvScan {
    /// Returns the place of the line feed that ends the row at the start of `bytes`. As in `csv.decode`, a quote opens
    /// only at the start of a value; elsewhere it is a character like others.
    pub(super) fn row_end(&mut self, bytes: &[u8], dialect: CsvDialect) -> Option<usize> {
        let CsvDialect { delimiter, quote } = dialect;
        loop {
            let rest = &bytes[self.searched..];
            if self.quoted {
                let Some(at) = memchr::memchr(quote, rest).map(|at| self.searched + at) else {
                    self.searched = bytes.len();
                    return None;
                };
                match bytes.get(at + 1) {
                    // The next byte shows whether this quote ends the value.
                    None => {
                        self.searched = at;
                        return None;
                    }
                    Some(next) if *next == quote => self.searched = at + 2,
                    Some(_) => (self.searched, self.quoted) = (at + 1, false),
                }
                continue;
            }
            let Some(at) = memchr::memchr2(quote, b'\n', rest).map(|at| self.searched + at) else {
                self.searched = bytes.len();
                return None;
            };
            if bytes[at] == b'\n' {
                return Some(at);
            }
            let before = &bytes[..at];
            self.quoted = before.is_empty() || before.ends_with(&[delimiter]) || before == BYTE_ORDER_MARK;
            self.searched = at + 1;
        }
    }
}

/// Returns the frame of a row that ends at `end` and its line break at `len`. A blank line is not a row.
pub(super) fn row(bytes: &[u8], end: usize, len: usize) -> Frame {
    let text = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    match text.is_empty() {
        true => Frame::separators(len),
        false => Frame { payload: Some(0..text.len()), len },
    }
}
