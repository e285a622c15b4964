//! Finds the cause of a YAML syntax error, which is often before the place where the parser stops.

mod line;

use serde_saphyr::granit_parser::{ErrorKind, ScanError};

use anabranch_plugin::diagnostic::{Diagnostic, FileId, Span};
use line::{flow_text, indent_of, unclosed, unclosed_bracket, without_comment};

use crate::codes;

/// Maximum number of lines examined around the place of an error.
const MOST_LINES: usize = 256;

/// Returns the finding for a syntax error.
pub(super) fn finding(file: FileId, text: &str, error: &ScanError, most_depth: usize) -> Diagnostic {
    let mut at = error.marker().byte_offset().unwrap_or(0).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let place = StopPoint { file, text, at };
    let message = error.info();
    let message = &*message;
    place
        .template()
        .or_else(|| place.variable())
        .or_else(|| place.tab(error))
        .or_else(|| place.quote(error))
        .or_else(|| place.value_in_value(error))
        .or_else(|| place.glued_dash())
        .or_else(|| place.indentation(error))
        .or_else(|| place.missing_blank())
        .or_else(|| place.missing_colon(message))
        .or_else(|| place.deeper_item(message))
        .or_else(|| place.dash(message))
        .or_else(|| place.bracket(message))
        .or_else(|| place.inner_quote(message))
        .or_else(|| place.item_indentation(message))
        .or_else(|| place.template_between_braces(message))
        .unwrap_or_else(|| place.plain(error, most_depth))
}

/// Place at which the parser stopped.
struct StopPoint<'t> {
    file: FileId,
    text: &'t str,
    at: usize,
}

impl<'t> StopPoint<'t> {
    fn span(&self, start: usize, end: usize) -> Span {
        Span { file: self.file, start: start as u32, end: end as u32 }
    }

    fn error(&self, start: usize, end: usize, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(codes::CONFIG_PARSE_ERROR, message).with_span(self.span(start, end))
    }

    fn start_of(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// Returns the line that starts at a byte, without its line break.
    fn line_at(&self, start: usize) -> &'t str {
        self.text[start..].lines().next().unwrap_or_default()
    }

    fn line(&self) -> (usize, &'t str) {
        let start = self.start_of(self.at);
        (start, self.line_at(start))
    }

    /// Yields the preceding lines that are not blank or comments, nearest first.
    fn before(&self, start: usize) -> impl Iterator<Item = (usize, &'t str)> {
        let mut start = start;
        std::iter::from_fn(move || {
            let end = start.checked_sub(1)?;
            start = self.start_of(end);
            Some((start, self.line_at(start)))
        })
        .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    }

    /// Finds a template without quotes.
    fn template(&self) -> Option<Diagnostic> {
        let (start, line) = self.line();
        let (before, _) = line.split_once("{{").filter(|(before, _)| before.trim_end().ends_with([':', '-']))?;
        let value = line[before.len()..].trim_end();
        let from = start + before.len();
        let found = self
            .error(from, from + value.len(), "a text that starts with `{{` is not quoted")
            .with_hint("a text that starts with `{{` must be quoted: '{{ ... }}'");
        Some(if value.contains('\'') {
            found
        } else {
            found.with_fix(self.span(from, from + value.len()), value, format!("'{value}'"))
        })
    }

    /// Finds an unquoted variable between braces or brackets.
    fn variable(&self) -> Option<Diagnostic> {
        let (start, line) = self.line();
        let (before, rest) = line.split_once("${")?;
        let holds = before.trim_end().ends_with([':', ',', '[']) && before.contains(['{', '[']);
        let len = 2 + rest.find('}')? + 1;
        let from = start + before.len();
        let written = &self.text[from..from + len];
        holds.then(|| {
            self.error(from, from + len, "a variable between { } or [ ] is not quoted")
                .with_hint("between { } and [ ] a variable must be quoted: \"${NAME}\"")
                .with_fix(self.span(from, from + len), written, format!("\"{written}\""))
        })
    }

    /// Finds a tab in the indentation. The parser may have stopped on the line before it.
    fn tab(&self, error: &ScanError) -> Option<Diagnostic> {
        let told = matches!(
            error.kind(),
            ErrorKind::TabNotAllowed | ErrorKind::TabInBlockIndentation | ErrorKind::TabInIndentation
        );
        if !told && !error.info().contains("tab") {
            return None;
        }
        let mut next = Some(self.start_of(self.at));
        let lines = std::iter::from_fn(|| {
            let start = next?;
            next = self.text[start..].find('\n').map(|end| start + end + 1);
            Some((start, self.line_at(start)))
        });
        let (start, line, blank) = lines.take(MOST_LINES).find_map(|(start, line)| {
            let blank = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
            blank.contains('\t').then_some((start, line, blank))
        })?;
        let tab = start + blank.find('\t')?;
        let finding = self.error(tab, tab + 1, "a tab in the indentation").with_hint("indent with spaces");
        Some(match self.expected_indent(start, line) {
            Some(indent) => finding.with_fix(self.span(start, start + blank.len()), blank, " ".repeat(indent)),
            None => finding,
        })
    }

    /// Returns the expected indentation in columns, according to the preceding lines.
    fn expected_indent(&self, start: usize, line: &str) -> Option<usize> {
        let (_, before) = self.before(start).next()?;
        let indent = indent_of(before)?;
        let content = before.trim_start();
        let inside = if content.starts_with("- ") { indent + 2 } else { indent };
        match without_comment(content).ends_with(':') {
            true if line.trim_start().starts_with("- ") => Some(inside + 2),
            true => Some(inside + 2),
            false => Some(inside),
        }
    }

    /// Finds a quoted text that is not closed on its line.
    fn quote(&self, error: &ScanError) -> Option<Diagnostic> {
        let told = matches!(error.kind(), ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent)
            || error.info().contains("quoted");
        if !told {
            return None;
        }
        let here = self.line();
        let lines = std::iter::once(here).chain(self.before(here.0));
        // The nearest line with an unclosed quote that opens a value.
        let (start, line, at) =
            lines.take(MOST_LINES).find_map(|(start, line)| Some((start, line, unclosed(line)?)))?;
        let mark = line[at..].chars().next()?;
        let end = line.trim_end().len();
        let from = start + at;
        let value = &line[at..end];
        Some(
            self.error(from, start + end, "the quoted text that starts here is not closed")
                .with_hint(format!("end it with {mark} on the same line"))
                .with_fix(self.span(from, start + end), value, format!("{value}{mark}")),
        )
    }

    /// Finds an unquoted value with a colon: `path: a: b`.
    fn value_in_value(&self, error: &ScanError) -> Option<Diagnostic> {
        matches!(error.kind(), ErrorKind::MappingValueNotAllowed).then_some(())?;
        let (start, line) = self.line();
        let colon = line.find(": ")?;
        (start + colon < self.at).then_some(())?;
        let value = without_comment(&line[colon + 2..]).trim();
        let from = start + line[colon + 2..].find(value)? + colon + 2;
        let found = self
            .error(from, from + value.len(), "a text with `: ` in it is not quoted")
            .with_hint("quote a text that contains `: `");
        let quoted = match value.contains(['\'', '"', '\\']) {
            true => return Some(found),
            false => format!("'{value}'"),
        };
        Some(found.with_fix(self.span(from, from + value.len()), value, quoted))
    }

    /// Finds a line that is indented deeper than its neighbours, so that it belongs to the value before it.
    fn indentation(&self, error: &ScanError) -> Option<Diagnostic> {
        let (start, line) = self.line();
        let told = matches!(error.kind(), ErrorKind::MappingValueNotAllowed)
            || error.info().contains("did not find expected")
            || error.info().contains("simple key");
        let (_, before) = self.before(start).next()?;
        let indent = indent_of(line)?;
        let content = before.trim_start();
        let mut outer = indent_of(before)?;
        let mut shown = content;
        if let Some(item) = content.strip_prefix("- ") {
            outer += 2 + indent_of(item)?;
            shown = item.trim_start();
        }
        let (name, value) = shown.split_once(':')?;
        let has_value = !without_comment(value).trim().is_empty();
        let is_key = line.trim_start().split_once(':').is_some_and(|(key, _)| !key.contains([' ', '{', '"', '\'']));
        if !(told && has_value && is_key && indent > outer) {
            return None;
        }
        let key = start + indent;
        let end = key + line.trim_start().find(':')?;
        Some(
            self.error(
                key,
                end,
                format!("this line is indented more than `{name}:` before it, as if it were a part of it"),
            )
            .with_hint(format!("indent it with {outer} spaces"))
            .with_fix(self.span(start, key), " ".repeat(indent), " ".repeat(outer)),
        )
    }

    /// Finds a colon without a blank after it: `plugin:file`.
    fn missing_blank(&self) -> Option<Diagnostic> {
        let (start, line) = self.line();
        let content = line.trim_start().trim_start_matches("- ");
        let (key, value) = content.split_once(':')?;
        let is_key =
            !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if !is_key || value.is_empty() || value.starts_with([' ', '\t', '/']) {
            return None;
        }
        let from = start + line.len() - content.len();
        let colon = from + key.len();
        Some(
            self.error(from, colon + 1, format!("a space is missing after `{key}:`"))
                .with_hint(format!("write `{key}: {}`", value.trim_end()))
                .with_fix(self.span(colon + 1, colon + 1), "", " "),
        )
    }

    /// Finds a name without its colon: `settings`.
    fn missing_colon(&self, message: &str) -> Option<Diagnostic> {
        let (start, line) = self.line();
        let content = line.trim();
        let is_name = !content.is_empty()
            && content.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if !is_name || !(message.contains("':'") || message.contains("simple key")) {
            return None;
        }
        let from = start + indent_of(line)?;
        let end = from + content.len();
        Some(
            self.error(from, end, format!("a `:` is missing after `{content}`"))
                .with_hint(format!("write `{content}:`"))
                .with_fix(self.span(end, end), "", ":"),
        )
    }

    /// Finds a list item that is indented like the fields of the item before it.
    fn deeper_item(&self, message: &str) -> Option<Diagnostic> {
        let (start, line) = self.line();
        let indent = indent_of(line)?;
        let first = |line: &'t str| {
            let (key, _) = line.trim_start().strip_prefix("- ")?.split_once(':')?;
            Some(key)
        };
        let key = first(line).filter(|_| message.contains("did not find expected key"))?;
        let mut items = self.before(start).take(MOST_LINES).filter(|(_, before)| first(before) == Some(key));
        let outer = items.find_map(|(_, item)| indent_of(item).filter(|outer| *outer < indent))?;
        let (span, was, becomes) = self.shifted(start, indent, outer);
        Some(
            self.error(start + indent, start + indent + 1, "this item is indented more than the item before it")
                .with_hint(format!("indent it with {outer} spaces"))
                .with_fix(span, was, becomes),
        )
    }

    /// Returns the item that begins on a line, its text, and the same text with another indentation.
    fn shifted(&self, start: usize, indent: usize, wanted: usize) -> (Span, &'t str, String) {
        let mut end = start;
        let mut moved = String::new();
        for line in self.text[start..].split_inclusive('\n') {
            let inside = line.trim().is_empty() || indent_of(line).is_some_and(|deep| deep > indent);
            if end > start && !inside {
                break;
            }
            end += line.len();
            match indent_of(line).filter(|deep| *deep >= indent && !line.trim().is_empty()) {
                Some(deep) => moved.extend([&" ".repeat(deep - indent + wanted), &line[deep..]]),
                None => moved.push_str(line),
            }
        }
        (self.span(start, end), &self.text[start..end], moved)
    }

    /// Finds a list item among the fields of a map.
    fn dash(&self, message: &str) -> Option<Diagnostic> {
        let (start, line) = self.line();
        let content = line.trim_start();
        (message.contains("did not find expected key") && content.starts_with("- ")).then_some(())?;
        let dash = start + indent_of(line)?;
        Some(
            self.error(dash, dash + 1, "an item of a list is among the fields of a map")
                .with_hint("remove the dash, or write the name of the list above it, for example `processors:`"),
        )
    }

    /// Finds an unclosed bracket or brace, at the place where it is opened.
    fn bracket(&self, message: &str) -> Option<Diagnostic> {
        if !message.contains("flow") && !message.contains("did not find expected") {
            return None;
        }
        let here = self.line();
        let (start, line, at) = std::iter::once(here)
            .chain(self.before(here.0))
            .take(2)
            .find_map(|(start, line)| Some((start, line, unclosed_bracket(line)?)))?;
        let (open, close) = if line[at..].starts_with('{') { ('{', '}') } else { ('[', ']') };
        let end = start + without_comment(line).trim_end().len();
        Some(
            self.error(start + at, start + at + 1, format!("unclosed bracket '{open}'"))
                .with_hint(format!("close it with `{close}`"))
                .with_fix(self.span(end, end), "", format!(" {close}")),
        )
    }

    /// Finds a quote inside a quoted text, which ends the text.
    fn inner_quote(&self, message: &str) -> Option<Diagnostic> {
        message.contains("trailing content after").then_some(())?;
        let (mark, hint) = match message.contains("double-quoted") {
            true => ('"', "put the whole text between single quotes: '{{ eq .Key \"a\" }}'"),
            false => ('\'', "use \" inside single quotes: '{{ eq .Key \"a\" }}'"),
        };
        let quote = self.text[..self.at].rfind(mark)?;
        let message = format!("the {mark} inside the text ends it");
        let finding = self.error(quote, quote + 1, message).with_hint(hint);
        let (start, line) = self.line();
        let opens = |at: &usize| line[..*at].trim_end().ends_with([':', '-']) && line[..*at].ends_with(' ');
        let open = line.match_indices(mark).map(|(at, _)| at).find(opens);
        let close = without_comment(line).rfind(mark);
        let (Some(open), Some(close)) = (open, close) else { return Some(finding) };
        let Some(inner) = line.get(open + 1..close) else { return Some(finding) };
        let other = if mark == '"' { ['\'', '\\'] } else { ['"', '\\'] };
        let is_last = without_comment(line).len() == close + 1;
        if !is_last || inner.contains(other) {
            return Some(finding);
        }
        let becomes = match mark {
            '"' => format!("'{inner}'"),
            _ if inner.contains("{{") => format!("'{}'", inner.replace('\'', "\"")),
            _ => format!("'{}'", inner.replace('\'', "''")),
        };
        Some(finding.with_fix(self.span(start + open, start + close + 1), &line[open..=close], becomes))
    }

    /// Finds a dash without a blank after it, such as `-id: a`, on this line or the line before it.
    fn glued_dash(&self) -> Option<Diagnostic> {
        let here = self.line();
        let (start, line, rest) =
            std::iter::once(here).chain(self.before(here.0)).take(2).find_map(|(start, line)| {
                let rest = line.trim_start().strip_prefix('-')?;
                let is_glued = rest.starts_with(|c: char| c.is_alphabetic()) && rest.contains(':');
                is_glued.then_some((start, line, rest))
            })?;
        let dash = start + indent_of(line)?;
        Some(
            self.error(dash, dash + 1, "a space is missing after the dash")
                .with_hint(format!("write `- {}`", rest.trim_end()))
                .with_fix(self.span(dash + 1, dash + 1), "", " "),
        )
    }

    /// Finds a list item whose indentation differs from the items before it.
    fn item_indentation(&self, message: &str) -> Option<Diagnostic> {
        let (start, line) = self.line();
        let indent = indent_of(line)?;
        let is_item = |line: &str| line.trim_start().starts_with("- ");
        (message.contains("did not find expected '-'") && is_item(line)).then_some(())?;
        let (_, item) = self.before(start).take(MOST_LINES).find(|(_, before)| is_item(before))?;
        let outer = indent_of(item).filter(|outer| *outer != indent)?;
        let (span, was, becomes) = self.shifted(start, indent, outer);
        Some(
            self.error(start + indent, start + indent + 1, "this item is not indented like the item before it")
                .with_hint(format!("indent it with {outer} spaces"))
                .with_fix(span, was, becomes),
        )
    }

    /// Finds an unquoted text between braces that contains a template after its beginning.
    fn template_between_braces(&self, message: &str) -> Option<Diagnostic> {
        let (start, line) = self.line();
        let (before, _) = line.split_once("{{").filter(|(before, _)| before.contains(['{', '[']))?;
        let value = before.rfind(": ")? + 2;
        (message.contains("flow") && !before[value..].contains(['\'', '"'])).then_some(())?;
        let len = flow_text(&line[value..]);
        let text = &line[value..value + len];
        let finding =
            self.error(start + value, start + before.len() + 2, "a text with `{{` between { } or [ ] is not quoted");
        let finding = finding.with_hint(format!("put quotes around the whole text: '{text}'"));
        Some(match text.contains('\'') {
            true => finding,
            false => finding.with_fix(self.span(start + value, start + value + len), text, format!("'{text}'")),
        })
    }

    /// Returns the message of the parser at the place that the parser reports.
    fn plain(&self, error: &ScanError, most_depth: usize) -> Diagnostic {
        let len = self.text[self.at..].chars().next().filter(|c| !matches!(c, '\n' | '\r')).map_or(0, char::len_utf8);
        let (message, hint) = match error.kind() {
            ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
                (format!("the control character {character:?} is not allowed"), Some("check that this is a text file"))
            }
            ErrorKind::UnexpectedCharacter { character } => {
                (format!("a value cannot start with {character:?}"), Some("quote the text"))
            }
            ErrorKind::RecursionLimitExceeded => (format!("lists and maps are nested deeper than {most_depth}"), None),
            ErrorKind::MappingValueNotAllowed => (
                "a `:` where no value can start".to_owned(),
                Some("check the indentation, and quote a text that contains `: `"),
            ),
            ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => {
                ("a quoted text is not closed".to_owned(), None)
            }
            _ => (error.info().to_owned(), None),
        };
        let finding = self.error(self.at, self.at + len, message);
        let finding = match error.kind() {
            ErrorKind::UnexpectedCharacter { character } if !character.is_control() => {
                let value = without_comment(self.line_at(self.at)).trim_end();
                let end = self.at + value.len();
                match value.contains(['\'', '\n']) || value.is_empty() {
                    true => finding,
                    false => finding.with_fix(self.span(self.at, end), value, format!("'{value}'")),
                }
            }
            _ => finding,
        };
        match hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        }
    }
}
