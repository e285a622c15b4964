//! Settings that are maps or lists. Settings use names with dots and texts with commas instead.

use anabranch_plugin::diagnostic::{Diagnostic, Span};

use super::field::{FieldReader, Path};
use super::quote::quoted;
use super::yaml::{Entry, Map, Node, Value};
use crate::codes;

/// Reports a setting that is not a single value.
pub(super) fn refuse(entry: &Entry, value: &Value, path: Path<'_>, reader: &mut FieldReader<'_>) {
    let (found, text) = match value {
        Value::Map(map) if !map.like_template => ("a map", pairs(map)),
        Value::List(items) => ("a list", listed(items)),
        _ => {
            reader.wrong_type(value, entry.value_span(), &quoted(&entry.key), "a single value", path);
            return;
        }
    };
    let message = format!("the setting {} must be a single value, not {found}", quoted(&entry.key));
    let finding = Diagnostic::error(codes::CONFIG_SETTING_NESTED, message).with_span(entry.key_span);
    let finding = finding.with_path(path.to_string());
    let (start, end) = (entry.key_span.start, entry.value.span.end);
    let was = reader.source.get(start as usize..end as usize).unwrap_or_default().trim_end();
    let span = Span { start, end: start + was.len() as u32, ..entry.key_span };
    // The fix would drop a comment among the values.
    let fits = !was.contains('#');
    let finding = match (text, value) {
        (Some(text), _) => {
            let becomes = format!("{}: '{text}'", entry.key);
            let finding = finding.with_hint(format!("write `{becomes}`"));
            if fits { finding.with_fix(span, was, becomes) } else { finding }
        }
        // No setting in this list has nested settings.
        (None, Value::Map(_)) if matches!(&*entry.key, "value" | "field" | "path" | "script" | "condition" | "url") => {
            finding.with_hint(format!("write it as a text, in quotes: `{}: '{{\"a\": 1}}'`", entry.key))
        }
        (None, Value::Map(map)) => {
            let mut leaves = Vec::new();
            let flat = flatten(&entry.key, map, span, reader.source, &mut leaves);
            let name = leaves.first().map_or_else(|| entry.key.to_string(), |(name, _)| name.clone());
            let finding = finding.with_hint(format!("write names of settings with dots: `{name}: ...`"));
            match flat && fits {
                true => finding.with_fix(span, was, joined(&leaves, start as usize, reader.source)),
                false => finding,
            }
        }
        _ => finding.with_hint("write the items as one text, separated by commas"),
    };
    reader.report(finding);
}

/// Returns `true` if a text can be a list item in single quotes, separated by commas.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.contains(['\'', ',', '\n'])
}

fn pair(entry: &Entry) -> Option<String> {
    let Value::Scalar(scalar) = &entry.value.value else { return None };
    (is_plain(&entry.key) && is_plain(&scalar.text)).then(|| format!("{}:{}", entry.key, scalar.text))
}

/// Returns a map of references as text, for example `.Payload.After.a: b`. Setting names do not begin with a dot.
fn pairs(map: &Map) -> Option<String> {
    let pairs = map.entries.iter().map(|entry| pair(entry).filter(|_| entry.key.starts_with('.')));
    let pairs: Vec<String> = pairs.collect::<Option<_>>()?;
    (!pairs.is_empty()).then(|| pairs.join(","))
}

/// Returns the items as text if each is a text, or a map of one entry.
fn listed(items: &[std::rc::Rc<Node>]) -> Option<String> {
    let item = |item: &std::rc::Rc<Node>| match &item.value {
        Value::Scalar(scalar) => Some(scalar.text.to_string()).filter(|text| is_plain(text)),
        Value::Map(map) => match &map.entries[..] {
            [entry] => pair(entry),
            _ => None,
        },
        _ => None,
    };
    let items: Vec<String> = items.iter().map(item).collect::<Option<_>>()?;
    (!items.is_empty()).then(|| items.join(","))
}

/// Collects the values of a map with their full names, as written in the file. Returns `false` if a value cannot be
/// written on a single line.
fn flatten(name: &str, map: &Map, within: Span, source: &str, leaves: &mut Vec<(String, String)>) -> bool {
    let mut flat = !map.entries.is_empty() && !map.flawed;
    for entry in &map.entries {
        let name = format!("{name}.{}", entry.key);
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '*');
        flat &= entry.key.chars().all(is_name);
        match &entry.value.value {
            Value::Map(map) if !map.like_template => flat &= flatten(&name, map, within, source, leaves),
            Value::Scalar(_) => {
                let span = entry.value.span;
                let inside = within.start <= span.start && span.end <= within.end;
                let written = source.get(span.start as usize..span.end as usize).unwrap_or_default();
                flat &= inside && !written.contains('\n');
                leaves.push((name, written.to_owned()));
            }
            Value::List(items) => {
                let text = listed(items);
                flat &= text.is_some();
                leaves.push((name, format!("'{}'", text.unwrap_or_default())));
            }
            _ => {
                flat = false;
                leaves.push((name, String::new()));
            }
        }
    }
    flat
}

/// Formats the values as entries of the map around the setting: on separate lines, or separated by commas.
fn joined(leaves: &[(String, String)], start: usize, source: &str) -> String {
    let line = source[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let indent = &source[line..start];
    let separator = if indent.trim().is_empty() { format!("\n{indent}") } else { ", ".to_owned() };
    leaves.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(&separator)
}
