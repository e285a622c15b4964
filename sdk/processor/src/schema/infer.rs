//! Inference of Avro schemas from data.
//!
//! Structured data becomes a record named `record` with its fields in name order, so that equal shapes give equal text.
//! Nested maps become Avro maps. Values of maps and items of lists may be null or any of the occurring types.

use crate::error::Error;
use crate::value::{Map, Value};

/// Returns the schema of these fields.
///
/// # Errors
/// Fails if the name of a field is not valid in Avro.
pub(crate) fn infer(map: &Map) -> Result<String, Error> {
    let mut text = String::from(r#"{"name":"record","type":"record","fields":["#);
    for (i, (name, value)) in map.iter().enumerate() {
        let mut characters = name.chars();
        let starts = characters.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic());
        if !starts || !characters.all(|c| c == '_' || c.is_ascii_alphanumeric()) {
            return Err(Error::new(format!(
                "cannot infer a schema: the field name {name:?} contains characters other than letters, digits and _"
            )));
        }
        if i > 0 {
            text.push(',');
        }
        text.push_str(r#"{"name":""#);
        text.push_str(name);
        text.push_str(r#"","type":"#);
        Shape::of(value).write_field(&mut text);
        text.push('}');
    }
    text.push_str("]}");
    Ok(text)
}

/// Types that occur in one place.
#[derive(Default)]
struct Shape {
    boolean: bool,
    long: bool,
    double: bool,
    bytes: bool,
    string: bool,
    items: Option<Box<Shape>>,
    values: Option<Box<Shape>>,
}

impl Shape {
    fn of(value: &Value) -> Self {
        let mut shape = Shape::default();
        shape.add(value);
        shape
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::Null => {}
            Value::Bool(_) => self.boolean = true,
            Value::Int(_) => self.long = true,
            Value::Float(_) => self.double = true,
            Value::Bytes(_) => self.bytes = true,
            Value::Text(_) => self.string = true,
            Value::List(list) => {
                let items = self.items.get_or_insert_default();
                list.iter().for_each(|item| items.add(item));
            }
            Value::Map(map) => {
                let values = self.values.get_or_insert_default();
                map.values().for_each(|value| values.add(value));
            }
        }
    }

    /// Writes the type of a field: the type of its value, or optional text for null.
    fn write_field(&self, text: &mut String) {
        let types = self.types();
        match types.as_slice() {
            [one] => text.push_str(one),
            _ => text.push_str(r#"["string","null"]"#),
        }
    }

    /// Writes the type of values in a list or map.
    fn write_nullable(&self, text: &mut String) {
        let types = self.types();
        text.push_str(r#"["null","#);
        text.push_str(&if types.is_empty() { r#""string""#.to_owned() } else { types.join(",") });
        text.push(']');
    }

    fn types(&self) -> Vec<String> {
        let simple = [
            (self.boolean, "boolean"),
            (self.long, "long"),
            (self.double, "double"),
            (self.bytes, "bytes"),
            (self.string, "string"),
        ];
        let mut types: Vec<String> =
            simple.into_iter().filter(|(occurs, _)| *occurs).map(|(_, name)| format!("{name:?}")).collect();
        for (kind, key, shape) in [("array", "items", &self.items), ("map", "values", &self.values)] {
            if let Some(shape) = shape {
                let mut text = format!(r#"{{"type":"{kind}","{key}":"#);
                shape.write_nullable(&mut text);
                text.push('}');
                types.push(text);
            }
        }
        types
    }
}
