//! Values of JSON in a row, each on one line or several, or the elements of one array.

use super::Frame;
use crate::csv::BYTE_ORDER_MARK;

/// Search for the end of a value.
#[derive(Clone, Debug)]
pub(super) struct JsonScan {
    /// True before the first value of the file: an array there has the records as elements.
    at_start: bool,
    in_array: bool,
    /// Number of bytes of the value that were searched.
    searched: usize,
    /// Number of objects and arrays that are open at `searched`.
    depth: usize,
    in_text: bool,
}

impl Default for JsonScan {
    fn default() -> Self {
        JsonScan { at_start: true, in_array: false, searched: 0, depth: 0, in_text: false }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

impl JsonScan {
    /// Continues after a record.
    pub(super) fn inside(in_array: bool) -> Self {
        JsonScan { at_start: false, in_array, ..JsonScan::default() }
    }

    pub(super) fn is_in_array(&self) -> bool {
        self.in_array
    }

    /// Returns the separators at the start of `bytes`, or the first value if it is complete.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Option<Frame> {
        if self.at_start && bytes.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(bytes) {
            return None;
        }
        if self.searched == 0 {
            let separators = self.separators(bytes);
            if separators > 0 {
                return Some(Frame::separators(separators));
            }
        }
        let end = self.value_end(bytes)?;
        *self = JsonScan::inside(self.in_array);
        Some(Frame { payload: Some(0..end), len: end })
    }

    /// Returns the last piece of a file.
    pub(super) fn last(&mut self, bytes: &[u8]) -> Frame {
        let separators = if self.searched == 0 { self.separators(bytes) } else { 0 };
        if separators > 0 {
            return Frame::separators(separators);
        }
        *self = JsonScan::inside(self.in_array);
        Frame { payload: Some(0..bytes.len()), len: bytes.len() }
    }

    /// Returns the length of the separators at the start of `bytes`.
    fn separators(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        if self.at_start && bytes.starts_with(BYTE_ORDER_MARK) {
            at = BYTE_ORDER_MARK.len();
        }
        while let Some(byte) = bytes.get(at) {
            match byte {
                byte if is_space(*byte) => {}
                b',' => {}
                b'[' if self.at_start => (self.at_start, self.in_array) = (false, true),
                b']' if self.in_array => self.in_array = false,
                _ => break,
            }
            at += 1;
        }
        at
    }

    /// Returns the end of the value at the start of `bytes`. A text that is not JSON ends at the next space, so that it
    /// is a record of its own, which `json.decode` fails.
    fn value_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let first = *bytes.first()?;
        if !matches!(first, b'{' | b'[' | b'"') {
            let ends = |byte: &u8| is_space(*byte) || *byte == b',' || self.in_array && *byte == b']';
            let end = bytes[self.searched..].iter().position(ends).map(|end| self.searched + end);
            self.searched = bytes.len();
            return end;
        }
        while self.searched < bytes.len() {
            if self.in_text {
                let Some(at) = memchr::memchr2(b'"', b'\\', &bytes[self.searched..]).map(|at| self.searched + at)
                else {
                    self.searched = bytes.len();
                    return None;
                };
                if bytes[at] == b'\\' {
                    if at + 1 == bytes.len() {
                        self.searched = at;
                        return None;
                    }
                    self.searched = at + 2;
                    continue;
                }
                (self.searched, self.in_text) = (at + 1, false);
            } else {
                match bytes[self.searched] {
                    b'"' => self.in_text = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                    _ => {}
                }
                self.searched += 1;
            }
            if self.depth == 0 && !self.in_text {
                return Some(self.searched);
            }
        }
        None
    }
}
