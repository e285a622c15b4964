//! Nouns with their number and article, and texts of limited length, for messages.

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

/// Returns a noun with its article, chosen by its first letter: `an integer`, `a text`. The uncountable `null`,
/// `bytes` and `raw data` have none.
pub fn with_article(noun: &str) -> Cow<'_, str> {
    match noun.chars().next() {
        _ if noun == "null" || noun.ends_with("bytes") || noun.ends_with("data") => noun.into(),
        Some('a' | 'e' | 'i' | 'o' | 'u') => format!("an {noun}").into(),
        _ => format!("a {noun}").into(),
    }
}

/// Returns the text if it has at most `most` bytes, otherwise its first three quarters of `most` with the number of
/// bytes that are left out: `zzz… (5996928 more bytes)`. A message that quotes the result thus has room for some words
/// before its own limit leaves out the end. The text is cut between two characters; `most` is at least 128.
pub fn shortened(mut text: String, most: usize) -> String {
    if text.len() > most {
        let kept = text.floor_char_boundary(most / 4 * 3);
        let rest = text.len() - kept;
        text.truncate(kept);
        // Frees the memory of the rest.
        text.shrink_to_fit();
        text.push_str(&format!("… ({rest} more bytes)"));
    }
    text
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
    fn long_texts_are_shortened_between_characters() {
        assert_eq!(shortened("z".repeat(128), 128), "z".repeat(128));
        assert_eq!(shortened("z".repeat(129), 128), format!("{}… (33 more bytes)", "z".repeat(96)));
        let text = shortened(format!("a{}", "é".repeat(3_000_000)), 1024);
        assert_eq!(text, format!("a{}… (5999234 more bytes)", "é".repeat(383)));
        for most in 128..4096 {
            let quoted = format!("the table \"t\": {}", shortened("語".repeat(10_000), most));
            assert!(quoted.len() <= most + 15, "{most}: {}", quoted.len());
        }
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
        assert_eq!(with_article("raw data"), "raw data");
    }
}
