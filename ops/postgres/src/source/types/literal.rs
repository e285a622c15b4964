//! Texts with a structure: bytes, arrays and `hstore`.

use std::sync::Arc;

use anabranch_record::text::Str;
use anabranch_record::value::Value;

use super::{ColumnType, as_text};

/// Maximum number of dimensions of an array.
const DIMENSIONS: usize = 6;

/// Parses bytes in hexadecimal: `\x00ff`.
pub(super) fn bytes(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(b"\\x")?;
    let digit = |digit: u8| {
        Some(match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        })
    };
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// Parses an array: `{1,NULL,"a b"}`. `None` if it has bounds of its own (`[0:1]={…}`).
pub(super) fn array(element: &ColumnType, delimiter: u8, text: &[u8]) -> Option<Vec<Value>> {
    let mut parser = Parser { rest: text, delimiter };
    let list = parser.list(element, DIMENSIONS)?;
    parser.rest.is_empty().then_some(list)
}

/// Parses an `hstore`: `"a"=>"1", "b"=>NULL`.
pub(super) fn hstore(text: &[u8]) -> Option<Vec<(Str, Value)>> {
    let mut parser = Parser { rest: text, delimiter: b',' };
    let mut entries = Vec::new();
    while !parser.rest.is_empty() {
        if !entries.is_empty() {
            parser.skip(b", ")?;
        }
        let name = String::from_utf8(parser.quoted()?).ok()?;
        parser.skip(b"=>")?;
        let value = match parser.skip(b"NULL") {
            Some(()) => Value::Null,
            None => as_text(&parser.quoted()?),
        };
        entries.push((Str::from(name), value));
    }
    Some(entries)
}

struct Parser<'a> {
    rest: &'a [u8],
    delimiter: u8,
}

impl Parser<'_> {
    fn skip(&mut self, text: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// Parses a text in double quotes, in which `\` escapes the next character.
    fn quoted(&mut self) -> Option<Vec<u8>> {
        self.skip(b"\"")?;
        let mut text = Vec::new();
        loop {
            let (first, rest) = self.rest.split_first()?;
            self.rest = rest;
            match first {
                b'"' => return Some(text),
                b'\\' => {
                    let (escaped, rest) = rest.split_first()?;
                    text.push(*escaped);
                    self.rest = rest;
                }
                other => text.push(*other),
            }
        }
    }

    fn list(&mut self, element: &ColumnType, depth: usize) -> Option<Vec<Value>> {
        let depth = depth.checked_sub(1)?;
        self.skip(b"{")?;
        let mut list = Vec::new();
        if self.skip(b"}").is_some() {
            return Some(list);
        }
        loop {
            list.push(match self.rest.first()? {
                b'{' => Value::List(Arc::new(self.list(element, depth)?)),
                b'"' => element.value(&self.quoted()?),
                _ => {
                    let end = self.rest.iter().position(|byte| *byte == self.delimiter || *byte == b'}')?;
                    let (text, rest) = self.rest.split_at(end);
                    self.rest = rest;
                    if text == b"NULL" { Value::Null } else { element.value(text) }
                }
            });
            let (separator, rest) = self.rest.split_first()?;
            self.rest = rest;
            match separator {
                b'}' => return Some(list),
                separator if *separator == self.delimiter => {}
                _ => return None,
            }
        }
    }
}
