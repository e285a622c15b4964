//! `base64.encode`: encodes a field as base64 text.

use std::sync::Arc;

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Flow, Kinds};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Part, Reference};
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};
use bytes::Bytes;

use crate::scalar::push_scalar;

/// Returns the `base64.encode` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Encode>()
}

#[derive(Parameters)]
struct Settings {
    /// The field to encode: .Payload.After, .Payload.After.image, .Metadata.title.
    #[parameter(within = [".Metadata", ".Key", ".Payload"])]
    field: Argument<Reference>,
}

#[derive(Clone)]
struct Encode {
    field: Reference,
    /// Output buffer, reused between records.
    buffer: String,
}

impl InlineOperator for Encode {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("base64.encode", "Encodes a field as base64 text.")
        .describe(
            "Replaces a field with its base64 text (standard alphabet, padded): raw data in `.Key`, `.Payload.Before` \
             and `.Payload.After`, text elsewhere. Raw data, bytes and text are encoded as they are, numbers and \
             booleans as text. Missing, absent and null fields stay unchanged. Lists, maps, times and structured data \
             fail the record.",
        )
        .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        Ok(Encode { field: super::one_value(&settings.field)?, buffer: String::new() })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        super::flow(
            flow,
            &self.field,
            Kinds::TEXT | Kinds::BYTES | Kinds::BOOL | Kinds::INT | Kinds::FLOAT,
            Kinds::TEXT,
            Some(Content::Base64),
        );
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            self.encode(record)?;
            Ok(Decision::Keep)
        });
        // A single huge record must not keep its memory allocated.
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = String::new();
        }
    }
}

impl Encode {
    fn encode(&mut self, record: &mut Record) -> Result<(), Fault> {
        let Encode { field, buffer } = self;
        buffer.clear();
        match field.get(record)? {
            None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null)) => return Ok(()),
            Some(Part::Data(Data::Raw(bytes))) => {
                let encoded = Data::Raw(Bytes::from(STANDARD.encode(bytes)));
                return field.set_data(record, encoded);
            }
            Some(Part::Entry(text) | Part::Value(Value::Text(text))) => STANDARD.encode_string(text.as_bytes(), buffer),
            Some(Part::Value(Value::Bytes(bytes))) => STANDARD.encode_string(bytes, buffer),
            Some(Part::Value(value @ (Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_)))) => {
                let mut text = String::new();
                push_scalar(value, &mut text);
                STANDARD.encode_string(text, buffer);
            }
            Some(other) => return Err(super::unexpected_type("encode", field, &other)),
        }
        field.set(record, Value::from(buffer.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, outcome};

    const SAMPLE: &str = r#"{"position":"","operation":"create","metadata":{"t":"a"},"key":"AP8=","payload":{"before":null,"after":{"b":true,"f":1e21,"i":1234567890123456789,"l":[1],"n":null,"o":{},"t":"häh?","u":18446744073709551615}}}"#;

    fn encode(field: &str) -> Result<String, String> {
        outcome(&kind(), &[("field", field)], SAMPLE)
    }

    #[test]
    fn the_field_becomes_base64() {
        for (field, old, new) in [
            (".Key", r#""AP8=""#, r#""QVA4PQ==""#),
            (".Metadata.t", r#""a""#, r#""YQ==""#),
            (".Payload.After.t", r#""häh?""#, r#""aMOkaD8=""#),
            (".Payload.After.b", "true", r#""dHJ1ZQ==""#),
            (".Payload.After.i", "1234567890123456789", r#""MTIzNDU2Nzg5MDEyMzQ1Njc4OQ==""#),
            (".Payload.After.u", "18446744073709551615", r#""MTg0NDY3NDQwNzM3MDk1NTE2MTU=""#),
            (".Payload.After.f", "1e21", r#""MTAwMDAwMDAwMDAwMDAwMDAwMDAwMA==""#),
        ] {
            let expected = testing::text(&testing::record(&SAMPLE.replacen(old, new, 1)));
            assert_eq!(encode(field), Ok(expected), "{field}");
        }
    }

    #[test]
    fn nothing_stays_nothing() {
        for field in
            [".Payload.Before", ".Payload.Before.x", ".Payload.After.n", ".Payload.After.no.way", ".Metadata.no"]
        {
            assert_eq!(encode(field), Ok(testing::text(&testing::record(SAMPLE))), "{field}");
        }
    }

    #[test]
    fn what_is_no_single_value_fails() {
        for (field, found) in
            [(".Payload.After", "structured data"), (".Payload.After.l", "list"), (".Payload.After.o", "map")]
        {
            let message = format!("base64_unexpected_type: cannot encode {field}: unexpected data type {found}");
            assert_eq!(encode(field), Err(message));
        }
        assert!(encode(".Key.a").unwrap_err().starts_with("reference_unresolved: "));
    }

    #[test]
    fn what_can_never_be_encoded_is_found_early() {
        let told = |field: &str| findings(&kind(), &[("field", field)]);
        assert_eq!(told(".Position"), ["field: \".Position\" must refer to .Metadata, .Key, .Payload"]);
        assert_eq!(told(".Operation"), ["field: \".Operation\" must refer to .Metadata, .Key, .Payload"]);
        assert_eq!(told(".Metadata"), ["field: .Metadata is a map of texts"]);
        assert_eq!(told(".Payload"), ["field: .Payload has two sides, Before and After"]);
        assert_eq!(findings(&kind(), &[]), ["\"field\" is required by base64.encode"]);
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for field in [".Key", ".Metadata.a", ".Payload.After.a", ".Payload.Before.a.b"] {
            testing::failed_rows_stay(&kind(), &[("field", field)]);
            testing::shapes_are_large_enough(&kind(), &[("field", field)]);
        }
    }
}
