//! JSON pointers (RFC 6901) into values.

use std::collections::HashMap;
use std::fmt;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::Argument;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use serde_json::value::RawValue;

/// A place in a JSON value, such as `/data/items` or `/0/id`. The empty pointer is the whole value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JsonPointer(Vec<Str>);

impl JsonPointer {
    /// Parses a pointer. Returns `None` if a text that is not empty does not begin with a slash, or has another escape
    /// than `~0` and `~1`.
    pub(crate) fn parse(text: &str) -> Option<JsonPointer> {
        if text.is_empty() {
            return Some(JsonPointer::default());
        }
        let part = |part: &str| {
            let unescaped = part.replace("~1", "/").replace("~0", "~");
            let escapes = part.matches("~0").count() + part.matches("~1").count();
            (part.matches('~').count() == escapes).then(|| Str::from(unescaped))
        };
        text.strip_prefix('/')?.split('/').map(part).collect::<Option<_>>().map(JsonPointer)
    }

    /// Returns the pointer of a setting; adds an error to `findings`.
    pub(crate) fn of(setting: &Argument<Option<Str>>, findings: &mut Diagnostics) -> Option<JsonPointer> {
        let text = setting.as_ref()?;
        let pointer = JsonPointer::parse(text.trim());
        if pointer.is_none() {
            findings.push(setting.invalid("this is not a JSON pointer").with_hint("for example /data/items"));
        }
        pointer
    }

    /// Returns the value at the place.
    pub(crate) fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(value, |value, part| match value {
            Value::Map(fields) => fields.get(part),
            // As the standard says, a number has no leading zero.
            Value::List(list) if part.len() == 1 || !part.starts_with('0') => list.get(part.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// Returns the value at the place of a text in JSON, as it is written.
    pub(crate) fn find_text<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.0.iter().try_fold(text, |text, part| {
            let value: &RawValue = match text.trim_start().starts_with('{') {
                true => serde_json::from_str::<HashMap<String, &RawValue>>(text).ok()?.remove(part.as_str())?,
                false => {
                    serde_json::from_str::<Vec<&RawValue>>(text).ok()?.get(part.parse::<usize>().ok()?).copied()?
                }
            };
            Some(value.get())
        })
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| write!(f, "/{}", part.replace('~', "~0").replace('/', "~1")))
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::json::parse_value;

    use super::*;

    #[test]
    fn the_examples_of_the_standard_are_found() {
        let text = br#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"m~n":8," ":7}"#;
        let value = parse_value(text).unwrap();
        let found = |pointer: &str| JsonPointer::parse(pointer).unwrap().find(&value).cloned();
        assert_eq!(found(""), Some(value.clone()));
        assert_eq!(found("/foo/0"), Some(Value::from("bar")));
        for (pointer, number) in [("/", 0), ("/a~1b", 1), ("/c%d", 2), ("/e^f", 3), ("/m~0n", 8), ("/ ", 7)] {
            assert_eq!(found(pointer), Some(Value::Int(number)), "{pointer}");
            assert_eq!(JsonPointer::parse(pointer).unwrap().to_string(), pointer);
        }
        let written = |pointer: &str| JsonPointer::parse(pointer).unwrap().find_text(r#" {"a":[{"b/":1.50}]}"#);
        assert_eq!((written("/a/0/b~1"), written("/a/1"), written("/a/0/b~1/c")), (Some("1.50"), None, None));
        for absent in ["/foo/2", "/foo/00", "/foo/-", "/foo/x", "/foo/0/0", "/bar"] {
            assert_eq!(found(absent), None, "{absent}");
        }
        for wrong in ["foo", "/~", "/~2", "/a~"] {
            assert_eq!(JsonPointer::parse(wrong), None, "{wrong}");
        }
    }
}
