//! Masking of secrets in displayed texts.

use std::borrow::Cow;
use std::ops::Range;

use anabranch_record::text::Str;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

mod defaults;
mod members;
mod plain;

pub use anabranch_record::specification::names_a_credential;
pub use defaults::{defaults, expressions};
pub use plain::{is_address, is_key_file, literal_credentials, literals, without_literals};

/// Minimum length in bytes of a variable's value that is masked: shorter texts occur in many places by coincidence.
pub const MASKED_FROM: usize = 6;

/// Minimum length in bytes of a piece of base64 that is masked: shorter ones are too unspecific.
const ENCODED_FROM: usize = 8;

/// Minimum length in bytes of the beginning of a secret that is masked in a truncated text.
const CUT_FROM: usize = 3;

/// Replaces every secret in the text by `***`, in the given order: a secret that contains another one must come first,
/// as in the result of [`forms`]. Also masks the beginnings of secrets before an ellipsis.
pub fn mask(text: &str, secrets: &[Str]) -> String {
    let whole = secrets.iter().filter(|secret| !secret.is_empty()).fold(text.to_owned(), |text, secret| {
        match text.contains(secret.as_str()) {
            true => text.replace(secret.as_str(), "***"),
            false => text,
        }
    });
    if whole.contains('…') { without_beginnings(&whole, secrets) } else { whole }
}

fn without_beginnings(text: &str, secrets: &[Str]) -> String {
    let mut pieces = text.split('…').peekable();
    let mut out = String::with_capacity(text.len());
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            out.push_str(piece);
            break;
        }
        let longest = |secret: &Str| {
            let most = piece.len().min(secret.len());
            (CUT_FROM..=most).rev().find(|len| piece.as_bytes().ends_with(&secret.as_bytes()[..*len]))
        };
        match secrets.iter().filter_map(longest).max().and_then(|len| piece.get(..piece.len() - len)) {
            Some(rest) => out.extend([rest, "***…"]),
            None => out.extend([piece, "…"]),
        }
    }
    out
}

/// Returns the secrets and the forms in which drivers, servers and templates quote them: the password of a URL, with
/// and without percent-encoding, as the value of a query or form, as base64 at any offset (`Authorization: Basic`
/// contains a password after a name), escaped as in JSON, with quotes doubled as in SQL, and each of them in upper and
/// lower case. Each form once, the longest first.
pub fn forms(secrets: impl IntoIterator<Item = Str>) -> Vec<Str> {
    let mut forms = Vec::new();
    for secret in secrets {
        if let Some(password) = password(&secret) {
            add(&mut forms, password);
        }
        add(&mut forms, &secret);
    }
    forms.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    forms.dedup();
    forms
}

fn add(forms: &mut Vec<Str>, secret: &str) {
    let plain = decoded(secret);
    // In the source of a script, `\n` and `\x41` in a secret represent other characters.
    let unescaped = unescaped(secret);
    for text in [secret, &plain].into_iter().chain((unescaped != secret).then_some(unescaped.as_str())) {
        for form in written(text) {
            for form in [form.to_uppercase(), form.to_lowercase(), form] {
                forms.extend((form.len() >= MASKED_FROM).then(|| Str::from(form)));
            }
        }
        for offset in 0..3 {
            forms.extend(in_base64(text.as_bytes(), offset).map(Str::from));
            // Basic authentication uses the standard alphabet, tokens and cookies often the URL-safe one.
            forms.extend(
                in_base64(text.as_bytes(), offset).map(|text| Str::from(text.replace('+', "-").replace('/', "_"))),
            );
        }
    }
}

/// Returns the notations of a text in other contexts.
fn written(text: &str) -> Vec<String> {
    let percent = encoded(text);
    vec![
        text.to_owned(),
        escaped(text),
        // A quoted name and a quoted text in SQL.
        text.replace('"', "\"\""),
        text.replace('\'', "''"),
        // Escaped twice: by the script or template that contains it, and by a template or driver.
        escaped(&escaped(text)),
        // In a query, a space becomes a plus sign.
        percent.replace("%20", "+"),
        // Characters that some encoders leave unchanged.
        ["%21", "%2A", "%27", "%28", "%29"]
            .iter()
            .zip(["!", "*", "'", "(", ")"])
            .fold(percent.clone(), |text, (code, c)| text.replace(code, c)),
        percent,
    ]
}

/// Returns the places of passwords in a text: those of `scheme://user:password@host`, credentials in the query of
/// a URL (`?api_key=`), in JSON objects (`"api_key": "…"`) and in the arguments of a program (`--api-key=…`). A `${NAME}` in
/// their place does not count; in `${NAME:-default}`, the default counts.
pub fn passwords(text: &str) -> impl Iterator<Item = Range<usize>> {
    let variables: Vec<Range<usize>> = expressions(text).collect();
    let mut found: Vec<Range<usize>> = in_addresses(text, &variables)
        .chain(in_queries(text, &variables))
        .chain(members::in_objects(text, &variables))
        .chain(members::in_arguments(text, &variables))
        .collect();
    found.sort_unstable_by_key(|range| range.start);
    found.into_iter()
}

/// Returns the literal part of a password: `None` if the whole password is a variable without a default.
fn literal(text: &str, password: Range<usize>) -> Option<Range<usize>> {
    let whole = &text[password.clone()];
    if whole.starts_with("${") && whole.find('}') == Some(whole.len() - 1) {
        return defaults(whole).next().map(|at| password.start + at.start..password.start + at.end);
    }
    (!whole.is_empty()).then_some(password)
}

/// Returns the offset of the first of these characters from `start` on that is not inside a variable, or the end.
fn end(text: &str, start: usize, variables: &[Range<usize>], ends: &[char]) -> usize {
    let is_in_variable = |at: usize| variables.iter().any(|variable| variable.contains(&at));
    text[start..]
        .char_indices()
        .map(|(at, c)| (start + at, c))
        .find(|(at, c)| ends.contains(c) && !is_in_variable(*at))
        .map_or(text.len(), |(at, _)| at)
}

fn in_addresses<'t>(text: &'t str, variables: &'t [Range<usize>]) -> impl Iterator<Item = Range<usize>> + 't {
    let is_plain = |at: usize| !variables.iter().any(|variable| variable.contains(&at));
    text.match_indices("://").filter_map(move |(at, separator)| {
        let start = at + separator.len();
        let sign = |range: Range<usize>| text[range.clone()].rfind('@').map(|at| range.start + at);
        let authority = start..end(text, start, variables, &['/', '?', '#', '"', '\'', ' ', '\n']);
        let until = match sign(authority).filter(|at| is_plain(*at)) {
            Some(until) => until,
            // PostgreSQL's client accepts a slash in a password.
            None if text[..at].ends_with("postgres") || text[..at].ends_with("postgresql") => {
                let whole = start..end(text, start, variables, &['?', '"', '\'', ' ', '\n']);
                whole.start
                    + text[whole.clone()].match_indices('@').map(|(at, _)| at).find(|at| is_plain(start + at))?
            }
            None => return None,
        };
        let colon = text[start..until].match_indices(':').map(|(at, _)| start + at).find(|at| is_plain(*at))?;
        literal(text, colon + 1..until)
    })
}

fn in_queries<'t>(text: &'t str, variables: &'t [Range<usize>]) -> impl Iterator<Item = Range<usize>> + 't {
    let is_query = text.contains("://") && text.contains('?');
    let equals = text.match_indices('=').map(|(at, _)| at).filter(move |_| is_query);
    equals.filter_map(move |at| {
        let name = text[..at].rfind(['?', '&']).map(|start| &text[start + 1..at])?;
        let is_secret = name.len() < 40 && names_a_credential(name);
        let value = at + 1..end(text, at + 1, variables, &['&', '#', '"', '\'', ' ', '\n']);
        (is_secret && !text[value.clone()].starts_with("{{")).then(|| literal(text, value)).flatten()
    })
}

/// Returns the text of a credential in the file without literal defaults; the names of variables stay.
pub fn without_defaults(text: &str) -> Cow<'_, str> {
    without(text, defaults(text))
}

/// Returns the text of a setting without the passwords in its URLs.
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    without(text, passwords(text))
}

fn without(text: &str, ranges: impl Iterator<Item = Range<usize>>) -> Cow<'_, str> {
    let mut out = String::new();
    let mut shown = 0;
    for range in ranges {
        // A range may be inside another one.
        if range.start >= shown {
            out.extend([&text[shown..range.start], "***"]);
            shown = range.end;
        }
    }
    if shown == 0 {
        return text.into();
    }
    out.push_str(&text[shown..]);
    out.into()
}

/// Returns the first password of a URL, if it is long enough to be masked.
pub fn password(url: &str) -> Option<&str> {
    url.get(passwords(url).next()?).filter(|password| password.len() >= MASKED_FROM)
}

/// Returns the credentials in the text of a file: those of the setting if it is `secret`, otherwise those in the place of a
/// password.
pub(crate) fn written_credentials(written: &str, secret: bool) -> impl Iterator<Item = &str> {
    let ranges: Vec<Range<usize>> = match secret {
        // The whole value is a credential.
        true if expressions(written).next().is_none() => Vec::new(),
        true if is_address(written) => defaults(written).chain(passwords(written)).collect(),
        true => literal_credentials(written),
        false => passwords(written).collect(),
    };
    ranges.into_iter().filter_map(|range| written.get(range))
}

/// Returns the text that a script sees if its source contains this text between quotes.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(c) = rest.chars().next() else {
            out.push('\\');
            break;
        };
        rest = &rest[c.len_utf8()..];
        let digits = match c {
            'x' => rest.get(..2).map(|digits| (digits, 2)),
            'u' => match rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
                Some((digits, _)) => Some((digits, digits.len() + 2)),
                None => rest.get(..4).map(|digits| (digits, 4)),
            },
            _ => None,
        };
        let code = digits.and_then(|(digits, len)| Some((u32::from_str_radix(digits, 16).ok()?, len)));
        match (c, code) {
            (_, Some((code, len))) => {
                // Half of a surrogate pair is not printable.
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                rest = &rest[len..];
            }
            ('n', _) => out.push('\n'),
            ('r', _) => out.push('\r'),
            ('t', _) => out.push('\t'),
            ('b', _) => out.push('\u{8}'),
            ('f', _) => out.push('\u{c}'),
            ('v', _) => out.push('\u{b}'),
            ('0', _) => out.push('\0'),
            (c, _) => out.push(c),
        }
    }
    out.push_str(rest);
    out
}

fn decoded(text: &str) -> String {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while at < bytes.len() {
        match (bytes[at], digit(bytes.get(at + 1)), digit(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.extend(u8::try_from(high << 4 | low));
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// Percent-encodes all characters except the unreserved ones (RFC 3986, 2.3).
fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                use std::fmt::Write as _;
                let _ = write!(out, "%{byte:02X}");
            }
        }
        out
    })
}

fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Returns the base64 characters that depend only on `text` if `offset` bytes precede it.
fn in_base64(text: &[u8], offset: usize) -> Option<String> {
    let whole = [&[0; 2][..offset], text].concat();
    let first = (offset * 8).div_ceil(6);
    let end = whole.len() * 8 / 6;
    let encoded = STANDARD.encode(&whole);
    encoded.get(first..end).filter(|piece| piece.len() >= ENCODED_FROM).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(secret: &str, text: &str) -> String {
        mask(text, &forms([Str::from(secret)]))
    }

    #[test]
    fn what_a_script_makes_of_a_secret_in_its_source_is_masked() {
        for (secret, printed) in [
            (r"pa\x41ss-word", "paAss-word"),
            (r"pa\u0041ss\u{42}word", "paAssBword"),
            (r"it\'s-a-secret", "it's-a-secret"),
            (r"one\ttwo\nthree", "one\ttwo\nthree"),
            (r"C:\\secrets\\a", r"C:\secrets\a"),
        ] {
            let masked = mask(&format!("script_threw: Error: {printed}!"), &forms([Str::from(secret)]));
            assert_eq!(masked, "script_threw: Error: ***!", "{secret}");
        }
        for text in ["", "\\", "a\\", "\\x", "\\xé9", "\\u{", "\\u{110000}", "\\uD800"] {
            let _ = unescaped(text);
        }
    }

    #[test]
    fn the_longer_secret_goes_first() {
        let secrets = forms(["hunter22".into(), "hunter22hunter33".into()]);
        assert_eq!(mask("hunter22hunter33 hunter22", &secrets), "*** ***");
    }

    #[test]
    fn percent_encoding_and_escapes_hide_nothing() {
        for text in ["p@ss/word", "p%40ss%2Fword", "p%40ss/word"] {
            assert_eq!(masked("p%40ss/word", text), "***", "{text}");
        }
        assert_eq!(masked("p@ss/word", "p%40ss%2Fword"), "***");
        assert_eq!(masked("say \"no\"", r#"{"error":"say \"no\""}"#), r#"{"error":"***"}"#);
        assert_eq!(masked("100%sure%4", "100%sure%4"), "***");
    }

    #[test]
    fn quoting_and_case_hide_nothing() {
        let secret = "p@ss \"word's\"/x";
        for text in [
            // The `urlquery` of templates.
            "p%40ss+%22word%27s%22%2Fx",
            "p%40ss+%22word%27s%22%2fx",
            "p%40ss%20%22word's%22%2Fx",
            // A name in SQL, a text there.
            "p@ss \"\"word's\"\"/x",
            "p@ss \"word''s\"/x",
            "P@SS \"WORD'S\"/X",
            "P%40SS+%22WORD%27S%22%2FX",
            "p@ss \\\"word's\\\"/x",
        ] {
            assert_eq!(masked(secret, text), "***", "{text}");
        }
        assert_eq!(masked("Hunter22", "HUNTER22 hunter22 Hunter22"), "*** *** ***");
        assert_eq!(masked("größe-1", "GRÖSSE-1"), "***");
    }

    #[test]
    fn base64_hides_nothing_at_any_offset() {
        for before in ["", "u", "us", "user:", "longer:"] {
            for after in ["", "1", "12"] {
                let text = STANDARD.encode(format!("{before}correct horse>>>{after}"));
                let left = masked("correct horse>>>", &text);
                // The remaining groups of four contain other text.
                let groups = (before.len() + 2).div_ceil(3) + (after.len() + 2).div_ceil(3);
                assert!(left.contains("***") && left.len() <= 3 + 4 * groups, "{text}: {left}");
            }
        }
        let other = STANDARD.encode("correct horse>>>").replace('+', "-").replace('/', "_");
        assert_eq!(&masked("correct horse>>>", &other)[..3], "***");
    }

    #[test]
    fn the_password_of_a_url_is_a_secret_of_its_own() {
        let url = "postgresql://writer:p%40ss%3Aword@db:5432/search";
        assert_eq!(masked(url, "wrong password \"p@ss:word\""), "wrong password \"***\"");
        assert_eq!(masked(url, url), "***");
        assert_eq!(password("http://host/a:b@c"), None);
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (text, shown) in [
            ("http://me:hunter2@host/a?b=c:d@e", "http://me:***@host/a?b=c:d@e"),
            ("http://me:a@b@host, http://:x@host", "http://me:***@host, http://:***@host"),
            ("http://${USER}:${PASSWORD}@host/{{ .Key }}", "http://${USER}:${PASSWORD}@host/{{ .Key }}"),
            ("http://me:${PASSWORD}2@host", "http://me:***@host"),
            ("http://me:${PASSWORD:-hunter2}@host", "http://me:${PASSWORD:-***}@host"),
            ("http://me:${PASSWORD:-a/b@c?d}@host/e", "http://me:${PASSWORD:-***}@host/e"),
            ("postgresql://${USER:-a:b@c}:${PASSWORD:-a/b}@h/d", "postgresql://${USER:-a:b@c}:${PASSWORD:-***}@h/d"),
            ("http://h/?api_key=hunter2&a=b&access_token=c#d", "http://h/?api_key=***&a=b&access_token=***#d"),
            (
                "http://h/?api_key=${A}&token={{ .Key }}&apikey=${A:-b}",
                "http://h/?api_key=${A}&token={{ .Key }}&apikey=${A:-***}",
            ),
            ("token=a http://h/?tokens", "token=a http://h/?tokens"),
            ("postgresql://me:a/b@h/d?o=p:q@r", "postgresql://me:***@h/d?o=p:q@r"),
            ("http://me:@host http://me@host mail:me@host ://", "http://me:@host http://me@host mail:me@host ://"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }

    #[test]
    fn what_is_left_of_a_cut_secret_is_masked() {
        assert_eq!(masked("hunter22", "{\"model\": \"hunt… and more… hu…"), "{\"model\": \"***… and more… hu…");
        assert_eq!(masked("größe-1", "grö…"), "***…");
        assert_eq!(masked("größe-1", "…"), "…");
    }

    #[test]
    fn short_words_stay() {
        assert_eq!(forms(["ab".into()]), [] as [Str; 0]);
        assert_eq!(masked("", "text"), "text");
    }
}
