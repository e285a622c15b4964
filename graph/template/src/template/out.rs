//! Where rendering writes to.

use super::val::Text;

/// Text under construction. Go strings are bytes: pieces that are not valid UTF-8 by themselves are
/// kept as they are, since the next piece may complete them.
#[derive(Debug, Default)]
pub(crate) struct Out {
    text: String,
    /// Where this rendering began in `text`.
    start: usize,
    /// All of this rendering, once a piece was not UTF-8.
    bytes: Option<Vec<u8>>,
}

impl Out {
    /// Appends to `text`.
    pub(crate) fn after(text: String) -> Out {
        Out { start: text.len(), text, bytes: None }
    }

    /// Bytes written so far.
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

    /// Appends any bytes.
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

    /// Appends a string.
    #[inline]
    pub(crate) fn push_text(&mut self, text: &Text) {
        match text.as_str() {
            Some(text) => self.push_str(text),
            None => self.push_bytes(text.as_bytes()),
        }
    }

    /// The text, and whether all of it was valid; if not, it is as it was before.
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

    /// The text as it was before this rendering.
    pub(crate) fn undo(mut self) -> String {
        self.text.truncate(self.start);
        self.text
    }

    /// What was written, as a value. Only for one that began empty.
    pub(crate) fn into_text(self) -> Text {
        match self.bytes {
            None => self.text.into(),
            Some(bytes) => bytes.into(),
        }
    }
}
