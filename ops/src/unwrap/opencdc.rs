//! `unwrap.opencdc`: replaces a record with the one in a field.

use std::sync::Arc;

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::Flow;
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::metadata::Metadata;
use anabranch_record::reference::Reference;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Change, Data, Operation, Record};

use super::{envelope, invalid, parts, take_map, take_text};

/// Returns the `unwrap.opencdc` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Unwrap>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the record.
    #[parameter(default = ".Payload.After", within = [".Key", ".Payload"])]
    field: Argument<Reference>,
}

#[derive(Clone)]
struct Unwrap {
    field: Reference,
}

impl InlineOperator for Unwrap {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("unwrap.opencdc", "Replaces a record with the one in a field.")
        .describe(
            "Replaces a record with the one in a field, as JSON text or as structured data: its operation, metadata, \
             key and payload. Only the position stays. `operation`, `metadata` and `payload` are required. A text in \
             `key`, `before` or `after` is the base64 of raw data; null or missing means absent. Metadata keys that \
             start with `opencdc.` and `conduit.` become `recfmt.` and `svc.`.",
        )
        .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        Ok(Unwrap { field: settings.field.one_side()? })
    }

    fn signature(&self) -> Signature {
        let writes = parts(&["Operation", "Metadata", "Key", "Payload"]);
        Signature::new().reads(self.field.access()).writes(writes)
    }

    fn flow(&self, flow: &mut Flow) {
        super::flow(flow, &self.field, &["operation"]);
        flow.forget();
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            *record = self.inner(record)?;
            Ok(Decision::Keep)
        });
    }
}

impl Unwrap {
    fn inner(&self, record: &Record) -> Result<Record, Fault> {
        let mut wrapped = Arc::unwrap_or_clone(envelope(&self.field, record)?);
        let operation: Operation = take_text(&self.field, &mut wrapped, "operation")?
            .parse()
            .map_err(|e| invalid(&self.field, &format!("{e}")))?;
        let metadata = self.metadata(take_map(&self.field, &mut wrapped, "metadata")?)?;
        let mut payload = take_map(&self.field, &mut wrapped, "payload")?;
        let mut inner = Record::at(record.position().clone());
        inner.operation = operation;
        inner.metadata = metadata;
        inner.key = self.data(&mut wrapped, "key")?;
        inner.payload = Change { before: self.data(&mut payload, "before")?, after: self.data(&mut payload, "after")? };
        Ok(inner)
    }

    fn metadata(&self, wrapped: Object) -> Result<Metadata, Fault> {
        let mut metadata = Metadata::with_capacity(wrapped.len());
        for (key, value) in wrapped {
            match value {
                Value::Text(text) => metadata.insert_translated(&key, text),
                other => {
                    let what = format!("metadata {key:?} is {}, not a text", other.type_name());
                    return Err(invalid(&self.field, &what));
                }
            }
        }
        Ok(metadata)
    }

    fn data(&self, wrapped: &mut Object, name: &str) -> Result<Data, Fault> {
        match wrapped.remove(name) {
            None | Some(Value::Null) => Ok(Data::Absent),
            Some(Value::Map(map)) => Ok(Data::Structured(map)),
            Some(Value::Text(text)) => STANDARD
                .decode(text.as_bytes())
                .map(|bytes| Data::Raw(bytes.into()))
                .map_err(|e| invalid(&self.field, &format!("{name} is not base64: {e}"))),
            Some(other) => {
                let what = format!("{name} is {}, not an object, base64 text or null", other.type_name());
                Err(invalid(&self.field, &what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::Position;

    use super::*;
    use crate::testing::{self, findings, outcome, process, record, text};

    const INNER: &str = r#"{"position":"aW5uZXI=","operation":"update","metadata":{"conduit.source.connector.id":"p:c","opencdc.collection":"theirs","recfmt.collection":"users","x":"1"},"key":"aw==","payload":{"before":{"id":1234567890123456789},"after":null}}"#;
    const UNWRAPPED: &str = r#"{"position":"b3V0ZXI=","operation":"update","metadata":{"recfmt.collection":"users","svc.source.connector.id":"p:c","x":"1"},"key":"aw==","payload":{"before":{"id":1234567890123456789},"after":null}}"#;

    fn outer(side: &str, after: Data) -> Record {
        let mut outer = Record::at(Position::copy_from(b"outer"));
        outer.metadata.insert("outer", "lost");
        outer.key = Data::text("outer");
        match side {
            "Key" => outer.key = after,
            _ => outer.payload.after = after,
        }
        outer
    }

    fn unwrap(settings: &[(&str, &str)], outer: &Record) -> Result<String, String> {
        match process(&kind(), settings, outer) {
            (after, Decision::Keep) => Ok(text(&after)),
            (after, Decision::Fail(fault)) => {
                assert_eq!(&after, outer);
                Err(format!("{}: {}", fault.code(), fault.message()))
            }
            (_, other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_inner_record_takes_the_place_of_the_outer() {
        let Value::Map(structured) = anabranch_record::json::parse_value(INNER.as_bytes()).unwrap() else { panic!() };
        let nested: Object =
            [("raw", Value::from(INNER)), ("map", Value::Map(structured.clone()))].into_iter().collect();
        for (settings, outer) in [
            (&[][..], outer("After", Data::text(INNER))),
            (&[][..], outer("After", Data::Structured(structured))),
            (&[("field", ".Payload.After.raw")], outer("After", Data::from(nested.clone()))),
            (&[("field", ".Payload.After.map")], outer("After", Data::from(nested))),
            (&[("field", ".Key")], outer("Key", Data::text(INNER))),
        ] {
            assert_eq!(unwrap(settings, &outer), Ok(UNWRAPPED.to_owned()));
        }
    }

    #[test]
    fn every_record_comes_out_as_it_went_in() {
        proptest::test_runner::TestRunner::default()
            .run(&testing::records(), |inner| {
                let mut json = Vec::new();
                if anabranch_record::json::write_record(&inner, &mut json).is_ok() {
                    let json = String::from_utf8(json).unwrap();
                    let unwrapped = unwrap(&[], &outer("After", Data::text(json.clone()))).unwrap();
                    proptest::prop_assert_eq!(text(&record(&unwrapped).with_position(inner.position().clone())), json);
                }
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn what_is_no_record_fails() {
        for (json, message) in [
            ("", "invalid JSON at byte 0: EOF while parsing a value"),
            ("[]", "the JSON text is list, not an object"),
            ("{}", "no operation"),
            (r#"{"operation":"create"}"#, "no metadata"),
            (r#"{"operation":"create","metadata":{}}"#, "no payload"),
            (r#"{"operation":1,"metadata":{},"payload":{}}"#, "operation is integer, not a text"),
            (
                r#"{"operation":"upsert","metadata":{},"payload":{}}"#,
                "unknown operation \"upsert\", expected one of create, update, delete, snapshot",
            ),
            (r#"{"operation":"create","metadata":[],"payload":{}}"#, "metadata is list, not an object"),
            (r#"{"operation":"create","metadata":{"a":1},"payload":{}}"#, "metadata \"a\" is integer, not a text"),
            (r#"{"operation":"create","metadata":{},"payload":null}"#, "payload is null, not an object"),
            (
                r#"{"operation":"create","metadata":{},"payload":{"after":"?"}}"#,
                "after is not base64: Invalid symbol 63, offset 0.",
            ),
            (
                r#"{"operation":"create","metadata":{},"key":[],"payload":{}}"#,
                "key is list, not an object, base64 text or null",
            ),
        ] {
            let expected = Err(format!("unwrap_failed: cannot unwrap .Payload.After: {message}"));
            assert_eq!(unwrap(&[], &outer("After", Data::text(json))), expected, "{json}");
        }
        let absent = r#"{"operation":"create","payload":{"after":{"a":1}}}"#;
        for (field, message) in [
            (".Payload.Before", "the record has no such data"),
            (".Payload.After.b", "the record has no such data"),
            (".Payload.After.a", "unexpected data type integer"),
        ] {
            let expected = Err(format!("unwrap_failed: cannot unwrap {field}: {message}"));
            assert_eq!(outcome(&kind(), &[("field", field)], absent), expected);
        }
        assert_eq!(findings(&kind(), &[("field", ".Metadata.a")]).len(), 1);
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for field in [".Key", ".Payload.After", ".Payload.After.a.b"] {
            testing::failed_rows_stay(&kind(), &[("field", field)]);
            testing::shapes_are_large_enough(&kind(), &[("field", field)]);
        }
    }
}
