//! Avro schemas of tables.
//!
//! A schema is a record with a field per column, in the order of their names. The type of a field is that of the values
//! (see [`ColumnType`]), with the property `sqlType`. Types whose values may stay text are unions with `string`. Fields of
//! payloads can be null, because the data before a change may have the columns of the key only, and values that were not
//! changed may be absent.

use anabranch_plugin::schema::{SchemaKind, SchemaRegistry};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use serde_json::{Value, json};

use super::tables::TableColumn;
use super::types::ColumnType;

/// The part of a record that a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Key,
    Payload,
}

/// Subject and version of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchemaName {
    pub(super) subject: Str,
    pub(super) version: Str,
}

/// Returns the text of the schema of columns, which are in the order of their names; `None` if the name of a column
/// cannot be the name of a field in Avro.
pub(super) fn text(part: Part, columns: &[(&TableColumn, &ColumnType)]) -> Option<String> {
    let mut fields = Vec::with_capacity(columns.len());
    for (column, kind) in columns {
        if !is_name(&column.name) {
            return None;
        }
        let mut types = branches(kind, column.dimensions);
        if let Some(first) = types.first_mut() {
            annotate(first, &column.sql_type);
        }
        fields.push(match part {
            Part::Payload => {
                types.insert(0, json!("null"));
                json!({"name": *column.name, "type": types, "default": null})
            }
            Part::Key if types.len() == 1 => json!({"name": *column.name, "type": types[0]}),
            Part::Key => json!({"name": *column.name, "type": types}),
        });
    }
    Some(json!({"type": "record", "name": "record", "fields": fields}).to_string())
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Adds the type in SQL to a type in Avro.
fn annotate(of: &mut Value, sql: &Str) {
    if let Value::String(name) = of {
        *of = json!({"type": name});
    }
    if let Value::Object(members) = of {
        members.insert("sqlType".to_owned(), Value::from(sql.as_str()));
    }
}

/// Returns the types of the values of a column, the usual one first.
fn branches(kind: &ColumnType, dimensions: u32) -> Vec<Value> {
    let usual = match kind {
        ColumnType::Text => return vec![json!("string")],
        ColumnType::Bool => return vec![json!("boolean")],
        ColumnType::Int => return vec![json!("int")],
        ColumnType::Long => return vec![json!("long")],
        ColumnType::Bytes => return vec![json!("bytes")],
        ColumnType::Float => json!("float"),
        ColumnType::Double => json!("double"),
        ColumnType::Date => json!({"type": "int", "logicalType": "date"}),
        ColumnType::Timestamp => json!({"type": "long", "logicalType": "local-timestamp-micros"}),
        ColumnType::TimestampTz => json!({"type": "long", "logicalType": "timestamp-micros"}),
        ColumnType::Hstore => json!({"type": "map", "values": ["null", "string"]}),
        ColumnType::Array(element, _) => {
            let mut items = branches(element, 0);
            items.insert(0, json!("null"));
            (0..dimensions.max(1)).fold(Value::from(items), |items, level| match level {
                0 => json!({"type": "array", "items": items}),
                _ => json!({"type": "array", "items": ["null", items]}),
            })
        }
    };
    vec![usual, json!("string")]
}

/// Registers a schema, and returns its name.
///
/// # Errors
/// The registry is not available, or refuses the schema.
pub(super) async fn register(schemas: &dyn SchemaRegistry, subject: Str, text: &str) -> Result<SchemaName, Fault> {
    let schema = schemas.create(&subject, SchemaKind::Avro, &Str::from(text)).await.map_err(|error| {
        let fault = Fault::from(error);
        // The schema concerns all records of the table.
        let class = if fault.class() == FaultClass::Record { FaultClass::Fatal } else { fault.class() };
        fault.with_class(class)
    })?;
    Ok(SchemaName { subject, version: schema.version.to_string().into() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_schema_has_the_types_of_the_columns() {
        let column = |name: &'static str, sql: &'static str, dimensions| TableColumn {
            name: name.into(),
            type_id: 0,
            sql_type: sql.into(),
            is_required: true,
            is_generated: false,
            dimensions,
        };
        let (id, sum, grid) = (column("id", "bigint", 0), column("sum", "numeric(10,2)", 0), column("g", "date[]", 2));
        let dates = ColumnType::Array(Arc::new(ColumnType::Date), b',');
        let key = text(Part::Key, &[(&id, &ColumnType::Long)]).unwrap();
        assert_eq!(
            key,
            r#"{"fields":[{"name":"id","type":{"sqlType":"bigint","type":"long"}}],"name":"record","type":"record"}"#
        );
        let payload = text(Part::Payload, &[(&grid, &dates), (&sum, &ColumnType::Text)]).unwrap();
        let payload: Value = serde_json::from_str(&payload).unwrap();
        let date = json!({"type": "int", "logicalType": "date"});
        let row = json!({"type": "array", "items": ["null", date, "string"]});
        let types = json!([
            "null",
            {"type": "array", "items": ["null", row], "sqlType": "date[]"},
            "string"
        ]);
        assert_eq!(payload["fields"][0], json!({"name": "g", "type": types, "default": null}));
        assert_eq!(payload["fields"][1]["type"], json!(["null", {"type": "string", "sqlType": "numeric(10,2)"}]));
        assert_eq!(text(Part::Payload, &[(&column("a b", "text", 0), &ColumnType::Text)]), None);
    }
}
