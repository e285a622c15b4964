//! `time.parse`: makes a time of a text or number.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::{Part, Reference};
use anabranch_record::text::Str;
use anabranch_record::value::{Timestamp, Value};
use chrono_tz::Tz;

use super::layout::Layout;
use super::{value_of, zone_of};
use crate::codes;
use crate::field::scalar_text::scalar_text;

/// Returns the `time.parse` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Parse>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the time, such as .Payload.After.at.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// The layout of the text: one of strptime (%d/%b/%Y:%H:%M:%S %z), one of Go (02/Jan/2006:15:04:05 -0700), rfc3339,
    /// rfc2822, or a number since 1970: unix (seconds), unix_ms, unix_us or unix_ns.
    #[parameter(required, example = "%Y-%m-%d %H:%M:%S")]
    layout: Argument<Str>,
    /// The time zone of texts without an offset from UTC: a name of the IANA database, such as Europe/Berlin.
    #[parameter(default = "UTC")]
    zone: Argument<Str>,
}

#[derive(Clone)]
struct Parse {
    field: Reference,
    layout: Layout,
    zone: Tz,
}

impl InlineOperator for Parse {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("time.parse", "Makes a time of a text or number.")
            .describe(
                "Replaces a text, or a number with a layout such as `unix`, with the time that it names. The text must have \
                 the layout from its beginning to its end. A layout without a time of day names midnight. A local time \
                 that clocks were put back over is the earlier one; one that clocks were put forward over fails the \
                 record, and so does a text of another layout. A field that is missing or null stays as it is, and so \
                 does one that is a time.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let field = value_of(&settings.field)?;
        let zone = zone_of(&settings.zone)?;
        let wrong = |why: String| Diagnostics::from(settings.layout.invalid(format_args!("the layout: {why}")));
        let layout = Layout::new(&settings.layout).map_err(wrong)?;
        layout.check_parses(zone).map_err(wrong)?;
        Ok(Parse { field, layout, zone })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        let texts = Kinds::TEXT | Kinds::BYTES | Kinds::TIME;
        let wanted = match self.layout.is_number() {
            true => (texts | Kinds::INT | Kinds::FLOAT, "a number or its text"),
            false => (texts, "a text"),
        };
        flow.need(codes::FLOW_NOT_A_TEXT, "field", &self.field, wanted, true);
        flow.may_fail();
        flow.replace("field", &self.field, Type::of(Kinds::TIME));
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if let Some(time) = self.parse(record)? {
                self.field.set(record, Value::Time(time))?;
            }
            Ok(Decision::Keep)
        });
    }
}

impl Parse {
    /// Returns the time; `None` if the record stays as it is.
    fn parse(&self, record: &Record) -> Result<Option<Timestamp>, Fault> {
        match self.field.get(record)? {
            Some(Part::Value(Value::Text(text))) => return self.read(text).map(Some),
            Some(Part::Value(Value::Time(_))) => return Ok(None),
            Some(Part::Value(value @ (Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_))))
                if !self.layout.is_number() || matches!(value, Value::Bool(_)) =>
            {
                let what = format!("cannot parse {}: it is {}, not a text", self.field, value.type_name());
                return Err(Fault::record(codes::TEXT_UNEXPECTED_TYPE, what));
            }
            _ => {}
        }
        let Some(bytes) = scalar_text(&self.field, record, ("parse", codes::TEXT_UNEXPECTED_TYPE))? else {
            return Ok(None);
        };
        match std::str::from_utf8(&bytes) {
            Ok(text) => self.read(text).map(Some),
            Err(_) => Err(self.invalid("it is not in UTF-8")),
        }
    }

    fn read(&self, text: &str) -> Result<Timestamp, Fault> {
        self.layout.parse(text, self.zone).map_err(|why| self.invalid(&why))
    }

    #[cold]
    fn invalid(&self, why: &str) -> Fault {
        Fault::record(codes::TIME_INVALID, format!("the text of {} is no time of the layout: {why}", self.field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, outcome};

    const FIELD: (&str, &str) = ("field", ".Key.at");

    fn parse(settings: &[(&str, &str)], value: &str) -> Result<String, String> {
        let sample = |value: &str| {
            format!(
                r#"{{"position":"","operation":"create","metadata":{{}},"key":{{"at":{value}}},"payload":{{"before":null,"after":null}}}}"#
            )
        };
        let settings: Vec<_> = [FIELD].iter().chain(settings).copied().collect();
        let text = outcome(&kind(), &settings, &sample(value))?;
        let (_, end) = text.split_once("\"key\":{\"at\":").unwrap();
        Ok(end.split_once('}').unwrap().0.to_owned())
    }

    #[test]
    fn texts_and_numbers_become_times() {
        let access_log = [("layout", "%d/%b/%Y:%H:%M:%S %z")];
        let time = "\"2026-11-27T04:05:06Z\"".to_owned();
        assert_eq!(parse(&access_log, "\"27/Nov/2026:05:05:06 +0100\""), Ok(time.clone()));
        assert_eq!(parse(&[("layout", "unix")], "1795752306"), Ok(time.clone()));
        assert_eq!(parse(&[("layout", "unix")], "\"1795752306.0\""), Ok(time.clone()));
        let berlin = [("layout", "2006-01-02 15:04:05"), ("zone", "Europe/Berlin")];
        assert_eq!(parse(&berlin, "\"2026-11-27 05:05:06\""), Ok(time));
        assert_eq!(parse(&access_log, "null"), Ok("null".to_owned()));
    }

    #[test]
    fn what_is_no_time_fails() {
        let layout = [("layout", "%Y-%m-%d")];
        let said = parse(&layout, "\"yesterday\"").unwrap_err();
        assert!(said.starts_with("time_invalid: the text of .Key.at is no time of the layout: "), "{said}");
        assert!(!said.contains("yesterday"), "{said}");
        assert!(parse(&layout, "20261127").unwrap_err().starts_with("text_unexpected_type"));
        assert!(parse(&[("layout", "unix")], "true").unwrap_err().starts_with("text_unexpected_type"));
        assert!(parse(&layout, "[1]").unwrap_err().starts_with("text_unexpected_type"));
    }

    #[test]
    fn wrong_settings_are_found() {
        let said = |settings: &[(&str, &str)]| findings(&kind(), settings).join("; ");
        assert!(said(&[FIELD, ("layout", "%H:%M")]).contains("does not name a time"));
        let zone = said(&[FIELD, ("layout", "%Y-%m-%d"), ("zone", "Europe/Berlni")]);
        assert!(zone.contains("there is no time zone \"Europe/Berlni\""), "{zone}");
        assert!(said(&[("field", ".Key"), ("layout", "%Y-%m-%d")]).contains("not a single value"));
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for layout in ["unix_ns", "%Y"] {
            let settings = [("field", ".Payload.After.a"), ("layout", layout)];
            if findings(&kind(), &settings).is_empty() {
                testing::failed_rows_stay(&kind(), &settings);
                testing::shapes_are_large_enough(&kind(), &settings);
            }
        }
    }
}
