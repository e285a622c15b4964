//! Findings as text for people: each with its place underlined in its line.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Element, Level, Padding, Renderer, Snippet, normalize_untrusted_str};

use super::lines::LineStarts;
use super::{Diagnostic, Diagnostics, FileId, Files, Label, Severity, Span};
use crate::secret::passwords;

/// Maximum number of lines between two places that are shown in one excerpt.
const NEAR_LINES: usize = 50;

/// Maximum length of a line in bytes; a longer line is cut around the place.
const MAX_LINE_BYTES: usize = 400;

/// Maximum length of an underlined value in bytes.
const MAX_MARK_BYTES: usize = 100;

/// Bytes before the place that are kept in a cut line.
const KEPT_BEFORE: usize = 80;

/// Style of printed findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenderStyle {
    /// True for coloured output.
    pub color: bool,
    /// Columns of the terminal.
    pub width: usize,
}

impl Default for RenderStyle {
    /// Without colours, 140 columns.
    fn default() -> Self {
        RenderStyle { color: false, width: 140 }
    }
}

impl Diagnostics {
    /// Returns all findings as text, each with its place underlined; empty if there are none.
    ///
    /// Shows the text of the files without [`Diagnostic::credentials`] and passwords in URLs, and never the values of
    /// variables. Any span is valid: an offset outside the file or inside a character is moved to the nearest boundary.
    /// Control characters are made visible.
    pub fn render(&self, files: &Files, style: RenderStyle) -> String {
        let renderer = if style.color { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.term_width(style.width.max(40)).decor_style(DecorStyle::Ascii);
        let mut texts: HashMap<FileId, LineStarts<'_>> = HashMap::new();
        let mut out = String::new();
        for diagnostic in self.iter() {
            for label in diagnostic.label.iter().chain(&diagnostic.related) {
                if let Some(file) = files.get(label.span.file) {
                    texts.entry(label.span.file).or_insert_with(|| LineStarts::of(&file.text));
                }
            }
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&render_one(diagnostic, files, &texts, &renderer));
            out.push('\n');
        }
        out
    }
}

fn render_one(
    diagnostic: &Diagnostic,
    files: &Files,
    texts: &HashMap<FileId, LineStarts<'_>>,
    renderer: &Renderer,
) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(normalize_untrusted_str(&diagnostic.message)).id(diagnostic.code.name());
    let mut elements = Vec::new();
    let mut snippets: Vec<Excerpt<'_>> = Vec::new();
    let labels = diagnostic.label.iter().map(|label| (label, AnnotationKind::Primary));
    for (label, kind) in labels.chain(diagnostic.related.iter().map(|label| (label, AnnotationKind::Context))) {
        let Some(lines) = texts.get(&label.span.file) else { continue };
        let mark = Mark::new(lines, label, kind);
        match snippets.iter_mut().find(|excerpt| excerpt.takes(label.span.file, &mark)) {
            Some(excerpt) => excerpt.add(mark),
            None => snippets.push(Excerpt {
                file: label.span.file,
                lines,
                first: mark.line,
                last: mark.line,
                marks: vec![mark],
            }),
        }
    }
    let mut moved = Vec::new();
    for excerpt in snippets {
        let name = files.get(excerpt.file).map_or("", |file| &file.name);
        moved.extend(excerpt.draw(normalize_untrusted_str(name), &diagnostic.credentials, &mut elements));
    }
    if let Some(hint) = &diagnostic.hint {
        if !elements.is_empty() {
            elements.push(Padding.into());
        }
        elements.push(Level::HELP.message(normalize_untrusted_str(hint)).into());
    }
    let mut text = renderer.render(&[title.elements(elements)]);
    for (printed, place) in moved {
        text = text.replacen(&printed, &place, 1);
    }
    // The renderer pads lines to the width of the source.
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Replaces the text in these ranges by stars, with the same number of bytes so that offsets stay valid.
fn starred<'t>(text: &'t str, hidden: &[Range<usize>]) -> Cow<'t, str> {
    if hidden.iter().all(Range::is_empty) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match hidden.iter().any(|range| range.contains(&at)) && !c.is_whitespace() {
            true => out.extend(std::iter::repeat_n('*', c.len_utf8())),
            false => out.push(c),
        }
    }
    out.into()
}

/// A label with a range on character boundaries.
struct Mark<'a> {
    label: &'a Label,
    kind: AnnotationKind,
    range: Range<usize>,
    line: usize,
}

impl<'a> Mark<'a> {
    fn new(lines: &LineStarts<'_>, label: &'a Label, kind: AnnotationKind) -> Self {
        let start = lines.boundary(label.span.start as usize);
        let end = lines.boundary(label.span.end as usize).max(start);
        // Of a value with several lines, only the first is shown.
        let line = lines.line(start);
        let line_end = lines.range(line).end.min(lines.boundary(start + MAX_MARK_BYTES));
        let start = start.min(line_end);
        Mark { label, kind, range: start..end.min(line_end).max(start), line }
    }
}

/// Lines of a file with labels.
struct Excerpt<'a> {
    file: FileId,
    lines: &'a LineStarts<'a>,
    first: usize,
    last: usize,
    marks: Vec<Mark<'a>>,
}

impl<'a> Excerpt<'a> {
    fn takes(&self, file: FileId, mark: &Mark<'_>) -> bool {
        let (first, last) = (self.first.min(mark.line), self.last.max(mark.line));
        let bytes = |line: usize| self.lines.range(line).len();
        file == self.file && last - first <= NEAR_LINES && (first..=last).all(|line| bytes(line) <= MAX_LINE_BYTES)
    }

    fn add(&mut self, mark: Mark<'a>) {
        self.first = self.first.min(mark.line);
        self.last = self.last.max(mark.line);
        self.marks.push(mark);
    }

    /// Adds the excerpt to a report. If a line is cut, the renderer counts columns from the cut: then the place that it
    /// prints is returned, with the correct one.
    fn draw(self, name: String, credentials: &[Span], elements: &mut Vec<Element<'a>>) -> Option<(String, String)> {
        let mut shown = self.lines.range(self.first).start..self.lines.range(self.last).end;
        if shown.start == 0 && self.lines.text().starts_with('\u{feff}') {
            shown.start = '\u{feff}'.len_utf8();
        }
        let line = self.first + 1;
        let mut moved = None;
        if self.first == self.last && shown.len() > MAX_LINE_BYTES {
            let at = self.marks.first().map_or(shown.start, |mark| mark.range.start);
            let start = self.lines.boundary(at.saturating_sub(KEPT_BEFORE).max(shown.start));
            shown = start..self.lines.boundary((start + MAX_LINE_BYTES).min(shown.end));
            let column = |from: usize| self.lines.text()[from..at.max(from)].chars().count() + 1;
            let place = |column: usize| format!("{name}:{line}:{column}");
            let whole = self.lines.position(at).1 as usize;
            moved = Some((place(column(start)), place(whole)));
        }
        let mut hidden: Vec<Range<usize>> = passwords(&self.lines.text()[shown.clone()]).collect();
        hidden.extend(credentials.iter().filter(|span| span.file == self.file).map(|span| {
            let within = |at: u32| self.lines.boundary(at as usize).clamp(shown.start, shown.end) - shown.start;
            within(span.start)..within(span.end)
        }));
        let mut snippet =
            Snippet::source(starred(&self.lines.text()[shown.clone()], &hidden)).line_start(line).path(name);
        for mark in self.marks {
            let start = mark.range.start.clamp(shown.start, shown.end) - shown.start;
            let end = mark.range.end.clamp(shown.start, shown.end) - shown.start;
            let mut annotation = mark.kind.span(start..end.max(start));
            if !mark.label.text.is_empty() {
                annotation = annotation.label(normalize_untrusted_str(&mark.label.text));
            }
            snippet = snippet.annotation(annotation);
        }
        elements.push(snippet.into());
        moved
    }
}
