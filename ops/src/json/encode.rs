//! `json.encode`: encodes a field as JSON text.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Form, Kinds, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::json::{write_data, write_value};
use anabranch_record::reference::{Part, Reference, Target};
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use crate::codes;

/// Returns the `json.encode` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Encode>()
}

#[derive(Parameters)]
struct Settings {
    /// The field to encode: .Key, .Payload.After, or a field within them.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
}

#[derive(Clone)]
struct Encode {
    field: Reference,
    /// Output buffer, reused between records.
    buffer: Vec<u8>,
}

impl InlineOperator for Encode {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("json.encode", "Encodes a field as JSON text.")
        .describe(
            "Replaces a field with its JSON text: raw data in `.Key`, `.Payload.Before` and `.Payload.After`, text in \
             a field within them. Bytes and raw data become base64 text, times RFC 3339 text. Absent and null fields \
             stay unchanged.",
        )
        .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        Ok(Encode { field: settings.field.one_side()?, buffer: Vec::new() })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        // Some numbers, such as NaN, have no JSON text.
        flow.may_fail();
        let found = flow.get("field", &self.field);
        if let Target::Data(side) = self.field.target() {
            let shape = flow.record.side(*side);
            if shape.is_absent() {
                let message = format!("no record has {} here, so there is nothing to encode", side.as_str());
                flow.needless("field", message, "name a part that the records have");
            } else if shape.form() == Some(Form::Raw) {
                let message = format!("{} is raw data, so the JSON text contains its bytes as base64", side.as_str());
                flow.needless("field", message, "encode structured data, and encode it only once");
            }
        }
        // Raw data stays raw data, with different text.
        flow.replace("field", &self.field, Type { since: found.ty.since_if(Kinds::BYTES), ..Type::of(Kinds::TEXT) });
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            self.encode(record)?;
            Ok(Decision::Keep)
        });
        // A single huge record must not keep its memory allocated.
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
    }
}

impl Encode {
    fn encode(&mut self, record: &mut Record) -> Result<(), Fault> {
        self.buffer.clear();
        match self.field.get(record)? {
            Some(Part::Data(data)) if *data != Data::Absent => {
                write_data(data, &mut self.buffer)?;
                self.field.set_data(record, Data::Raw(bytes::Bytes::copy_from_slice(&self.buffer)))
            }
            Some(Part::Value(value)) if *value != Value::Null => {
                write_value(value, &mut self.buffer)?;
                let text = std::str::from_utf8(&self.buffer).map_err(|e| Fault::record(codes::JSON_INVALID, e))?;
                self.field.set(record, Value::from(text))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, process, record};

    #[test]
    fn the_field_becomes_text() {
        let encode = |field: &str, before: &str| {
            let (after, decision) = process(&kind(), &[("field", field)], &record(before));
            assert!(matches!(decision, Decision::Keep), "{decision:?}");
            after
        };
        let sample = r#"{"operation":"create","key":"YQ==","payload":{"after":{"a":{"z":1234567890123456789,"b":[1.0]},"n":null}}}"#;
        let text = "{\"a\":{\"b\":[1.0],\"z\":1234567890123456789},\"n\":null}";
        assert_eq!(encode(".Payload.After", sample).payload.after, Data::text(text));
        assert_eq!(
            encode(".Payload.After.a", sample).payload.after.fields().unwrap().get("a"),
            Some(&Value::from("{\"b\":[1.0],\"z\":1234567890123456789}"))
        );
        assert_eq!(encode(".Key", sample).key, Data::text("\"YQ==\""));
        for stays in [".Payload.Before", ".Payload.Before.x", ".Payload.After.n", ".Payload.After.no.way"] {
            assert_eq!(encode(stays, sample), record(sample));
        }
    }

    #[test]
    fn decoding_gives_back_what_was_encoded() {
        let sample = record(r#"{"operation":"create","payload":{"after":{"a":[1,"x",null,{"b":2.5}]}}}"#);
        let settings = [("field", ".Payload.After")];
        let (encoded, _) = process(&kind(), &settings, &sample);
        assert_eq!(process(&crate::json::decode::kind(), &settings, &encoded).0, sample);
    }

    #[test]
    fn numbers_that_json_lacks_fail_the_record() {
        let mut sample = record(r#"{"operation":"create"}"#);
        let fields: anabranch_record::value::Object = [("a", f64::INFINITY)].into_iter().collect();
        sample.key = Data::from(fields);
        let (after, decision) = process(&kind(), &[("field", ".Key")], &sample);
        assert_eq!(after, sample);
        let Decision::Fail(fault) = decision else { panic!("{decision:?}") };
        assert_eq!(fault.code().name(), "json_not_finite");
    }

    #[test]
    fn a_failed_row_stays_as_it_was() {
        for field in [".Key", ".Payload.After.a", ".Payload.Before.a.b"] {
            testing::failed_rows_stay(&kind(), &[("field", field)]);
        }
        assert_eq!(
            findings(&kind(), &[("field", ".Operation")]),
            ["field: \".Operation\" must refer to .Key, .Payload"]
        );
    }
}
