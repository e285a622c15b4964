//! Pipeline files as text.

use std::fmt::Write as _;

use crate::setting_text::SettingText;

/// A pipeline.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    pub(crate) id: String,
    pub(crate) description: String,
    /// Comment above the document.
    pub(crate) comment: Vec<String>,
    /// `true` if the service must not start it by itself.
    pub(crate) is_stopped: bool,
    pub(crate) source: Part,
    pub(crate) destination: Part,
    pub(crate) processors: Vec<Part>,
    pub(crate) dead_letters: Option<DeadLetters>,
}

/// A connector or a processor.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) id: String,
    pub(crate) plugin: &'static str,
    /// Template of the condition, with its braces.
    pub(crate) condition: Option<String>,
    pub(crate) settings: Vec<(&'static str, SettingText)>,
    /// Comment above it.
    pub(crate) comment: String,
}

/// A dead-letter queue that never stops the pipeline.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    pub(crate) plugin: &'static str,
    pub(crate) settings: Vec<(&'static str, SettingText)>,
}

impl Part {
    /// Creates a connector or a processor without settings.
    pub(crate) fn new(id: &str, plugin: &'static str) -> Self {
        Part { id: id.to_owned(), plugin, ..Part::default() }
    }

    /// Adds a setting.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<SettingText>) {
        self.settings.push((name, value.into()));
    }

    /// Adds a setting.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<SettingText>) -> Self {
        self.set(name, value);
        self
    }

    /// Restricts a processor to the records for which the expression is true.
    pub(crate) fn when(mut self, expression: Option<&str>) -> Self {
        self.condition = expression.map(|expression| format!("{{{{ {expression} }}}}"));
        self
    }

    /// Adds a comment.
    pub(crate) fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = comment.into();
        self
    }
}

impl Pipeline {
    /// Returns the text of the file.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for paragraph in &self.comment {
            comment(&mut text, 0, paragraph);
        }
        text.push_str("version: \"2.2\"\npipelines:\n");
        let _ = writeln!(text, "  - id: {}", scalar(&self.id));
        if !self.description.is_empty() {
            let _ = writeln!(text, "    description: {}", scalar(&self.description));
        }
        if self.is_stopped {
            text.push_str("    status: stopped\n");
        }
        text.push_str("    connectors:\n");
        for (role, part) in [("source", &self.source), ("destination", &self.destination)] {
            part.write(&mut text, Some(role));
        }
        if !self.processors.is_empty() {
            text.push_str("    processors:\n");
            for part in &self.processors {
                part.write(&mut text, None);
            }
        }
        if let Some(letters) = &self.dead_letters {
            let _ = writeln!(text, "    dead-letter-queue:\n      plugin: {}", letters.plugin);
            settings(&mut text, 6, &letters.settings);
            text.push_str("      window-size: 0\n");
        }
        text
    }
}

impl Part {
    fn write(&self, text: &mut String, role: Option<&str>) {
        if !self.comment.is_empty() {
            comment(text, 6, &self.comment);
        }
        let _ = writeln!(text, "      - id: {}", scalar(&self.id));
        if let Some(role) = role {
            let _ = writeln!(text, "        type: {role}");
        }
        let _ = writeln!(text, "        plugin: {}", self.plugin);
        if let Some(condition) = &self.condition {
            let _ = writeln!(text, "        condition: {}", scalar(SettingText::literal(condition).as_str()));
        }
        settings(text, 8, &self.settings);
    }
}

fn settings(text: &mut String, indent: usize, settings: &[(&'static str, SettingText)]) {
    if settings.is_empty() {
        return;
    }
    let _ = writeln!(text, "{:indent$}settings:", "");
    for (name, value) in settings {
        // Settings are read as texts, also those that other fields would read as booleans.
        let value = match value.as_str() {
            word @ ("true" | "false") => word.to_owned(),
            text => scalar(text),
        };
        let _ = writeln!(text, "{:indent$}  {name}: {value}", "");
    }
}

/// Writes a paragraph as a comment, in lines of the width of an editor.
pub(crate) fn comment(text: &mut String, indent: usize, paragraph: &str) {
    const WIDTH: usize = 110;
    let mut line = String::new();
    let mut flush = |line: &mut String| {
        let _ = writeln!(text, "{:indent$}#{line}", "");
        line.clear();
    };
    for word in paragraph.split_whitespace() {
        let word: String = word.chars().filter(|c| is_printable(*c)).collect();
        if !line.is_empty() && indent + line.chars().count() + word.chars().count() + 2 > WIDTH {
            flush(&mut line);
        }
        line.push(' ');
        line.push_str(&word);
    }
    flush(&mut line);
}

/// Formats a text as a YAML scalar that is read as exactly this text.
pub(crate) fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    if text.chars().all(is_printable) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if is_printable(c) => quoted.push(c),
            c => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Returns `true` if YAML reads the text without quotes as this text.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text == "0" || !text.starts_with('0');
    }
    // `.inf` and `.nan` are numbers; `.Payload` is a text.
    let after_dot = text.strip_prefix('.').map(|rest| rest.starts_with(['K', 'M', 'O', 'P']));
    after_dot.unwrap_or_else(|| text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '$'))
        && !text.ends_with(':')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:@+${},=?*".contains(c))
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Returns `true` if the character may stand in a comment or in single quotes.
fn is_printable(c: char) -> bool {
    // Beyond the control characters, YAML refuses the byte order mark and reads these separators as line ends.
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_texts_stay_plain() {
        for text in ["orders", "/var/log/a.txt", "${KAFKA_SERVERS}", ".Payload.After", "500", "recfmt/raw"] {
            assert_eq!(scalar(text), text);
        }
        for text in ["", "true", "a b", "{{ .Key }}", "- a", "1.5", "0x1f", ".5", ".inf", "a:", "#x", "a #b"] {
            assert_ne!(scalar(text), text);
        }
    }

    proptest! {
        #[test]
        fn every_text_is_read_back(text in any::<String>()) {
            let yaml = format!("key: {}\n", scalar(&text));
            let read: BTreeMap<String, String> = serde_saphyr::from_str(&yaml).unwrap();
            prop_assert_eq!(&read["key"], &text);
        }
    }
}
