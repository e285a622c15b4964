//! The text of a program, and flaws in it.

use std::ops::Range;

use anabranch_record::code::Code;
use anabranch_record::fault::InText;
use anabranch_record::text::Str;
use vrl::diagnostic::{Diagnostic, Note};

use crate::codes;

/// The setting that holds an inline program.
pub(crate) const SETTING: &str = "program";

/// The text of a program.
#[derive(Clone, Debug)]
pub(crate) struct ProgramSource {
    pub(crate) text: Str,
    /// Name in messages: `program`, or the path of its file.
    pub(crate) name: Str,
}

impl ProgramSource {
    /// Returns the line and the column in characters of a byte, both from 1.
    fn position(&self, at: usize) -> (usize, usize) {
        let at = (0..=at.min(self.text.len())).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or_default();
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        (line, before.rsplit('\n').next().unwrap_or_default().chars().count() + 1)
    }

    /// Returns a message with the place before it.
    pub(crate) fn placed(&self, at: usize, message: &str) -> String {
        let (line, column) = self.position(at);
        format!("{}:{line}:{column}: {message}", self.name)
    }

    /// Returns the cause of a fault of a record, with its place.
    pub(crate) fn in_text(&self, at: usize, message: String) -> InText {
        let (line, column) = self.position(at);
        InText { message, setting: SETTING, line, column }
    }
}

/// A flaw of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProgramFlaw {
    pub(crate) code: Code,
    /// Number of the finding in the library; 0 for findings of this crate.
    pub(crate) number: usize,
    /// The place; `None` for the program as a whole.
    pub(crate) place: Option<Range<usize>>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl ProgramFlaw {
    /// Creates a flaw of the program as a whole.
    pub(crate) fn of_whole(code: Code, message: impl Into<String>, hint: &str) -> ProgramFlaw {
        ProgramFlaw { code, number: 0, place: None, message: message.into(), hint: Some(hint.to_owned()) }
    }

    /// Creates a flaw at a place.
    pub(crate) fn at(place: Range<usize>, message: impl Into<String>, hint: Option<String>) -> ProgramFlaw {
        ProgramFlaw { code: codes::VRL_INVALID, number: 0, place: Some(place), message: message.into(), hint }
    }

    /// Converts a finding of the library. Its labels become part of the message.
    pub(crate) fn of(diagnostic: &Diagnostic) -> ProgramFlaw {
        let mut message = match diagnostic.code {
            0 => diagnostic.message.clone(),
            number => format!("{} (E{number})", diagnostic.message),
        };
        for (at, label) in diagnostic.labels.iter().filter(|label| !label.message.is_empty()).enumerate() {
            message.push_str(if at == 0 {
                ": "
            } else if message.ends_with(':') {
                " "
            } else {
                "; "
            });
            message.push_str(&label.message);
        }
        let label = diagnostic.labels.iter().find(|label| label.primary).or(diagnostic.labels.first());
        ProgramFlaw {
            code: codes::VRL_INVALID,
            number: diagnostic.code,
            place: label.map(|label| label.span.range()),
            message: one_line(&message),
            hint: hint(&diagnostic.notes),
        }
    }
}

/// Returns the remedies among notes, in lines as the library prints them, without links to the manual of another tool.
fn hint(notes: &[Note]) -> Option<String> {
    let texts = notes.iter().filter_map(|note| match note {
        Note::Hint(text) | Note::Basic(text) | Note::UserErrorMessage(text) => Some(text.trim_end().to_owned()),
        Note::Example(text) => Some(format!("for example {}", text.trim())),
        Note::CoerceValue => Some("convert the value with a function such as string!() or int!()".to_owned()),
        _ => None,
    });
    let mut lines: Vec<String> = Vec::new();
    for text in texts {
        // One empty line separates two remedies.
        if !text.is_empty() || lines.last().is_some_and(|line| !line.is_empty()) {
            lines.push(text);
        }
    }
    let text = lines.join("\n").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_keep_their_lines() {
        let mut notes = Note::solution("one", vec!["a = string!(a)", "upcase(a)"]);
        notes.extend(Note::solution("another", vec!["a = to_string(a) ?? \"\""]));
        notes.push(Note::SeeErrorDocs);
        let text = "try: one\n\n    a = string!(a)\n    upcase(a)\n\ntry: another\n\n    a = to_string(a) ?? \"\"";
        assert_eq!(hint(&notes).as_deref(), Some(text));
        assert_eq!(hint(&[Note::SeeErrorDocs]), None);
    }
}
