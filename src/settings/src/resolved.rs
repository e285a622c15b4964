//! Values of settings as text, with the layers that they come from.

use anabranch_plugin::diagnostic::Span;

use crate::declaration::SettingKey;

/// The layer that a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The declaration.
    Default,
    /// `anabranch.yaml`.
    File,
    /// An `ANABRANCH_*` variable.
    Environment,
    /// A flag.
    Flag,
}

/// The value of a setting as text.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The setting.
    pub key: &'static SettingKey,
    /// The value; `None` if there is none and no default.
    pub text: Option<String>,
    /// The layer of the value.
    pub source: Source,
    /// The name of the variable, if it is one of another standard.
    pub standard: Option<&'static str>,
    /// The text in the file, if it contains variables or file references.
    pub(crate) written: Option<String>,
    /// The place in the file.
    pub(crate) span: Option<Span>,
}

impl Resolved {
    /// Returns the value for display: credentials are masked, and variables are shown by name.
    pub fn shown(&self) -> Option<&str> {
        let text = self.text.as_deref()?;
        Some(if self.key.secret && !text.is_empty() { "***" } else { self.written.as_deref().unwrap_or(text) })
    }

    /// Replaces the value in a message by the text in the file.
    pub(crate) fn hidden(&self, message: String) -> String {
        let (Some(text), Some(written)) = (self.text.as_deref().map(str::trim), &self.written) else { return message };
        let quoted = format!("{text:?}");
        match message {
            message if text.is_empty() => message,
            message if message.contains(&quoted) => message.replace(&quoted, &format!("{written:?}")),
            message => message.replace(text, written),
        }
    }
}
