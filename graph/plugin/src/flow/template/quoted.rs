//! References in quotes: the function receives the text itself, which is the same for every record.

use std::ops::Range;

use anabranch_template::tree::Literal;

use super::Walk;
use super::call::Call;
use super::elsewhere::reference_to_value;
use super::expression::ValueProperties;
use crate::codes;

/// Functions for which such a text may be intended: the text is assembled, or compared with the data of a record.
const MEANT: [&str; 17] = [
    "print", "println", "quote", "squote", "list", "tuple", "dict", "set", "fail", "cat", "index", "append", "prepend",
    "has", "without", "eq", "ne",
];

/// Returns which of `count` arguments are the data of a function; the others are patterns, prefixes and similar.
fn worked_on(name: &str, count: usize) -> Range<usize> {
    match name {
        "contains" | "hasPrefix" | "hasSuffix" | "trimPrefix" | "trimSuffix" | "trimAll" | "trimall" | "split"
        | "splitn" | "splitList" | "join" | "replace" | "wrapWith" | "semverCompare" => count.saturating_sub(1)..count,
        "printf" | "get" | "hasKey" | "pick" | "omit" => 1..count,
        "dig" => 0..count.saturating_sub(2),
        name if name.trim_start_matches("must").to_ascii_lowercase().starts_with("regex") => 1..count.min(2),
        _ => 0..count,
    }
}

impl Walk<'_> {
    /// Reports a text that is a reference in quotes. `args` are those written after the function's name.
    pub(super) fn in_quotes(&mut self, call: &Call<'_>) {
        let Call { name, values, .. } = *call;
        let text = |known: &ValueProperties| match known {
            ValueProperties::Literal(Literal::Text(text)) => Some(text.clone()),
            _ => None,
        };
        // A comparison of texts alone has the same result for every record.
        let compares = matches!(name, "eq" | "ne") && values.iter().all(|value| text(value).is_some());
        if MEANT.contains(&name) && !compares {
            return;
        }
        let is_key = matches!(name, "get" | "hasKey" | "pick" | "omit" | "dig");
        for i in worked_on(name, values.len()) {
            let Some(text) = values.get(i).and_then(text) else { continue };
            let Some(reference) = reference_to_value(&text) else { continue };
            let at = call.place(i);
            let (message, hint) = match (is_key, reference.rsplit_once('.')) {
                (true, Some((_, last))) => (
                    format!("{name} needs the name of a field, and no field has the name {text:?}"),
                    format!("write {last:?}"),
                ),
                _ => (
                    format!("in quotes, this is the text {text:?}, not a value of the record"),
                    format!("write {reference} without quotes"),
                ),
            };
            let place = self.at(at);
            self.flow.warn(codes::FLOW_SUSPECT, place, message, None, Some(hint));
        }
    }
}
