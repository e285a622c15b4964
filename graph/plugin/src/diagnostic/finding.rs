//! Findings in a form for programs.

use std::collections::HashMap;

use serde::Serialize;

use super::lines::LineStarts;
use super::{Diagnostics, FileId, Files, Label, Severity};

/// A [`Diagnostic`](super::Diagnostic) with its places as lines and columns, for serialisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding<'a> {
    /// The severity.
    pub severity: Severity,
    /// Stable code.
    pub code: &'a str,
    /// The message.
    pub message: &'a str,
    /// JSON pointer of the field inside its pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<&'a str>,
    /// The place.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub place: Option<FindingPlace<'a>>,
    /// Remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'a str>,
    /// A correction that a program may apply, as `validate --fix` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Correction<'a>>,
    /// Places that explain it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<FindingPlace<'a>>,
}

/// A [`Fix`](super::Fix) for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Correction<'a> {
    /// The wrong text; empty if text is missing.
    pub was: &'a str,
    /// The replacement.
    pub becomes: &'a str,
}

/// A range of a file. Lines and columns count from 1, columns in characters; the end is exclusive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FindingPlace<'a> {
    /// Name of the file.
    pub file: &'a str,
    /// Line of the first character.
    pub line: u32,
    /// Column of the first character.
    pub column: u32,
    /// Line of the end.
    pub end_line: u32,
    /// Column of the end.
    pub end_column: u32,
    /// The remark about the place.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub label: &'a str,
}

impl Diagnostics {
    /// Returns the findings with lines and columns, as `--json` prints them.
    pub fn findings<'a>(&'a self, files: &'a Files) -> Vec<Finding<'a>> {
        let mut texts: HashMap<FileId, LineStarts<'a>> = HashMap::new();
        let mut place = |label: &'a Label| {
            let file = files.get(label.span.file)?;
            let lines = texts.entry(label.span.file).or_insert_with(|| LineStarts::of(&file.text));
            let (line, column) = lines.position(label.span.start as usize);
            let (end_line, end_column) = lines.position(label.span.end.max(label.span.start) as usize);
            Some(FindingPlace { file: &file.name, line, column, end_line, end_column, label: &label.text })
        };
        self.iter()
            .map(|diagnostic| Finding {
                severity: diagnostic.severity,
                code: diagnostic.code.name(),
                message: &diagnostic.message,
                path: diagnostic.path.as_deref(),
                place: diagnostic.label.as_ref().and_then(&mut place),
                hint: diagnostic.hint.as_deref(),
                fix: diagnostic.fix.as_ref().map(|fix| Correction { was: &fix.was, becomes: &fix.becomes }),
                related: diagnostic.related.iter().filter_map(&mut place).collect(),
            })
            .collect()
    }
}
