//! `base64.decode`: decodes a field from base64 text.

use std::borrow::Cow;
use std::sync::Arc;

use ::base64::Engine as _;
use ::base64::alphabet;
use ::base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Flow, Kinds};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Part, Reference, Target};
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};
use bytes::Bytes;

use crate::codes;

/// Decoder that requires padding. Trailing bits that belong to no byte may be set, because some encoders leave them.
const ENGINE: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Returns the `base64.decode` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Decode>()
}

#[derive(Parameters)]
struct Settings {
    /// The field to decode: .Payload.After, .Payload.After.image, .Metadata.title.
    #[parameter(within = [".Metadata", ".Key", ".Payload"])]
    field: Argument<Reference>,
}

#[derive(Clone)]
struct Decode {
    field: Reference,
}

impl InlineOperator for Decode {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("base64.decode", "Decodes a field from base64 text.")
        .describe(
            "Replaces a base64 text (standard alphabet, padded; line breaks are ignored) with the decoded data: raw \
             data in `.Key`, `.Payload.Before` and `.Payload.After`, text elsewhere, or bytes if it is not UTF-8. In \
             metadata, data that is not UTF-8 fails the record. Missing, absent and null fields stay unchanged. \
             Fields that are not raw data, bytes or text fail the record.",
        )
        .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        Ok(Decode { field: super::one_value(&settings.field)? })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        flow.need_other(codes::FLOW_NOT_ENCODED, "field", &self.field, &[Content::Avro], "base64 text");
        super::flow(flow, &self.field, Kinds::TEXT | Kinds::BYTES, Kinds::TEXT | Kinds::BYTES, None);
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            self.decode(record)?;
            Ok(Decision::Keep)
        });
    }
}

impl Decode {
    fn decode(&self, record: &mut Record) -> Result<(), Fault> {
        let text = match self.field.get(record)? {
            None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null)) => return Ok(()),
            Some(Part::Data(Data::Raw(bytes))) => bytes.as_ref(),
            Some(Part::Entry(text) | Part::Value(Value::Text(text))) => text.as_bytes(),
            Some(Part::Value(Value::Bytes(bytes))) => bytes.as_ref(),
            Some(other) => return Err(super::unexpected_type("decode", &self.field, &other)),
        };
        let decoded = ENGINE
            .decode(without_line_breaks(text))
            .map_err(|e| Fault::record(codes::BASE64_INVALID, format!("cannot decode {}: {e}", self.field)))?;
        match self.field.target() {
            Target::Data(_) => self.field.set_data(record, Data::Raw(Bytes::from(decoded))),
            target => {
                let value = match String::from_utf8(decoded) {
                    Ok(text) => Value::from(text),
                    Err(_) if matches!(target, Target::Entry(_)) => {
                        let what = format!("cannot decode {}: metadata accepts only UTF-8 text", self.field);
                        return Err(Fault::record(codes::BASE64_NOT_TEXT, what));
                    }
                    Err(error) => Value::Bytes(Arc::from(error.into_bytes())),
                };
                self.field.set(record, value)
            }
        }
    }
}

fn without_line_breaks(text: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr2(b'\n', b'\r', text) {
        None => Cow::Borrowed(text),
        Some(_) => text.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, outcome, process, record};

    const SAMPLE: &str = r#"{"position":"","operation":"create","metadata":{"bad":"/w==","t":"YQ=="},"key":"WVE9PQ==","payload":{"before":null,"after":{"bytes":"/w==","i":1,"l":["YQ=="],"lines":"aMOk\r\naD8=\n","n":null,"t":"aMOkaD8=","wild":"a b","bits":"YR==","open":"YQ","url":"_-8="}}}"#;

    fn decode(field: &str) -> Result<String, String> {
        outcome(&kind(), &[("field", field)], SAMPLE)
    }

    #[test]
    fn the_field_becomes_what_it_says() {
        for (field, old, new) in [
            (".Key", r#""WVE9PQ==""#, r#""YQ==""#),
            (".Metadata.t", r#""t":"YQ==""#, r#""t":"a""#),
            (".Payload.After.t", r#""aMOkaD8=""#, r#""häh?""#),
            (".Payload.After.lines", r#""aMOk\r\naD8=\n""#, r#""häh?""#),
            (".Payload.After.bits", r#""YR==""#, r#""a""#),
        ] {
            let expected = record(&SAMPLE.replacen(old, new, 1));
            assert_eq!(decode(field), Ok(testing::text(&expected)), "{field}");
        }
        let (after, _) = process(&kind(), &[("field", ".Payload.After.bytes")], &record(SAMPLE));
        assert_eq!(after.payload.after.fields().unwrap().get("bytes"), Some(&Value::Bytes(Arc::from([0xff]))));
    }

    #[test]
    fn nothing_stays_nothing() {
        for field in
            [".Payload.Before", ".Payload.Before.x", ".Payload.After.n", ".Payload.After.no.way", ".Metadata.no"]
        {
            assert_eq!(decode(field), Ok(testing::text(&record(SAMPLE))), "{field}");
        }
    }

    #[test]
    fn what_is_no_base64_fails() {
        for (field, message) in [
            (
                ".Payload.After",
                "base64_unexpected_type: cannot decode .Payload.After: unexpected data type structured data",
            ),
            (".Payload.After.l", "base64_unexpected_type: cannot decode .Payload.After.l: unexpected data type list"),
            (
                ".Payload.After.i",
                "base64_unexpected_type: cannot decode .Payload.After.i: unexpected data type integer",
            ),
            (".Payload.After.wild", "base64_invalid: cannot decode .Payload.After.wild: Invalid symbol 32, offset 1."),
            (".Payload.After.url", "base64_invalid: cannot decode .Payload.After.url: Invalid symbol 95, offset 0."),
            (".Payload.After.open", "base64_invalid: cannot decode .Payload.After.open: Invalid padding"),
            (".Metadata.bad", "base64_not_text: cannot decode .Metadata.bad: metadata accepts only UTF-8 text"),
        ] {
            assert_eq!(decode(field), Err(message.to_owned()));
        }
        assert_eq!(findings(&kind(), &[("field", ".Metadata")]), ["field: .Metadata is a map of texts"]);
    }

    #[test]
    fn decoding_gives_back_what_was_encoded() {
        for field in [".Key", ".Metadata.t", ".Payload.After.t"] {
            let settings = [("field", field)];
            let encoded = outcome(&super::super::encode::kind(), &settings, SAMPLE).unwrap();
            assert_eq!(outcome(&kind(), &settings, &encoded), Ok(testing::text(&record(SAMPLE))));
        }
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for field in [".Key", ".Metadata.a", ".Payload.After.a", ".Payload.Before.a.b"] {
            testing::failed_rows_stay(&kind(), &[("field", field)]);
            testing::shapes_are_large_enough(&kind(), &[("field", field)]);
        }
    }
}
