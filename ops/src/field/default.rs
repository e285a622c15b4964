//! `field.default`: gives a missing field a value.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Flow, Kinds, Texts, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::Data;
use anabranch_record::reference::{Part, Reference, Target};
use anabranch_record::text::Str;
use anabranch_record::value::Value;

use super::convert::ScalarType;

/// Returns the `field.default` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Default>()
}

#[derive(Parameters)]
struct Settings {
    /// The field, such as .Payload.After.country.
    #[parameter(within = [".Metadata", ".Key", ".Payload"])]
    field: Argument<Reference>,
    /// The value of a field that is missing or null.
    #[parameter(may_be_blank)]
    value: Argument<Str>,
    /// The type of the value.
    #[parameter(default = "string")]
    r#type: Argument<ScalarType>,
}

#[derive(Clone)]
struct Default {
    field: Reference,
    value: Value,
}

impl InlineOperator for Default {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("field.default", "Gives a missing field a value.")
            .describe(
                "Sets a field to a constant value if it is missing or null. Missing maps on the path of the field are created. \
                 Other values stay as they are. To set a field to a text that is made of others, use `field.set` with a \
                 condition.",
            )
            .with_all(shared::processor())
    }

    fn configure(Settings { field, value, r#type }: Settings) -> Result<Self, Diagnostics> {
        let reference = field.one_side()?;
        if matches!(reference.target(), Target::Metadata) {
            return Err(field
                .invalid(".Metadata cannot be set as a whole")
                .with_hint("name one entry, for example .Metadata.title")
                .into());
        }
        let is_text_only = matches!(reference.target(), Target::Data(_) | Target::Entry(_));
        if is_text_only && *r#type != ScalarType::String {
            return Err(r#type.invalid(format_args!("{reference} can only be set to a text")).into());
        }
        match r#type.read(&value) {
            Some(value) => Ok(Default { field: reference, value }),
            None => Err(value.invalid(format_args!("the value is not {}", r#type.demands())).into()),
        }
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        let found = flow.peek(&self.field);
        let given = match &self.value {
            Value::Text(text) if !matches!(self.field.target(), Target::Entry(_)) => {
                Type::one_of(Texts::only(text.clone()))
            }
            value => Type::of_value(value),
        };
        let ty = match found.ty.kinds.without(Kinds::NULL) {
            Kinds::NONE => given,
            // Without a case where it is missing, nothing is set.
            kinds if !found.missing && kinds == found.ty.kinds => {
                flow.get("field", &self.field);
                return;
            }
            kinds => Type { kinds, ..found.ty }.join(&given),
        };
        flow.set("field", &self.field, ty);
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if matches!(self.field.get(record)?, None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null))) {
                self.field.set(record, self.value.clone())?;
            }
            Ok(Decision::Keep)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, outcome};

    fn default(settings: &[(&str, &str)], key: &str) -> Result<String, String> {
        let sample = |key: &str| {
            format!(
                r#"{{"position":"","operation":"create","metadata":{{}},"key":{key},"payload":{{"before":null,"after":null}}}}"#
            )
        };
        let text = outcome(&kind(), settings, &sample(key))?;
        let (_, end) = text.split_once("\"key\":").unwrap();
        Ok(end.split_once(",\"payload\"").unwrap().0.to_owned())
    }

    #[test]
    fn a_value_that_is_missing_is_given() {
        let settings = [("field", ".Key.a.b"), ("value", "7"), ("type", "int")];
        for (key, expected) in [
            ("{}", r#"{"a":{"b":7}}"#),
            (r#"{"a":{"b":null}}"#, r#"{"a":{"b":7}}"#),
            (r#"{"a":{"b":1}}"#, r#"{"a":{"b":1}}"#),
            (r#"{"a":{"b":""}}"#, r#"{"a":{"b":""}}"#),
        ] {
            assert_eq!(default(&settings, key).as_deref(), Ok(expected), "{key}");
        }
        assert!(default(&settings, r#"{"a":1}"#).unwrap_err().starts_with("reference_unresolved"));
        assert_eq!(default(&[("field", ".Key"), ("value", "none")], "null").as_deref(), Ok("\"bm9uZQ==\""));
    }

    #[test]
    fn wrong_settings_are_found() {
        let said = |field, value, ty| findings(&kind(), &[("field", field), ("value", value), ("type", ty)]).join("; ");
        assert!(said(".Key.a", "x", "int").contains("the value is not an integer"));
        assert!(said(".Metadata.a", "1", "int").contains("can only be set to a text"));
        assert!(said(".Payload", "1", "string").contains("two sides"));
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for (field, ty) in [(".Payload.After.a.b", "int"), (".Payload.After", "string"), (".Metadata.x", "string")] {
            let settings = [("field", field), ("value", "7"), ("type", ty)];
            testing::failed_rows_stay(&kind(), &settings);
            testing::shapes_are_large_enough(&kind(), &settings);
        }
    }
}
