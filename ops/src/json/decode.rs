//! `json.decode`: decodes a field from JSON text.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Flow, Form, Kinds, Shape, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::json::parse_value;
use anabranch_record::phrase::with_article;
use anabranch_record::reference::{Part, Reference, Target};
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use crate::codes;

/// Returns the `json.decode` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Decode>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the JSON text: .Key, .Payload.After, or a field within them.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
}

#[derive(Clone)]
struct Decode {
    field: Reference,
}

impl InlineOperator for Decode {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("json.decode", "Decodes a field from JSON text.")
            .describe(
                "Replaces the JSON text in a field with its value. Integers are exact from \
                 -2^63 to 2^64 - 1. All other numbers become 64-bit floats with about 16 significant digits: \
                 a larger integer loses its last digits, and a fraction below 5e-324 becomes 0. A number above \
                 1.8e308 fails the record.\n\n\
                 `.Key`, `.Payload.Before` and `.Payload.After` accept an object (structured data) or a string (raw \
                 data); a field within them accepts any value. Empty text becomes absent or null. Fields that are \
                 decoded already stay unchanged.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        Ok(Decode { field: settings.field.one_side()? })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        let texts = Kinds::TEXT | Kinds::BYTES;
        flow.need_other(codes::FLOW_NOT_ENCODED, "field", &self.field, &[Content::Avro], "JSON text");
        flow.need_other_usually(codes::FLOW_NOT_ENCODED, "field", &self.field, &[Content::Base64], "JSON text");
        match self.field.target() {
            Target::Data(side) => {
                let shape = flow.record.side(*side);
                let part = side.as_str();
                if shape.is_raw() && shape.plain && shape.content.is_none() {
                    let message = format!(
                        "every record fails here: {part} is a word or a number, not the JSON text of an object or a \
                         string"
                    );
                    let since = (shape.since, "a word or a number since here".to_owned());
                    flow.fail(codes::FLOW_NOT_A_TEXT, "field", message, Some(since), None);
                } else if shape.is_absent() {
                    flow.needless("field", format!("no record has {part} here, so there is nothing to decode"), WHERE);
                } else if shape.form() == Some(Form::Structured) {
                    let message = format!("{part} is structured already, so there is nothing to decode");
                    flow.needless("field", message, "remove the processor, or name the field that contains JSON text");
                }
                if flow.record.side(*side).raw {
                    flow.may_fail();
                    let was_raw = flow.record.side(*side).has_no_fields();
                    flow.set_side(*side, if was_raw { Shape::decoded_json() } else { Shape::decoded() });
                }
            }
            _ => {
                let wanted = texts | Kinds::MAP | Kinds::LIST;
                let found = flow.need(codes::FLOW_NOT_A_TEXT, "field", &self.field, (wanted, "JSON text"), true);
                if found.ty.kinds.overlaps(texts) {
                    flow.may_fail();
                    let was_text = found.ty.kinds.within(texts | Kinds::NULL);
                    flow.replace("field", &self.field, if was_text { Type::json() } else { Type::any() });
                }
            }
        }
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if let Some(value) = self.decode(record)? {
                self.field.set(record, value)?;
            }
            Ok(Decision::Keep)
        });
    }
}

impl Decode {
    /// Returns the new value of the field, or `None` if it stays unchanged.
    fn decode(&self, record: &Record) -> Result<Option<Value>, Fault> {
        let text = match self.field.get(record)? {
            Some(Part::Data(Data::Raw(bytes))) => bytes.as_ref(),
            Some(Part::Value(Value::Text(text))) => text.as_bytes(),
            Some(Part::Value(Value::Bytes(bytes))) => bytes.as_ref(),
            None
            | Some(
                Part::Data(Data::Absent | Data::Structured(_))
                | Part::Value(Value::Null | Value::Map(_) | Value::List(_)),
            ) => {
                return Ok(None);
            }
            Some(other) => {
                return Err(Fault::record(
                    codes::JSON_UNEXPECTED_TYPE,
                    format!("cannot decode {}: unexpected data type {}", self.field, other.type_name()),
                ));
            }
        };
        if text.is_empty() {
            return Ok(Some(Value::Null));
        }
        let value = parse_value(text)
            .map_err(|e| Fault::record(codes::JSON_INVALID, format!("cannot decode {}: {e}", self.field)))?;
        match (self.field.target(), &value) {
            (Target::Data(_), Value::Map(_) | Value::Text(_) | Value::Null) | (Target::Field(..), _) => Ok(Some(value)),
            _ => Err(Fault::record(
                codes::JSON_UNEXPECTED_TYPE,
                format!(
                    "cannot decode {field}: the JSON text is {}, and {field} accepts only an object or a text",
                    with_article(value.type_name()),
                    field = self.field,
                ),
            )),
        }
    }
}

const WHERE: &str = "name the part that contains the JSON text, for example .Payload.After";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, process, record};

    fn decode(field: &str, key: Data) -> Result<Data, String> {
        let mut sample = record(r#"{"operation":"create"}"#);
        sample.key = key;
        let (after, decision) = process(&kind(), &[("field", field)], &sample);
        match decision {
            Decision::Keep => Ok(after.key),
            Decision::Fail(fault) => {
                assert_eq!(after, sample);
                Err(format!("{}: {}", fault.code(), fault.message()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn object(text: &str) -> Data {
        match anabranch_record::json::parse_value(text.as_bytes()).unwrap() {
            Value::Map(map) => Data::Structured(map),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn data_become_structured() {
        let exact = r#"{"id":1234567890123456789,"max":18446744073709551615,"f":1.0}"#;
        let decoded = decode(".Key", Data::text(exact)).unwrap();
        assert_eq!(decoded.fields().unwrap().get("id"), Some(&Value::Int(1_234_567_890_123_456_789)));
        assert_eq!(decoded.fields().unwrap().get("max"), Some(&Value::UInt(u64::MAX)));
        assert_eq!(decoded.fields().unwrap().get("f"), Some(&Value::Float(1.0)));
        assert_eq!(decode(".Key", Data::text("\"text\"")), Ok(Data::text("text")));
        assert_eq!(decode(".Key", Data::text("null")), Ok(Data::Absent));
        assert_eq!(decode(".Key", Data::text("")), Ok(Data::Absent));
        assert_eq!(decode(".Key", Data::Absent), Ok(Data::Absent));
        assert_eq!(decode(".Key", decoded.clone()), Ok(decoded));
    }

    #[test]
    fn fields_take_any_value() {
        assert_eq!(decode(".Key.a", object(r#"{"a":"[1,{\"b\":2}]"}"#)), Ok(object(r#"{"a":[1,{"b":2}]}"#)));
        assert_eq!(decode(".Key.a", object(r#"{"a":"7"}"#)), Ok(object(r#"{"a":7}"#)));
        assert_eq!(decode(".Key.a", object(r#"{"a":""}"#)), Ok(object(r#"{"a":null}"#)));
        for stays in [r#"{"a":null}"#, r#"{"a":[1]}"#, r#"{"a":{"b":1}}"#, r#"{"b":1}"#] {
            assert_eq!(decode(".Key.a", object(stays)), Ok(object(stays)));
        }
    }

    #[test]
    fn bad_texts_fail_the_record() {
        assert_eq!(
            decode(".Key", Data::text("{\"a\":")),
            Err("json_invalid: cannot decode .Key: invalid JSON at byte 5: EOF while parsing a value".to_owned())
        );
        for (text, kind) in [("[1]", "a list"), ("1", "an integer"), ("1.5", "a float"), ("true", "a bool")] {
            assert_eq!(
                decode(".Key", Data::text(text)),
                Err(format!(
                    "json_unexpected_type: cannot decode .Key: the JSON text is {kind}, and .Key accepts only an \
                     object or a text"
                ))
            );
        }
        assert_eq!(
            decode(".Key.a", object(r#"{"a":7}"#)),
            Err("json_unexpected_type: cannot decode .Key.a: unexpected data type integer".to_owned())
        );
        assert!(decode(".Key.a", Data::text("{}")).unwrap_err().starts_with("reference_unresolved"));
    }

    #[test]
    fn what_is_something_else_is_named() {
        let said = |bytes: &'static [u8]| decode(".Key", Data::Raw(bytes.into())).unwrap_err();
        for (bytes, what) in [
            (&b"\xef\xbb\xbf{\"a\":1}"[..], "it begins with a byte order mark"),
            (b"\x1f\x8b\x08\0\0", "it looks like gzip"),
            (b"\x28\xb5\x2f\xfd\0", "it looks like zstd"),
            (b"PK\x03\x04\x14", "it looks like a zip archive"),
            (b"\xff\xfe{\0", "it looks like UTF-16"),
            (b"Obj\x01\x04", "it looks like an Avro file"),
            (b"\0\0\0\0\x07\x06tea", "schema registry"),
            (b"<?xml version=\"1.0\"?>", "it looks like XML or HTML"),
            (b"id,name,price", "it looks like CSV"),
            (b"1;tea;3.5", "it looks like CSV"),
            (b"\"a\",\"b\"", "it looks like CSV"),
            (b"true\tfalse", "it looks like CSV"),
        ] {
            let said = said(bytes);
            assert!(said.starts_with("json_invalid: cannot decode .Key: invalid JSON at byte "), "{said}");
            assert!(said.contains(what), "{said}");
        }
        for bytes in [&b"{\"a\",1}"[..], b"[1,2", b"hello", b"{'a': 1, 'b': 2}", b"", b"\"a"] {
            let said = decode(".Key", Data::Raw(bytes.into()));
            assert!(said.as_ref().map_or_else(|said| !said.contains("it "), |_| true), "{said:?}");
        }
    }

    #[test]
    fn only_keys_and_payloads_hold_json() {
        assert_eq!(
            findings(&kind(), &[("field", ".Metadata.x")]),
            ["field: \".Metadata.x\" must refer to .Key, .Payload"]
        );
        assert_eq!(findings(&kind(), &[("field", ".Payload")]), ["field: .Payload has two sides, Before and After"]);
    }

    #[test]
    fn a_failed_row_stays_as_it_was() {
        for field in [".Key", ".Payload.After.a", ".Payload.Before.a.b"] {
            testing::failed_rows_stay(&kind(), &[("field", field)]);
        }
    }
}
