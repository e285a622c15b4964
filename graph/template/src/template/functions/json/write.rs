//! Values as JSON text.

use anabranch_record::metadata::Metadata;
use anabranch_record::{Change, Record};
use base64::Engine as _;

use crate::template::functions::dates;
use crate::template::functions::{CallError, Context};
use crate::template::val::{List, Map, Text, Val};

/// Style of JSON text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// One element per line, two spaces per level.
    pub(super) pretty: bool,
    /// Escapes `<`, `>` and `&`.
    pub(super) escape_html: bool,
}

/// Reason why a value cannot be encoded.
#[derive(Debug)]
pub(super) enum EncodeProblem {
    /// JSON cannot represent the value.
    Unsupported(&'static str),
    /// The allowance is exhausted.
    Call(CallError),
}

impl From<CallError> for EncodeProblem {
    fn from(error: CallError) -> EncodeProblem {
        EncodeProblem::Call(error)
    }
}

impl From<EncodeProblem> for CallError {
    fn from(problem: EncodeProblem) -> CallError {
        match problem {
            EncodeProblem::Unsupported(what) => format!("JSON cannot represent {what}").into(),
            EncodeProblem::Call(error) => error,
        }
    }
}

/// Encodes a value as JSON. O(size of the text), which is subtracted from the allowance as it grows: a value that a
/// template created may contain the same list many times.
pub(super) fn text(cx: &mut Context, value: &Val, style: Style) -> Result<Text, EncodeProblem> {
    let mut writer = Writer { cx, style, out: String::new(), taken: 0 };
    writer.value(value, 0)?;
    writer.pay()?;
    Ok(writer.out.into())
}

struct Writer<'a> {
    cx: &'a mut Context,
    style: Style,
    out: String,
    /// Bytes of `out` already subtracted from the allowance.
    taken: usize,
}

impl Writer<'_> {
    fn pay(&mut self) -> Result<(), CallError> {
        let new = self.out.len() - self.taken;
        self.taken = self.out.len();
        self.cx.take_bytes(new)
    }

    fn value(&mut self, value: &Val, depth: usize) -> Result<(), EncodeProblem> {
        if depth > Context::MAX_DEPTH {
            return Err(EncodeProblem::Call("the value is nested too deeply for JSON".into()));
        }
        match value {
            Val::Missing | Val::Nil | Val::NoData => self.out.push_str("null"),
            Val::Bool(b) => self.out.push_str(if *b { "true" } else { "false" }),
            Val::Int(n) | Val::Int64(n) | Val::Duration(n) => self.out.push_str(itoa::Buffer::new().format(*n)),
            Val::Uint64(n) => self.out.push_str(itoa::Buffer::new().format(*n)),
            Val::Byte(n) => self.out.push_str(itoa::Buffer::new().format(*n)),
            Val::Float(f) => self.float(*f)?,
            Val::Text(text) => self.string(text.as_bytes()),
            Val::Bytes(bytes) | Val::Raw(bytes) => self.bytes(bytes),
            Val::Position(position) => self.position(&position.0),
            Val::Operation(operation) => self.string(operation.as_str().as_bytes()),
            Val::List(list) => self.list(list, depth)?,
            Val::Map(map) => self.map(map, depth)?,
            Val::Record(record) => self.record(record, depth)?,
            Val::Payload(change) => self.change(change, depth)?,
            Val::Time(time) => self.time(time)?,
            Val::Version(version) => self.string(version.version.to_string().as_bytes()),
        }
        Ok(())
    }

    /// Writes a float, without an exponent from 1e-6 up to 1e21 like Go.
    fn float(&mut self, f: f64) -> Result<(), EncodeProblem> {
        if !f.is_finite() {
            return Err(EncodeProblem::Unsupported(if f.is_nan() { "NaN" } else { "an infinite number" }));
        }
        let size = f.abs();
        if size != 0.0 && !(1e-6..1e21).contains(&size) {
            let text = format!("{f:e}");
            self.out.push_str(&if text.contains("e-") { text } else { text.replace('e', "e+") });
        } else {
            self.out.push_str(&f.to_string());
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.out.push('"');
        base64::engine::general_purpose::STANDARD.encode_string(bytes, &mut self.out);
        self.out.push('"');
    }

    /// Writes a position; `null` for a record without one.
    fn position(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            self.out.push_str("null");
        } else {
            self.bytes(bytes);
        }
    }

    fn time(&mut self, time: &crate::template::val::Time) -> Result<(), EncodeProblem> {
        let text = dates::rfc3339(time).ok_or(EncodeProblem::Unsupported("a year outside 0 to 9999"))?;
        self.string(text.as_bytes());
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.out.push('"');
        for chunk in text.utf8_chunks() {
            self.valid(chunk.valid());
            // Each byte that is not part of a character is written as the replacement character.
            for _ in chunk.invalid() {
                self.out.push_str("\\ufffd");
            }
        }
        self.out.push('"');
    }

    fn valid(&mut self, text: &str) {
        let mut from = 0;
        for (at, c) in text.char_indices() {
            let escape = match c {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\n' => "\\n",
                '\r' => "\\r",
                '\t' => "\\t",
                '\u{8}' => "\\b",
                '\u{c}' => "\\f",
                '\u{2028}' => "\\u2028",
                '\u{2029}' => "\\u2029",
                '<' | '>' | '&' if self.style.escape_html => "",
                '\0'..='\u{1f}' => "",
                _ => continue,
            };
            self.out.push_str(&text[from..at]);
            from = at + c.len_utf8();
            if escape.is_empty() {
                self.out.push_str("\\u00");
                let code = u32::from(c);
                self.out.extend([code >> 4, code & 15].into_iter().filter_map(|digit| char::from_digit(digit, 16)));
            } else {
                self.out.push_str(escape);
            }
        }
        self.out.push_str(&text[from..]);
    }

    fn list(&mut self, list: &List, depth: usize) -> Result<(), EncodeProblem> {
        if list.is_nil() {
            self.out.push_str("null");
            return Ok(());
        }
        self.out.push('[');
        for (i, value) in list.iter().enumerate() {
            self.next_line(i, depth + 1);
            self.value(&value, depth + 1)?;
            self.pay()?;
        }
        self.close(']', list.len(), depth);
        Ok(())
    }

    fn map(&mut self, map: &Map, depth: usize) -> Result<(), EncodeProblem> {
        if map.is_nil() {
            self.out.push_str("null");
            return Ok(());
        }
        let entries = map.entries();
        self.out.push('{');
        for (i, (key, value)) in entries.iter().enumerate() {
            self.next_line(i, depth + 1);
            self.key(key);
            self.value(value, depth + 1)?;
            self.pay()?;
        }
        self.close('}', entries.len(), depth);
        Ok(())
    }

    fn key(&mut self, key: &str) {
        self.string(key.as_bytes());
        self.out.push_str(if self.style.pretty { ": " } else { ":" });
    }

    fn field(&mut self, at: usize, name: &str, value: &Val, depth: usize) -> Result<(), EncodeProblem> {
        self.next_line(at, depth + 1);
        self.key(name);
        self.value(value, depth + 1)
    }

    fn record(&mut self, record: &Record, depth: usize) -> Result<(), EncodeProblem> {
        self.out.push('{');
        self.field(0, "position", &Val::Position(record.position().clone()), depth)?;
        self.field(1, "operation", &Val::Operation(record.operation), depth)?;
        self.field(2, "metadata", &metadata(&record.metadata), depth)?;
        self.field(3, "key", &Val::data(&record.key), depth)?;
        self.next_line(4, depth + 1);
        self.key("payload");
        self.change(&record.payload, depth + 1)?;
        self.close('}', 5, depth);
        Ok(())
    }

    fn change(&mut self, change: &Change, depth: usize) -> Result<(), EncodeProblem> {
        self.out.push('{');
        self.field(0, "before", &Val::data(&change.before), depth)?;
        self.field(1, "after", &Val::data(&change.after), depth)?;
        self.close('}', 2, depth);
        Ok(())
    }

    /// Writes the separator and indentation before the element at `index` of a list or map whose elements are at
    /// `depth`.
    fn next_line(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.out.push(',');
        }
        if self.style.pretty {
            self.indent(depth);
        }
    }

    fn close(&mut self, bracket: char, count: usize, depth: usize) {
        if self.style.pretty && count > 0 {
            self.indent(depth);
        }
        self.out.push(bracket);
    }

    fn indent(&mut self, depth: usize) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("  ", depth));
    }
}

fn metadata(metadata: &Metadata) -> Val {
    Val::Map(Map::Metadata(metadata.clone()))
}
