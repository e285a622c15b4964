//! `grok.parse`: takes the parts of a text that a grok pattern names.

mod pattern;

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Field, Fields, Flow, Kinds, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::reference::Reference;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};

use self::pattern::{Part, Pattern};
use super::extraction::{Extraction, OnMismatch};
use crate::codes;

/// Returns the `grok.parse` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Parse>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the text: .Key, .Payload.After, or a field within them.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// The pattern: a text in which %{NAME:field} stands for the pattern NAME, whose text becomes the field, and
    /// %{NAME:field:int} (or :float, :bool) gives the field a type. The rest is a regular expression, in which
    /// (?<field>…) names a part too.
    #[parameter(required, example = "%{IP:client} %{WORD:method} %{NUMBER:bytes:int}")]
    pattern: Argument<Str>,
    /// The field that receives the object with the parts. By default, it replaces the text.
    #[parameter(within = [".Key", ".Payload"])]
    target: Option<Argument<Reference>>,
    /// Reaction to a text that does not match: fail (the record fails) or keep (it stays as it is).
    #[parameter(default = "fail")]
    on_mismatch: OnMismatch,
}

#[derive(Clone)]
struct Parse {
    extraction: Extraction,
    pattern: Arc<Pattern>,
    on_mismatch: OnMismatch,
}

impl InlineOperator for Parse {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("grok.parse", "Takes the parts of a text that a grok pattern names.")
            .describe(
                "Searches a text for a grok pattern, and replaces it with an object that has the named parts as fields. The \
                 patterns of Logstash are known, such as `COMBINEDAPACHELOG`, `SYSLOGLINE`, `TIMESTAMP_ISO8601`, `IP`, \
                 `NUMBER`, `QUOTEDSTRING`, `GREEDYDATA`. A part that is not in the text is null. A value that does not have \
                 the type of its part fails the record. The search ends after a number of steps that no sensible pattern \
                 needs; the record fails then. `regex.parse` is faster, and its time is linear in the length of the \
                 text. A field that is missing or null stays as it is.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let extraction = Extraction::new(&settings.field, settings.target.as_ref())?;
        let pattern = Pattern::compile(&settings.pattern).map_err(|error| {
            let finding = settings.pattern.invalid(error.message);
            Diagnostics::from(match error.hint {
                Some(hint) => finding.with_hint(hint),
                None => finding,
            })
        })?;
        Ok(Parse { extraction, pattern: pattern.into(), on_mismatch: settings.on_mismatch })
    }

    fn signature(&self) -> Signature {
        self.extraction.signature()
    }

    fn flow(&self, flow: &mut Flow) {
        let field = |Part { name, ty, .. }: &Part| (name.clone(), Field::present(Type::of(ty.kind() | Kinds::NULL)));
        let object = Type::map(Fields::closed(self.pattern.parts().iter().map(field)));
        self.extraction.flow(flow, "a text", object, self.on_mismatch);
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
    /// Returns the parts; `None` if the record stays as it is.
    fn parse(&self, record: &Record) -> Result<Option<Object>, Fault> {
        let Some(text) = self.extraction.text(record)? else { return Ok(None) };
        let found = self
            .pattern
            .search(text)
            .map_err(|_| Fault::record(codes::GROK_TOO_LONG, "the search for the pattern took too many steps"))?;
        let Some(found) = found else {
            return match self.on_mismatch {
                OnMismatch::Keep => Ok(None),
                OnMismatch::Fail => Err(self.extraction.mismatch("pattern")),
            };
        };
        let mut entries = Vec::with_capacity(self.pattern.parts().len());
        for part in self.pattern.parts() {
            let value = match part.groups.iter().find_map(|group| found.get(*group)) {
                None => Value::Null,
                Some(text) => part.ty.read(text.as_str()).ok_or_else(|| {
                    let what = format!("the part {:?} is not {}", part.name, part.ty.demands());
                    Fault::record(codes::TEXT_NO_MATCH, what)
                })?,
            };
            entries.push((part.name.clone(), value));
        }
        Ok(Some(Object::from_entries(entries)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings};

    const FIELD: (&str, &str) = ("field", ".Payload.After");

    fn parse(pattern: &str, text: &str) -> Result<String, String> {
        testing::of_text(&kind(), &[("pattern", pattern)], text)
    }

    #[test]
    fn an_access_log_is_parsed() {
        let line = "203.0.113.7 - ada [27/Nov/2026:04:05:06 +0000] \"GET /a?b=c HTTP/1.1\" 200 512 \"-\" \"curl/8.5\"";
        let found: serde_json::Value = serde_json::from_str(&parse("%{COMBINEDAPACHELOG}", line).unwrap()).unwrap();
        assert_eq!(found["clientip"], "203.0.113.7");
        assert_eq!(found["verb"], "GET");
        assert_eq!(found["request"], "/a?b=c");
        assert_eq!(found["response"], "200");
        assert_eq!(found["timestamp"], "27/Nov/2026:04:05:06 +0000");
        assert_eq!(found["rawrequest"], serde_json::Value::Null);
    }

    #[test]
    fn parts_have_their_types() {
        let pattern = "^%{IP:ip} %{NUMBER:bytes:int} %{NUMBER:took:float} (?<rest>.*)$";
        let expected = r#"{"bytes":7,"ip":"::1","rest":"the rest","took":1.5}"#;
        assert_eq!(parse(pattern, "::1 7 1.5 the rest").as_deref(), Ok(expected));
        let said = parse(pattern, "::1 7.5 1.5 x").unwrap_err();
        assert_eq!(said, "text_no_match: the part \"bytes\" is not an integer in base 10 that fits 64 bits");
        let said = parse(pattern, "nothing").unwrap_err();
        assert_eq!(said, "text_no_match: the text of .Payload.After does not match the pattern");
    }

    #[test]
    fn patterns_that_back_track_without_end_are_stopped() {
        let said = parse(r"^(?=(?<x>(?:a|aa)+))(?:a|aa)+\k<x>b$", &"a".repeat(4000)).unwrap_err();
        assert_eq!(said, "grok_too_long: the search for the pattern took too many steps");
    }

    #[test]
    fn wrong_patterns_are_found() {
        let said = |pattern: &str| findings(&kind(), &[FIELD, ("pattern", pattern)]).join("; ");
        assert!(said("%{NUMBR:x}").contains("there is no pattern NUMBR"));
        assert!(said("%{NUMBER:x:number}").contains("the type \"number\" of the part \"x\" is unknown"));
        assert!(said("%{NUMBER:x").contains("%{ without }"));
        assert!(said("%{NUMBER}").contains("names no part"));
        assert!(said("(%{NUMBER:x}").contains("the pattern is wrong"));
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for on_mismatch in ["fail", "keep"] {
            let settings =
                [("field", ".Payload.After.a"), ("pattern", "%{NUMBER:n:int}|%{WORD:w}"), ("onMismatch", on_mismatch)];
            testing::failed_rows_stay(&kind(), &settings);
            testing::shapes_are_large_enough(&kind(), &settings);
        }
    }
}
