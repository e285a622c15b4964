//! Avro schemas of streams.
//!
//! A schema is a record with a field per property, in the order of their names. All fields of a payload can be null,
//! because properties may be absent. The property `sqlType` is the type in SQL that holds all values; the `postgres`
//! destination creates columns by it.

use std::collections::BTreeSet;

use anabranch_record::text::Str;
use serde_json::{Value, json};

use crate::declared::{DeclaredType, IntegerRange, NumberType, Properties, TextType};

/// Depth of the types of values without a declaration.
const UNDECLARED: usize = 3;

/// Returns the schema of payloads; `None` if a property cannot be the name of a field in Avro.
pub(crate) fn payload(properties: &Properties) -> Option<String> {
    let mut names = BTreeSet::from(["record".to_owned()]);
    Some(record("record", properties, &mut names)?.to_string())
}

/// Returns the schema of keys; `None` if a property cannot be the name of a field in Avro.
pub(crate) fn key(properties: &Properties, key: &[Str]) -> Option<String> {
    let mut names = BTreeSet::from(["record".to_owned()]);
    let mut sorted: Vec<&Str> = key.iter().collect();
    sorted.sort_unstable();
    let field = |name: &Str| {
        let declared = properties.get(name).map(|(_, declared)| declared.clone()).unwrap_or_default();
        let mut types = types(&format!("record__{name}"), &declared, &mut names);
        let of = if types.len() == 1 { types.remove(0) } else { Value::from(types) };
        is_name(name).then(|| json!({"name": name.as_str(), "type": of}))
    };
    let fields = sorted.into_iter().map(field).collect::<Option<Vec<_>>>()?;
    Some(json!({"type": "record", "name": "record", "fields": fields}).to_string())
}

fn record(name: &str, properties: &Properties, names: &mut BTreeSet<String>) -> Option<Value> {
    let field = |(property, declared): (&Str, &DeclaredType)| {
        let mut types = types(&format!("{name}__{property}"), declared, names);
        types.insert(0, json!("null"));
        is_name(property).then(|| json!({"name": property.as_str(), "type": types, "default": null}))
    };
    let fields = properties.iter().map(field).collect::<Option<Vec<_>>>()?;
    Some(json!({"type": "record", "name": name, "fields": fields}))
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Returns the types of a value, the usual one first, without null. A union has each type of Avro once.
fn types(name: &str, declared: &DeclaredType, names: &mut BTreeSet<String>) -> Vec<Value> {
    if declared.is_unknown() {
        return undeclared(UNDECLARED);
    }
    let mut types = Vec::new();
    if declared.boolean {
        types.push(json!({"type": "boolean", "sqlType": "boolean"}));
    }
    match declared.integer {
        Some(IntegerRange::Long) => types.push(json!({"type": "long", "sqlType": "bigint"})),
        Some(IntegerRange::Wide) => types.push(json!({"type": "long", "sqlType": "numeric"})),
        None => {}
    }
    let mut text = None;
    match declared.number {
        Some(NumberType::Decimal) => text = Some(json!({"type": "string", "sqlType": "numeric"})),
        Some(NumberType::Any) => types.push(json!({"type": "double", "sqlType": "numeric"})),
        None => {}
    }
    match declared.text {
        Some(TextType::DateTime) if declared.integer.is_none() => {
            let sql = "timestamp with time zone";
            types.push(json!({"type": "long", "logicalType": "timestamp-micros", "sqlType": sql}));
        }
        Some(TextType::DateTime) => text = Some(json!("string")),
        Some(TextType::Date) => text = Some(json!({"type": "string", "sqlType": "date"})),
        Some(TextType::Time) => text = Some(json!({"type": "string", "sqlType": "time"})),
        Some(TextType::Decimal) => text = Some(json!({"type": "string", "sqlType": "numeric"})),
        Some(TextType::Any) => text = Some(json!("string")),
        None => {}
    }
    if let Some(items) = &declared.list {
        let mut items = self::types(&format!("{name}__item"), items, names);
        items.insert(0, json!("null"));
        types.push(json!({"type": "array", "items": items, "sqlType": "jsonb"}));
    }
    if let Some(properties) = &declared.object {
        types.push(object(name, properties, names));
    }
    // A value that is out of range, or not in the declared format, stays a text.
    let needs_text = declared.integer.is_some() || declared.number.is_some() || declared.text.is_some();
    types.extend(text.or_else(|| needs_text.then(|| json!("string"))));
    // A column cannot have two types.
    if types.len() > 2 {
        types.iter_mut().filter_map(Value::as_object_mut).for_each(|members| drop(members.remove("sqlType")));
    }
    types
}

/// Returns the type of an object: a record, or a map if its properties are not known or have no names in Avro.
fn object(name: &str, properties: &Properties, names: &mut BTreeSet<String>) -> Value {
    let is_new = properties.iter().len() > 0 && is_name(name) && names.insert(name.to_owned());
    match is_new.then(|| record(name, properties, names)).flatten() {
        Some(mut record) => {
            record["sqlType"] = json!("jsonb");
            record
        }
        None => {
            let values = with_null(undeclared(UNDECLARED - 1));
            json!({"type": "map", "values": values, "sqlType": "jsonb"})
        }
    }
}

/// Returns the types of any JSON value up to a depth.
fn undeclared(depth: usize) -> Vec<Value> {
    let mut types = vec![json!("boolean"), json!("long"), json!("double"), json!("string")];
    if let Some(depth) = depth.checked_sub(1) {
        types.push(json!({"type": "array", "items": with_null(undeclared(depth))}));
        types.push(json!({"type": "map", "values": with_null(undeclared(depth))}));
    }
    types
}

fn with_null(mut types: Vec<Value>) -> Value {
    types.insert(0, json!("null"));
    Value::from(types)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(schema: &Value) -> Value {
        serde_json::from_str(&payload(&Properties::of(schema)).unwrap()).unwrap()
    }

    #[test]
    fn a_schema_has_decimals_times_and_nested_records() {
        let schema = json!({"type": "object", "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["null", "number"], "multipleOf": 0.01},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "address": {"type": "object", "properties": {"city": {"type": "string"}}},
            "free": {"type": "object"}
        }});
        let found = parsed(&schema);
        let of = |name: &str| {
            let fields = found["fields"].as_array().unwrap();
            fields.iter().find(|field| field["name"] == name).unwrap()["type"].clone()
        };
        assert_eq!(of("id"), json!(["null", {"type": "long", "sqlType": "bigint"}, "string"]));
        assert_eq!(of("price"), json!(["null", {"type": "string", "sqlType": "numeric"}]));
        let time = json!({"type": "long", "logicalType": "timestamp-micros", "sqlType": "timestamp with time zone"});
        assert_eq!(of("at"), json!(["null", time, "string"]));
        assert_eq!(of("tags"), json!(["null", {"type": "array", "items": ["null", "string"], "sqlType": "jsonb"}]));
        assert_eq!(of("address")[1]["name"], "record__address");
        assert_eq!(of("address")[1]["fields"][0], json!({"name": "city", "type": ["null", "string"], "default": null}));
        assert_eq!(of("free")[1]["type"], "map");
        let key = key(&Properties::of(&schema), &["price".into(), "id".into()]).unwrap();
        let key: Value = serde_json::from_str(&key).unwrap();
        assert_eq!(key["fields"][0]["name"], "id");
        assert_eq!(key["fields"][1], json!({"name": "price", "type": {"type": "string", "sqlType": "numeric"}}));
    }

    #[test]
    fn names_that_avro_lacks_have_no_schema_at_the_top_and_are_maps_below() {
        let odd = json!({"type": "object", "properties": {"a b": {"type": "string"}}});
        assert_eq!(payload(&Properties::of(&odd)), None);
        let nested = parsed(&json!({"type": "object", "properties": {"x": odd}}));
        assert_eq!(nested["fields"][0]["type"][1]["type"], "map");
    }
}
