//! Reads expected values.

use anabranch_config::yaml::{Node, Value};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Span};
use anabranch_record::near::did_you_mean;
use regex::Regex;
use serde_json::{Value as Json, json};

use super::{DIRECTIVES, Expected, Pattern, WORDS};
use crate::codes;
use crate::testing::fields::{self, invalid, map, typed, wrong};

impl Expected {
    /// Reads an expected value. `open` allows maps to have other fields than those that are named.
    pub(in crate::testing) fn read(node: &Node, open: bool, findings: &mut Diagnostics) -> Option<Expected> {
        let pattern = match &node.value {
            Value::Null => Pattern::Is(Json::Null),
            Value::Broken => return None,
            Value::Scalar(scalar) => match word(&scalar.text) {
                Some(word) if scalar.is_plain() => match Self::of_word(word) {
                    Some(pattern) => pattern,
                    None => {
                        findings.push(unknown(node.span, word, WORDS));
                        return None;
                    }
                },
                _ => Pattern::Is(typed(scalar)),
            },
            Value::List(items) => {
                let read: Vec<_> = items.iter().filter_map(|item| Self::read(item, open, findings)).collect();
                if read.len() < items.len() {
                    return None;
                }
                Pattern::List(read)
            }
            Value::Map(_) => match map(node) {
                None => {
                    findings.push(wrong(node, "an expectation", "a value"));
                    return None;
                }
                Some(map) if map.entries.first().is_some_and(|entry| word(&entry.key).is_some()) => {
                    Self::directive(node, open, findings)?
                }
                Some(map) => {
                    let read = |entry: &anabranch_config::yaml::Entry| {
                        let mut expected = Self::read(&entry.value, open, findings)?;
                        expected.span = entry.value_span();
                        Some((entry.key.clone(), expected))
                    };
                    let fields: Vec<_> = map.entries.iter().filter_map(read).collect();
                    if fields.len() < map.entries.len() {
                        return None;
                    }
                    Pattern::Map { fields, open }
                }
            },
        };
        Some(Expected { span: node.span, pattern })
    }

    fn of_word(word: &str) -> Option<Pattern> {
        Some(match word {
            "$any" => Pattern::Any,
            "$absent" => Pattern::Absent,
            "$text" => Pattern::Text,
            "$number" => Pattern::Number { min: f64::NEG_INFINITY, max: f64::INFINITY },
            "$bool" => Pattern::Bool,
            "$uuid" => Pattern::Uuid,
            "$time" => Pattern::Time,
            _ => return None,
        })
    }

    fn directive(node: &Node, open: bool, findings: &mut Diagnostics) -> Option<Pattern> {
        let entries = &map(node)?.entries;
        let bounds = entries.iter().all(|entry| matches!(&*entry.key, "$min" | "$max"));
        if let Some(second) = entries.get(1).filter(|_| !bounds) {
            let message = format!("{:?} must be alone: a map contains either one pattern or fields", &*entries[0].key);
            findings.push(invalid(second.key_span, message).with_hint("only `$min` and `$max` can be in one map"));
            return None;
        }
        let (mut min, mut max) = (f64::NEG_INFINITY, f64::INFINITY);
        for entry in entries {
            let value = &entry.value;
            let scalar = match &value.value {
                Value::Scalar(scalar) => Some(scalar),
                _ => None,
            };
            let number = scalar.and_then(|scalar| typed(scalar).as_f64());
            let refused = |wanted: &str, findings: &mut Diagnostics| {
                findings.push(invalid(entry.value_span(), format!("{:?} must be {wanted}", &*entry.key)));
                None
            };
            match &*entry.key {
                "$min" => match number {
                    Some(number) => min = number,
                    None => return refused("a number", findings),
                },
                "$max" => match number {
                    Some(number) => max = number,
                    None => return refused("a number", findings),
                },
                "$length" => {
                    return match number {
                        Some(n) if n >= 0.0 && n.fract() == 0.0 => Some(Pattern::Length(n as usize)),
                        _ => refused("a whole number", findings),
                    };
                }
                "$regex" => {
                    return match scalar.map(|scalar| Regex::new(&scalar.text)) {
                        Some(Ok(regex)) => Some(Pattern::Matches(regex)),
                        Some(Err(error)) => {
                            let why = error.to_string();
                            let why = why.lines().last().unwrap_or_default();
                            refused(&format!("a regular expression; {}", why.trim_start_matches("error: ")), findings)
                        }
                        None => refused("a regular expression", findings),
                    };
                }
                "$contains" => {
                    return match scalar {
                        Some(scalar) => Some(Pattern::Contains(scalar.text.to_string())),
                        None => refused("a text", findings),
                    };
                }
                "$base64" => {
                    return match scalar {
                        Some(scalar) => Some(Pattern::Is(json!({ "$base64": scalar.text.as_str() }))),
                        None => refused("base64 text", findings),
                    };
                }
                "$is" => return Some(Self::exactly(&fields::json(value), value.span).pattern),
                "$fields" | "$exactly" => {
                    let open = &*entry.key == "$fields";
                    return match &value.value {
                        Value::Map(_) => Some(Self::read(value, open, findings)?.pattern),
                        _ => refused("a map", findings),
                    };
                }
                "$json" => return Some(Pattern::Json(Box::new(Self::read(value, open, findings)?))),
                "$unordered" => {
                    return match Self::read(value, open, findings)?.pattern {
                        Pattern::List(items) => Some(Pattern::Unordered(items)),
                        _ => refused("a list", findings),
                    };
                }
                other => {
                    findings.push(unknown(entry.key_span, other, DIRECTIVES));
                    return None;
                }
            }
        }
        Some(Pattern::Number { min, max })
    }
}

/// Returns the text if it looks like a pattern word.
fn word(text: &str) -> Option<&str> {
    let letters = text.strip_prefix('$')?;
    let is_word = letters.starts_with(|c: char| c.is_ascii_lowercase())
        && letters.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    is_word.then_some(text)
}

fn unknown(span: Span, word: &str, known: &[&str]) -> Diagnostic {
    let finding = Diagnostic::error(codes::TEST_PATTERN_UNKNOWN, format!("there is no pattern {word}")).with_span(span);
    match did_you_mean(word, known.iter().copied()) {
        Some(near) => finding.with_hint(format!("did you mean {near}?")),
        None => finding.with_hint(format!(
            "quote a text that begins with `$`, or write {{ $is: … }}; the patterns are: {}, {}",
            WORDS.join(", "),
            DIRECTIVES.join(", ")
        )),
    }
}
