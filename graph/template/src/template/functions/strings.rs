//! Text: case, trimming, cutting, splitting, joining.

use std::collections::BTreeMap;
use std::rc::Rc;

use anabranch_record::text::Str;
use memchr::memmem;

use super::signature::function;
use super::{CallError, Context, Function};
use crate::template::format;
use crate::template::val::{Elements, List, Map, Text, Val};

mod case;
mod shape;

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("hello", () => "Hello!"),
    function!("upper", (text: Text) => by_char(text, case::upper)),
    function!("lower", (text: Text) => by_char(text, case::lower)),
    function!("title", (text: Text) => case::title_words(&text.lossy())),
    function!("untitle", (text: Text) => case::untitle_words(&text.lossy())),
    function!("swapcase", (text: Text) => case::swap(&text.lossy())),
    function!("snakecase", (text: Text) => case::joined_words(&text.lossy(), '_')),
    function!("kebabcase", (text: Text) => case::joined_words(&text.lossy(), '-')),
    function!("camelcase", (text: Text) => case::pascal(&text.lossy())),
    function!("trim", (text: Text) => trim(text)),
    function!("trimAll", (set: Text, text: Text) => trim_all(set, text)),
    function!("trimall", (set: Text, text: Text) => trim_all(set, text)),
    function!("trimPrefix", (prefix: Text, text: Text) => {
        text.as_bytes().strip_prefix(prefix.as_bytes()).map_or_else(|| text.clone(), Text::from_bytes)
    }),
    function!("trimSuffix", (suffix: Text, text: Text) => {
        text.as_bytes().strip_suffix(suffix.as_bytes()).map_or_else(|| text.clone(), Text::from_bytes)
    }),
    function!("nospace", (text: Text) => without_spaces(text)),
    function!("initials", (text: Text) => initials(text)),
    function!("trunc", (limit: Int, text: Text) => truncated(limit, text)),
    function!("substr", (start: Int, end: Int, text: Text) => try substring(start, end, text)),
    function!("abbrev", (width: Int, text: Text) => {
        if width < 4 { text.clone() } else { shape::abbreviated(text.as_bytes(), 0, width).into() }
    }),
    function!("abbrevboth", (left: Int, right: Int, text: Text) => {
        if right < 4 || left > 0 && right < 7 {
            text.clone()
        } else {
            shape::abbreviated(text.as_bytes(), left, right).into()
        }
    }),
    function!("wrap", (width: Int, text: Text) => Text::from(shape::wrapped(text.as_bytes(), width, b"\n", false))),
    function!("wrapWith", |cx| (width: Int, line_break: Text, text: Text) => try {
        wrap_with(cx, width, line_break.as_bytes(), text.as_bytes())
    }),
    function!("repeat", |cx| (count: Int, text: Text) => try repeat(cx, count, text.as_bytes())),
    function!("indent", |cx| (spaces: Int, text: Text) => try indent(cx, spaces, text.as_bytes(), b"")),
    function!("nindent", |cx| (spaces: Int, text: Text) => try indent(cx, spaces, text.as_bytes(), b"\n")),
    function!("replace", |cx| (old: Text, new: Text, text: Text) => try {
        replace(cx, old.as_bytes(), new.as_bytes(), text)
    }),
    function!("contains", (part: Text, text: Text) => memmem::find(text.as_bytes(), part.as_bytes()).is_some()),
    function!("hasPrefix", (prefix: Text, text: Text) => text.as_bytes().starts_with(prefix.as_bytes())),
    function!("hasSuffix", (suffix: Text, text: Text) => text.as_bytes().ends_with(suffix.as_bytes())),
    function!("plural", (one: Text, many: Text, count: Int) => if count == 1 { one.clone() } else { many.clone() }),
    function!("quote", (; values: Any) => try quoted(values)),
    function!("squote", (; values: Any) => try single_quoted(values)),
    function!("cat", (; values: Any) => try cat(values)),
    function!("toString", (value: Any) => try to_text(value)),
    function!("toStrings", (value: Any) => try texts(value).map(List::texts)),
    function!("join", |cx| (separator: Text, value: Any) => try join(cx, separator, value)),
    function!("sortAlpha", (value: Any) => try sorted(value)),
    function!("split", (separator: Text, text: Text) => numbered(split(text, separator.as_bytes(), -1))),
    function!("splitn", (separator: Text, most: Int, text: Text) => numbered(split(text, separator.as_bytes(), most))),
    function!("splitList", (separator: Text, text: Text) => List::texts(split(text, separator.as_bytes(), -1))),
];

/// Converts a value to text for text functions: bytes are treated as text.
pub(super) fn to_text(value: &Val) -> Result<Text, CallError> {
    match value {
        Val::Text(text) => Ok(text.clone()),
        Val::Bytes(bytes) | Val::Raw(bytes) => Ok(Text::from_bytes(bytes)),
        other => format::to_text(other),
    }
}

fn by_char(text: &Text, change: fn(char) -> char) -> Text {
    text.lossy().chars().map(change).collect::<String>().into()
}

fn trim(text: &Text) -> Text {
    match text.as_str() {
        Some(valid) => kept(text, valid.trim()),
        None => Text::from_bytes(text.as_bytes().trim_ascii()),
    }
}

fn trim_all(set: &Text, text: &Text) -> Text {
    let set = set.lossy();
    match text.as_str() {
        Some(valid) => kept(text, valid.trim_matches(|c| set.contains(c))),
        None => text.lossy().trim_matches(|c| set.contains(c)).into(),
    }
}

/// Returns a part of a text, without a copy if it is the whole text.
fn kept(text: &Text, part: &str) -> Text {
    if part.len() == text.as_bytes().len() { text.clone() } else { part.into() }
}

/// Returns `true` for white space by single bytes, which also matches two bytes of some letters.
fn is_space_byte(b: u8) -> bool {
    matches!(b, b'\t'..=b'\r' | b' ' | 0x85 | 0xa0)
}

/// Removes white space. As in Go, if there is any, each remaining byte above ASCII becomes a character.
fn without_spaces(text: &Text) -> Text {
    if !text.as_bytes().iter().any(|b| is_space_byte(*b)) {
        return text.clone();
    }
    text.as_bytes().iter().filter(|b| !is_space_byte(**b)).map(|b| char::from(*b)).collect::<String>().into()
}

/// Returns the first byte of each word, as a character.
fn initials(text: &Text) -> String {
    let mut after_space = true;
    text.as_bytes()
        .iter()
        .filter_map(|b| {
            let space = is_space_byte(*b);
            let first = std::mem::replace(&mut after_space, space) && !space;
            first.then(|| char::from(*b))
        })
        .collect()
}

fn truncated(limit: i64, text: &Text) -> Text {
    let bytes = text.as_bytes();
    let count = usize::try_from(limit.unsigned_abs()).unwrap_or(usize::MAX);
    if count >= bytes.len() {
        text.clone()
    } else if limit < 0 {
        Text::from_bytes(&bytes[bytes.len() - count..])
    } else {
        Text::from_bytes(&bytes[..count])
    }
}

/// Returns the bytes `start..end`: from the front if `start` is negative, to the end if `end` is negative or too large.
fn substring(start: i64, end: i64, text: &Text) -> Result<Text, CallError> {
    let bytes = text.as_bytes();
    let from = usize::try_from(start).unwrap_or(0);
    let to = usize::try_from(end).ok().filter(|to| *to <= bytes.len()).or((start >= 0).then_some(bytes.len()));
    to.and_then(|to| bytes.get(from..to))
        .map(Text::from_bytes)
        .ok_or_else(|| format!("{start} to {end} is out of range for text of {} bytes", bytes.len()).into())
}

fn size(count: i64) -> Result<usize, CallError> {
    usize::try_from(count).map_err(|_| "the count is negative".into())
}

fn repeat(cx: &mut Context, count: i64, text: &[u8]) -> Result<Text, CallError> {
    let count = size(count)?;
    cx.take_bytes(count.saturating_mul(text.len()))?;
    Ok(if text.is_empty() { Text::from("") } else { text.repeat(count).into() })
}

fn indent(cx: &mut Context, spaces: i64, text: &[u8], before: &[u8]) -> Result<Text, CallError> {
    let spaces = size(spaces)?;
    let lines = memchr::memchr_iter(b'\n', text).count() + 1;
    let total = lines.saturating_mul(spaces).saturating_add(text.len());
    cx.take_bytes(total)?;
    let mut out = Vec::with_capacity(total + before.len());
    out.extend_from_slice(before);
    for line in text.split_inclusive(|b| *b == b'\n') {
        out.resize(out.len() + spaces, b' ');
        out.extend_from_slice(line);
    }
    if text.is_empty() || text.ends_with(b"\n") {
        out.resize(out.len() + spaces, b' ');
    }
    Ok(out.into())
}

fn wrap_with(cx: &mut Context, width: i64, line_break: &[u8], text: &[u8]) -> Result<Text, CallError> {
    let lines = text.len() / usize::try_from(width).unwrap_or(1).max(1) + 1;
    cx.take_bytes(lines.saturating_mul(line_break.len()))?;
    Ok(shape::wrapped(text, width, line_break, true).into())
}

fn replace(cx: &mut Context, old: &[u8], new: &[u8], text: &Text) -> Result<Text, CallError> {
    let bytes = text.as_bytes();
    let parts: Vec<&[u8]> = if old.is_empty() {
        std::iter::once(&[][..]).chain(characters(bytes)).collect()
    } else {
        pieces(bytes, old, usize::MAX)
    };
    if parts.len() == 1 && !old.is_empty() {
        return Ok(text.clone());
    }
    // An empty text to be replaced matches before each character and at the end.
    let ending = if old.is_empty() && parts.len() > 1 { new } else { b"" };
    if old.is_empty() && parts.len() == 1 {
        return Ok(Text::from_bytes(new));
    }
    cx.take_bytes(parts.len().saturating_mul(new.len()).saturating_add(bytes.len()))?;
    Ok([&parts.join(new), ending].concat().into())
}

/// Returns the characters; each byte that is not part of a character is one by itself.
fn characters(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let valid = chunk.valid();
        let chars = valid.char_indices().map(move |(at, c)| &valid.as_bytes()[at..at + c.len_utf8()]);
        chars.chain(chunk.invalid().chunks(1))
    })
}

/// Splits at the separators, into at most `most` pieces.
fn pieces<'a>(bytes: &'a [u8], separator: &[u8], most: usize) -> Vec<&'a [u8]> {
    let mut found = Vec::new();
    let mut from = 0;
    for at in memmem::find_iter(bytes, separator).take(most.saturating_sub(1)) {
        found.push(&bytes[from..at]);
        from = at + separator.len();
    }
    found.push(&bytes[from..]);
    found
}

/// Splits into at most `most` pieces, all if it is negative; into single characters for an empty separator.
fn split(text: &Text, separator: &[u8], most: i64) -> Vec<Text> {
    let bytes = text.as_bytes();
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let parts = if most == 0 {
        Vec::new()
    } else if separator.is_empty() {
        let mut parts: Vec<&[u8]> = characters(bytes).take(most).collect();
        if parts.len() == most
            && let Some(last) = parts.last_mut()
        {
            let before = last.as_ptr().addr() - bytes.as_ptr().addr();
            *last = &bytes[before..];
        }
        parts
    } else {
        pieces(bytes, separator, most)
    };
    parts.into_iter().map(Text::from_bytes).collect()
}

fn numbered(parts: Vec<Text>) -> Val {
    let map: BTreeMap<Str, Val> =
        parts.into_iter().enumerate().map(|(i, part)| (format!("_{i}").into(), Val::Text(part))).collect();
    Val::Map(Map::Texts(Rc::new(map)))
}

fn quoted(values: &[Val]) -> Result<Text, CallError> {
    let quoted = |value| to_text(value).map(|text| format::quote(text.as_bytes(), '"', false));
    let texts: Result<Vec<String>, _> = values.iter().filter(|v| !v.is_nil()).map(quoted).collect();
    Ok(texts?.join(" ").into())
}

fn single_quoted(values: &[Val]) -> Result<Text, CallError> {
    let mut out = Vec::new();
    for value in values.iter().filter(|v| !v.is_nil()) {
        if !out.is_empty() {
            out.push(b' ');
        }
        out.push(b'\'');
        out.extend_from_slice(format::to_text(value)?.as_bytes());
        out.push(b'\'');
    }
    Ok(out.into())
}

fn cat(values: &[Val]) -> Result<Text, CallError> {
    let texts: Result<Vec<Text>, _> = values.iter().filter(|v| !v.is_nil()).map(format::to_text).collect();
    Ok(joined(&texts?, b" "))
}

fn joined(texts: &[Text], separator: &[u8]) -> Text {
    let parts: Vec<&[u8]> = texts.iter().map(Text::as_bytes).collect();
    parts.join(separator).into()
}

/// Returns the elements as text, without nils; for other values their text.
fn texts(value: &Val) -> Result<Vec<Text>, CallError> {
    match value.as_list() {
        Some(list) if list.elements() == Elements::Text => list.iter().map(|v| to_text(&v)).collect(),
        Some(list) => list.iter().filter(|v| !v.is_nil()).map(|v| to_text(&v)).collect(),
        None if value.is_nil() => Ok(Vec::new()),
        None => Ok(vec![to_text(value)?]),
    }
}

fn join(cx: &mut Context, separator: &Text, value: &Val) -> Result<Text, CallError> {
    let texts = texts(value)?;
    let total: usize = texts.iter().map(|text| text.as_bytes().len() + separator.as_bytes().len()).sum();
    cx.take_bytes(total)?;
    Ok(joined(&texts, separator.as_bytes()))
}

fn sorted(value: &Val) -> Result<List, CallError> {
    if value.as_list().is_none() {
        return Ok(List::texts([to_text(value)?]));
    }
    let mut texts = texts(value)?;
    texts.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(List::texts(texts))
}
