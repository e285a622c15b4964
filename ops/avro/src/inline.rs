//! Replaces references of a schema to types of other schemas with their definitions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

const PRIMITIVE: &[&str] = &["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

/// Returns the schema with each referenced type defined at its first use. The schemas in `others` must be complete.
/// Names are written in full; undefined names stay.
///
/// # Errors
/// Fails if a text is not JSON.
pub fn inline(text: &str, others: &[&str]) -> Result<String, String> {
    let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
    let mut known = BTreeMap::new();
    for other in others {
        collect(&parse(other)?, None, &mut known);
    }
    let schema = parse(text)?;
    let mut own = BTreeMap::new();
    collect(&schema, None, &mut own);
    // Definitions in the schema itself take precedence.
    known.retain(|name, _| !own.contains_key(name));
    let whole = Inliner { known, defined: BTreeSet::new() }.schema(schema, None);
    Ok(whole.to_string())
}

/// Returns the full name of a name used within a namespace.
fn full(name: &str, namespace: Option<&str>) -> String {
    match namespace.filter(|namespace| !namespace.is_empty() && !name.contains('.')) {
        Some(namespace) => format!("{namespace}.{name}"),
        None => name.to_owned(),
    }
}

fn namespace_of(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(namespace, _)| namespace)
}

/// Returns the full name of a definition; `None` if the schema does not define a name.
fn defines(schema: &Map<String, Value>, namespace: Option<&str>) -> Option<String> {
    let kind = schema.get("type")?.as_str()?;
    if !matches!(kind, "record" | "error" | "enum" | "fixed") {
        return None;
    }
    let own = schema.get("namespace").and_then(Value::as_str);
    Some(full(schema.get("name")?.as_str()?, own.or(namespace)))
}

/// Collects all definitions in a schema by full name.
fn collect(schema: &Value, namespace: Option<&str>, into: &mut BTreeMap<String, Value>) {
    match schema {
        Value::Array(variants) => variants.iter().for_each(|variant| collect(variant, namespace, into)),
        Value::Object(object) => {
            let name = defines(object, namespace);
            let within = name.as_deref().map_or(namespace, namespace_of);
            if let Some(name) = &name {
                into.entry(name.clone()).or_insert_with(|| schema.clone());
            }
            for field in object.get("fields").and_then(Value::as_array).into_iter().flatten() {
                field.get("type").into_iter().for_each(|schema| collect(schema, within, into));
            }
            for part in ["items", "values", "type"] {
                object.get(part).into_iter().for_each(|schema| collect(schema, within, into));
            }
        }
        _ => {}
    }
}

struct Inliner {
    known: BTreeMap<String, Value>,
    defined: BTreeSet<String>,
}

impl Inliner {
    fn schema(&mut self, schema: Value, namespace: Option<&str>) -> Value {
        match schema {
            Value::String(name) if !PRIMITIVE.contains(&name.as_str()) => {
                let name = full(&name, namespace);
                match self.known.get(&name).cloned() {
                    Some(definition) if !self.defined.contains(&name) => self.definition(definition, name, namespace),
                    _ => Value::String(name),
                }
            }
            Value::Array(variants) => {
                Value::Array(variants.into_iter().map(|variant| self.schema(variant, namespace)).collect())
            }
            Value::Object(object) => match defines(&object, namespace) {
                Some(name) if self.defined.contains(&name) => Value::String(name),
                Some(name) => self.definition(Value::Object(object), name, namespace),
                None => Value::Object(self.parts(object, namespace)),
            },
            other => other,
        }
    }

    /// Returns a definition at its first use within a namespace.
    fn definition(&mut self, mut schema: Value, name: String, within: Option<&str>) -> Value {
        self.defined.insert(name.clone());
        let Some(object) = schema.as_object_mut() else { return schema };
        let namespace = namespace_of(&name).map(str::to_owned);
        object.remove("namespace");
        if namespace.is_none() && within.is_some() {
            object.insert("namespace".to_owned(), "".into());
        }
        object.insert("name".to_owned(), name.into());
        let object = std::mem::take(object);
        Value::Object(self.parts(object, namespace.as_deref()))
    }

    fn parts(&mut self, mut object: Map<String, Value>, namespace: Option<&str>) -> Map<String, Value> {
        for field in object.get_mut("fields").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(kind) = field.get_mut("type") {
                *kind = self.schema(kind.take(), namespace);
            }
        }
        for part in ["items", "values"] {
            if let Some(schema) = object.get_mut(part) {
                *schema = self.schema(schema.take(), namespace);
            }
        }
        // A reference `{"type": "name"}`, and not the kind of a definition.
        let is_kind = |kind: &str| matches!(kind, "record" | "error" | "enum" | "fixed" | "array" | "map");
        if let Some(kind) = object.get_mut("type").filter(|kind| kind.as_str().is_none_or(|kind| !is_kind(kind))) {
            *kind = self.schema(kind.take(), namespace);
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::check;

    fn inlined(schema: &Value, others: &[&Value]) -> Value {
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let text = inline(&schema.to_string(), &others).unwrap();
        check(&text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn record(name: &str, fields: &[(&str, Value)]) -> Value {
        let fields: Vec<Value> = fields.iter().map(|(name, kind)| json!({"name": name, "type": kind})).collect();
        json!({"type": "record", "name": name, "fields": fields})
    }

    #[test]
    fn types_stand_where_they_are_first_used() {
        let money = record("shop.Money", &[("cents", json!("long"))]);
        let order = record("shop.Order", &[("price", json!("Money")), ("fee", json!(["null", "shop.Money"]))]);
        let expected = record("shop.Order", &[("price", money.clone()), ("fee", json!(["null", "shop.Money"]))]);
        assert_eq!(inlined(&order, &[&money]), expected);
        // Through two paths, in lists and maps, and as the whole value.
        let item = inlined(&record("shop.Item", &[("price", json!("shop.Money"))]), &[&money]);
        let cart = record(
            "Cart",
            &[("total", json!("shop.Money")), ("items", json!({"type": "array", "items": "shop.Item"}))],
        );
        let whole = inlined(&cart, &[&item, &money]);
        assert_eq!(whole["fields"][0]["type"]["name"], "shop.Money");
        assert_eq!(whole["fields"][1]["type"]["items"]["fields"][0]["type"], "shop.Money");
        assert_eq!(inlined(&json!("shop.Money"), &[&money]), money);
        assert_eq!(inlined(&json!(["null", "shop.Money"]), &[&money]), json!(["null", money]));
        assert_eq!(inlined(&json!({"type": "map", "values": {"type": "shop.Money"}}), &[&money])["type"], "map");
    }

    #[test]
    fn names_mean_what_they_mean_where_they_were_written() {
        let plain = record("Plain", &[("next", json!(["null", "Plain"]))]);
        let outer = json!({
            "type": "record", "namespace": "a.b", "name": "Outer",
            "fields": [{"name": "mine", "type": {"type": "enum", "name": "Color", "symbols": ["RED"]}},
                       {"name": "again", "type": "Color"}],
        });
        let whole = inlined(&outer, &[&plain]);
        assert_eq!((&whole["name"], &whole["fields"][0]["type"]["name"]), (&json!("a.b.Outer"), &json!("a.b.Color")));
        assert_eq!(whole["fields"][1]["type"], "a.b.Color");
        assert_eq!(inlined(&json!(["null", "Plain"]), &[&plain])[1]["fields"][0]["type"][1], "Plain");
        // A type of its own stays its own.
        let other = json!({"type": "enum", "name": "a.b.Color", "symbols": ["BLUE"]});
        assert_eq!(inlined(&outer, &[&other])["fields"][0]["type"]["symbols"], json!(["RED"]));
    }

    #[test]
    fn what_nobody_defines_is_no_schema() {
        let text = inline(r#"["null","gone.Type"]"#, &["\"int\""]).unwrap();
        assert!(check(&text).is_err(), "{text}");
        assert!(inline("{", &[]).is_err() && inline("\"int\"", &["["]).is_err());
    }
}
