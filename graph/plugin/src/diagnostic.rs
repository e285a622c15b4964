//! Findings about a configuration, with their places.
//!
//! Every check returns *all* its findings. They carry byte spans into their files;
//! [`Diagnostics::render`] prints them with the place underlined, [`Diagnostics::findings`] returns them for programs.

mod finding;
mod fix;
mod lines;
mod render;

pub use finding::{Correction, Finding, FindingPlace};
pub use fix::Fix;
pub use render::RenderStyle;

use std::sync::Arc;

use anabranch_record::code::Code;
use anabranch_record::text::Str;

/// Index of a file in [`Files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FileId(pub u32);

/// A range of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// A value and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// The place.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Creates a value at a place.
    pub fn new(value: T, span: Span) -> Self {
        Spanned { value, span }
    }
}

/// The files that spans point into.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<SourceFile>);

/// The text of a file, with a name for display.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path as the user wrote it.
    pub name: Str,
    /// The content.
    pub text: Str,
    /// Offset in [`SourceFile::text`] of the first byte that is not valid UTF-8.
    pub not_utf8: Option<u32>,
}

impl SourceFile {
    /// Returns the line and the column in characters of a byte, both from 1. O(text).
    pub fn position(&self, at: u32) -> (u32, u32) {
        lines::LineStarts::of(&self.text).position(at as usize)
    }
}

impl Files {
    /// Creates an empty set of files.
    pub fn new() -> Self {
        Files::default()
    }

    /// Adds a text.
    pub fn add(&mut self, name: impl Into<Str>, text: impl Into<Str>) -> FileId {
        self.0.push(SourceFile { name: name.into(), text: text.into(), not_utf8: None });
        FileId(self.0.len() as u32 - 1)
    }

    /// Adds bytes. Invalid UTF-8 is shown as `\u{FFFD}` and recorded, so that parsers reject the file.
    pub fn add_bytes(&mut self, name: impl Into<Str>, bytes: Vec<u8>) -> FileId {
        match String::from_utf8(bytes) {
            Ok(text) => self.add(name, text),
            Err(error) => {
                let valid = error.utf8_error().valid_up_to() as u32;
                let id = self.add(name, String::from_utf8_lossy(error.as_bytes()).into_owned());
                if let Some(file) = self.0.last_mut() {
                    file.not_utf8 = Some(valid);
                }
                id
            }
        }
    }

    /// Returns the same files, with another text for one of them.
    #[must_use]
    pub fn with_text(&self, id: FileId, text: impl Into<Str>) -> Files {
        let mut files = self.clone();
        if let Some(file) = files.0.get_mut(id.0 as usize) {
            file.text = text.into();
        }
        files
    }

    /// Returns all files in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (FileId, &SourceFile)> {
        self.0.iter().enumerate().map(|(index, file)| (FileId(index as u32), file))
    }

    /// Returns a file by its id.
    pub fn get(&self, id: FileId) -> Option<&SourceFile> {
        self.0.get(id.0 as usize)
    }

    /// Returns the file name, 1-based line and 1-based column (in characters) of the start of a span. O(file).
    pub fn locate(&self, span: Span) -> Option<Location> {
        let file = self.get(span.file)?;
        let (line, column) = file.position(span.start);
        Some(Location { file: file.name.clone(), line, column })
    }
}

/// A place for display.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Location {
    /// File name.
    pub file: Str,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pipeline cannot be started.
    Error,
    /// It can be started, but this is probably not intended.
    Warning,
}

/// A place with a remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// The remark; may be empty.
    pub text: String,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// Stable code, dotted: `config.field_required`, `plan.unknown_plugin`.
    pub code: Code,
    /// The message, in one line.
    pub message: String,
    /// The place; `None` for findings that do not concern a place in a file.
    pub label: Option<Label>,
    /// Places that explain it ("first used here").
    pub related: Vec<Label>,
    /// Remedy.
    pub hint: Option<String>,
    /// JSON pointer of the field inside its pipeline (`/connectors/0/id`), if it has one.
    pub path: Option<String>,
    /// A correction that a program may apply, if it is unambiguous.
    pub fix: Option<Fix>,
    /// Places of credentials in the files, which are masked in displayed lines.
    pub credentials: Arc<[Span]>,
}

impl Diagnostic {
    /// Creates an error without a place.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Diagnostic {
            severity: Severity::Error,
            code,
            message: message.into(),
            label: None,
            related: Vec::new(),
            hint: None,
            path: None,
            fix: None,
            credentials: Arc::default(),
        }
    }

    /// Creates a warning without a place.
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Diagnostic { severity: Severity::Warning, ..Self::error(code, message) }
    }

    /// Sets the place.
    #[must_use]
    pub fn with_span(self, span: Span) -> Self {
        self.with_label(span, "")
    }

    /// Sets the place, with a text to print under it.
    #[must_use]
    pub fn with_label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.label = Some(Label { span, text: text.into() });
        self
    }

    /// Adds a place that explains the finding.
    #[must_use]
    pub fn with_related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push(Label { span, text: text.into() });
        self
    }

    /// Sets the remedy.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the JSON pointer of the field.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }
}

/// A list of findings, in the order in which they were made.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Creates an empty list.
    pub fn new() -> Self {
        Diagnostics::default()
    }

    /// Adds a finding.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds all findings of another list.
    pub fn extend(&mut self, other: Diagnostics) {
        self.0.extend(other.0);
    }

    /// Returns the same findings with the given places masked.
    #[must_use]
    pub fn hiding(mut self, credentials: &[Span]) -> Self {
        let credentials: Arc<[Span]> = credentials.into();
        for finding in &mut self.0 {
            finding.credentials = credentials.clone();
        }
        self
    }

    /// Returns the same findings, all as errors.
    #[must_use]
    pub fn raised(mut self) -> Self {
        for finding in &mut self.0 {
            finding.severity = Severity::Error;
        }
        self
    }

    /// Returns `true` if there is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }

    /// Returns `true` if there are no findings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the findings.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter()
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Diagnostics(vec![diagnostic])
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_characters() {
        let mut files = Files::new();
        let file = files.add("a.yaml", "x\nžlutý: y\n");
        let at = files.locate(Span { file, start: 2 + 9, end: 2 + 10 }).unwrap();
        assert_eq!((at.line, at.column), (2, 8));
    }
}
