//! Defaults of variables in the text of a file: `${NAME:-default}`.

use std::ops::Range;

/// Returns the places of the defaults in the text of a file, except empty ones. O(length).
pub fn defaults(written: &str) -> impl Iterator<Item = Range<usize>> {
    expressions(written).filter_map(|at| {
        let inner = &written[at.start + 2..at.end - 1];
        let (name, default) = inner.split_once(":-")?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        (is_name && !default.trim().is_empty()).then(|| at.end - 1 - default.len()..at.end - 1)
    })
}

/// Returns the places of `${…}` in a text, including the braces, except the escaped `$${`. O(length).
pub fn expressions(written: &str) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let open = from + written[from..].find("${")?;
            if written[..open].ends_with('$') {
                from = open + 2;
                continue;
            }
            let close = open + written[open..].find('}')?;
            from = close + 1;
            return Some(open..close + 1);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_words_of_the_file_are_defaults() {
        for (text, expected) in [
            ("Bearer ${TOKEN:-hunter2}", &["hunter2"][..]),
            ("${A:-b}${C:-d:-e}", &["b", "d:-e"]),
            ("${A} ${A:-} ${A:- } $${A:-b} ${file:/a:-b} ${A:-b", &[]),
            ("", &[]),
        ] {
            assert_eq!(defaults(text).map(|at| &text[at]).collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
