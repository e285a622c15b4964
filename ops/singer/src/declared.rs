//! Types of values, as the JSON schema of a SCHEMA message declares them.

use std::collections::BTreeMap;
use std::fmt;

use anabranch_record::text::Str;
use serde_json::Value;

/// Maximum depth of declared types; below it, values have no declared type.
const DEEPEST: usize = 24;

/// The types that a value may have. Nothing is declared if all are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DeclaredType {
    pub(crate) boolean: bool,
    pub(crate) integer: Option<IntegerRange>,
    pub(crate) number: Option<NumberType>,
    pub(crate) text: Option<TextType>,
    pub(crate) list: Option<Box<DeclaredType>>,
    pub(crate) object: Option<Properties>,
}

impl fmt::Display for DeclaredType {
    /// Writes the types as a phrase: `an integer or a text`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = [
            (self.boolean, "a boolean"),
            (self.integer.is_some(), "an integer"),
            (self.number.is_some(), "a number"),
            (self.text.is_some(), "a text"),
            (self.list.is_some(), "a list"),
            (self.object.is_some(), "an object"),
        ];
        let declared: Vec<&str> =
            types.into_iter().filter_map(|(is_declared, name)| is_declared.then_some(name)).collect();
        f.write_str(&declared.join(" or "))
    }
}

/// The range of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerRange {
    /// At most 64 bits with a sign.
    Long,
    /// More.
    Wide,
}

/// A number that need not be an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberType {
    /// A decimal number with a limited number of digits after the point.
    Decimal,
    /// Any number.
    Any,
}

/// The format of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextType {
    DateTime,
    Date,
    Time,
    /// The digits of a number.
    Decimal,
    Any,
}

/// Properties by their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Properties(BTreeMap<Str, DeclaredType>);

impl Properties {
    /// Returns a property with its name, which shares its memory with all records.
    pub(crate) fn get(&self, name: &str) -> Option<(&Str, &DeclaredType)> {
        self.0.get_key_value(name)
    }

    /// Returns the properties in the order of their names.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &DeclaredType)> {
        self.0.iter()
    }

    /// Reads the properties of a JSON schema. There are none if it is not one of an object.
    pub(crate) fn of(schema: &Value) -> Properties {
        DeclaredType::of(schema, DEEPEST).object.unwrap_or_default()
    }
}

impl DeclaredType {
    /// Returns `true` if nothing is declared.
    pub(crate) fn is_unknown(&self) -> bool {
        let DeclaredType { boolean, integer, number, text, list, object } = self;
        !boolean && integer.is_none() && number.is_none() && text.is_none() && list.is_none() && object.is_none()
    }

    fn of(schema: &Value, depth: usize) -> DeclaredType {
        let mut declared = DeclaredType::default();
        match depth.checked_sub(1).is_some_and(|depth| declared.add(schema, depth)) {
            true => declared,
            false => DeclaredType::default(),
        }
    }

    /// Adds the types of a schema. Returns `false` if it admits values of other types.
    fn add(&mut self, schema: &Value, depth: usize) -> bool {
        let mut are_typed = None;
        for alternatives in ["anyOf", "oneOf"] {
            for alternative in schema[alternatives].as_array().into_iter().flatten() {
                let is_typed = depth.checked_sub(1).is_some_and(|depth| self.add(alternative, depth));
                are_typed = Some(are_typed.unwrap_or(true) && is_typed);
            }
        }
        let kinds = match &schema["type"] {
            kind @ Value::String(_) => std::slice::from_ref(kind),
            Value::Array(kinds) => kinds.as_slice(),
            _ if schema["properties"].is_object() => {
                self.object = Some(properties(schema, depth));
                return true;
            }
            _ => return are_typed.unwrap_or(false),
        };
        // Not `all`, which stops at the first unknown type.
        kinds.iter().filter(|kind| !self.add_kind(kind.as_str().unwrap_or_default(), schema, depth)).count() == 0
    }

    /// Adds a type of a schema. Returns `false` if it is not one of JSON schemas.
    fn add_kind(&mut self, kind: &str, schema: &Value, depth: usize) -> bool {
        match kind {
            "null" => {}
            "boolean" => self.boolean = true,
            "integer" => self.integer = Some(integer(schema)),
            "number" => self.number = Some(number(schema)),
            "string" => self.text = Some(text(schema)),
            "array" => self.list = Some(Box::new(DeclaredType::of(&schema["items"], depth))),
            "object" => self.object = Some(properties(schema, depth)),
            _ => return false,
        }
        true
    }
}

fn properties(schema: &Value, depth: usize) -> Properties {
    let properties = schema["properties"].as_object().into_iter().flatten();
    Properties(properties.map(|(name, schema)| (name.as_str().into(), DeclaredType::of(schema, depth))).collect())
}

fn integer(schema: &Value) -> IntegerRange {
    let fits = |bound: &Value| bound.is_null() || bound.as_i64().is_some() || bound.is_f64();
    match fits(&schema["maximum"]) && fits(&schema["exclusiveMaximum"]) {
        true => IntegerRange::Long,
        false => IntegerRange::Wide,
    }
}

fn number(schema: &Value) -> NumberType {
    match schema["multipleOf"].is_number() {
        true => NumberType::Decimal,
        false => NumberType::Any,
    }
}

fn text(schema: &Value) -> TextType {
    match schema["format"].as_str() {
        Some("date-time") => TextType::DateTime,
        Some("date") => TextType::Date,
        Some("time") => TextType::Time,
        Some("singer.decimal" | "x-singer.decimal") => TextType::Decimal,
        _ => TextType::Any,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared(schema: &Value) -> DeclaredType {
        DeclaredType::of(schema, DEEPEST)
    }

    #[test]
    fn types_are_read_from_all_forms_of_schemas() {
        let nullable = declared(&json!({"type": ["null", "number"], "multipleOf": 0.01}));
        assert_eq!(nullable.number, Some(NumberType::Decimal));
        let either = declared(&json!({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}));
        assert_eq!(either.text, Some(TextType::DateTime));
        assert_eq!(declared(&json!({"type": "string", "format": "x-singer.decimal"})).text, Some(TextType::Decimal));
        assert_eq!(
            declared(&json!({"type": "integer", "maximum": 18446744073709551615u64})).integer,
            Some(IntegerRange::Wide)
        );
        assert_eq!(declared(&json!({"type": "integer", "maximum": 255})).integer, Some(IntegerRange::Long));
        assert_eq!(declared(&json!({"type": "number", "multipleOf": 1e-10})).number, Some(NumberType::Decimal));
        assert_eq!(declared(&json!({"type": "number"})).number, Some(NumberType::Any));
        for unknown in [json!({}), json!(true), json!(null), json!({"$ref": "#/x"}), json!({"type": 7})] {
            assert!(declared(&unknown).is_unknown(), "{unknown}");
        }
        let nested = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object",
            "properties": {"at": {"type": ["string"], "format": "date-time"}}}}, "b": {"type": "string"}}});
        assert_eq!(Properties::of(&nested).iter().len(), 2);
        let constrained = json!({"type": ["null", "object"], "anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
        assert_eq!(declared(&constrained).to_string(), "an object");
        for open in [json!({"anyOf": [{"type": "string"}, {"$ref": "#/x"}]}), json!({"type": ["string", "any"]})] {
            assert!(declared(&open).is_unknown(), "{open}");
        }
    }

    #[test]
    fn a_schema_that_is_nested_without_end_has_an_end() {
        let mut schema = json!({"type": "string", "format": "date-time"});
        for _ in 0..100 {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        let mut deepest = declared(&schema);
        while let Some((_, inner)) = deepest.object.as_ref().and_then(|properties| properties.get("a")) {
            deepest = inner.clone();
        }
        assert!(deepest.is_unknown());
    }
}
