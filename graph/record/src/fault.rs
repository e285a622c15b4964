//! What went wrong with a record, a connector or a run, and what may be done about it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::text::Str;

/// What the executor does about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultClass {
    /// This record cannot be processed or delivered; others can. It goes to the dead-letter queue.
    Record,
    /// The outside world is not ready (connection lost, throttled); the same call may work later.
    /// Retried with backoff, then the pipeline recovers from its stored positions.
    Transient,
    /// Going on would lose or corrupt data, or can never work. The pipeline is degraded.
    Fatal,
}

/// Why a text in a setting, as a script, failed on a record, and where in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InText {
    /// What went wrong.
    pub message: String,
    /// Name of the setting.
    pub setting: &'static str,
    /// The line, from 1.
    pub line: usize,
    /// The character in it, from 1.
    pub column: usize,
}

impl InText {
    /// The place in bytes from the start of the text.
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
    code: &'static str,
    node: Option<Str>,
    login_refused: bool,
    cause: Arc<dyn Error + Send + Sync>,
}

impl Fault {
    /// A fault of `class` with a stable `code` (snake case, as `field_missing`) and its cause.
    pub fn new(class: FaultClass, code: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Fault { class, code, node: None, login_refused: false, cause: Arc::from(cause.into()) }
    }

    /// A fault of one record.
    pub fn record(code: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultClass::Record, code, cause)
    }

    /// A fault that may go away by itself.
    pub fn transient(code: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultClass::Transient, code, cause)
    }

    /// A fault after which the pipeline must not go on.
    pub fn fatal(code: &'static str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(FaultClass::Fatal, code, cause)
    }

    /// Names the node (processor or connector id), unless an inner one was named already.
    #[must_use]
    pub fn at(mut self, node: &Str) -> Self {
        self.node.get_or_insert_with(|| node.clone());
        self
    }

    /// The same fault, because a server does not accept the credentials. They may be changed on both sides one after the
    /// other: such a fault is tried again for a while even if it is [`FaultClass::Fatal`].
    #[must_use]
    pub fn of_login(mut self) -> Self {
        self.login_refused = true;
        self
    }

    /// Whether a server did not accept the credentials.
    pub fn is_of_login(&self) -> bool {
        self.login_refused
    }

    /// The same fault with another class: a transient one that outlived its retries, say.
    #[must_use]
    pub fn with_class(mut self, class: FaultClass) -> Self {
        self.class = class;
        self
    }

    /// What the executor does about it.
    pub fn class(&self) -> FaultClass {
        self.class
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The id of the processor or connector where it happened.
    pub fn node(&self) -> Option<&Str> {
        self.node.as_ref()
    }

    /// Where in a text of a setting it happened, if that is known.
    pub fn in_text(&self) -> Option<&InText> {
        self.cause.downcast_ref()
    }

    /// The cause.
    pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.cause
    }

    /// The cause and its own causes, joined by `: `.
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
        text
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
