//! Limits of functions whose result has as many levels as their argument says. They call themselves for each level, and a
//! text of some kilobytes would exhaust the stack of the service.

use vrl::compiler::prelude::*;

use crate::weight::{MOST_LEVELS, TOO_DEEP, weight};

/// A function that makes levels of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nesting {
    ParseXml,
    Unflatten,
}

impl Nesting {
    /// Returns the function of this name.
    pub(super) fn of_function(name: &str) -> Option<Nesting> {
        match name {
            "parse_xml" => Some(Nesting::ParseXml),
            "unflatten" => Some(Nesting::Unflatten),
            _ => None,
        }
    }

    /// Compiles a call. `inner` is the call of the library's function, which evaluates the arguments again.
    pub(super) fn compile(self, arguments: &ArgumentList, inner: Box<dyn Expression>) -> Box<dyn Expression> {
        let (value, separator) = (arguments.required("value"), arguments.optional("separator"));
        Nested { nesting: self, value, separator, inner }.as_expr()
    }
}

/// A call of such a function.
#[derive(Clone, Debug)]
struct Nested {
    nesting: Nesting,
    value: Box<dyn Expression>,
    separator: Option<Box<dyn Expression>>,
    inner: Box<dyn Expression>,
}

impl Nested {
    /// Returns the number of levels of the result, or more.
    fn levels(&self, context: &mut Context) -> Result<usize, ExpressionError> {
        let value = self.value.resolve(context)?;
        match self.nesting {
            Nesting::ParseXml => Ok(value.as_bytes().map_or(0, |text| levels_of_xml(text))),
            Nesting::Unflatten => {
                let separator = self.separator.as_ref().map(|separator| separator.resolve(context)).transpose()?;
                let separator = separator.unwrap_or_else(|| Value::from("."));
                let separator = separator.try_bytes_utf8_lossy()?.into_owned();
                match separator.is_empty() {
                    true => Err("the separator is empty".into()),
                    false if weight(&value) == TOO_DEEP => Ok(TOO_DEEP),
                    false => Ok(levels_of_names(&value, &separator)),
                }
            }
        }
    }
}

impl FunctionExpression for Nested {
    fn resolve(&self, context: &mut Context) -> Resolved {
        match self.levels(context)? > MOST_LEVELS {
            true => Err(format!("the result would have more than {MOST_LEVELS} levels").into()),
            false => self.inner.resolve(context),
        }
    }

    fn type_def(&self, state: &TypeState) -> TypeDef {
        self.inner.type_def(state)
    }
}

/// Returns the largest number of maps in each other that the names in a value stand for.
fn levels_of_names(value: &Value, separator: &str) -> usize {
    let Value::Object(object) = value else { return 0 };
    let levels =
        object.iter().map(|(name, value)| 1 + name.matches(separator).count() + levels_of_names(value, separator));
    levels.max().unwrap_or(0)
}

/// Returns the largest number of elements in each other, or more, if the text is no XML. O(length).
fn levels_of_xml(text: &[u8]) -> usize {
    let (mut level, mut most, mut rest) = (0_usize, 0, text);
    while let Some(start) = memchr::memchr(b'<', rest) {
        rest = &rest[start + 1..];
        let end = match rest {
            [b'!', b'-', b'-', ..] => after(rest, b"-->"),
            [b'!', b'[', ..] => after(rest, b"]]>"),
            [b'?', ..] => after(rest, b"?>"),
            [b'!', ..] => after(rest, b">"),
            [b'/', ..] => {
                level = level.saturating_sub(1);
                after(rest, b">")
            }
            _ => {
                let end = end_of_tag(rest);
                if !rest[..end].ends_with(b"/>") {
                    level += 1;
                    most = most.max(level);
                }
                end
            }
        };
        rest = &rest[end..];
    }
    most
}

/// Returns the number of bytes up to and with the first `mark`; all if there is none.
fn after(text: &[u8], mark: &[u8]) -> usize {
    memchr::memmem::find(text, mark).map_or(text.len(), |at| at + mark.len())
}

/// Returns the length of the rest of a tag with its `>`, which may also be in the value of an attribute.
fn end_of_tag(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = memchr::memchr3(b'>', b'"', b'\'', &text[at..]) {
        at += found + 1;
        let byte = text[at - 1];
        if byte == b'>' {
            return at;
        }
        at += memchr::memchr(byte, &text[at..]).map_or(text.len() - at, |end| end + 1);
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_of_xml_are_counted_without_its_parser() {
        for (text, levels) in [
            ("", 0),
            ("text", 0),
            ("<a/>", 0),
            ("<a>x</a>", 1),
            ("<?xml version=\"1.0\"?><!DOCTYPE a><a><b/><c>d</c><c><d></d></c></a>", 3),
            ("<a><!-- <b><c> --><![CDATA[<d><e>]]></a>", 1),
            ("<a b=\"/>\" c='>'><d e=\"<f>\"></d></a>", 2),
            ("<a", 1),
            ("<a b=\"", 1),
        ] {
            assert_eq!(levels_of_xml(text.as_bytes()), levels, "{text}");
        }
        assert_eq!(levels_of_xml("<a>".repeat(5000).as_bytes()), 5000);
    }
}
