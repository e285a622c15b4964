//! Lines of a text.

use std::ops::Range;

/// The starts of the lines of a text. Built in O(text); a look-up is O(log lines + line).
pub(super) struct LineStarts<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineStarts<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1)).collect();
        LineStarts { text, starts }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Returns the nearest offset at or before `at` that is in the text and between two characters.
    pub(super) fn boundary(&self, at: usize) -> usize {
        self.text.floor_char_boundary(at)
    }

    /// Returns the index of the line that contains a byte.
    pub(super) fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at).saturating_sub(1)
    }

    /// Returns the bytes of a line without its line break.
    pub(super) fn range(&self, line: usize) -> Range<usize> {
        let start = self.starts.get(line).copied().unwrap_or(self.text.len());
        let end = self.starts.get(line + 1).map_or(self.text.len(), |next| next - 1);
        let end = if self.text[start..end].ends_with('\r') { end - 1 } else { end };
        start..end
    }

    /// Returns the line and the column in characters of a byte, both from 1.
    pub(super) fn position(&self, at: usize) -> (u32, u32) {
        let at = self.boundary(at);
        let line = self.line(at);
        let before = &self.text[self.starts.get(line).copied().unwrap_or(0)..at];
        // A byte order mark does not count as a character of the first line.
        let before = if line == 0 { before.trim_start_matches('\u{feff}') } else { before };
        (line as u32 + 1, before.chars().count() as u32 + 1)
    }
}
