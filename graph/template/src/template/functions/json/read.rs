//! JSON text as values, read as records are, except that an unpaired surrogate escape becomes U+FFFD, as in Go.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use anabranch_record::json;
use anabranch_record::text::Str;

use crate::template::functions::{CallError, Context};
use crate::template::val::{Dict, List, Val};

/// Reason why parsing fails.
#[derive(Debug)]
pub(super) enum ParseProblem {
    /// The text is not JSON.
    Json {
        /// Byte offset of the error.
        at: usize,
    },
    /// The allowance is exhausted.
    Call(CallError),
}

impl From<ParseProblem> for CallError {
    fn from(problem: ParseProblem) -> CallError {
        match problem {
            ParseProblem::Json { at } => format!("the text is not JSON: byte {at} is wrong or missing").into(),
            ParseProblem::Call(error) => error,
        }
    }
}

/// Parses a complete text. O(n); each list element and map entry is a step.
pub(super) fn read(cx: &mut Context, text: &str) -> Result<Val, ParseProblem> {
    let mut reader = Reader { cx, refused: None };
    let read = json::parse(with_paired_surrogates(text).as_bytes(), &mut reader);
    read.map_err(|error| reader.refused.map_or(ParseProblem::Json { at: error.offset }, ParseProblem::Call))
}

/// Replaces each `\u` escape of half a surrogate pair by `\ufffd`, which is as long.
fn with_paired_surrogates(text: &str) -> Cow<'_, str> {
    let unit = |at: usize| {
        let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(escape) = memchr::memchr(b'\\', &text.as_bytes()[at..]) {
        at += escape;
        at += match unit(at) {
            Some(0xd800..0xdc00) if matches!(unit(at + 6), Some(0xdc00..0xe000)) => 12,
            Some(0xd800..0xe000) => {
                out.push_str(&text[copied..at]);
                out.push_str("\\ufffd");
                copied = at + 6;
                6
            }
            // The second byte of an escape may be a backslash itself.
            _ => 2.min(text.len() - at),
        };
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Reads one value, and the next after it.
struct Reader<'a> {
    cx: &'a mut Context,
    /// The reason, if it was not the text that ended the reading.
    refused: Option<CallError>,
}

impl Reader<'_> {
    fn step<E: Error>(&mut self) -> Result<(), E> {
        self.cx.take_steps(1).map_err(|error| {
            self.refused = Some(error);
            E::custom("")
        })
    }
}

impl<'de> DeserializeSeed<'de> for &mut Reader<'_> {
    type Value = Val;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Val, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Reader<'_> {
    type Value = Val;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Val, E> {
        Ok(Val::Nil)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Val, E> {
        Ok(Val::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Val, E> {
        Ok(Val::Int64(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Val, E> {
        Ok(i64::try_from(value).map_or(Val::Uint64(value), Val::Int64))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Val, E> {
        Ok(Val::Float(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Val, E> {
        Ok(value.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Val, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(&mut *self)? {
            self.step()?;
            items.push(item);
        }
        Ok(List::new(items).into())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Val, A::Error> {
        let mut entries: Vec<(Str, Val)> = Vec::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            self.step()?;
            entries.push((key.as_ref().into(), map.next_value_seed(&mut *self)?));
        }
        Ok(Dict::from_entries(entries).into())
    }
}
