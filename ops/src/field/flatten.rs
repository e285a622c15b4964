//! `field.flatten`: makes one level of maps within each other.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Field, Fields, Flow, Kinds, Type};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{Decision, InlineOperator, OperatorContext, OperatorKind, Rows, Signature};
use anabranch_plugin::parameters::{Argument, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::fault::Fault;
use anabranch_record::phrase::with_article;
use anabranch_record::reference::{Part, Reference};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};

use crate::codes;

/// Returns the `field.flatten` processor for the registry.
pub fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<Flatten>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the map: .Key, .Payload.After, or a field within them.
    #[parameter(within = [".Key", ".Payload"])]
    field: Argument<Reference>,
    /// The text between the names of a map and of a field in it.
    #[parameter(default = ".")]
    separator: Argument<Str>,
}

#[derive(Clone)]
struct Flatten {
    field: Reference,
    separator: Str,
}

impl InlineOperator for Flatten {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("field.flatten", "Makes one level of maps within each other.")
            .describe(
                "Replaces a map with one that has no maps in it: the field `city` of the map `address` becomes the field \
                 `address.city`. Lists and empty maps stay as they are. If two fields have the same name then, the record \
                 fails, and so does a record whose value is not a map. A field that is missing or null stays as it is.",
            )
            .with_all(shared::processor())
    }

    fn configure(Settings { field, separator }: Settings) -> Result<Self, Diagnostics> {
        Ok(Flatten { field: field.one_side()?, separator: separator.into_value() })
    }

    fn signature(&self) -> Signature {
        Signature::new().reads(self.field.access()).writes(self.field.access())
    }

    fn flow(&self, flow: &mut Flow) {
        let found = flow.need(codes::FLOW_NOT_A_MAP, "field", &self.field, (Kinds::MAP, "a map"), true);
        flow.may_fail();
        let mut flat = Vec::new();
        let fields = match self.flat_fields(&found.ty.fields, None, &mut flat) {
            Some(()) => Fields::closed(flat),
            None => Fields::any(),
        };
        flow.replace("field", &self.field, Type::map(fields));
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if let Some(object) = self.flatten(record)? {
                self.field.set(record, Value::Map(object.into()))?;
            }
            Ok(Decision::Keep)
        });
    }
}

impl Flatten {
    /// Returns the flat map; `None` if the record stays as it is. O(fields · log fields + bytes of their names).
    fn flatten(&self, record: &Record) -> Result<Option<Object>, Fault> {
        let object = match self.field.get(record)? {
            Some(Part::Data(Data::Structured(object))) => object,
            Some(Part::Value(Value::Map(object))) => object,
            None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null)) => return Ok(None),
            Some(other) => {
                let what = with_article(other.type_name());
                let what = format!("cannot flatten {}: it is {what}, not a map", self.field);
                return Err(Fault::record(codes::FLATTEN_UNEXPECTED_TYPE, what));
            }
        };
        let nested = |value: &Value| matches!(value, Value::Map(object) if !object.is_empty());
        if !object.iter().any(|(_, value)| nested(value)) {
            return Ok(None);
        }
        let mut entries = Vec::with_capacity(object.len());
        self.gather(object, None, &mut entries);
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let what = format!("cannot flatten {}: two fields would be named {:?}", self.field, pair[0].0);
            return Err(Fault::record(codes::FLATTEN_NAME_TAKEN, what));
        }
        Ok(Some(Object::from_entries(entries)))
    }

    fn gather(&self, object: &Object, within: Option<&Str>, entries: &mut Vec<(Str, Value)>) {
        for (name, value) in object.iter() {
            let name = self.joined(within, name);
            match value {
                Value::Map(object) if !object.is_empty() => self.gather(object, Some(&name), entries),
                value => entries.push((name, value.clone())),
            }
        }
    }

    fn joined(&self, within: Option<&Str>, name: &Str) -> Str {
        match within {
            Some(within) => Str::from([&**within, &*self.separator, &**name].concat()),
            None => name.clone(),
        }
    }

    /// Gathers the fields of flat maps; `None` if not all are known, or maps may be empty.
    fn flat_fields(&self, fields: &Fields, within: Option<&Str>, flat: &mut Vec<(Str, Field)>) -> Option<()> {
        if fields.is_open() {
            return None;
        }
        for (name, field) in fields.iter() {
            let name = self.joined(within, name);
            if !field.ty.kinds.overlaps(Kinds::MAP) {
                flat.push((name, field.clone()));
                continue;
            }
            let inner = &field.ty.fields;
            let has_some = inner.iter().any(|(_, field)| !field.optional);
            if field.optional || field.ty.kinds != Kinds::MAP || !has_some {
                return None;
            }
            self.flat_fields(inner, Some(&name), flat)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, findings, outcome};

    fn flatten(settings: &[(&str, &str)], key: &str) -> Result<String, String> {
        let sample = |key: &str| {
            format!(
                r#"{{"position":"","operation":"create","metadata":{{}},"key":{key},"payload":{{"before":null,"after":null}}}}"#
            )
        };
        let settings: Vec<_> = [("field", ".Key")].iter().chain(settings).copied().collect();
        let text = outcome(&kind(), &settings, &sample(key))?;
        let (_, end) = text.split_once("\"key\":").unwrap();
        Ok(end.split_once(",\"payload\"").unwrap().0.to_owned())
    }

    #[test]
    fn maps_are_joined_to_their_fields() {
        let key = r#"{"a":{"b":{"c":1,"d":[{"e":2}]},"f":{}},"g":null}"#;
        assert_eq!(flatten(&[], key).as_deref(), Ok(r#"{"a.b.c":1,"a.b.d":[{"e":2}],"a.f":{},"g":null}"#));
        assert_eq!(flatten(&[("separator", "_")], r#"{"a":{"b":1}}"#).as_deref(), Ok(r#"{"a_b":1}"#));
        assert_eq!(flatten(&[], r#"{"a":1}"#).as_deref(), Ok(r#"{"a":1}"#));
    }

    #[test]
    fn names_that_meet_fail() {
        let said = flatten(&[], r#"{"a":{"b":1},"a.b":2}"#).unwrap_err();
        assert_eq!(said, "flatten_name_taken: cannot flatten .Key: two fields would be named \"a.b\"");
        let said = flatten(&[], "\"eA==\"").unwrap_err();
        assert_eq!(said, "flatten_unexpected_type: cannot flatten .Key: it is raw data, not a map");
    }

    #[test]
    fn wrong_settings_are_found() {
        let said = |field| findings(&kind(), &[("field", field)]).join("; ");
        assert!(said(".Payload").contains("two sides"), "{}", said(".Payload"));
        assert!(said(".Metadata").contains(".Key"), "{}", said(".Metadata"));
        assert!(findings(&kind(), &[]).join("; ").contains("field"));
    }

    #[test]
    fn failed_rows_stay_and_shapes_are_large_enough() {
        for field in [".Payload.After", ".Key.a"] {
            testing::failed_rows_stay(&kind(), &[("field", field)]);
            testing::shapes_are_large_enough(&kind(), &[("field", field)]);
        }
    }
}
