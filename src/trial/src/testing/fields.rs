//! Reads the nodes of a test file. Every mistake is a finding with its place, and unknown fields are errors: unlike an
//! ignored field of a pipeline file, an ignored expectation would never be noticed.

use std::rc::Rc;
use std::time::Duration;

use anabranch_config::yaml::{Entry, Map, Node, Scalar, Value};
use anabranch_plugin::arguments::parse_duration;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Span, Spanned};
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use serde_json::{Number, Value as Json};

use crate::codes;

/// The fields of a map, with those that have been read.
pub(super) struct Fields<'n> {
    what: &'static str,
    span: Span,
    entries: &'n [Entry],
    taken: Vec<bool>,
}

impl<'n> Fields<'n> {
    /// Returns the fields of a node, which must be a map; `what` names it in findings.
    pub(super) fn of(node: &'n Node, what: &'static str, findings: &mut Diagnostics) -> Option<Self> {
        let Some(map) = map(node) else {
            findings.push(wrong(node, what, "a map of fields"));
            return None;
        };
        Some(Fields { what, span: node.span, entries: &map.entries, taken: vec![false; map.entries.len()] })
    }

    /// Reads a field; a field without a value counts as absent.
    pub(super) fn take(&mut self, name: &str) -> Option<&'n Entry> {
        self.take_null(name).filter(|entry| !matches!(entry.value.value, Value::Null))
    }

    /// Reads a field for which `null` is a value.
    pub(super) fn take_null(&mut self, name: &str) -> Option<&'n Entry> {
        let at = self.entries.iter().position(|entry| entry.key == *name)?;
        self.taken[at] = true;
        Some(&self.entries[at])
    }

    /// Returns the place to report if a field is missing.
    pub(super) fn head(&self) -> Span {
        self.entries.first().map_or(self.span, |entry| entry.key_span)
    }

    /// Reports the fields that have not been read.
    pub(super) fn finish(self, known: &[&str], findings: &mut Diagnostics) {
        for (entry, _) in self.entries.iter().zip(&self.taken).filter(|(_, taken)| !**taken) {
            let finding =
                Diagnostic::error(codes::TEST_FIELD_UNKNOWN, format!("{} has no field {:?}", self.what, entry.key))
                    .with_span(entry.key_span);
            let hint = match did_you_mean(&entry.key, known.iter().copied()) {
                _ if matches!(&*entry.key, "version" | "pipelines") && known.contains(&"tests") => {
                    "a file whose name ends in `.test.yaml` contains tests: if this is a file of pipelines, rename it"
                        .to_owned()
                }
                _ if entry.key == *"count" && !known.contains(&"count") => {
                    "for the number of records, write `expect: { records: 1 }`".to_owned()
                }
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("the fields are: {}", known.join(", ")),
            };
            findings.push(finding.with_hint(hint));
        }
    }
}

/// Returns the map of a node, if it is one.
pub(super) fn map(node: &Node) -> Option<&Map> {
    match &node.value {
        Value::Map(map) if !map.like_template => Some(map),
        _ => None,
    }
}

/// Builds a finding about a node of the wrong type.
pub(super) fn wrong(node: &Node, what: &str, wanted: &str) -> Diagnostic {
    let found = match &node.value {
        Value::Null => "nothing",
        Value::Scalar(_) => "a single value",
        Value::List(_) => "a list",
        Value::Map(_) | Value::Broken => "a map",
    };
    let finding =
        Diagnostic::error(codes::TEST_TYPE, format!("{what} must be {wanted}, not {found}")).with_span(node.span);
    match &node.value {
        Value::Map(map) if map.like_template => finding.with_hint("quote a text that starts with `{`"),
        _ => finding,
    }
}

/// Builds a finding about a value that is not allowed.
pub(super) fn invalid(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(codes::TEST_VALUE, message).with_span(span)
}

/// Returns the items of a node, which must be a list.
pub(super) fn items<'n>(node: &'n Node, what: &str, findings: &mut Diagnostics) -> Option<&'n [Rc<Node>]> {
    match &node.value {
        Value::List(items) => Some(items),
        _ => {
            findings.push(wrong(node, what, "a list"));
            None
        }
    }
}

/// Reads a text.
pub(super) fn text(entry: &Entry, findings: &mut Diagnostics) -> Option<Spanned<Str>> {
    match &entry.value.value {
        Value::Scalar(scalar) => Some(Spanned::new(scalar.text.clone(), entry.value.span)),
        _ => {
            findings.push(wrong(&entry.value, &format!("{:?}", entry.key), "a text"));
            None
        }
    }
}

/// Reads a duration: `500ms`, `10s`.
pub(super) fn duration(entry: &Entry, findings: &mut Diagnostics) -> Option<Duration> {
    let text = text(entry, findings)?;
    let parsed = parse_duration(&text.value);
    if parsed.is_none() {
        let message =
            format!("{:?} is {:?}, but must be a duration (for example 500ms, 10s or 1m)", entry.key, &*text.value);
        findings.push(invalid(text.span, message));
    }
    parsed
}

/// Reads a non-negative integer.
pub(super) fn number(node: &Node, what: &str, findings: &mut Diagnostics) -> Option<Spanned<usize>> {
    let value = match &node.value {
        Value::Scalar(scalar) => typed(scalar).as_u64().and_then(|number| usize::try_from(number).ok()),
        _ => None,
    };
    if value.is_none() {
        findings.push(invalid(node.span, format!("{what} must be a whole number that is not negative")));
    }
    value.map(|value| Spanned::new(value, node.span))
}

/// Reads a boolean.
pub(super) fn boolean(entry: &Entry, findings: &mut Diagnostics) -> Option<bool> {
    let value = match &entry.value.value {
        Value::Scalar(scalar) => typed(scalar).as_bool(),
        _ => None,
    };
    if value.is_none() {
        findings.push(invalid(entry.value_span(), format!("{:?} must be true or false", entry.key)));
    }
    value
}

/// Converts a scalar according to the core schema of YAML 1.2.
pub(super) fn typed(scalar: &Scalar) -> Json {
    let text = scalar.text.as_str();
    let as_text = || Json::String(text.to_owned());
    if !scalar.is_plain() {
        return as_text();
    }
    match text {
        "true" | "True" | "TRUE" => return Json::Bool(true),
        "false" | "False" | "FALSE" => return Json::Bool(false),
        _ => {}
    }
    let radix = |prefix: &str, radix| {
        text.strip_prefix(prefix)
            .filter(|digits| !digits.starts_with(['+', '-']))
            .map(|digits| u64::from_str_radix(digits, radix).map_or_else(|_| as_text(), Json::from))
    };
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return number;
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        let integer = unsigned.parse::<i64>().map(Json::from).or_else(|_| unsigned.parse::<u64>().map(Json::from));
        return integer.unwrap_or_else(|_| float(unsigned).unwrap_or_else(as_text));
    }
    let may_be_float = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().any(|b| b.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    match may_be_float {
        true => float(unsigned).unwrap_or_else(as_text),
        false => as_text(),
    }
}

fn float(text: &str) -> Option<Json> {
    text.parse().ok().and_then(Number::from_f64).map(Json::Number)
}

/// Converts a node to JSON.
pub(super) fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null | Value::Broken => Json::Null,
        Value::Scalar(scalar) => typed(scalar),
        Value::List(items) => items.iter().map(|item| json(item)).collect(),
        Value::Map(map) => map.entries.iter().map(|entry| (entry.key.to_string(), json(&entry.value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use anabranch_config::yaml;
    use anabranch_plugin::diagnostic::FileId;
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_have_the_types_of_the_core_schema() {
        let text = "[1, -2, +3, 0x1f, 0o17, 1.50, 1e3, .5, 01, '1', true, yes, null, 1.2.3, 2024-01-01, 18446744073709551615, x]";
        let mut findings = Diagnostics::new();
        let documents = yaml::parse(FileId(0), text, &mut findings);
        let read = json(documents[0].root.as_ref().unwrap());
        let wanted = json!([
            1,
            -2,
            3,
            31,
            15,
            1.5,
            1000.0,
            0.5,
            1,
            "1",
            true,
            "yes",
            null,
            "1.2.3",
            "2024-01-01",
            u64::MAX,
            "x"
        ]);
        assert_eq!(read, wanted);
        assert!(findings.is_empty());
    }
}
