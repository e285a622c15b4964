//! What is wrong with a configuration, and where.
//!
//! Every check returns *all* its findings. They carry byte spans into the files they were found in;
//! [`Diagnostics::render`] prints them with the place underlined, [`Diagnostics::findings`] gives them to programs.

mod finding;
mod fix;
mod lines;
mod render;

pub use finding::{Correction, Finding, Place};
pub use fix::Fix;
pub use render::RenderStyle;

use std::sync::Arc;

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

/// A value and the place where it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// A value at a place.
    pub fn new(value: T, span: Span) -> Self {
        Spanned { value, span }
    }
}

/// The texts that spans point into.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<SourceFile>);

/// One text with the name to show for it.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path as the user gave it.
    pub name: Str,
    /// Its content.
    pub text: Str,
    /// Where the first byte stood that is not UTF-8, in [`SourceFile::text`].
    pub not_utf8: Option<u32>,
}

impl SourceFile {
    /// Line and column in characters of a byte, both from 1. O(text).
    pub fn position(&self, at: u32) -> (u32, u32) {
        lines::Lines::of(&self.text).position(at as usize)
    }
}

impl Files {
    /// No files.
    pub fn new() -> Self {
        Files::default()
    }

    /// Adds a text.
    pub fn add(&mut self, name: impl Into<Str>, text: impl Into<Str>) -> FileId {
        self.0.push(SourceFile { name: name.into(), text: text.into(), not_utf8: None });
        FileId(self.0.len() as u32 - 1)
    }

    /// Adds bytes that may or may not be text; what is not shows as `\u{FFFD}`, and whoever parses the file refuses it.
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

    /// The same files, one of them with another text.
    #[must_use]
    pub fn with_text(&self, id: FileId, text: impl Into<Str>) -> Files {
        let mut files = self.clone();
        if let Some(file) = files.0.get_mut(id.0 as usize) {
            file.text = text.into();
        }
        files
    }

    /// All files in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (FileId, &SourceFile)> {
        self.0.iter().enumerate().map(|(index, file)| (FileId(index as u32), file))
    }

    /// The file, if it was added here.
    pub fn get(&self, id: FileId) -> Option<&SourceFile> {
        self.0.get(id.0 as usize)
    }

    /// File name, 1-based line and 1-based column (in characters) of the start of a span. O(file).
    pub fn locate(&self, span: Span) -> Option<Location> {
        let file = self.get(span.file)?;
        let (line, column) = file.position(span.start);
        Some(Location { file: file.name.clone(), line, column })
    }
}

/// A place as a person names it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Location {
    /// File name.
    pub file: Str,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pipeline cannot be started.
    Error,
    /// It can, but this is probably not what was meant.
    Warning,
}

/// A place with a word about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// What is to be said about it; may be empty.
    pub text: String,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Stable code, dotted: `config.field_required`, `plan.unknown_plugin`.
    pub code: &'static str,
    /// What is wrong, in one line.
    pub message: String,
    /// Where. Absent for findings about no place in a file.
    pub label: Option<Label>,
    /// Places that explain it ("first used here").
    pub related: Vec<Label>,
    /// Remedy.
    pub hint: Option<String>,
    /// JSON pointer of the field inside its pipeline (`/connectors/0/id`), where it has one.
    pub path: Option<String>,
    /// What a program may do about it, where there is no doubt about that.
    pub fix: Option<Fix>,
    /// Credentials in the files, which are not shown with the lines around the place.
    pub credentials: Arc<[Span]>,
}

impl Diagnostic {
    /// An error without a place.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
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

    /// A warning without a place.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Diagnostic { severity: Severity::Warning, ..Self::error(code, message) }
    }

    /// Says where.
    #[must_use]
    pub fn with_span(self, span: Span) -> Self {
        self.with_label(span, "")
    }

    /// Says where, with a word to print under the place.
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

    /// Says what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the field by its JSON pointer.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }
}

/// Findings, in the order in which they were made.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// No findings.
    pub fn new() -> Self {
        Diagnostics::default()
    }

    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds all of another list.
    pub fn extend(&mut self, other: Diagnostics) {
        self.0.extend(other.0);
    }

    /// The same findings, which do not show what stands in these places.
    #[must_use]
    pub fn hiding(mut self, credentials: &[Span]) -> Self {
        let credentials: Arc<[Span]> = credentials.into();
        for finding in &mut self.0 {
            finding.credentials = credentials.clone();
        }
        self
    }

    /// The same findings, each of them an error.
    #[must_use]
    pub fn raised(mut self) -> Self {
        for finding in &mut self.0 {
            finding.severity = Severity::Error;
        }
        self
    }

    /// Whether any is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }

    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The findings.
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
