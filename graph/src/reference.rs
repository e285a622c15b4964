//! References to parts of a record: `.Payload.After.name`, `.Metadata["a.b"]`.

use crate::text::Str;

/// A parsed reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    text: Str,
}

/// A text that is no reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReferenceError {
    message: String,
    hint: Option<String>,
}

impl ReferenceError {
    /// What to write instead.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl Reference {
    /// Parses a reference.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        if !text.starts_with(['.', '$']) {
            return Err(ReferenceError { message: format!("invalid reference {text:?}"), hint: None });
        }
        Ok(Reference { text: text.into() })
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}
