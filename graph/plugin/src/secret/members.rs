//! Credentials that stand behind their names: in JSON objects and in the arguments of programs.

use std::ops::Range;

use super::{literal, names_a_credential};

/// Maximum length in bytes of the name of a credential.
const LONGEST: usize = 60;

/// Returns the places of texts in JSON objects whose names are those of credentials: `"password": "…"`, also with escaped
/// quotes, as in a quoted value of YAML.
pub(super) fn in_objects<'t>(text: &'t str, variables: &'t [Range<usize>]) -> impl Iterator<Item = Range<usize>> + 't {
    let colons = text.match_indices(':').map(|(at, _)| at);
    colons.filter(move |at| !is_within(*at, variables)).filter_map(move |colon| {
        let before = text[..colon].trim_end().strip_suffix('"')?;
        let (before, quote) = before.strip_suffix('\\').map_or((before, "\""), |before| (before, "\\\""));
        let name = &before[before.rfind('"')? + 1..];
        let after = text[colon + 1..].trim_start().strip_prefix(quote)?;
        let start = text.len() - after.len();
        let is_secret = name.len() < LONGEST && names_a_credential(name) && !after.starts_with("{{");
        is_secret.then(|| literal(text, start..end_of_text(text, start, quote, variables))).flatten()
    })
}

/// Returns the offset of the closing quote of a text, or the end.
fn end_of_text(text: &str, start: usize, quote: &str, variables: &[Range<usize>]) -> usize {
    // In a text with plain quotes, a backslash escapes the next character.
    let is_escaped =
        |at: usize| quote == "\"" && text[start..at].bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1;
    let quotes = text[start..].match_indices(quote).map(|(at, _)| start + at);
    let mut closing = quotes.filter(|at| !is_within(*at, variables) && !is_escaped(*at));
    closing.next().unwrap_or(text.len())
}

/// Returns the places of values in the arguments of a program whose names are those of credentials: `--token=…`,
/// `--token …`.
pub(super) fn in_arguments<'t>(
    text: &'t str,
    variables: &'t [Range<usize>],
) -> impl Iterator<Item = Range<usize>> + 't {
    let dashes = text.match_indices("--").map(|(at, dashes)| at + dashes.len());
    dashes.filter_map(move |start| {
        let rest = &text[start..];
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_'))?;
        let (name, rest) = rest.split_at(len);
        let value = rest.strip_prefix('=').or_else(|| {
            let value = rest.strip_prefix(' ')?.trim_start_matches(' ');
            (!value.starts_with('-')).then_some(value)
        })?;
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let value = &value[quote.map_or(0, char::len_utf8)..];
        let start = text.len() - value.len();
        let is_end = |c: char| quote.map_or_else(|| c.is_whitespace() || matches!(c, '"' | '\''), |quote| c == quote);
        let mut ends = value.char_indices().filter(|(_, c)| is_end(*c)).map(|(at, _)| start + at);
        let end = ends.find(|at| !is_within(*at, variables)).unwrap_or(text.len());
        let is_secret = len < LONGEST && names_a_credential(name) && !value.starts_with("{{");
        is_secret.then(|| literal(text, start..end)).flatten()
    })
}

fn is_within(at: usize, variables: &[Range<usize>]) -> bool {
    variables.iter().any(|variable| variable.contains(&at))
}

#[cfg(test)]
mod tests {
    use crate::secret::without_passwords;

    #[test]
    fn credentials_in_objects_and_arguments_are_not_shown() {
        for (text, shown) in [
            (r#"{"user": "a", "password": "hunter2", "b": 1}"#, r#"{"user": "a", "password": "***", "b": 1}"#),
            (r#"{"apiKey" : "a\"b", "c": "d"}"#, r#"{"apiKey" : "***", "c": "d"}"#),
            (r#"config: "{\"token\": \"hunter2\", \"a\": \"b\"}""#, r#"config: "{\"token\": \"***\", \"a\": \"b\"}""#),
            (r#"{"token": "${A}", "secret": "${A:-b"c}"}"#, r#"{"token": "${A}", "secret": "${A:-***}"}"#),
            (r#"{"token": "{{ .Key }}", "secret": 7}"#, r#"{"token": "{{ .Key }}", "secret": 7}"#),
            (r#"{"token_url": "http://a", "password": "cut"#, r#"{"token_url": "http://a", "password": "***"#),
            ("tap.py --token=hunter2 -x", "tap.py --token=*** -x"),
            ("--api-key hunter2 --b c", "--api-key *** --b c"),
            ("--password='hunter 2' --secret=${A} --token --b", "--password='***' --secret=${A} --token --b"),
            ("a -- token b --tokens", "a -- token b --tokens"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }
}
