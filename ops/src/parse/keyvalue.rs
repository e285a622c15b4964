//! `keyvalue.parse`: parses a text of keys with values, such as logfmt.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Fields, Flow, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};

use super::extraction::{Extraction, OnMismatch};
use crate::codes;

/// Returns the `keyvalue.parse` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Parse>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the text: .Key, .Payload.After, or a field within them.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// The text between a key and its value.
    #[parameter(default = "=")]
    key_delimiter: Argument<Str>,
    /// The text between two pairs. By default, white space of any length.
    pair_delimiter: Option<Argument<Str>>,
    /// The field that receives the object with the keys. By default, it replaces the text.
    #[parameter(within = [".Key", ".Payload"])]
    target: Option<Argument<Reference>>,
}

#[derive(Clone)]
struct Parse {
    extraction: Extraction,
    key_delimiter: Str,
    pair_delimiter: Option<Str>,
}

impl InlineOperator for Parse {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("keyvalue.parse", "Parses a text of keys with values, such as logfmt.")
            .describe(
                "Replaces a text such as `level=info msg=\"two words\" slow` with an object that has the keys as fields. Values \
                 are texts: `field.convert` makes numbers of them. A value in double quotes may contain delimiters, and \
                 `\\\"` and `\\\\` in it. A key without a value is `true`. A key that is there several times has the list of \
                 its values. White space around keys and values is left out. A value in quotes that do not end, or one \
                 without a key, fails the record. A field that is missing or null stays as it is.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let extraction = Extraction::new(&settings.field, settings.target.as_ref())?;
        let key_delimiter = settings.key_delimiter;
        let pair_delimiter = settings.pair_delimiter;
        if key_delimiter.contains('"') {
            return Err(key_delimiter.invalid("quotes are no delimiter").into());
        }
        if let Some(pair) = &pair_delimiter {
            if pair.contains('"') {
                return Err(pair.invalid("quotes are no delimiter").into());
            }
            if **pair == *key_delimiter {
                return Err(pair.invalid("keyDelimiter and pairDelimiter are the same").into());
            }
        }
        Ok(Parse {
            extraction,
            key_delimiter: key_delimiter.into_value(),
            pair_delimiter: pair_delimiter.map(Argument::into_value).filter(|pair| !pair.trim().is_empty()),
        })
    }

    fn signature(&self) -> Signature {
        self.extraction.signature()
    }

    fn flow(&self, flow: &mut Flow) {
        self.extraction.flow(flow, "a text of keys with values", Type::map(Fields::any()), OnMismatch::Fail);
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if let Some(object) = self.parse(record)? {
                self.extraction.set(record, object)?;
            }
            Ok(Decision::Keep)
        });
    }
}

impl Parse {
    /// Returns the keys with their values; `None` if the record stays as it is. O(length · log keys).
    fn parse(&self, record: &Record) -> Result<Option<Object>, Fault> {
        let Some(text) = self.extraction.text(record)? else { return Ok(None) };
        let mut entries: Vec<(Str, Value)> = Vec::new();
        let mut rest = self.without_delimiters(text);
        while !rest.is_empty() {
            let (key, after) = self.key(rest);
            if key.is_empty() {
                return Err(wrong("a value has no key"));
            }
            let (value, after) = match after.strip_prefix(&*self.key_delimiter) {
                None => (Value::Bool(true), after),
                Some(after) => self.value(after)?,
            };
            entries.push((Str::from(key), value));
            rest = self.without_delimiters(after);
        }
        Ok(Some(gathered(entries)))
    }

    /// Leaves out delimiters of pairs and white space at the beginning.
    fn without_delimiters<'t>(&self, text: &'t str) -> &'t str {
        let mut text = text.trim_start();
        while let Some(rest) = self.pair_delimiter.as_ref().and_then(|pair| text.strip_prefix(&**pair)) {
            text = rest.trim_start();
        }
        text
    }

    /// Returns the place of the next delimiter of pairs, or the end.
    fn pair_end(&self, text: &str) -> usize {
        let end = match &self.pair_delimiter {
            Some(pair) => text.find(&**pair),
            None => text.find(char::is_whitespace),
        };
        end.unwrap_or(text.len())
    }

    /// Returns a key and the text after it.
    fn key<'t>(&self, text: &'t str) -> (&'t str, &'t str) {
        let end = self.pair_end(text);
        let end = text[..end].find(&*self.key_delimiter).unwrap_or(end);
        (text[..end].trim(), &text[end..])
    }

    /// Returns a value and the text after it.
    fn value<'t>(&self, text: &'t str) -> Result<(Value, &'t str), Fault> {
        let trimmed = if self.pair_delimiter.is_some() { text.trim_start() } else { text };
        let Some(quoted) = trimmed.strip_prefix('"') else {
            let end = self.pair_end(text);
            return Ok((Value::from(text[..end].trim()), &text[end..]));
        };
        let mut value = String::new();
        let mut rest = quoted;
        loop {
            let Some(at) = rest.find(['"', '\\']) else { return Err(wrong("a value in quotes does not end")) };
            value.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            if rest.as_bytes()[at] == b'"' {
                return Ok((Value::from(value), after));
            }
            let Some(escaped) = after.chars().next() else { return Err(wrong("a value in quotes does not end")) };
            match escaped {
                '"' | '\\' => value.push(escaped),
                'n' => value.push('\n'),
                't' => value.push('\t'),
                other => value.extend(['\\', other]),
            }
            rest = &after[escaped.len_utf8()..];
        }
    }
}

fn wrong(what: &str) -> Fault {
    Fault::record(codes::KEYVALUE_INVALID, what)
}

/// Returns the object of the entries, in which a key that is there several times has the list of its values.
fn gathered(mut entries: Vec<(Str, Value)>) -> Object {
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    if entries.windows(2).all(|pair| pair[0].0 != pair[1].0) {
        return Object::from_entries(entries);
    }
    let mut gathered: Vec<(Str, Value)> = Vec::with_capacity(entries.len());
    let mut entries = entries.into_iter().peekable();
    while let Some((key, first)) = entries.next() {
        let mut values = vec![first];
        while let Some((_, next)) = entries.next_if(|(next, _)| *next == key) {
            values.push(next);
        }
        let value = if values.len() == 1 { values.remove(0) } else { Value::from(values) };
        gathered.push((key, value));
    }
    Object::from_entries(gathered)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{self, findings};

    const FIELD: (&str, &str) = ("field", ".Payload.After");

    fn parse(settings: &[(&str, &str)], text: &str) -> Result<String, String> {
        let told = |error: String| error.strip_prefix("keyvalue_invalid: ").unwrap().to_owned();
        testing::of_text(&kind(), settings, text).map_err(told)
    }

    #[test]
    fn logfmt_is_parsed() {
        for (text, expected) in [
            ("level=info msg=\"two words\" slow", r#"{"level":"info","msg":"two words","slow":true}"#),
            ("  a=1   b=  c=\"\" ", r#"{"a":"1","b":"","c":""}"#),
            ("a=1 a=2 a", r#"{"a":["1","2",true]}"#),
            (r#"q="say \"hi\" \\ \n\x""#, r#"{"q":"say \"hi\" \\ \n\\x"}"#),
            ("url=http://x/?a=b&c=d", r#"{"url":"http://x/?a=b&c=d"}"#),
            ("é=ü", r#"{"é":"ü"}"#),
            ("", "{}"),
        ] {
            assert_eq!(parse(&[], text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_delimiters_are_taken() {
        let settings = [("keyDelimiter", ":"), ("pairDelimiter", ",")];
        let text = "name: Ada Lovelace, age:36,, note: \"a, b\"";
        assert_eq!(parse(&settings, text).as_deref(), Ok(r#"{"age":"36","name":"Ada Lovelace","note":"a, b"}"#));
    }

    #[test]
    fn bad_texts_fail() {
        assert_eq!(parse(&[], "a=\"b"), Err("a value in quotes does not end".to_owned()));
        assert_eq!(parse(&[], "a=\"b\\"), Err("a value in quotes does not end".to_owned()));
        assert_eq!(parse(&[], "=b"), Err("a value has no key".to_owned()));
        testing::failed_rows_stay(&kind(), &[FIELD]);
        for target in [".Payload.After.a", ".Payload.After.b.c", ".Key"] {
            testing::shapes_are_large_enough(&kind(), &[("field", ".Payload.After.a"), ("target", target)]);
        }
    }

    #[test]
    fn wrong_settings_are_found() {
        let said = |settings: &[(&str, &str)]| findings(&kind(), &[&[FIELD], settings].concat()).join("; ");
        assert!(said(&[("pairDelimiter", "=")]).contains("are the same"));
        assert!(said(&[("keyDelimiter", "\"")]).contains("quotes are no delimiter"));
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_parsed(value in ".*") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let found = parse(&[], &format!("k=\"{quoted}\" z=1")).unwrap();
            let expected = serde_json::json!({ "k": value, "z": "1" });
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&found).unwrap(), expected);
        }

        #[test]
        fn no_text_stops_the_parser(text in "[a=\" ,é\\\\]{0,30}") {
            let _ = parse(&[], &text);
            let _ = parse(&[("pairDelimiter", ","), ("keyDelimiter", "=é")], &text);
        }
    }
}
