//! The output of a rendering.

use super::val::Text;

/// Text under construction. Go strings are bytes: pieces that are not valid UTF-8 by themselves are
/// kept unchanged, because the next piece may complete them.
#[derive(Debug, Default)]
pub(crate) struct Out {
    text: String,
    /// Start of this rendering in `text`.
    start: usize,
    /// The complete output of this rendering, if one of its pieces was not valid UTF-8.
    bytes: Option<Vec<u8>>,
}

impl Out {
    /// Creates an output that appends to `text`.
    pub(crate) fn after(text: String) -> Out {
        Out { start: text.len(), text, bytes: None }
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.as_ref().map_or(self.text.len() - self.start, Vec::len)
    }

    /// Appends text.
    #[inline]
    pub(crate) fn push_str(&mut self, text: &str) {
        match &mut self.bytes {
            None => self.text.push_str(text),
            Some(bytes) => bytes.extend_from_slice(text.as_bytes()),
        }
    }

    /// Appends a character.
    pub(crate) fn push(&mut self, c: char) {
        match &mut self.bytes {
            None => self.text.push(c),
            Some(bytes) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    /// Appends bytes, which may be invalid UTF-8.
    pub(crate) fn push_bytes(&mut self, piece: &[u8]) {
        if self.bytes.is_none() {
            if let Ok(piece) = std::str::from_utf8(piece) {
                self.text.push_str(piece);
                return;
            }
            let written = self.text.as_bytes().get(self.start..).unwrap_or_default().to_vec();
            self.text.truncate(self.start);
            self.bytes = Some(written);
        }
        if let Some(bytes) = &mut self.bytes {
            bytes.extend_from_slice(piece);
        }
    }

    /// Appends a template string.
    #[inline]
    pub(crate) fn push_text(&mut self, text: &Text) {
        match text.as_str() {
            Some(text) => self.push_str(text),
            None => self.push_bytes(text.as_bytes()),
        }
    }

    /// Returns the text, and `true` if all of the output was valid UTF-8; otherwise the text before this rendering.
    pub(crate) fn finish(mut self) -> (String, bool) {
        match self.bytes.map(String::from_utf8) {
            None => (self.text, true),
            Some(Ok(written)) => {
                self.text.push_str(&written);
                (self.text, true)
            }
            Some(Err(_)) => (self.text, false),
        }
    }

    /// Returns the text before this rendering.
    pub(crate) fn undo(mut self) -> String {
        self.text.truncate(self.start);
        self.text
    }

    /// Returns the output as a value. Only for an output that was empty at the start.
    pub(crate) fn into_text(self) -> Text {
        match self.bytes {
            None => self.text.into(),
            Some(bytes) => bytes.into(),
        }
    }
}
