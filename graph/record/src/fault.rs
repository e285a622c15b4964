//! Failures of records, connectors and runs, and their classes.

use crate::code::Code;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::phrase::shortened;
use crate::text::Str;

/// Maximum length in bytes of [`Fault::message`]. Servers and scripts may quote a rejected value of any size, and the
/// message goes to logs, dead letters, statuses and answers.
pub const MESSAGE_BYTES: usize = 4 << 10;

/// The class of a fault. It decides what the executor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultClass {
    /// This record cannot be processed or delivered; others can. It goes to the dead-letter queue.
    Record,
    /// An external system is not ready (connection lost, throttled); the same call may succeed later. The call is
    /// retried with back-off, then the pipeline restarts from its stored positions.
    Transient,
    /// Continuing would lose or corrupt data, or cannot succeed. The pipeline is degraded.
    Fatal,
}

/// A failure in the text of a setting, such as a script, with the place in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InText {
    /// The error message.
    pub message: String,
    /// Name of the setting.
    pub setting: &'static str,
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
}

impl InText {
    /// Returns the place as an offset in bytes from the start of `text`.
    pub fn offset(&self, text: &str) -> usize {
        let start: usize = text.split_inclusive('\n').take(self.line.saturating_sub(1)).map(str::len).sum();
        let line = text[start..].lines().next().unwrap_or_default();
        start + line.char_indices().nth(self.column.saturating_sub(1)).map_or(line.len(), |(offset, _)| offset)
    }
}

/// A failure with its class, a stable code and the node where it happened. Cloning is O(1).
#[derive(Clone)]
pub struct Fault {
    class: FaultClass,
    code: Code,
    node: Option<Str>,
    login_refused: bool,
    cause: Arc<dyn Error + Send + Sync>,
}

impl Fault {
    /// Creates a fault of `class` with a stable `code` (snake case, such as `field_missing`) and its cause.
    pub fn new(class: FaultClass, code: Code, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Fault { class, code, node: None, login_refused: false, cause: Arc::from(cause.into()) }
    }

    /// Creates a fault of one record.
    pub fn record(code: Code, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultClass::Record, code, cause)
    }

    /// Creates a fault that a retry may resolve.
    pub fn transient(code: Code, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultClass::Transient, code, cause)
    }

    /// Creates a fault that stops the pipeline.
    pub fn fatal(code: Code, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultClass::Fatal, code, cause)
    }

    /// Sets the node (id of a processor or connector), unless it is already set.
    #[must_use]
    pub fn at(mut self, node: &Str) -> Self {
        self.node.get_or_insert_with(|| node.clone());
        self
    }

    /// Marks the fault as caused by credentials that a server rejects. An operator may change credentials on the two
    /// sides at different times, so such a fault is retried for a while even if it is [`FaultClass::Fatal`].
    #[must_use]
    pub fn of_login(mut self) -> Self {
        self.login_refused = true;
        self
    }

    /// Returns `true` if a server rejected the credentials.
    pub fn is_of_login(&self) -> bool {
        self.login_refused
    }

    /// Returns the same fault with another class, for example a transient fault whose retries are exhausted.
    #[must_use]
    pub fn with_class(mut self, class: FaultClass) -> Self {
        self.class = class;
        self
    }

    /// Returns the class.
    pub fn class(&self) -> FaultClass {
        self.class
    }

    /// Returns the stable code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the id of the processor or connector where the fault happened.
    pub fn node(&self) -> Option<&Str> {
        self.node.as_ref()
    }

    /// Returns the place in the text of a setting where the fault happened, if it is known.
    pub fn in_text(&self) -> Option<&InText> {
        self.cause.downcast_ref()
    }

    /// Returns the cause.
    pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.cause
    }

    /// Returns the messages of the cause and of its own causes, joined by `: `, with at most [`MESSAGE_BYTES`] bytes.
    pub fn message(&self) -> String {
        let mut text = self.cause.to_string();
        let mut next = self.cause.source();
        while let Some(cause) = next {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            next = cause.source();
        }
        shortened(text, MESSAGE_BYTES)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node}: {}", self.message()),
            None => f.write_str(&self.message()),
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({:?}, {}, {self})", self.class, self.code)
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;

    #[test]
    fn a_message_that_quotes_a_large_value_is_shortened() {
        let value = "z".repeat(6_000_000);
        let fault = Fault::record(codes::REFERENCE_TYPE, format!("Token \"{value}\" is invalid"));
        let message = fault.message();
        assert!(message.len() <= MESSAGE_BYTES, "{}", message.len());
        assert!(message.starts_with("Token \"zzz") && message.ends_with("z… (5996947 more bytes)"), "{message}");
        let outer = Fault::fatal(codes::REFERENCE_TYPE, format!("the table t: {message} (at line 3)"));
        assert!(outer.to_string().ends_with("more bytes) (at line 3)"), "{outer}");
    }
}
