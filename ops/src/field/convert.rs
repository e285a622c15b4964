//! `field.convert`: converts a field to another type.

use std::sync::Arc;

use anabranch_plugin::arguments::parse_bool;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Flow, Kinds, Type as Shape};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Choice, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::json::{write_data, write_value};
use anabranch_record::reference::{Part, Reference, Target};
use anabranch_record::value::{Timestamp, Value};
use anabranch_record::{Data, Record};
use chrono::DateTime;

use crate::codes;
use crate::scalar::push_scalar;

/// Returns the `field.convert` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Convert>()
}

#[derive(Parameters)]
struct Settings {
    /// The field to convert, such as .Payload.After.price.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// The new type.
    r#type: Argument<ScalarType>,
}

/// The type of a converted value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarType {
    String,
    Int,
    Float,
    Bool,
    Time,
}

impl Choice for ScalarType {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("string", ScalarType::String),
        ("int", ScalarType::Int),
        ("float", ScalarType::Float),
        ("bool", ScalarType::Bool),
        ("time", ScalarType::Time),
    ];
}

impl ScalarType {
    const fn as_str(self) -> &'static str {
        match self {
            ScalarType::String => "string",
            ScalarType::Int => "int",
            ScalarType::Float => "float",
            ScalarType::Bool => "bool",
            ScalarType::Time => "time",
        }
    }

    /// Returns the kinds of the converted value.
    pub(crate) const fn kind(self) -> Kinds {
        match self {
            ScalarType::String => Kinds::TEXT,
            ScalarType::Int => Kinds::INT,
            ScalarType::Float => Kinds::FLOAT,
            ScalarType::Bool => Kinds::BOOL,
            ScalarType::Time => Kinds::TIME,
        }
    }

    /// Returns the kinds of values that this conversion always rejects.
    fn refuses(self) -> Kinds {
        match self {
            ScalarType::String => Kinds::NONE,
            ScalarType::Int | ScalarType::Float | ScalarType::Bool => Kinds::LIST | Kinds::MAP | Kinds::TIME,
            ScalarType::Time => Kinds::LIST | Kinds::MAP | Kinds::BOOL,
        }
    }

    /// Description of the required text, for error messages.
    pub(crate) const fn demands(self) -> &'static str {
        match self {
            ScalarType::String => "UTF-8 text",
            ScalarType::Int => "an integer in base 10 that fits 64 bits",
            ScalarType::Float => "a number in the range of floats",
            ScalarType::Bool => "one of 1 t T TRUE true True 0 f F FALSE false False",
            ScalarType::Time => {
                "an integer (nanoseconds since 1970) or an RFC 3339 time, for example 2026-11-21T06:00:00Z"
            }
        }
    }

    /// Parses `text` as this type. Returns `None` if the text is not valid for the type.
    pub(crate) fn read(self, text: &str) -> Option<Value> {
        match self {
            ScalarType::String => Some(Value::from(text)),
            ScalarType::Int => {
                text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from)).ok()
            }
            ScalarType::Float => {
                let number: f64 = text.parse().ok()?;
                let in_range = number.is_finite() || !text.contains(|c: char| c.is_ascii_digit());
                in_range.then_some(Value::Float(number))
            }
            ScalarType::Bool => parse_bool(text).map(Value::from),
            ScalarType::Time => match text.parse::<i64>() {
                Ok(nanos) => Some(Value::Time(Timestamp::from_timestamp_nanos(nanos))),
                Err(_) => DateTime::parse_from_rfc3339(text).ok().map(|time| Value::Time(time.to_utc())),
            },
        }
    }
}

/// Returns `true` if `text` can be converted to a time.
pub(super) fn is_time(text: &str) -> bool {
    ScalarType::Time.read(text).is_some()
}

#[derive(Clone)]
struct Convert {
    field: Reference,
    to: ScalarType,
    /// Output buffer, reused between records.
    buffer: String,
}

impl InlineOperator for Convert {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("field.convert", "Converts a field to another type.")
            .describe(
                "Converts the value of a field to text and parses the text as another type.\n\n\
                 * `string`: numbers are written without exponent, times as RFC 3339, lists and maps as JSON; bytes \
                 must be UTF-8.\n\
                 * `int`: an integer in base 10 of up to 64 bits, exact; a float only if it has no fraction; booleans \
                 are 1 and 0.\n\
                 * `float`: any number; booleans are 1 and 0.\n\
                 * `bool`: one of `1 t T TRUE true True 0 f F FALSE false False`.\n\
                 * `time`: an integer (nanoseconds since 1970 in UTC), or RFC 3339 text.\n\n\
                 Null stays null. A record without the field fails, and so does a record whose value cannot be \
                 converted.",
            )
            .with_all(shared::processor())
    }

    fn configure(Settings { field, r#type }: Settings) -> Result<Self, Diagnostics> {
        let (field, to) = (field.one_side()?, *r#type);
        if matches!(field.target(), Target::Data(_)) && to != ScalarType::String {
            return Err(r#type
                .invalid(format_args!("{field} is raw data or a map and cannot have the type {}", to.as_str()))
                .with_hint(format!("name a field of {field}, or convert to string"))
                .into());
        }
        Ok(Convert { field, to, buffer: String::new() })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        flow.may_fail();
        let to = self.to.kind();
        if let Target::Data(_) = self.field.target() {
            let since = flow.peek(&self.field).ty.since_if(Kinds::BYTES);
            return flow.replace("field", &self.field, Shape { since, ..Shape::of(to) });
        }
        if self.to == ScalarType::Time {
            flow.need_other(codes::FLOW_NOT_CONVERTIBLE, "field", &self.field, &[Content::Timeless], self.to.demands());
        }
        let wanted = (Kinds::ANY.without(self.to.refuses()), "a value that can be converted");
        let found = flow.need(codes::FLOW_NOT_CONVERTIBLE, "field", &self.field, wanted, false);
        if flow.fails() {
            return;
        }
        let null = if found.ty.kinds.overlaps(Kinds::NULL) { Kinds::NULL } else { Kinds::NONE };
        flow.set("field", &self.field, Shape { since: found.ty.since_if(to | null), ..Shape::of(to | null) });
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            self.convert(record)?;
            Ok(Decision::Keep)
        });
        // A single huge record must not keep its memory allocated.
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = String::new();
        }
    }
}

impl Convert {
    fn convert(&mut self, record: &mut Record) -> Result<(), Fault> {
        let value = match self.field.get(record)? {
            Some(Part::Data(data)) => return self.data_to_text(&data.clone(), record),
            Some(Part::Value(value)) => value,
            _ => {
                let what = format!("cannot convert {}: the record has no such field", self.field);
                return Err(Fault::record(codes::CONVERT_MISSING, what));
            }
        };
        let converted = match (value, self.to) {
            (Value::Null, _)
            | (Value::Text(_), ScalarType::String)
            | (Value::Int(_) | Value::UInt(_), ScalarType::Int)
            | (Value::Float(_), ScalarType::Float)
            | (Value::Bool(_), ScalarType::Bool)
            | (Value::Time(_), ScalarType::Time) => return Ok(()),
            (Value::Bool(value), ScalarType::Int) => Value::from(i64::from(*value)),
            (Value::Bool(value), ScalarType::Float) => Value::from(f64::from(u8::from(*value))),
            (Value::Text(text), to) => to.read(text).ok_or_else(|| self.refused("text"))?,
            (Value::Bytes(bytes), to) => {
                std::str::from_utf8(bytes).ok().and_then(|text| to.read(text)).ok_or_else(|| self.refused("bytes"))?
            }
            (Value::List(_) | Value::Map(_), ScalarType::String) => {
                let mut json = Vec::new();
                write_value(value, &mut json)?;
                Value::from(String::from_utf8(json).map_err(|_| self.refused(value.type_name()))?)
            }
            (Value::List(_) | Value::Map(_), _) => return Err(self.refused(value.type_name())),
            (scalar, to) => {
                self.buffer.clear();
                push_scalar(scalar, &mut self.buffer);
                to.read(&self.buffer).ok_or_else(|| self.refused(scalar.type_name()))?
            }
        };
        self.field.set(record, converted)
    }

    /// Converts structured data to raw JSON text, for the whole key or payload. Raw data stays unchanged.
    fn data_to_text(&self, data: &Data, record: &mut Record) -> Result<(), Fault> {
        if data.fields().is_none() {
            return Ok(());
        }
        let mut json = Vec::new();
        write_data(data, &mut json)?;
        self.field.set_data(record, Data::Raw(json.into()))
    }

    #[cold]
    fn refused(&self, found: &str) -> Fault {
        let what = format!(
            "cannot convert {} from {found} to {}: it is not {}",
            self.field,
            self.to.as_str(),
            self.to.demands()
        );
        Fault::record(codes::CONVERT_FAILED, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, outcome, process, record};

    /// The value of `.Key.a` as `type`, from its JSON text to its JSON text; `None` where it does not fit.
    fn convert(json: &str, to: &str) -> Option<String> {
        let settings = [("field", ".Key.a"), ("type", to)];
        let sample = |value: &str| {
            format!(
                r#"{{"position":"","operation":"create","metadata":{{}},"key":{{"a":{value}}},"payload":{{"before":null,"after":null}}}}"#
            )
        };
        match outcome(&kind(), &settings, &sample(json)) {
            Ok(text) => {
                let (start, end) = text.split_once("\"key\":{\"a\":").unwrap();
                assert!(sample("").starts_with(start));
                Some(end.strip_suffix(r#"},"payload":{"before":null,"after":null}}"#).unwrap().to_owned())
            }
            Err(message) => {
                assert!(message.starts_with("convert_failed: cannot convert .Key.a from "), "{message}");
                assert!(message.contains(&format!(" to {to}: it is not ")), "{message}");
                None
            }
        }
    }

    fn value(value: Value, to: &str) -> Result<Value, String> {
        let mut sample = record(r#"{"operation":"create"}"#);
        sample.key = Data::from([("a", value)].into_iter().collect::<anabranch_record::value::Object>());
        match process(&kind(), &[("field", ".Key.a"), ("type", to)], &sample) {
            (after, Decision::Keep) => Ok(after.key.fields().unwrap().get("a").unwrap().clone()),
            (_, Decision::Fail(fault)) => Err(fault.message()),
            (_, other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_goes_through_text() {
        // From, then string, int, float, bool, time; "-" where it does not fit.
        for (from, expected) in [
            ("null", ["null", "null", "null", "null", "null"]),
            ("true", ["\"true\"", "1", "1.0", "true", "-"]),
            ("false", ["\"false\"", "0", "0.0", "false", "-"]),
            ("1", ["\"1\"", "1", "1.0", "true", "\"1970-01-01T00:00:00.000000001Z\""]),
            ("0", ["\"0\"", "0", "0.0", "false", "\"1970-01-01T00:00:00Z\""]),
            ("-7", ["\"-7\"", "-7", "-7.0", "-", "\"1969-12-31T23:59:59.999999993Z\""]),
            (
                "1234567890123456789",
                [
                    "\"1234567890123456789\"",
                    "1234567890123456789",
                    "1.2345678901234568e18",
                    "-",
                    "\"2009-02-13T23:31:30.123456789Z\"",
                ],
            ),
            (
                "18446744073709551615",
                ["\"18446744073709551615\"", "18446744073709551615", "1.8446744073709552e19", "-", "-"],
            ),
            ("1.0", ["\"1\"", "1", "1.0", "true", "\"1970-01-01T00:00:00.000000001Z\""]),
            ("1.5", ["\"1.5\"", "-", "1.5", "-", "-"]),
            ("1e6", ["\"1000000\"", "1000000", "1000000.0", "-", "\"1970-01-01T00:00:00.001Z\""]),
            ("1e21", ["\"1000000000000000000000\"", "-", "1e21", "-", "-"]),
            ("\"\"", ["\"\"", "-", "-", "-", "-"]),
            ("\"x\"", ["\"x\"", "-", "-", "-", "-"]),
            ("\" 1\"", ["\" 1\"", "-", "-", "-", "-"]),
            ("\"1.5\"", ["\"1.5\"", "-", "1.5", "-", "-"]),
            ("\"+5\"", ["\"+5\"", "5", "5.0", "-", "\"1970-01-01T00:00:00.000000005Z\""]),
            ("\"1e400\"", ["\"1e400\"", "-", "-", "-", "-"]),
            (
                "\"9223372036854775807\"",
                [
                    "\"9223372036854775807\"",
                    "9223372036854775807",
                    "9.223372036854775807e18",
                    "-",
                    "\"2262-04-11T23:47:16.854775807Z\"",
                ],
            ),
            ("\"18446744073709551616\"", ["\"18446744073709551616\"", "-", "1.8446744073709552e19", "-", "-"]),
            ("\"T\"", ["\"T\"", "-", "-", "true", "-"]),
            ("\"False\"", ["\"False\"", "-", "-", "false", "-"]),
            ("\"yes\"", ["\"yes\"", "-", "-", "-", "-"]),
            (
                "\"2026-11-21T06:00:00.25+01:00\"",
                ["\"2026-11-21T06:00:00.25+01:00\"", "-", "-", "-", "\"2026-11-21T05:00:00.250Z\""],
            ),
            ("\"2026-11-21\"", ["\"2026-11-21\"", "-", "-", "-", "-"]),
            ("[1,\"x\"]", ["\"[1,\\\"x\\\"]\"", "-", "-", "-", "-"]),
            ("{\"b\":null}", ["\"{\\\"b\\\":null}\"", "-", "-", "-", "-"]),
        ] {
            for ((_, to), expected) in ScalarType::CHOICES.iter().zip(expected) {
                let converted = convert(from, to.as_str());
                let same = match (&converted, to) {
                    (Some(got), ScalarType::Float) if expected != "-" => got.parse::<f64>() == expected.parse(),
                    (got, _) => got.as_deref().unwrap_or("-") == expected,
                };
                assert!(same, "{from} to {}: {converted:?}, not {expected}", to.as_str());
            }
        }
    }

    #[test]
    fn what_json_lacks_is_converted_too() {
        let time = Value::Time("2026-11-21T06:00:00.5Z".parse().unwrap());
        assert_eq!(value(time.clone(), "string"), Ok(Value::from("2026-11-21T06:00:00.5Z")));
        assert_eq!(value(time.clone(), "time"), Ok(time.clone()));
        assert_eq!(value(Value::from("2026-11-21T06:00:00.5Z"), "time"), Ok(time.clone()));
        assert!(value(time, "int").is_err());
        let bytes = |bytes: &[u8]| Value::Bytes(Arc::from(bytes));
        assert_eq!(value(bytes(b"12"), "int"), Ok(Value::Int(12)));
        assert_eq!(value(bytes("ä".as_bytes()), "string"), Ok(Value::from("ä")));
        assert_eq!(
            value(bytes(b"\xff"), "string"),
            Err("cannot convert .Key.a from bytes to string: it is not UTF-8 text".to_owned())
        );
        assert_eq!(value(Value::from(f64::INFINITY), "string"), Ok(Value::from("+Inf")));
        assert_eq!(value(Value::from("-inf"), "float"), Ok(Value::from(f64::NEG_INFINITY)));
        assert!(value(Value::from(f64::NAN), "int").is_err());
    }

    #[test]
    fn a_missing_field_fails_the_record() {
        let convert = |field: &str| {
            outcome(
                &kind(),
                &[("field", field), ("type", "string")],
                r#"{"operation":"create","key":{"a":{}},"payload":{"after":"eA=="}}"#,
            )
        };
        for missing in [".Key.b", ".Key.a.b.c", ".Payload.Before.a"] {
            assert_eq!(
                convert(missing),
                Err(format!("convert_missing: cannot convert {missing}: the record has no such field"))
            );
        }
        assert!(convert(".Payload.After.x").unwrap_err().starts_with("reference_unresolved: "));
    }

    #[test]
    fn data_as_a_whole_become_raw() {
        let sample = r#"{"position":"","operation":"create","metadata":{},"key":{"a":1},"payload":{"before":null,"after":"eA=="}}"#;
        let convert = |field: &str| outcome(&kind(), &[("field", field), ("type", "string")], sample);
        assert_eq!(convert(".Key"), Ok(sample.replace(r#"{"a":1}"#, "\"eyJhIjoxfQ==\"")));
        assert_eq!(convert(".Payload.Before"), Ok(sample.to_owned()));
        assert_eq!(convert(".Payload.After"), Ok(sample.to_owned()));
    }

    #[test]
    fn what_can_never_be_converted_is_found_early() {
        let told = |field, to| findings(&kind(), &[("field", field), ("type", to)]);
        assert_eq!(told(".Key", "int"), ["type: .Key is raw data or a map and cannot have the type int"]);
        assert_eq!(told(".Payload", "string"), ["field: .Payload has two sides, Before and After"]);
        assert_eq!(told(".Metadata.a", "int"), ["field: \".Metadata.a\" must refer to .Key, .Payload"]);
        assert_eq!(told(".Key.a", "integer"), ["type: \"integer\" is not one of string, int, float, bool, time"]);
        assert_eq!(findings(&kind(), &[]).len(), 2);
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for (_, to) in ScalarType::CHOICES {
            for field in [".Key.a", ".Payload.After.a.b"] {
                testing::failed_rows_stay(&kind(), &[("field", field), ("type", to.as_str())]);
                testing::shapes_are_large_enough(&kind(), &[("field", field), ("type", to.as_str())]);
            }
        }
        testing::failed_rows_stay(&kind(), &[("field", ".Key"), ("type", "string")]);
        testing::shapes_are_large_enough(&kind(), &[("field", ".Key"), ("type", "string")]);
    }
}
