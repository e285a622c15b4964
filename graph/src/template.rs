//! The template dialect: Go's `text/template` over records, with the functions of sprig.

mod builtins;
mod functions;
mod val;

use std::sync::Arc;

use crate::record::Record;

/// A compiled template.
#[derive(Clone, Debug)]
pub struct Template(Arc<str>);

/// What an absent map key renders as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKey {
    /// `<no value>`.
    NoValue,
    /// It fails.
    Error,
}

/// A text that is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// Byte offset in the text.
    pub offset: usize,
    /// Bytes from there.
    pub len: usize,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// A template that failed on a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvalError {
    /// Byte offset in the text.
    pub offset: usize,
    /// What is wrong.
    pub message: String,
}

impl Template {
    /// Compiles.
    ///
    /// # Errors
    /// The first thing wrong.
    pub fn parse(text: &str, _missing: MissingKey) -> Result<Template, TemplateError> {
        Ok(Template(text.into()))
    }
    /// Its text.
    pub fn source(&self) -> &str {
        &self.0
    }
    /// The text when it has no actions.
    pub fn literal(&self) -> Option<&str> {
        (!self.0.contains("{{")).then_some(&self.0)
    }
    /// Appends the output.
    ///
    /// # Errors
    /// Why it failed on this record.
    pub fn render(&self, _record: &Record, out: &mut String) -> Result<(), EvalError> {
        out.push_str(&self.0);
        Ok(())
    }
    /// What it reads.
    pub fn reads(&self) -> crate::operator::Access {
        crate::operator::Access::Everything
    }
}
