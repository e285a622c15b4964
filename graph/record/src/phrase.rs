//! Nouns with their number and their article, for messages.

use std::borrow::Cow;

/// A regular noun in the number that a count asks for: `1 record`, `0 records`, `2 batches`.
pub fn plural(count: u64, noun: &str) -> Cow<'_, str> {
    match count {
        1 => noun.into(),
        _ if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => format!("{noun}es").into(),
        _ => format!("{noun}s").into(),
    }
}

/// A count with its noun: `1 record`, `2 records`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {}", plural(count as u64, noun))
}

/// A noun with its article, by its first letter: `an integer`, `a text`. What cannot be counted has none: `null`,
/// `bytes`.
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
