//! `regex.parse`: takes the parts of a text that a regular expression names.

use std::sync::Arc;

use ::regex::{CaptureLocations, Regex, RegexBuilder};
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

use super::extraction::{Extraction, OnMismatch};

/// Maximum size of a compiled expression, in bytes.
const COMPILED_BYTES: usize = 4 << 20;

/// Returns the `regex.parse` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Parse>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the text: .Key, .Payload.After, or a field within them.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// The regular expression, with at least one named group, such as (?<status>\d+). It is searched in the text: begin
    /// it with ^ and end it with $ to match the whole text. The syntax is that of the Rust library regex, without
    /// back-references and look-around, so that the time is linear in the length of the text.
    #[parameter(required, example = r"^(?<ip>\S+) (?<status>\d+)$")]
    pattern: Argument<Str>,
    /// The field that receives the object with the groups. By default, it replaces the text.
    #[parameter(within = [".Key", ".Payload"])]
    target: Option<Argument<Reference>>,
    /// Reaction to a text that does not match: fail (the record fails) or keep (it stays as it is).
    #[parameter(default = "fail")]
    on_mismatch: OnMismatch,
}

struct Parse {
    extraction: Extraction,
    pattern: Regex,
    /// The named groups with their numbers, in the order of their names.
    groups: Arc<[(Str, usize)]>,
    on_mismatch: OnMismatch,
    /// Reused for each record.
    locations: CaptureLocations,
}

impl Clone for Parse {
    fn clone(&self) -> Self {
        Parse {
            extraction: self.extraction.clone(),
            pattern: self.pattern.clone(),
            groups: self.groups.clone(),
            on_mismatch: self.on_mismatch,
            locations: self.pattern.capture_locations(),
        }
    }
}

impl InlineOperator for Parse {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("regex.parse", "Takes the named parts of a text.")
            .describe(
                "Searches a text for a regular expression, and replaces it with an object that has the named groups of the \
                 expression as fields. A group that took no part in the match is null. All values are texts: \
                 `field.convert` makes numbers of them. A field that is missing or null stays as it is.",
            )
            .with_all(shared::processor())
    }

    fn configure(settings: Settings) -> Result<Self, Diagnostics> {
        let extraction = Extraction::new(&settings.field, settings.target.as_ref())?;
        let pattern = &settings.pattern;
        let regex = RegexBuilder::new(pattern)
            .size_limit(COMPILED_BYTES)
            .build()
            .map_err(|error| pattern.invalid(format!("the regular expression is wrong: {}", in_one_line(&error))))?;
        let numbered = regex.capture_names().enumerate();
        let mut groups: Vec<(Str, usize)> =
            numbered.filter_map(|(number, name)| Some((Str::from(name?), number))).collect();
        if groups.is_empty() {
            let hint = "name the parts to take, for example (?<status>\\d+)";
            return Err(pattern.invalid("the regular expression has no named group").with_hint(hint).into());
        }
        groups.sort();
        let locations = regex.capture_locations();
        let (groups, on_mismatch) = (groups.into(), settings.on_mismatch);
        Ok(Parse { extraction, pattern: regex, groups, on_mismatch, locations })
    }

    fn signature(&self) -> Signature {
        self.extraction.signature()
    }

    fn flow(&self, flow: &mut Flow) {
        let group = || Field::present(Type::of(Kinds::TEXT | Kinds::NULL));
        let object = Type::map(Fields::closed(self.groups.iter().map(|(name, _)| (name.clone(), group()))));
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
    /// Returns the groups; `None` if the record stays as it is.
    fn parse(&mut self, record: &Record) -> Result<Option<Object>, Fault> {
        let Some(text) = self.extraction.text(record)? else { return Ok(None) };
        if self.pattern.captures_read(&mut self.locations, text).is_none() {
            return match self.on_mismatch {
                OnMismatch::Keep => Ok(None),
                OnMismatch::Fail => Err(self.extraction.mismatch("regular expression")),
            };
        }
        let value = |(name, number): &(Str, usize)| {
            let value = self.locations.get(*number).map_or(Value::Null, |(from, to)| Value::from(&text[from..to]));
            (name.clone(), value)
        };
        Ok(Some(Object::from_entries(self.groups.iter().map(value).collect())))
    }
}

/// Returns the last line of an error, which says what is wrong; the lines before show the expression.
fn in_one_line(error: &::regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use anabranch_record::Data;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{self, findings, process, record};

    fn parse(settings: &[(&str, &str)], after: Data) -> Result<String, String> {
        let mut sample = record(r#"{"operation":"create"}"#);
        sample.payload.after = after;
        let (found, decision) = process(&kind(), settings, &sample);
        match decision {
            Decision::Keep => match &found.payload.after {
                Data::Raw(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
                data => {
                    let mut out = Vec::new();
                    let object = data.fields().cloned().unwrap_or_default();
                    anabranch_record::json::write_value(&Value::from(object), &mut out).unwrap();
                    Ok(String::from_utf8(out).unwrap())
                }
            },
            Decision::Fail(fault) => {
                assert_eq!(found, sample);
                Err(format!("{}: {}", fault.code(), fault.message()))
            }
            other => panic!("{other:?}"),
        }
    }

    const FIELD: (&str, &str) = ("field", ".Payload.After");
    const LINE: (&str, &str) = ("pattern", r"^(?<ip>\S+) (?<status>\d+)(?: (?<size>\d+))?$");

    #[test]
    fn named_groups_become_fields() {
        let parsed = |text: &str| parse(&[FIELD, LINE], Data::text(text));
        assert_eq!(parsed("::1 200 17").as_deref(), Ok(r#"{"ip":"::1","size":"17","status":"200"}"#));
        assert_eq!(parsed("é 404").as_deref(), Ok(r#"{"ip":"é","size":null,"status":"404"}"#));
        let not = "text_no_match: the text of .Payload.After does not match the regular expression";
        assert_eq!(parsed("nothing"), Err(not.to_owned()));
        let kept = parse(&[FIELD, LINE, ("onMismatch", "keep")], Data::text("nothing"));
        assert_eq!(kept.as_deref(), Ok("nothing"));
    }

    #[test]
    fn the_object_may_have_a_field_of_its_own() {
        let Ok(Value::Map(object)) = anabranch_record::json::parse_value(br#"{"line":"a 1","n":null}"#) else {
            panic!()
        };
        let at = |field, target| {
            let settings = [("field", field), LINE, ("target", target)];
            parse(&settings, Data::Structured(object.clone()))
        };
        let expected = r#"{"line":"a 1","n":null,"parts":{"ip":"a","size":null,"status":"1"}}"#;
        assert_eq!(at(".Payload.After.line", ".Payload.After.parts").as_deref(), Ok(expected));
        for unset in [".Payload.After.n", ".Payload.After.other"] {
            assert_eq!(at(unset, ".Payload.After.parts").as_deref(), Ok(r#"{"line":"a 1","n":null}"#));
        }
        let said = at(".Payload.After", ".Key").unwrap_err();
        assert!(said.starts_with("text_unexpected_type: cannot parse .Payload.After: it is "), "{said}");
    }

    #[test]
    fn what_is_no_text_fails() {
        let said = parse(&[FIELD, LINE], Data::Raw((&b"\xff 1"[..]).into())).unwrap_err();
        assert_eq!(said, "text_unexpected_type: cannot parse .Payload.After: it is not in UTF-8");
        testing::failed_rows_stay(&kind(), &[FIELD, LINE]);
    }

    #[test]
    fn shapes_are_large_enough() {
        for target in [".Payload.After.a", ".Payload.After.b.c", ".Key"] {
            for on_mismatch in ["fail", "keep"] {
                let settings = [
                    ("field", ".Payload.After.a"),
                    ("pattern", "(?<letter>[ab])"),
                    ("target", target),
                    ("onMismatch", on_mismatch),
                ];
                testing::shapes_are_large_enough(&kind(), &settings);
            }
        }
    }

    #[test]
    fn wrong_expressions_are_found() {
        let said = |pattern: &str| findings(&kind(), &[FIELD, ("pattern", pattern)]).join("; ");
        assert!(said("(a").contains("the regular expression is wrong: unclosed group"), "{}", said("(a"));
        assert!(said("a+").contains("the regular expression has no named group"), "{}", said("a+"));
        assert!(said(r"(?<a>.)\1").contains("backreferences are not supported"), "{}", said(r"(?<a>.)\1"));
        assert!(said(r"(?<a>\w{1000}{1000})").contains("exceeds size limit"), "{}", said(r"(?<a>\w{1000}{1000})"));
    }

    proptest! {
        #[test]
        fn every_text_is_parsed_or_fails(text in ".*", other in "[a-z]{0,5}") {
            let pattern = r"^(?<first>[^=]*)=(?<rest>.*)$";
            let settings = [FIELD, ("pattern", pattern)];
            prop_assert_eq!(parse(&settings, Data::text(&text)).is_ok(), text.contains('=') && !text.contains('\n'));
            let found = parse(&settings, Data::text(format!("{other}={text}")));
            if !text.contains('\n') {
                let start = format!(r#"{{"first":"{other}","rest":"#);
                prop_assert!(found.unwrap().starts_with(&start));
            }
        }
    }
}
