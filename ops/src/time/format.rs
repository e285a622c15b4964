//! `time.format`: writes a time as a text or number.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::phrase::with_article;
use anabranch_record::reference::{Part, Reference};
use anabranch_record::text::Str;
use anabranch_record::value::{Timestamp, Value};
use chrono::DateTime;
use chrono_tz::Tz;

use super::layout::Layout;
use super::{value_of, zone_of};
use crate::codes;

/// Returns the `time.format` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Format>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the time, such as .Payload.After.at.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// The layout to write: one of strptime (%d/%b/%Y:%H:%M:%S %z), one of Go (02/Jan/2006:15:04:05 -0700), rfc3339,
    /// rfc2822, or a number since 1970: unix (seconds), unix_ms, unix_us or unix_ns.
    #[parameter(required, example = "%Y-%m-%d %H:%M:%S")]
    layout: Argument<Str>,
    /// The time zone to write the time in: a name of the IANA database, such as Europe/Berlin.
    #[parameter(default = "UTC")]
    zone: Argument<Str>,
}

#[derive(Clone)]
struct Format {
    field: Reference,
    layout: Layout,
    zone: Tz,
    /// Reused between records.
    buffer: String,
}

impl InlineOperator for Format {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("time.format", "Writes a time as a text or number.")
            .describe(
                "Replaces a time, or the text of a time as RFC 3339, with a text of the layout in the time zone. With the \
                 layouts `unix`, `unix_ms`, `unix_us` and `unix_ns` it becomes an integer, rounded down. A field that is \
                 missing or null stays as it is. A value that is no time fails the record: `time.parse` makes times of \
                 texts and numbers.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let field = value_of(&settings.field)?;
        let zone = zone_of(&settings.zone)?;
        let wrong = |why: String| Diagnostics::from(settings.layout.invalid(format_args!("the layout: {why}")));
        let layout = Layout::new(&settings.layout).map_err(wrong)?;
        layout.check_writes().map_err(wrong)?;
        Ok(Format { field, layout, zone, buffer: String::new() })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        let wanted = (Kinds::TEXT | Kinds::BYTES | Kinds::TIME, "a time");
        flow.need(codes::FLOW_NOT_A_TEXT, "field", &self.field, wanted, true);
        flow.may_fail();
        let becomes = if self.layout.is_number() { Kinds::INT } else { Kinds::TEXT };
        flow.replace("field", &self.field, Type::of(becomes));
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if let Some(time) = self.time(record)? {
                let value = self.value(time)?;
                self.field.set(record, value)?;
            }
            Ok(Decision::Keep)
        });
    }
}

impl Format {
    /// Returns the time; `None` if the field is missing or null.
    fn time(&self, record: &Record) -> Result<Option<Timestamp>, Fault> {
        let text = match self.field.get(record)? {
            None | Some(Part::Value(Value::Null)) => return Ok(None),
            Some(Part::Value(Value::Time(time))) => return Ok(Some(*time)),
            Some(Part::Value(Value::Text(text))) => Some(&**text),
            Some(Part::Value(Value::Bytes(bytes))) => std::str::from_utf8(bytes).ok(),
            Some(other) => return Err(self.refused(&with_article(other.type_name()))),
        };
        match text.and_then(|text| DateTime::parse_from_rfc3339(text).ok()) {
            Some(time) => Ok(Some(time.to_utc())),
            None => Err(self.refused("a text that is not in RFC 3339")),
        }
    }

    fn value(&mut self, time: Timestamp) -> Result<Value, Fault> {
        if self.layout.is_number() {
            let number = self.layout.number(&time).ok_or_else(|| self.refused("outside the range of numbers"))?;
            return Ok(Value::from(number));
        }
        self.buffer.clear();
        self.layout
            .write(time, self.zone, &mut self.buffer)
            .map_err(|_| self.refused("a time that the layout cannot show"))?;
        Ok(Value::from(self.buffer.as_str()))
    }

    #[cold]
    fn refused(&self, found: &str) -> Fault {
        Fault::record(codes::TIME_INVALID, format!("cannot format {}: it is {found}, not a time", self.field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, outcome};

    const FIELD: (&str, &str) = ("field", ".Key.at");

    fn format(settings: &[(&str, &str)], value: &str) -> Result<String, String> {
        let sample = format!(
            r#"{{"position":"","operation":"create","metadata":{{}},"key":{{"at":{value}}},"payload":{{"before":null,"after":null}}}}"#
        );
        let settings: Vec<_> = [FIELD].iter().chain(settings).copied().collect();
        let text = outcome(&kind(), &settings, &sample)?;
        let (_, end) = text.split_once("\"key\":{\"at\":").unwrap();
        Ok(end.split_once('}').unwrap().0.to_owned())
    }

    #[test]
    fn times_become_texts_and_numbers() {
        let time = "\"2026-11-27T04:05:06.789Z\"";
        let said = |layout, zone| format(&[("layout", layout), ("zone", zone)], time).unwrap();
        assert_eq!(said("%d/%b/%Y:%H:%M:%S %z", "Europe/Berlin"), "\"27/Nov/2026:05:05:06 +0100\"");
        assert_eq!(said("Jan _2 2006 3:04PM", "UTC"), "\"Nov 27 2026 4:05AM\"");
        assert_eq!(said("unix", "UTC"), "1795752306");
        assert_eq!(said("unix_ms", "UTC"), "1795752306789");
        assert_eq!(format(&[("layout", "unix")], "null"), Ok("null".to_owned()));
    }

    #[test]
    fn what_is_no_time_fails() {
        let layout = [("layout", "%Y")];
        let said = format(&layout, "\"today\"").unwrap_err();
        assert_eq!(said, "time_invalid: cannot format .Key.at: it is a text that is not in RFC 3339, not a time");
        assert!(format(&layout, "7").unwrap_err().starts_with("time_invalid: cannot format .Key.at: it is "));
    }

    #[test]
    fn wrong_settings_are_found() {
        let said = |settings: &[(&str, &str)]| findings(&kind(), settings).join("; ");
        assert!(said(&[FIELD, ("layout", "%Y-%m-%d %#z")]).contains("can be parsed only"));
        assert!(said(&[FIELD, ("layout", "yyyy")]).contains("it names no part of a time"));
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for layout in ["unix", "%Y"] {
            let settings = [("field", ".Payload.After.a"), ("layout", layout)];
            testing::failed_rows_stay(&kind(), &settings);
            testing::shapes_are_large_enough(&kind(), &settings);
        }
    }
}
