//! Nouns with their number and article, for messages.

use std::borrow::Cow;

/// Returns a regular noun in the singular or plural that `count` requires: `record` for 1, `records` for 0, `batches`
/// for 2.
pub fn plural(count: u64, noun: &str) -> Cow<'_, str> {
    match count {
        1 => noun.into(),
        _ if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => format!("{noun}es").into(),
        _ => format!("{noun}s").into(),
    }
}

/// Returns a count with its noun: `1 record`, `2 records`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {}", plural(count as u64, noun))
}

/// Returns a noun with its article, chosen by its first letter: `an integer`, `a text`. The uncountable `null` and
/// `bytes` have none.
pub fn with_article(noun: &str) -> Cow<'_, str> {
    match noun.chars().next() {
        _ if matches!(noun, "null" | "bytes") => noun.into(),
        Some('a' | 'e' | 'i' | 'o' | 'u') => format!("an {noun}").into(),
        _ => format!("a {noun}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn nouns_have_their_number() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "record")), ["0 records", "1 record", "2 records"]);
        assert_eq!([1, 2].map(|count| counted(count, "batch")), ["1 batch", "2 batches"]);
    }

    #[test]
    fn types_have_their_article() {
        for (value, said) in [
            (Value::Int(1), "an integer"),
            (Value::Float(1.5), "a float"),
            (Value::Null, "null"),
            (Value::Text("a".into()), "a text"),
            (Value::from(Vec::new()), "a list"),
        ] {
            assert_eq!(with_article(value.type_name()), said);
        }
    }
}
