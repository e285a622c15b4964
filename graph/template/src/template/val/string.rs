//! Strings of arbitrary bytes.

use std::borrow::Cow;
use std::rc::Rc;

use anabranch_record::text::Str;

/// A Go string: usually UTF-8, but a template may cut a character in two or decode binary data.
/// Cloning is O(1).
#[derive(Clone, Debug)]
pub(crate) struct Text(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Valid(Str),
    /// Invalid UTF-8.
    Broken(Rc<[u8]>),
}

impl Text {
    /// Creates a text from bytes, which may be invalid UTF-8.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Text {
        match std::str::from_utf8(bytes) {
            Ok(text) => Text(Repr::Valid(text.into())),
            Err(_) => Text(Repr::Broken(bytes.into())),
        }
    }

    /// Returns the bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Valid(text) => text.as_bytes(),
            Repr::Broken(bytes) => bytes,
        }
    }

    /// Returns the text, if it is valid UTF-8.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.0 {
            Repr::Valid(text) => Some(text),
            Repr::Broken(_) => None,
        }
    }

    /// Returns the text with U+FFFD for invalid UTF-8, for functions that work on characters.
    pub(crate) fn lossy(&self) -> Cow<'_, str> {
        match &self.0 {
            Repr::Valid(text) => Cow::Borrowed(text),
            Repr::Broken(bytes) => String::from_utf8_lossy(bytes),
        }
    }

    /// Returns the text as a map key, with U+FFFD for invalid UTF-8.
    pub(crate) fn to_key(&self) -> Str {
        match &self.0 {
            Repr::Valid(text) => text.clone(),
            Repr::Broken(bytes) => String::from_utf8_lossy(bytes).into_owned().into(),
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Text {}

impl From<Str> for Text {
    fn from(text: Str) -> Text {
        Text(Repr::Valid(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(Repr::Valid(text.into()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(Repr::Valid(text.into()))
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Text {
        match String::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(error) => Text(Repr::Broken(error.into_bytes().into())),
        }
    }
}
