//! Framing: where the records of a file begin and end.

mod csv;
mod json;

use std::ops::Range;
use std::sync::Arc;

use memchr::memmem::Finder;
use regex::bytes::Regex;

use super::compression::{Codec, Decompressor};
pub(super) use csv::CsvDialect;
use csv::CsvScan;
use json::JsonScan;

/// How records are separated.
#[derive(Clone, Debug)]
pub(super) enum Framing {
    /// A line feed ends a record.
    Lines,
    /// These bytes end a record.
    Delimiter(Arc<Finder<'static>>),
    /// A line that matches begins a record.
    Multiline(Arc<Regex>),
    /// A line feed outside of quotes ends a record.
    Csv(CsvDialect),
    /// Each JSON value is a record, and so is each element of an array that begins the file.
    Json,
    /// The file is one record.
    Whole,
    /// Each row of a Parquet file is a record. The bytes of the file do not show the boundaries of records.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "the settings refuse it"))]
    Parquet,
}

/// A piece at the start of unread content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The bytes of the record; `None` if the piece has none, such as a blank line between rows.
    pub(super) payload: Option<Range<usize>>,
    /// Number of bytes of the piece, with its separators.
    pub(super) len: usize,
}

impl Frame {
    fn separators(len: usize) -> Self {
        Frame { payload: None, len }
    }
}

/// Finds the records of one file, in the order of its bytes. Remembers how far it has searched, so that a long record
/// is searched once however it arrives.
#[derive(Clone, Debug)]
pub(super) struct Framer {
    framing: Framing,
    /// Number of bytes of the current record that were searched.
    searched: usize,
    /// Start of the line that is being searched, for [`Framing::Multiline`].
    line: usize,
    csv: CsvScan,
    json: JsonScan,
}

impl Framer {
    /// Creates a framer for content from its start on.
    pub(super) fn new(framing: Framing) -> Self {
        Framer { framing, searched: 0, line: 0, csv: CsvScan::default(), json: JsonScan::default() }
    }

    /// Continues at the start of a record other than the first. `in_array` is the value of [`Framer::is_in_array`] there.
    pub(super) fn resume(&mut self, in_array: bool) {
        *self = Framer::new(self.framing.clone());
        self.json = JsonScan::inside(in_array);
    }

    /// Returns `true` if the last record was an element of a JSON array that has not ended.
    pub(super) fn is_in_array(&self) -> bool {
        self.json.is_in_array()
    }

    /// Returns the next complete piece of `bytes`, which begin after the last one. `None` if its end is not there yet.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Option<Frame> {
        let frame = match &self.framing {
            Framing::Lines => {
                let end = memchr::memchr(b'\n', &bytes[self.searched..]).map(|end| self.searched + end);
                self.searched = bytes.len();
                end.map(|end| Frame { payload: Some(0..end), len: end + 1 })
            }
            Framing::Delimiter(finder) => {
                let delimiter = finder.needle().len();
                let start = self.searched.saturating_sub(delimiter - 1);
                let end = finder.find(&bytes[start..]).map(|end| start + end);
                self.searched = bytes.len();
                end.map(|end| Frame { payload: Some(0..end), len: end + delimiter })
            }
            Framing::Multiline(pattern) => loop {
                let Some(end) = memchr::memchr(b'\n', &bytes[self.searched..]).map(|end| self.searched + end) else {
                    self.searched = bytes.len();
                    break None;
                };
                let start = self.line;
                (self.searched, self.line) = (end + 1, end + 1);
                if start > 0 && pattern.is_match(&bytes[start..end]) {
                    break Some(Frame { payload: Some(0..start - 1), len: start });
                }
            },
            Framing::Csv(dialect) => self.csv.row_end(bytes, *dialect).map(|end| csv::row(bytes, end, end + 1)),
            Framing::Json => self.json.next(bytes),
            Framing::Whole | Framing::Parquet => None,
        };
        if frame.is_some() {
            self.end_record();
        }
        frame
    }

    /// Returns the next piece of the rest of a file without complete pieces, because the file does not grow. If it is not
    /// all of `bytes`, more pieces follow. `None` if nothing is left.
    pub(super) fn last(&mut self, bytes: &[u8]) -> Option<Frame> {
        if bytes.is_empty() {
            return None;
        }
        let all = Frame { payload: Some(0..bytes.len()), len: bytes.len() };
        let frame = match &self.framing {
            Framing::Multiline(pattern) => {
                // The last line may begin a record without having ended itself.
                let start = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
                if start > 0 && start < bytes.len() && pattern.is_match(&bytes[start..]) {
                    Frame { payload: Some(0..start - 1), len: start }
                } else {
                    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
                    Frame { payload: Some(0..text.len()), ..all }
                }
            }
            Framing::Csv(_) => csv::row(bytes, bytes.len(), bytes.len()),
            Framing::Json => self.json.last(bytes),
            Framing::Lines | Framing::Delimiter(_) | Framing::Whole | Framing::Parquet => all,
        };
        self.end_record();
        Some(frame)
    }

    fn end_record(&mut self) {
        (self.searched, self.line) = (0, 0);
        self.csv = CsvScan::default();
    }
}

/// A framing with fixed settings, for checks of any content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleFraming {
    /// Lines.
    Lines,
    /// Lines of which each one that begins with `>` begins a record.
    Multiline,
    /// Rows with commas and quotes.
    Csv,
    /// JSON values.
    Json,
}

impl SampleFraming {
    /// All of them.
    pub const ALL: &[SampleFraming] =
        &[SampleFraming::Lines, SampleFraming::Multiline, SampleFraming::Csv, SampleFraming::Json];

    fn framing(self) -> Option<Framing> {
        Some(match self {
            SampleFraming::Lines => Framing::Lines,
            SampleFraming::Multiline => Framing::Multiline(Arc::new(Regex::new("^>").ok()?)),
            SampleFraming::Csv => Framing::Csv(CsvDialect { delimiter: b',', quote: b'"' }),
            SampleFraming::Json => Framing::Json,
        })
    }
}

/// Returns the records of content that arrives in pieces of `piece` bytes, for checks that they do not depend on it.
pub fn records(framing: SampleFraming, content: &[u8], piece: usize) -> Vec<Vec<u8>> {
    framing.framing().map_or_else(Vec::new, |framing| records_of(&framing, content, piece))
}

fn records_of(framing: &Framing, content: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let (mut framer, mut buffer, mut found) = (Framer::new(framing.clone()), Vec::new(), Vec::new());
    let mut take = |frame: Frame, buffer: &mut Vec<u8>| {
        found.extend(frame.payload.map(|payload| buffer[payload].to_vec()));
        buffer.drain(..frame.len);
    };
    for piece in content.chunks(piece.max(1)) {
        buffer.extend_from_slice(piece);
        while let Some(frame) = framer.next(&buffer) {
            take(frame, &mut buffer);
        }
    }
    while let Some(frame) = framer.last(&buffer) {
        take(frame, &mut buffer);
    }
    found
}

/// Returns the first megabyte of decompressed data that arrives in pieces of `piece` bytes, for checks of damaged data.
///
/// # Errors
/// The data is damaged. Plain data is returned as it is.
pub fn decompressed(bytes: &[u8], piece: usize) -> std::io::Result<Vec<u8>> {
    let Some(codec) = Codec::of_start(bytes) else { return Ok(bytes.to_vec()) };
    let (mut decompressor, mut output) = (Decompressor::new(codec)?, Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        decompressor.push(piece);
        while output.len() < 1 << 20 && decompressor.pull(&mut output, 1 << 16)? {}
    }
    Ok(output)
}

#[cfg(test)]
mod tests;
