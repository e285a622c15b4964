//! Values as pipeline files notate them, before YAML.

/// A value with variables: `${NAME}` is a variable, and `$${` stands for the characters `${`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettingText(String);

impl SettingText {
    /// Creates a value that is exactly this text.
    pub(crate) fn literal(text: &str) -> Self {
        SettingText(text.replace("${", "$${"))
    }

    /// Creates a value that a variable gives.
    pub(crate) fn variable(name: &str) -> Self {
        SettingText(format!("${{{name}}}"))
    }

    /// Creates a value that the content of a file gives.
    pub(crate) fn content_of(path: &str) -> Self {
        SettingText(format!("${{file:{path}}}"))
    }

    /// Adds a value at the end.
    pub(crate) fn push(&mut self, more: &SettingText) {
        // A dollar sign before a variable would escape it.
        if self.0.ends_with('$') && more.0.starts_with('{') {
            self.0.push('$');
        }
        self.0.push_str(&more.0);
    }

    /// Returns the value with its variables as a text for a pipeline file.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the value depends on a variable or a file.
    pub(crate) fn is_variable(&self) -> bool {
        self.0.replace("$${", "").contains("${")
    }
}

impl From<&str> for SettingText {
    fn from(text: &str) -> Self {
        SettingText::literal(text)
    }
}

impl From<String> for SettingText {
    fn from(text: String) -> Self {
        SettingText::literal(&text)
    }
}
