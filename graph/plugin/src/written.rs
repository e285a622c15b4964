//! Configuration values: the text that a plugin receives, the text in the file, and the mapping of their bytes.

use std::ops::Range;
use std::sync::Arc;

use anabranch_record::text::Str;

use crate::diagnostic::{Diagnostic, FileId, Span};

/// The text of a configuration value after substitution, with the original text in the file.
///
/// `Debug` and `Display` show the original text (`${NAME}`), so that formatting never writes a substituted credential
/// to a log, a plan or an error.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Written {
    value: Str,
    written: Str,
    span: Span,
    layout: Option<Arc<TextMapping>>,
    content: Option<Arc<Content>>,
}

/// A file that a setting names, read together with the pipeline file: creating a plugin from it opens nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Path from which it was read.
    pub path: Str,
    /// The text, or the reason why it could not be read, as a phrase: `permission denied`.
    pub text: Result<Str, Str>,
    /// Remedy if it could not be read.
    pub hint: Option<Str>,
}

impl Written {
    /// Creates a value from its text and its text in a file.
    pub fn new(value: impl Into<Str>, written: impl Into<Str>, span: Span) -> Self {
        Written { value: value.into(), written: written.into(), span, layout: None, content: None }
    }

    /// Creates a value that stands unchanged in a file, from byte `start` on: places inside it are exact.
    pub fn verbatim(text: impl Into<Str>, file: FileId, start: u32) -> Self {
        let text = text.into();
        let end = start.saturating_add(u32::try_from(text.len()).unwrap_or(u32::MAX));
        let mut layout = TextMapping::default();
        layout.push(0, text.len(), start, text.len(), WrittenKind::Verbatim);
        Self::with_layout(text.clone(), text, Span { file, start, end }, Some(layout))
    }

    /// Creates a value from its text, its text in a file, and the mapping of their bytes.
    pub fn with_layout(value: Str, written: Str, span: Span, layout: Option<TextMapping>) -> Self {
        Written { value, written, span, layout: layout.map(Arc::new), content: None }
    }

    /// Returns the same value with the file that it names.
    #[must_use]
    pub fn with_content(self, content: Content) -> Self {
        Written { content: Some(Arc::new(content)), ..self }
    }

    /// Returns the file that it names, if it was read.
    pub fn content(&self) -> Option<&Content> {
        self.content.as_deref()
    }

    /// Returns the same value at another place.
    #[must_use]
    pub fn at(self, span: Span) -> Self {
        Written { span, ..self }
    }

    /// Returns the text with variables replaced, for the plugin only.
    pub fn value(&self) -> &Str {
        &self.value
    }

    /// Returns the text in the file.
    pub fn written(&self) -> &Str {
        &self.written
    }

    /// Returns `true` if the file contains a value: not for `name:`, but for the blank one in `name: ""`.
    pub fn is_given(&self) -> bool {
        self.layout.is_some() || !self.written.is_empty()
    }

    /// Returns `true` if the value contains text that is not in the file: the value of a variable or the content of
    /// another file. A default (`${NAME:-default}`) and an escaped `$${` are text of the file.
    pub fn is_substituted(&self) -> bool {
        match &self.layout {
            Some(layout) => !layout.substituted.is_empty(),
            None => self.value != self.written,
        }
    }

    /// Returns `true` if the value equals the text in the file, so that it is the same wherever the pipeline runs. The
    /// value of a variable with a default does not.
    pub fn is_verbatim(&self) -> bool {
        self.value == self.written
    }

    /// Returns the parts of the value that come from variables and files, which must be masked in all output.
    pub fn substituted(&self) -> impl Iterator<Item = &Str> {
        let whole = self.layout.is_none() && self.value != self.written;
        self.layout.iter().flat_map(|layout| &layout.substituted).chain(whole.then_some(&self.value))
    }

    /// Adds a correction of `len` bytes at `offset` of the value to a finding, unless the value contains substituted
    /// text.
    #[must_use]
    pub fn corrected(&self, finding: Diagnostic, offset: usize, len: usize, meant: &str) -> Diagnostic {
        match self.value.get(offset..offset + len) {
            Some(was) if !self.is_substituted() => finding.with_fix(self.place(offset, len), was, meant),
            _ => finding,
        }
    }

    /// Returns the place of the value.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the place of `len` bytes at `offset` of the value: exact if the file contains the value unchanged,
    /// the whole `${NAME}` inside a substituted part, the whole value if the two cannot be aligned
    /// (quoted text with escapes over several lines).
    pub fn place(&self, offset: usize, len: usize) -> Span {
        let Some(range) = self.layout.as_ref().and_then(|layout| layout.place(offset, len)) else { return self.span };
        Span { file: self.span.file, start: range.start, end: range.end }
    }
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.written, f)
    }
}

impl std::fmt::Display for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.written.fmt(f)
    }
}

/// Mapping of the bytes of a text to bytes of a file: pieces in ascending order, with gaps where the
/// file has only indentation or line breaks.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TextMapping {
    pieces: Vec<MappedRange>,
    substituted: Vec<Str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MappedRange {
    text: u32,
    len: u32,
    source: u32,
    source_len: u32,
    kind: WrittenKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenKind {
    /// The same bytes in both.
    Verbatim,
    /// An escape sequence, a variable.
    Replaced,
}

impl TextMapping {
    /// Aligns the text of a scalar with its source, which starts at byte `start` of the file and is enclosed in
    /// `quote`s if it is quoted. `None` if the two cannot be aligned.
    pub fn of_scalar(source: &str, start: u32, text: &str, quote: Option<char>) -> Option<TextMapping> {
        let mut layout = TextMapping::default();
        match quote {
            Some(quote) => {
                let inner = source.get(1..source.len().checked_sub(1)?)?;
                let escape = if quote == '\'' { '\'' } else { '\\' };
                if !inner.contains(escape) {
                    layout.align_lines(inner, start + 1, text)?;
                } else if !inner.contains('\n') {
                    layout.align_escapes(inner, start + 1, text, escape)?;
                } else {
                    return None;
                }
            }
            None => layout.align_lines(source, start, text)?,
        }
        Some(layout)
    }

    fn align_lines(&mut self, source: &str, start: u32, text: &str) -> Option<()> {
        if source == text {
            self.push(0, text.len(), start, text.len(), WrittenKind::Verbatim);
            return Some(());
        }
        const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];
        let (mut at, mut line_start) = (0, 0);
        for line in source.split_inclusive('\n') {
            let content = line.trim_matches(BLANK);
            if !content.is_empty() {
                let indent = line.len() - line.trim_start_matches(BLANK).len();
                at += text[at..].len() - text[at..].trim_start_matches(BLANK).len();
                if !text[at..].starts_with(content) {
                    return None;
                }
                let source = start + u32::try_from(line_start + indent).ok()?;
                self.push(at, content.len(), source, content.len(), WrittenKind::Verbatim);
                at += content.len();
            }
            line_start += line.len();
        }
        text[at..].chars().all(|c| BLANK.contains(&c)).then_some(())
    }

    fn align_escapes(&mut self, source: &str, start: u32, text: &str, escape: char) -> Option<()> {
        let (mut from, mut at) = (0, 0);
        while from < source.len() {
            let plain = source[from..].find(escape).unwrap_or(source.len() - from);
            if plain > 0 {
                if text.get(at..at + plain)? != &source[from..from + plain] {
                    return None;
                }
                self.push(at, plain, start + from as u32, plain, WrittenKind::Verbatim);
                (from, at) = (from + plain, at + plain);
                continue;
            }
            let written = match source.as_bytes().get(from + 1)? {
                b'x' => 4,
                b'u' => 6,
                b'U' => 10,
                _ => 1 + source[from + 1..].chars().next()?.len_utf8(),
            };
            let len = text.get(at..)?.chars().next()?.len_utf8();
            self.push(at, len, start + from as u32, written, WrittenKind::Replaced);
            (from, at) = (from + written, at + len);
        }
        (at == text.len()).then_some(())
    }

    fn push(&mut self, text: usize, len: usize, source: u32, source_len: usize, kind: WrittenKind) {
        self.pieces.push(MappedRange {
            text: text as u32,
            len: len as u32,
            source,
            source_len: source_len as u32,
            kind,
        });
    }

    /// Returns the bytes of the file that correspond to `len` bytes at `offset` of the text.
    fn place(&self, offset: usize, len: usize) -> Option<Range<u32>> {
        let (first, at) = self.piece(offset)?;
        let start = match first.kind {
            WrittenKind::Verbatim => first.source + at.min(first.len),
            WrittenKind::Replaced => first.source,
        };
        let end = match len {
            // Between two characters.
            0 if first.kind == WrittenKind::Verbatim => start,
            0 => first.source + first.source_len,
            _ => {
                let (last, at) = self.piece(offset + len - 1)?;
                match last.kind {
                    WrittenKind::Verbatim => last.source + (at + 1).min(last.len),
                    WrittenKind::Replaced => last.source + last.source_len,
                }
            }
        };
        Some(start..end.max(start))
    }

    /// Returns the last piece that starts at or before an offset, and the distance of the offset from its start.
    fn piece(&self, offset: usize) -> Option<(&MappedRange, u32)> {
        let offset = u32::try_from(offset).ok()?;
        let after = self.pieces.partition_point(|piece| piece.text <= offset);
        let piece = self.pieces.get(after.saturating_sub(1))?;
        Some((piece, offset.saturating_sub(piece.text)))
    }
}

/// Builds the layout of a text whose variables are replaced.
pub struct Rewriting {
    before: TextMapping,
    after: TextMapping,
}

impl Rewriting {
    /// Starts with the layout of the scalar at `span`; without one, every part has the place of the whole scalar.
    pub fn of(before: Option<TextMapping>, len: usize, span: Span) -> Self {
        let before = before.unwrap_or_else(|| {
            let mut whole = TextMapping::default();
            whole.push(0, len, span.start, (span.end - span.start) as usize, WrittenKind::Replaced);
            whole
        });
        Rewriting { before, after: TextMapping::default() }
    }

    /// Returns the place of `range` of the text.
    pub fn place(&self, range: Range<usize>, file: FileId, whole: Span) -> Span {
        match self.before.place(range.start, range.len()) {
            Some(place) => Span { file, start: place.start, end: place.end },
            None => whole,
        }
    }

    /// Records that `range` of the text is copied to byte `at` of the result.
    pub fn keep(&mut self, range: Range<usize>, at: usize) {
        let first = self.before.pieces.partition_point(|p| ((p.text + p.len) as usize) <= range.start);
        for piece in &self.before.pieces[first..] {
            let (from, to) = (piece.text as usize, (piece.text + piece.len) as usize);
            if from >= range.end {
                break;
            }
            let (start, end) = (from.max(range.start), to.min(range.end));
            let text = start - range.start + at;
            match piece.kind {
                WrittenKind::Verbatim => {
                    let source = piece.source + (start - from) as u32;
                    self.after.push(text, end - start, source, end - start, WrittenKind::Verbatim);
                }
                WrittenKind::Replaced => {
                    self.after.push(text, end - start, piece.source, piece.source_len as usize, piece.kind);
                }
            }
        }
    }

    /// Records that `range` of the text is replaced by `len` bytes at byte `at` of the result.
    pub fn replace(&mut self, range: Range<usize>, at: usize, len: usize) {
        if let Some(place) = self.before.place(range.start, range.len()) {
            self.after.push(at, len, place.start, (place.end - place.start) as usize, WrittenKind::Replaced);
        }
    }

    /// Records a text of the result that is not in the file.
    pub fn substitute(&mut self, text: Str) {
        if !text.is_empty() {
            self.after.substituted.push(text);
        }
    }

    /// Returns the layout of the result.
    pub fn finish(self) -> TextMapping {
        self.after
    }
}
