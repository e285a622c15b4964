//! Suggestions for templates that do not compile: infix operators, calls with commas, function names of other
//! languages, missing braces or quotes, typographic quotes.
//!
//! Each suggestion is tested: it is made only if the corrected template compiles, or if its next error is further on.

use std::ops::Range;

mod expression;
mod names;
mod split;
#[cfg(test)]
mod tests;

use super::{TemplateError, functions, parse};
use expression::{Rewritten, rewritten};

/// Adds a suggestion to the error, if the intended template can be determined.
pub(super) fn explain(source: &str, error: TemplateError) -> TemplateError {
    if source.len() > 64 << 10 {
        return error;
    }
    let explained = quote(source, &error)
        .or_else(|| brace(source, &error))
        .or_else(|| expression(source, &error))
        .or_else(|| word(source, &error))
        .or_else(|| sign(source, &error))
        .or_else(|| ending(source, &error));
    explained.unwrap_or(error)
}

/// A suggested correction of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The corrected template.
    pub text: String,
    /// True if the suggestion is unambiguous.
    pub sure: bool,
}

/// Corrects a condition without braces, such as `price == 10` or `{ gt .a 1 }}`, as a whole.
pub fn bare(text: &str) -> Option<Suggestion> {
    let inner = text.trim().trim_start_matches('{').trim_end_matches('}').trim();
    let (inner, sure) = match rewritten(inner).filter(|rewritten| !rewritten.only_names) {
        Some(rewritten) => {
            let sure = rewritten.is_sure();
            (rewritten.text, sure)
        }
        // Only the outer braces are wrong: the text inside is already an expression.
        None if text.contains(['{', '}']) || inner.split_whitespace().next().and_then(functions::find).is_some() => {
            (inner.to_owned(), true)
        }
        None => return None,
    };
    let whole = format!("{{{{ {inner} }}}}");
    (whole.len() < 4096 && compiles(&whole)).then_some(Suggestion { text: whole, sure })
}

/// Corrects a path that begins with a name for the record itself, such as `.record.kind`.
pub fn path_in_record(path: &str) -> Option<String> {
    names::own_path(path).filter(|own| own != path)
}

/// Corrects a command that begins with a value, such as `.a eq 1`.
pub fn command(text: &str) -> Option<String> {
    let meant = rewritten(text).filter(Rewritten::is_sure)?.text;
    compiles(&format!("{{{{ {meant} }}}}")).then_some(meant)
}

/// Corrects an expression that compiles but has operators or calls in the order of other languages:
/// `eq .a 1 or eq .b 2`.
pub fn compiled(text: &str) -> Option<String> {
    let meant = rewritten(text).filter(Rewritten::is_sure)?.text;
    (meant != text.trim() && compiles(&format!("{{{{ {meant} }}}}"))).then_some(meant)
}

/// Corrects the order of arguments in a call that follows the order of other languages: `substr .a 0 1`.
pub fn in_order(call: &str) -> Option<String> {
    let meant = expression::in_order(call)?;
    compiles(&format!("{{{{ {meant} }}}}")).then_some(meant)
}

/// Returns the text between typographic quotes, if they enclose the whole text.
pub fn between_curly_quotes(text: &str) -> Option<&str> {
    let text = text.trim();
    let inner = text.strip_prefix(['“', '”', '„', '‘', '’', '«'])?.strip_suffix(['”', '“', '’', '‘', '»'])?;
    Some(inner.trim())
}

fn compiles(template: &str) -> bool {
    parse::unexplained(template).is_ok_and(|tree| tree.templates.len() == 1)
}

/// Returns `true` if the parser gets further with the correction than without it.
fn helps(source: &str, error: &TemplateError, at: &Range<usize>, becomes: &str) -> bool {
    let mut corrected = String::with_capacity(source.len() + becomes.len());
    corrected.extend([&source[..at.start], becomes, &source[at.end..]]);
    match parse::unexplained(&corrected) {
        Ok(_) => true,
        Err(next) => next.offset > error.offset.max(at.start + becomes.len()),
    }
}

fn correction(
    source: &str,
    error: &TemplateError,
    place: Range<usize>,
    (at, becomes): (Range<usize>, String),
    message: String,
    hint: String,
) -> Option<TemplateError> {
    helps(source, error, &at, &becomes).then(|| TemplateError {
        offset: place.start,
        len: place.len(),
        message,
        hint: Some(hint),
        correction: Some((at, becomes)),
    })
}

/// Returns the action that contains the error: from after its `{{` to its `}}` or the end of the line.
fn action(source: &str, at: usize) -> Option<Range<usize>> {
    let before = source.get(..(at + 2).min(source.len())).unwrap_or(&source[..at]);
    let start = before.rfind("{{")? + 2;
    let rest = &source[start..];
    let end = rest.find("}}").or_else(|| rest.find('\n')).unwrap_or(rest.len());
    Some(start..start + end)
}

/// Suggests a closing quote after the word: `"x }}`.
fn quote(source: &str, error: &TemplateError) -> Option<TemplateError> {
    let mark = source[error.offset..].chars().next().filter(|c| matches!(c, '"' | '`' | '\''))?;
    error.message.starts_with("unterminated").then_some(())?;
    let line = source[error.offset..].lines().next()?;
    let end = line.find("}}").unwrap_or(line.len());
    let inside = line[..end].trim_end_matches(['-', ' ', '}', ')']);
    let end = error.offset + inside.len();
    let mut becomes = mark.to_string();
    if !source[end..].contains("}}") {
        becomes.push_str(" }}");
    }
    correction(
        source,
        error,
        error.offset..end,
        (end..end, becomes),
        format!("this quote is not closed: {inside}"),
        format!("write {inside}{mark}"),
    )
}

/// Suggests the missing closing braces of an action: `{{ … }`, `{{ …`.
fn brace(source: &str, error: &TemplateError) -> Option<TemplateError> {
    let start = source.get(..(error.offset + 2).min(source.len()))?.rfind("{{")?;
    let rest = &source[start + 2..];
    let line = rest.find(['\n', '{']).map_or(rest, |end| &rest[..end]);
    if line.contains("}}") {
        return None;
    }
    let (place, at, becomes) = match line.rfind('}') {
        Some(brace) => {
            let brace = start + 2 + brace;
            (brace..brace + 1, brace + 1..brace + 1, "}".to_owned())
        }
        None => {
            let end = start + 2 + line.trim_end().len();
            (start..end, end..end, " }}".to_owned())
        }
    };
    let message = match place.len() {
        1 if source[place.clone()] == *"}" => "the action that `{{` opens ends with a single `}`",
        _ => "the action that `{{` opens is not closed",
    };
    correction(source, error, place, (at, becomes), message.to_owned(), "end it with `}}`".to_owned())
}

/// Suggests corrections for infix operators and similar expressions.
fn expression(source: &str, error: &TemplateError) -> Option<TemplateError> {
    let action = action(source, error.offset)?;
    let (start, end) = (action.start, action.end);
    let mut inner = source[start..end].trim_start_matches('-');
    for keyword in ["else if ", "if ", "with "] {
        if let Some(rest) = inner.trim_start().strip_prefix(keyword) {
            inner = rest;
            break;
        }
    }
    let inner = inner.trim_start();
    let from = end - inner.len();
    let inner = inner.strip_suffix('-').unwrap_or(inner).trim_end();
    let found = rewritten(inner)?;
    let at = from..from + inner.len();
    let place = found.foreign.at.start + from..found.foreign.at.end + from;
    let (message, becomes) = (found.foreign.message, found.text);
    let hint = match (found.or, found.doubt) {
        (None, None) => {
            return correction(source, error, place, (at, becomes.clone()), message, format!("write {becomes}"));
        }
        // For a word without quotes, both a text and a field are possible.
        (Some(or), _) => format!("write {becomes}, or {or} for the field"),
        (None, Some(doubt)) => format!("write {becomes}, {doubt}"),
    };
    helps(source, error, &at, &becomes).then(|| TemplateError {
        offset: place.start,
        len: place.len(),
        message,
        hint: Some(hint),
        correction: None,
    })
}

/// Suggests corrections for words of other languages.
fn word(source: &str, error: &TemplateError) -> Option<TemplateError> {
    let text = source.get(error.offset..error.offset + error.len)?;
    let at = error.offset..error.offset + error.len;
    if matches!(text, "elif" | "elseif" | "elsif") {
        let becomes = "else if".to_owned();
        let rest = source[at.end..].trim_start();
        // Without a condition, it is the last branch.
        let becomes = if rest.starts_with("}}") { "else".to_owned() } else { becomes };
        let hint = format!("write `{becomes}`");
        return correction(source, error, at.clone(), (at, becomes), format!("there is no `{text}`"), hint);
    }
    if let Some(hint) = names::unsure(text).filter(|_| error.message.ends_with("not defined")) {
        let message = format!("there is no function {text:?}");
        return Some(TemplateError { message, hint: Some(hint.to_owned()), correction: None, ..error.clone() });
    }
    if text == "|" {
        let hint = "remove it, or name a function after it";
        let blank = source[..at.start].len() - source[..at.start].trim_end().len();
        let edit = (at.start - blank..at.end, String::new());
        return correction(source, error, at, edit, error.message.clone(), hint.to_owned());
    }
    if text == ")" {
        let edit = (at.clone(), String::new());
        let message = "this parenthesis has no opening parenthesis".to_owned();
        return correction(source, error, at, edit, message, "remove it".to_owned());
    }
    None
}

/// Suggests hints for syntax of other languages that has no single replacement.
fn sign(source: &str, error: &TemplateError) -> Option<TemplateError> {
    let rest = source.get(error.offset..)?;
    let action = action(source, error.offset)?;
    let inner = source[action].trim_start();
    let (message, hint) = match rest.chars().next()? {
        '#' if inner.starts_with("#if") || inner.starts_with("#each") => {
            ("there are no blocks with `#`", "write {{ if … }} … {{ end }}, {{ range … }} … {{ end }}")
        }
        '#' => ("there are no comments with `#`", "write {{/* a comment */}}"),
        '~' => ("there is no operator `~`", "write print and the values after it: print joins texts"),
        '%' => ("there are no blocks with `{%`", "write {{ if … }} … {{ end }} with two braces"),
        '[' => ("a key in brackets needs a value before it", "name the field, for example .Payload.After.name"),
        ';' => ("an action contains one expression, and `;` does not end it", "remove it"),
        '{' if inner.starts_with("{%") => {
            ("there are no blocks with `{%`", "write {{ if … }} … {{ end }}: use two braces, without a percent sign")
        }
        '{' if inner.starts_with('{') => ("there is a brace too many", "an action begins with two braces: {{ … }}"),
        _ => return None,
    };
    Some(TemplateError { message: message.to_owned(), hint: Some(hint.to_owned()), correction: None, ..error.clone() })
}

/// Suggests a missing `{{ end }}`, at the action that it would end.
fn ending(source: &str, error: &TemplateError) -> Option<TemplateError> {
    (error.offset == source.len() && error.message == "unexpected EOF").then_some(())?;
    let mut open: Vec<(&str, Range<usize>)> = Vec::new();
    for (start, _) in source.match_indices("{{") {
        let inner = source[start + 2..].trim_start_matches(['-', ' ']);
        let at = source.len() - inner.len();
        match inner.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default() {
            word @ ("if" | "with" | "range" | "define" | "block") => open.push((word, at..at + word.len())),
            "end" => drop(open.pop()),
            _ => {}
        }
    }
    let (word, place) = open.pop()?;
    let end = source.trim_end().len();
    correction(
        source,
        error,
        place,
        (end..end, "{{ end }}".to_owned()),
        format!("this `{word}` has no `{{{{ end }}}}`"),
        "write {{ end }} where it ends".to_owned(),
    )
}
