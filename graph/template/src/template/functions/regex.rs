//! Regular expressions in Go's syntax.
//!
//! In text that is not valid UTF-8, each byte that is not part of a character is searched as U+FFFD.

use std::cell::RefCell;
use std::rc::Rc;

use super::signature::function;
use super::{CallError, Context, Function};
use crate::template::val::{Elements, List, Text, Val};

mod expansion;
mod syntax;

use expansion::Expansion;

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("regexMatch", (pattern: Text, text: Text) => {
        // Go's function ignores an invalid pattern.
        pattern_of(pattern).is_ok_and(|pattern| pattern.regex.is_match(&text.lossy()))
    }),
    function!("mustRegexMatch", (pattern: Text, text: Text) => try {
        pattern_of(pattern).map(|pattern| pattern.regex.is_match(&text.lossy()))
    }),
    function!("regexFind", (pattern: Text, text: Text) => try find(pattern, text)),
    function!("mustRegexFind", (pattern: Text, text: Text) => try find(pattern, text)),
    function!("regexFindAll", |cx| (pattern: Text, text: Text, most: Int) => try find_all(cx, pattern, text, most)),
    function!("mustRegexFindAll", |cx| (pattern: Text, text: Text, most: Int) => try find_all(cx, pattern, text, most)),
    function!("regexReplaceAll", |cx| (pattern: Text, text: Text, by: Text) => try replace_all(cx, pattern, text, by)),
    function!("mustRegexReplaceAll", |cx| (pattern: Text, text: Text, by: Text) => try {
        replace_all(cx, pattern, text, by)
    }),
    function!("regexReplaceAllLiteral", |cx| (pattern: Text, text: Text, by: Text) => try {
        replace_literally(cx, pattern, text, by)
    }),
    function!("mustRegexReplaceAllLiteral", |cx| (pattern: Text, text: Text, by: Text) => try {
        replace_literally(cx, pattern, text, by)
    }),
    function!("regexSplit", |cx| (pattern: Text, text: Text, most: Int) => try split(cx, pattern, text, most)),
    function!("mustRegexSplit", |cx| (pattern: Text, text: Text, most: Int) => try split(cx, pattern, text, most)),
    function!("regexQuoteMeta", (text: Text) => quoted(&text.lossy())),
];

/// A compiled pattern. Its groups are nameless, because Go allows names that the `regex` crate does not.
#[derive(Debug)]
struct Pattern {
    regex: ::regex::Regex,
    /// Names of the groups, from 1.
    names: Vec<Option<String>>,
}

/// Number of recently used patterns that a thread keeps: a template uses a few, the same for each record.
const KEPT: usize = 32;
/// Maximum size of a compiled pattern in bytes.
const SIZE_LIMIT: usize = 2 << 20;

type Compiled = Result<Rc<Pattern>, CallError>;

/// Returns the compiled pattern, from the thread's recent ones if possible.
fn pattern_of(text: &Text) -> Compiled {
    thread_local! {
        static RECENT: RefCell<Vec<(Text, Compiled)>> = const { RefCell::new(Vec::new()) };
    }
    RECENT.with_borrow_mut(|recent| {
        if let Some(at) = recent.iter().position(|(pattern, _)| pattern == text) {
            recent[..=at].rotate_right(1);
        } else {
            recent.truncate(KEPT - 1);
            recent.insert(0, (text.clone(), compile(&text.lossy())));
        }
        recent[0].1.clone()
    })
}

fn compile(text: &str) -> Compiled {
    let wrong = |reason: &str| CallError::from(format!("{text:?} is not a regular expression: {reason}"));
    let (pattern, names) = syntax::translate(text).map_err(wrong)?;
    let regex = ::regex::RegexBuilder::new(&pattern)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SIZE_LIMIT)
        .build()
        .map_err(|error| wrong(&reason(&error)))?;
    Ok(Rc::new(Pattern { regex, names }))
}

/// Returns the error of an invalid pattern; `None` if it is valid.
pub fn invalid_pattern(text: &str) -> Option<String> {
    compile(text).err().map(|error| error.to_string())
}

/// Returns the last line of the message, without the excerpt of the translated pattern above it.
fn reason(error: &::regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

fn find(pattern: &Text, text: &Text) -> Result<String, CallError> {
    let text = text.lossy();
    Ok(pattern_of(pattern)?.regex.find(&text).map_or_else(String::new, |found| found.as_str().to_owned()))
}

/// Converts the maximum number of matches; a negative number means all.
fn limit(most: i64) -> usize {
    usize::try_from(most).unwrap_or(usize::MAX)
}

fn find_all(cx: &mut Context, pattern: &Text, text: &Text, most: i64) -> Result<List, CallError> {
    let (pattern, text) = (pattern_of(pattern)?, text.lossy());
    let mut found = Vec::new();
    for part in pattern.regex.find_iter(&text).take(limit(most)) {
        cx.take_steps(1)?;
        found.push(Val::from(part.as_str()));
    }
    Ok(if found.is_empty() { List::nil(Elements::Text) } else { List::of(Elements::Text, found) })
}

fn replace_all(cx: &mut Context, pattern: &Text, text: &Text, by: &Text) -> Result<String, CallError> {
    let by = by.lossy();
    if !by.contains('$') {
        return replaced(cx, pattern, text, &by);
    }
    let (pattern, text) = (pattern_of(pattern)?, text.lossy());
    let expansion = Expansion::parse(&by, &pattern.names);
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for captures in pattern.regex.captures_iter(&text) {
        let Some(whole) = captures.get(0) else { continue };
        let before = out.len();
        out.push_str(&text[from..whole.start()]);
        expansion.write(&captures, &mut out);
        cx.take_bytes(out.len() - before)?;
        from = whole.end();
    }
    out.push_str(&text[from..]);
    Ok(out)
}

fn replace_literally(cx: &mut Context, pattern: &Text, text: &Text, by: &Text) -> Result<String, CallError> {
    replaced(cx, pattern, text, &by.lossy())
}

fn replaced(cx: &mut Context, pattern: &Text, text: &Text, by: &str) -> Result<String, CallError> {
    let (pattern, text) = (pattern_of(pattern)?, text.lossy());
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for found in pattern.regex.find_iter(&text) {
        cx.take_bytes(found.start() - from + by.len())?;
        out.push_str(&text[from..found.start()]);
        out.push_str(by);
        from = found.end();
    }
    out.push_str(&text[from..]);
    Ok(out)
}

/// Splits into at most `most` parts, all if it is negative. An empty match at the front does not separate.
fn split(cx: &mut Context, pattern: &Text, text: &Text, most: i64) -> Result<List, CallError> {
    let (pattern, whole) = (pattern_of(pattern)?, text.lossy());
    let most = limit(most);
    if most == 0 {
        return Ok(List::nil(Elements::Text));
    }
    if whole.is_empty() && !pattern.regex.as_str().is_empty() {
        return Ok(List::texts([""]));
    }
    let mut parts: Vec<&str> = Vec::new();
    let (mut from, mut end) = (0, 0);
    for found in pattern.regex.find_iter(&whole).take(most) {
        if parts.len() + 1 == most {
            break;
        }
        cx.take_steps(1)?;
        end = found.start();
        if found.end() != 0 {
            parts.push(&whole[from..end]);
        }
        from = found.end();
    }
    if end != whole.len() {
        parts.push(&whole[from..]);
    }
    Ok(List::texts(parts))
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
