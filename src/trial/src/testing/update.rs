//! Writes actual results to test files, in place of the expected ones.
//!
//! Individual values are replaced at their place, so that everything around them stays. A list that changed its length
//! or form is rewritten, unless that would lose a comment, a pattern or a file of records; then nothing is changed, and
//! the reason is reported.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anabranch_plugin::diagnostic::{Diagnostics, Files, Span};
use serde_json::Value as Json;

use super::check::{Fix, Items};
use super::{Suite, TestResults, Verdict, case, text_of};

/// The new version of a test file.
#[derive(Debug)]
pub struct Updated {
    /// Path of the file.
    pub path: PathBuf,
    /// New text.
    pub text: String,
    /// Number of changed expectations.
    pub changes: usize,
    /// Expectations that are not changed, with the reason.
    pub refused: Vec<(Span, &'static str)>,
}

struct Edit {
    span: Span,
    text: String,
}

/// Returns the changes that make the tests pass, by file. Files without changes and without refused changes are left
/// out.
pub fn update(suite: &Suite, outcome: &TestResults) -> Vec<Updated> {
    let mut all = Vec::new();
    for (number, file) in suite.tests.iter().enumerate() {
        let Some(path) = &file.path else { continue };
        let source = text_of(&suite.files, file.file);
        let (mut edits, mut refused) = (Vec::new(), Vec::new());
        for test in outcome.tests.iter().filter(|test| test.file == number) {
            let Verdict::Failed(failures) = &test.verdict else { continue };
            for failure in failures {
                match &failure.fix {
                    None => refused.push((failure.span, "this cannot be updated automatically")),
                    Some(Fix::Values(values)) => edits.extend(values.iter().map(value)),
                    Some(Fix::List { values, .. }) if !values.is_empty() => edits.extend(values.iter().map(value)),
                    Some(Fix::List { at, items, of, .. }) => match list(source, *at, items, *of) {
                        Ok(edit) => edits.push(edit),
                        Err(why) => refused.push((failure.span, why)),
                    },
                }
            }
        }
        edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
        // An anchor is one place for several expectations.
        edits.dedup_by(|a, b| a.span == b.span && a.text == b.text);
        let mut changed: Vec<Edit> = Vec::new();
        for edit in edits {
            match changed.last() {
                Some(last) if edit.span.start < last.span.end => {
                    refused.push((edit.span, "two tests expect different values here"));
                }
                _ => changed.push(edit),
            }
        }
        if changed.is_empty() && refused.is_empty() {
            continue;
        }
        let mut text = source.to_owned();
        for edit in changed.iter().rev() {
            text.replace_range(edit.span.start as usize..edit.span.end as usize, &edit.text);
        }
        // If the edited text is not a valid test file, it is not written.
        if !is_test_file(path, &text) {
            refused
                .extend(changed.drain(..).map(|edit| (edit.span, "the layout of the list does not allow the change")));
            text = source.to_owned();
        }
        all.push(Updated { path: path.clone(), text, changes: changed.len(), refused });
    }
    all
}

fn is_test_file(path: &Path, text: &str) -> bool {
    let mut files = Files::default();
    let file = files.add(path.display().to_string(), text);
    case::read(&files, file, Some(path), &mut Diagnostics::default()).is_some()
}

fn value((span, value): &(Span, Json)) -> Edit {
    Edit { span: *span, text: flow(value) }
}

/// Formats a new list in the layout of the old one.
fn list(source: &str, at: Span, items: &[Json], of: Items) -> Result<Edit, &'static str> {
    let old = source.get(at.start as usize..at.end as usize).unwrap_or_default();
    let rest_of_line = source[at.end as usize..].lines().next().unwrap_or_default();
    if rest_of_line.contains(" #") || old.lines().any(|line| line.trim_start().starts_with('#') || line.contains(" #"))
    {
        return Err("comments in the list would be lost");
    }
    if old.contains('$') || old.contains("file:") {
        return Err("patterns in the list would be lost");
    }
    let line = source[..at.start as usize].rfind('\n').map_or(0, |end| end + 1);
    let before = &source[line..at.start as usize];
    if items.is_empty() {
        return Ok(Edit { span: at, text: "[]".to_owned() });
    }
    if is_inside_braces(before) {
        return Ok(Edit { span: at, text: flow(&Json::Array(items.to_vec())) });
    }
    let is_block = before.chars().all(|c| c == ' ') && old.starts_with('-');
    let (start, indent) = match is_block {
        true => (at.start, before.len()),
        false => {
            let spaces = before.len() - before.trim_start_matches([' ', '-']).len();
            let kept = before.trim_end().len();
            (u32::try_from(line + kept).unwrap_or(at.start), spaces + 2)
        }
    };
    let mut text = String::new();
    for (number, item) in items.iter().enumerate() {
        if number > 0 || !is_block {
            let _ = write!(text, "\n{:indent$}", "");
        }
        text.push_str("- ");
        match item.as_object().filter(|fields| !fields.is_empty()) {
            Some(_) => text.push_str(block(item, indent + 2, of == Items::Records).trim_start()),
            None => text.push_str(&flow(item)),
        }
    }
    Ok(Edit { span: Span { start, ..at }, text })
}

/// Returns `true` if the line ends inside braces or brackets, where YAML ignores line breaks.
fn is_inside_braces(line: &str) -> bool {
    let (mut depth, mut quote) = (0_usize, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{' | '[') => depth += 1,
            (None, '}' | ']') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    depth > 0
}

/// Maximum length of a map or list on a single line.
const LINE: usize = 90;

/// Formats a map or list over several lines, with this indentation.
fn block(value: &Json, indent: usize, first: bool) -> String {
    let mut text = String::new();
    let mut line = |name: String, value: &Json| {
        let inline = flow(value);
        let _ = match value {
            Json::Object(fields) if !fields.is_empty() && !is_pattern(value) && (inline.len() > LINE) => {
                write!(text, "{:indent$}{name}\n{}\n", "", block(value, indent + 2, false))
            }
            Json::Array(items) if !items.is_empty() && inline.len() > LINE => {
                write!(text, "{:indent$}{name}\n{}\n", "", block(value, indent + 2, false))
            }
            _ => writeln!(text, "{:indent$}{name} {inline}", ""),
        };
    };
    match value {
        Json::Object(fields) => {
            // The most important fields come first.
            let order = ["operation", "key", "before", "after"];
            let named = order.iter().filter(|_| first).filter_map(|name| fields.get_key_value(*name));
            let rest = fields.iter().filter(|(name, _)| !first || !order.contains(&name.as_str()));
            named.chain(rest).for_each(|(name, value)| line(format!("{}:", scalar(name)), value));
        }
        Json::Array(items) => items.iter().for_each(|item| line("-".to_owned(), item)),
        other => text.push_str(&flow(other)),
    }
    text.truncate(text.trim_end().len());
    text
}

/// Formats a value on one line.
fn flow(value: &Json) -> String {
    match value {
        Json::String(text) => scalar(text),
        Json::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Json::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Json::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{}: {}", scalar(name), flow(value))).collect();
            let map = format!("{{ {} }}", fields.join(", "));
            let like_pattern = value.as_object().is_some_and(|fields| fields.keys().any(|name| name.starts_with('$')));
            if like_pattern && !is_pattern(value) { format!("{{ $is: {map} }}") } else { map }
        }
        other => other.to_string(),
    }
}

/// Returns `true` if it is the pattern for bytes.
fn is_pattern(value: &Json) -> bool {
    value.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key("$base64"))
}

/// Formats a text, in quotes if YAML would parse it differently.
fn scalar(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(word);
    let known = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    match plain && !known.contains(&text.to_ascii_lowercase().as_str()) {
        true => text.to_owned(),
        false => Json::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::diagnostic::FileId;
    use serde_json::json;

    use super::*;

    fn written(source: &str, old: &str, items: &[Json]) -> Result<String, &'static str> {
        let start = source.find(old).unwrap();
        let at = Span { file: FileId(0), start: start as u32, end: (start + old.len()) as u32 };
        let edit = list(source, at, items, Items::Records)?;
        let mut text = source.to_owned();
        text.replace_range(edit.span.start as usize..edit.span.end as usize, &edit.text);
        Ok(text)
    }

    #[test]
    fn a_list_keeps_its_place() {
        let items = [json!({ "after": { "a": 1, "b": "x y" }, "key": "k" }), json!({ "after": "true" })];
        let source = "    records: []\n    status: finished\n";
        let wanted = "    records:\n      - key: k\n        after: { a: 1, b: \"x y\" }\n      - after: \"true\"\n    status: finished\n";
        assert_eq!(written(source, "[]", &items).unwrap(), wanted);
        let source = "  out:\n    - after: 1\n    - after: 2\n";
        let wanted = "  out:\n    - key: k\n      after: { a: 1, b: \"x y\" }\n    - after: \"true\"\n";
        assert_eq!(written(source, "- after: 1\n    - after: 2", &items).unwrap(), wanted);
        assert_eq!(written(source, "- after: 1\n    - after: 2", &[]).unwrap(), "  out:\n    []\n");
    }

    #[test]
    fn a_list_inside_braces_stays_there() {
        let items = [json!({ "after": { "a": 1 } }), json!({ "after": "x" })];
        assert_eq!(
            written("    expect: { records: [] , status: finished }\n", "[]", &items).unwrap(),
            "    expect: { records: [{ after: { a: 1 } }, { after: x }] , status: finished }\n"
        );
        assert!(!is_inside_braces("  expect: \"{\" "));
    }

    #[test]
    fn what_would_be_lost_is_kept() {
        assert!(written("a:\n  - x # why\n  - y\n", "- x # why\n  - y", &[]).is_err());
        assert!(written("a:\n  - after: $any\n", "- after: $any", &[]).is_err());
    }

    #[test]
    fn texts_that_mean_something_else_are_quoted() {
        assert_eq!(
            ["a", "a-b.c", "1", "no", "$any", "a: b", ""].map(scalar),
            ["a", "a-b.c", "\"1\"", "\"no\"", "\"$any\"", "\"a: b\"", "\"\""]
        );
        assert_eq!(flow(&json!({ "$any": 1 })), "{ $is: { \"$any\": 1 } }");
        assert_eq!(flow(&json!({ "$base64": "AA==" })), "{ \"$base64\": \"AA==\" }");
    }
}
