//! Regular expressions in the place of literal texts, and patterns with one backslash too many.

use anabranch_template::functions::invalid_pattern;
use anabranch_template::tree::Literal;

use super::Walk;
use super::call::Call;
use super::expression::{ValueProperties, bytes};
use crate::codes;

/// Functions with a literal first argument, their effect, and the corresponding function for patterns.
const PLAIN: [(&str, &str, Option<&str>); 9] = [
    ("replace", "replaces", Some("regexReplaceAll PATTERN TEXT REPLACEMENT")),
    ("contains", "looks for", Some("regexMatch PATTERN TEXT")),
    ("hasPrefix", "looks for", Some("regexMatch PATTERN TEXT")),
    ("hasSuffix", "looks for", Some("regexMatch PATTERN TEXT")),
    ("trimPrefix", "removes", Some("regexReplaceAll PATTERN TEXT \"\"")),
    ("trimSuffix", "removes", Some("regexReplaceAll PATTERN TEXT \"\"")),
    ("split", "splits at", Some("regexSplit PATTERN TEXT -1")),
    ("splitn", "splits at", Some("regexSplit PATTERN TEXT -1")),
    ("splitList", "splits at", Some("regexSplit PATTERN TEXT -1")),
];

impl Walk<'_> {
    /// Reports patterns in the place of literal texts, and patterns that never match what is intended.
    pub(super) fn no_regex(&mut self, call: &Call<'_>) {
        let Call { name, args, values, .. } = *call;
        let Some(ValueProperties::Literal(Literal::Text(pattern))) = values.first() else { return };
        let at = call.place(0);
        if let Some((_, does, instead)) = PLAIN.iter().find(|(plain, ..)| *plain == name) {
            if !is_regex(pattern) {
                return;
            }
            let message =
                format!("{name} {does} the literal text {pattern:?}: it does not accept a regular expression");
            let hint = instead.map(|instead| {
                let text = args.get(values.len() - 1).map_or("TEXT", |arg| self.text(&bytes(arg)));
                let mut written = instead.replace("PATTERN", self.text(&at)).replace("TEXT", text);
                if let (Some(by), true) = (args.get(1), name == "replace") {
                    written = written.replace("REPLACEMENT", self.text(&bytes(by)));
                }
                format!("write {written}")
            });
            let place = self.at(at);
            self.flow.warn(codes::FLOW_SUSPECT, place, message, None, hint);
        } else if name.trim_start_matches("must").to_ascii_lowercase().starts_with("regex")
            && name != "regexQuoteMeta"
            && let Some((class, meant)) = escaped_twice(pattern)
        {
            let written = self.text(&at);
            let becomes = match written.starts_with('`') {
                true => format!("`{meant}`"),
                false => format!("{meant:?}"),
            };
            let message =
                format!("`\\\\{class}` matches a backslash and then the letter {class}: it has one backslash too many");
            let place = self.at(at);
            self.flow.warn(codes::FLOW_SUSPECT, place, message, None, Some(format!("write {becomes}")));
        }
    }
}

/// Returns `true` if a text is a regular expression and probably not a literal text.
fn is_regex(text: &str) -> bool {
    invalid_pattern(text).is_none() && has_syntax(text)
}

fn has_syntax(text: &str) -> bool {
    let repeats = |rest: &str| rest.starts_with(['+', '*']) || is_count(rest);
    // `\d+`, `\s*`
    let class = |letter: char| {
        text.match_indices(&format!("\\{letter}")).any(|(at, found)| {
            let rest = &text[at + found.len()..];
            repeats(rest) || (rest.is_empty() && at == 0)
        })
    };
    // `[^@]+`, `[0-9]`
    let set = text.match_indices('[').any(|(at, _)| {
        let Some((inner, rest)) = text[at + 1..].split_once(']') else { return false };
        let is_range = ["a-z", "A-Z", "0-9"].iter().any(|range| inner.contains(range));
        is_range || (inner.chars().count() > 1 && repeats(rest))
    });
    // `^.*@`, `(.+)`
    let any = [".*", ".+"].iter().any(|any| text.contains(any) && !text.contains(['/', ' ']))
        && text.len() > 2
        && text.contains(['^', '$', '(', '@']);
    ['d', 'w', 's', 'D', 'W', 'S'].into_iter().any(class) || set || any || text.contains("(?i)")
}

/// `{3}`, `{1,}`, `{1,3}`
fn is_count(text: &str) -> bool {
    text.strip_prefix('{').and_then(|rest| rest.split_once('}')).is_some_and(|(count, _)| {
        count.starts_with(|c: char| c.is_ascii_digit()) && count.chars().all(|c| c.is_ascii_digit() || c == ',')
    })
}

/// Returns the letter and the corrected pattern of a doubly escaped class: `\\d+`.
fn escaped_twice(pattern: &str) -> Option<(char, String)> {
    let class = ['d', 'w', 's', 'D', 'W', 'S'].into_iter().find(|class| {
        pattern.match_indices(&format!("\\\\{class}")).any(|(at, found)| {
            let before = pattern[..at].ends_with('\\');
            let rest = &pattern[at + found.len()..];
            !before && (rest.starts_with(['+', '*']) || is_count(rest))
        })
    })?;
    let meant = pattern.replace("\\\\", "\\");
    invalid_pattern(&meant).is_none().then_some((class, meant))
}

#[cfg(test)]
mod tests {
    use super::{escaped_twice, is_regex};

    #[test]
    fn regular_expressions_are_told_from_texts() {
        for pattern in [
            "[^@]+",
            "[^@]+@",
            "[0-9]",
            "[a-zA-Z]",
            "\\d+",
            "\\d{4}",
            "\\s+",
            "\\s",
            "^.*@",
            "(.*)@",
            "(?i)abc",
            "[,;]+",
            "^[A-Z]{3}",
            "\\d{1,3}$",
            "\\d",
        ] {
            assert!(is_regex(pattern), "{pattern}");
        }
        for text in [
            "",
            "@",
            ".",
            "*",
            ".*",
            "*.log",
            "/*",
            "a+b",
            "[x]",
            "[1]",
            "[^1]",
            "[]",
            "[ERROR]",
            "(a)",
            "$",
            "^",
            "C:\\data\\",
            "[0]*",
            "C:\\s",
            "C++",
            "a.b",
            "?",
            "{0}",
            "{name}",
            "[",
            "a|b",
            "...",
            "[INFO] ",
            "(c)",
            "\\",
            "$1",
            "a^b",
            "** ",
            "path/.*",
            "/api/.+",
            "[a-z",
            "1.*",
            "SELECT .* FROM",
        ] {
            assert!(!is_regex(text), "{text}");
        }
    }

    #[test]
    fn one_backslash_too_many_is_told() {
        for (pattern, meant) in [("\\\\d{4}", "\\d{4}"), ("^\\\\w+@\\\\w+$", "^\\w+@\\w+$"), ("a\\\\s*b", "a\\s*b")] {
            assert_eq!(escaped_twice(pattern).map(|(_, meant)| meant).as_deref(), Some(meant), "{pattern}");
        }
        for pattern in ["\\d{4}", "C:\\\\data", "\\\\.", "\\\\\\d+", "\\\\server\\\\share", "[\\\\]", "\\\\d"] {
            assert!(escaped_twice(pattern).is_none(), "{pattern}");
        }
    }
}
