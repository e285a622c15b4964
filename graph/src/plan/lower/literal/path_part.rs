//! Placeholders in a path that other tools replace for each record or at startup.

use anabranch_plugin::diagnostic::Diagnostic;
use anabranch_plugin::written::Written;

use crate::codes;

/// Warns about such a placeholder. O(length).
pub(super) fn find(name: &str, written: &Written) -> Option<Diagnostic> {
    let what = part(written.written())?;
    let message = format!("{name}: {what} is literal text: nothing replaces it, and all records go to one file");
    let hint = "write the text itself; settings such as the value of field.set and the folder of an s3 destination \
                accept templates";
    Some(Diagnostic::warning(codes::SETTINGS_NOT_A_TEMPLATE, message).with_hint(hint))
}

/// Returns the first placeholder.
fn part(text: &str) -> Option<&str> {
    enclosed(text, "%{", '}').or_else(|| enclosed(text, "$(", ')')).or_else(|| in_braces(text)).or_else(|| date(text))
}

fn enclosed<'a>(text: &'a str, open: &str, close: char) -> Option<&'a str> {
    let start = text.find(open)?;
    let len = text[start..].find(close)?;
    (len > open.len()).then(|| &text[start..=start + len])
}

/// Finds `{kind}`. After `$` it is a variable.
fn in_braces(text: &str) -> Option<&str> {
    text.match_indices('{').find_map(|(start, _)| {
        let inner = text[start + 1..].split_once('}')?.0;
        let is_name = inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '.')
            && inner.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
        let alone = !text[..start].ends_with(['$', '{', '#']);
        (is_name && alone).then(|| &text[start..start + inner.len() + 2])
    })
}

/// Finds a date such as `YYYY-MM-DD`.
fn date(text: &str) -> Option<&str> {
    let start = ["YYYY", "yyyy"].iter().filter_map(|year| text.find(year)).min()?;
    let letters =
        |c: char| matches!(c, 'Y' | 'y' | 'M' | 'D' | 'd' | 'H' | 'h' | 'm' | 's' | 'S' | '-' | '_' | '.' | '/');
    let rest = &text[start..];
    let end = rest.find(|c| !letters(c)).unwrap_or(rest.len());
    let part = rest[..end].rfind("MM").map(|month| month + 2)?;
    let day = rest[part..end].char_indices().find(|(_, c)| !matches!(c, 'D' | 'd' | '-' | '_' | '.' | '/'));
    let end = day.map_or(end, |(at, _)| part + at);
    Some(rest[..end].trim_end_matches(['-', '_', '.', '/']))
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn what_other_tools_fill_in_is_found() {
        for (text, found) in [
            ("out-%{+YYYY.MM.dd}.ndjson", "%{+YYYY.MM.dd}"),
            ("out-%{[kind]}.ndjson", "%{[kind]}"),
            ("out-%{kind}.ndjson", "%{kind}"),
            ("out-{kind}.ndjson", "{kind}"),
            ("a/{.Payload.After.kind}", "{.Payload.After.kind}"),
            ("out-$(date +%F).ndjson", "$(date +%F)"),
            ("out-YYYY-MM-DD.ndjson", "YYYY-MM-DD"),
            ("yyyy/MM/dd/x", "yyyy/MM/dd"),
            ("YYYYMMDD", "YYYYMMDD"),
        ] {
            assert_eq!(part(text), Some(found), "{text}");
        }
        for text in [
            "",
            "out.ndjson",
            "${OUT}/x",
            "${out}/x",
            "a{b",
            "{a,b}.txt",
            "{1}",
            "100%",
            "$5(a",
            "{{ x }}",
            "my-MM",
            "YYYY.txt",
        ] {
            assert_eq!(part(text), None, "{text}");
        }
    }
}
