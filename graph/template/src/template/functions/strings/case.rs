//! Letters and words: upper, lower and title case, and names such as `snake_case`.

use std::sync::LazyLock;

use regex::Regex;

/// Returns the capital letter if it is a single character; `ß` stays unchanged.
pub(super) fn upper(c: char) -> char {
    let mut capitals = c.to_uppercase();
    match (capitals.next(), capitals.next()) {
        (Some(capital), None) => capital,
        // Greek letters with iota subscript have a capital letter with iota adscript.
        _ => match c {
            '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => shifted(c, 8),
            '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => shifted(c, 9),
            _ => c,
        },
    }
}

/// Returns the small letter; `İ` becomes `i`.
pub(super) fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

/// Returns the title-case letter: a capital, except for digraphs such as `ǆ`.
pub(super) fn title(c: char) -> char {
    match c {
        '\u{1c4}' | '\u{1c5}' | '\u{1c6}' => '\u{1c5}',
        '\u{1c7}' | '\u{1c8}' | '\u{1c9}' => '\u{1c8}',
        '\u{1ca}' | '\u{1cb}' | '\u{1cc}' => '\u{1cb}',
        '\u{1f1}' | '\u{1f2}' | '\u{1f3}' => '\u{1f2}',
        '\u{10d0}'..='\u{10fa}' | '\u{10fd}'..='\u{10ff}' => c,
        _ => upper(c),
    }
}

fn shifted(c: char, by: u32) -> char {
    char::from_u32(u32::from(c) + by).unwrap_or(c)
}

fn is_title(c: char) -> bool {
    matches!(c, '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}' | '\u{1f88}'..='\u{1f8f}' | '\u{1f98}'..='\u{1f9f}')
        || matches!(c, '\u{1fa8}'..='\u{1faf}' | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}')
}

/// Converts letters to title case unless they follow letters, digits, `_` or marks.
pub(super) fn title_words(text: &str) -> String {
    let mut after = ' ';
    text.chars()
        .map(|c| {
            let starts = !(after.is_alphanumeric() || after == '_') && (after.is_ascii() || after.is_whitespace());
            after = c;
            if starts { title(c) } else { c }
        })
        .collect()
}

/// Converts the first letter of each word to lower case.
pub(super) fn untitle_words(text: &str) -> String {
    let mut starts = true;
    text.chars()
        .map(|c| {
            if c.is_whitespace() {
                starts = true;
                c
            } else if std::mem::take(&mut starts) {
                lower(c)
            } else {
                c
            }
        })
        .collect()
}

/// Swaps the case of letters; small letters at the beginning of a word become title case.
pub(super) fn swap(text: &str) -> String {
    let mut word_starts = true;
    text.chars()
        .map(|c| {
            if c.is_uppercase() || is_title(c) {
                word_starts = false;
                lower(c)
            } else if c.is_lowercase() {
                if std::mem::take(&mut word_starts) { title(c) } else { upper(c) }
            } else {
                word_starts = c.is_whitespace();
                c
            }
        })
        .collect()
}

fn is_connector(c: char) -> bool {
    c == '-' || c == '_' || c.is_whitespace()
}

/// Converts `some_words` to `SomeWords`: single connectors between words are dropped, those at the front stay.
pub(super) fn pascal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let front = text.len() - text.trim_start_matches(is_connector).len();
    out.push_str(&text[..front]);
    let mut chars = text[front..].chars();
    let Some(first) = chars.next() else {
        // Only connectors: the last one is doubled.
        out.extend(text.chars().next_back());
        return out;
    };
    let mut in_capitals = first.is_uppercase();
    let mut held = upper(first);
    for next in chars {
        let mut next = next;
        match (is_connector(held), is_connector(next)) {
            (true, true) => out.push(held),
            (true, false) => {
                in_capitals = next.is_uppercase();
                next = upper(next);
            }
            (false, _) => {
                if in_capitals && next.is_uppercase() {
                    next = lower(next);
                } else {
                    in_capitals = false;
                }
                out.push(held);
            }
        }
        held = next;
    }
    out.push(held);
    out
}

/// The kind of a run of characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunKind {
    Connectors,
    Punctuation,
    /// Capitals, or one capital and the small letters after it.
    Capitals,
    Letters,
    Digits,
    /// Ideographs, symbols.
    Other,
    /// The end of the text.
    End,
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4db5}' | '\u{4e00}'..='\u{9fcc}' | '\u{20000}'..='\u{2b81d}')
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() && !is_ideograph(c)
}

fn is_punctuation(c: char) -> bool {
    static PUNCTUATION: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{P}$").ok());
    if c.is_ascii() {
        c.is_ascii_punctuation() && !"$+<=>^`|~".contains(c)
    } else {
        PUNCTUATION.as_ref().is_some_and(|p| p.is_match(c.encode_utf8(&mut [0; 4])))
    }
}

/// Returns the run at the front of `text` and its length in bytes.
fn run(text: &str) -> (RunKind, usize) {
    let Some(first) = text.chars().next() else { return (RunKind::End, 0) };
    let len = |belongs: fn(char) -> bool| text.len() - text.trim_start_matches(belongs).len();
    let small = |c: char| is_letter(c) && !c.is_uppercase();
    if is_connector(first) {
        (RunKind::Connectors, len(is_connector))
    } else if is_punctuation(first) {
        (RunKind::Punctuation, len(is_punctuation))
    } else if first.is_uppercase() {
        let capitals = len(char::is_uppercase);
        let rest = &text[capitals..];
        let letter_follows = rest.starts_with(is_letter);
        let last = text[..capitals].chars().next_back().map_or(0, char::len_utf8);
        match (capitals > last, letter_follows) {
            // The last capital begins the next word: `HTTPServer`.
            (true, true) => (RunKind::Capitals, capitals - last),
            (false, true) => (RunKind::Capitals, capitals + rest.len() - rest.trim_start_matches(small).len()),
            (_, false) => (RunKind::Capitals, capitals),
        }
    } else if is_letter(first) {
        (RunKind::Letters, len(|c| is_letter(c) && !c.is_uppercase()))
    } else if first.is_numeric() {
        (RunKind::Digits, len(char::is_numeric))
    } else {
        let other = |c| !is_connector(c) && !is_letter(c) && !c.is_numeric() && !is_punctuation(c);
        (
            RunKind::Other,
            first.len_utf8() + text[first.len_utf8()..].find(|c| !other(c)).unwrap_or(text.len() - first.len_utf8()),
        )
    }
}

/// Splits a text into runs.
struct Runs<'a> {
    rest: &'a str,
    kind: RunKind,
    text: &'a str,
}

impl<'a> Runs<'a> {
    fn new(text: &'a str) -> Runs<'a> {
        let mut runs = Runs { rest: text, kind: RunKind::End, text: "" };
        runs.advance();
        runs
    }

    fn advance(&mut self) -> (RunKind, &'a str) {
        let before = (self.kind, self.text);
        let (kind, len) = run(self.rest);
        (self.text, self.rest) = self.rest.split_at(len);
        self.kind = kind;
        before
    }

    fn joins(&self) -> bool {
        !matches!(self.kind, RunKind::Connectors | RunKind::Punctuation)
    }

    /// Writes consecutive words and numbers, and a connector unless one follows.
    fn write_with_digits(&mut self, out: &mut String, connector: char) {
        while matches!(self.kind, RunKind::Letters | RunKind::Digits) {
            let (kind, text) = self.advance();
            write_run(out, kind, text, connector);
        }
        if self.joins() && self.kind != RunKind::End {
            out.push(connector);
        }
    }
}

fn write_run(out: &mut String, kind: RunKind, text: &str, connector: char) {
    match kind {
        RunKind::Connectors => out.extend(text.chars().map(|_| connector)),
        RunKind::Capitals => out.extend(text.chars().map(|c| if c.is_uppercase() { lower(c) } else { c })),
        _ => out.push_str(text),
    }
}

/// Converts `FirstName` to `first_name`: words, and numbers before small letters, with `connector` between them.
pub(super) fn joined_words(text: &str, connector: char) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    let mut runs = Runs::new(text);
    while !runs.rest.is_empty() {
        let (kind, text) = runs.advance();
        write_run(&mut out, kind, text, connector);
        match kind {
            RunKind::Digits => runs.write_with_digits(&mut out, connector),
            RunKind::Connectors | RunKind::Punctuation => {}
            _ if runs.kind != RunKind::Digits => {
                if runs.joins() {
                    out.push(connector);
                }
            }
            _ if runs.rest.is_empty() => {}
            _ => {
                let (_, digits) = runs.advance();
                if runs.kind == RunKind::Letters {
                    // Small letters belong to the number: `http_2xx`.
                    out.push(connector);
                    out.push_str(digits);
                    runs.write_with_digits(&mut out, connector);
                } else {
                    // The number belongs to the word before it: `bld4_floor`.
                    out.push_str(digits);
                    if runs.joins() {
                        out.push(connector);
                    }
                }
            }
        }
    }
    write_run(&mut out, runs.kind, runs.text, connector);
    out
}
