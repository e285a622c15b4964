//! Types of columns from the schemas that records name.

use std::collections::HashMap;
use std::sync::Arc;

use anabranch_plugin::schema::{SchemaRegistry, SchemaVersion};
use anabranch_record::Record;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::metadata::key;
use anabranch_record::text::Str;
use apache_avro::Schema;
use apache_avro::schema::UuidSchema;

use crate::column::{ColumnFields, ColumnType, MOST_FIELDS, TimeResolution};

/// Maximum nesting of a schema. The parser is recursive.
const DEEPEST_SCHEMA: usize = 64;

/// Largest precision of a decimal column.
const MOST_DIGITS: usize = 38;

/// A version of a subject.
type SchemaName = (Str, SchemaVersion);

/// The types of columns that the schemas of keys and payloads declare.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeclaredTypes {
    pub(crate) key: Option<Arc<ColumnType>>,
    pub(crate) payload: Option<Arc<ColumnType>>,
}

impl DeclaredTypes {
    /// Returns `true` if both come from the same schemas.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same = |one: &Option<Arc<ColumnType>>, other: &Option<Arc<ColumnType>>| match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        is_same(&self.key, &other.key) && is_same(&self.payload, &other.payload)
    }
}

/// The schemas that records name, as types of columns. Each is requested from the registry once.
pub struct DeclaredSchemas {
    registry: Arc<dyn SchemaRegistry>,
    known: HashMap<SchemaName, Result<Option<Arc<ColumnType>>, Fault>>,
}

impl DeclaredSchemas {
    /// Creates it without schemas.
    pub fn new(registry: Arc<dyn SchemaRegistry>) -> Self {
        DeclaredSchemas { registry, known: HashMap::new() }
    }

    /// Gets the schemas that these records name and that are not known yet.
    ///
    /// # Errors
    /// The registry is unavailable. If it does not have a schema, only the records that name it fail.
    pub async fn load(&mut self, records: &[Record]) -> Result<(), Fault> {
        let mut last = None;
        for record in records {
            // Records mostly share their metadata.
            if last.is_some_and(|last: &Record| last.metadata.shares(&record.metadata)) {
                continue;
            }
            last = Some(record);
            for name in [key_schema(record), payload_schema(record)].into_iter().flatten() {
                if self.known.contains_key(&name) {
                    continue;
                }
                let column = match self.registry.get(&name.0, name.1).await {
                    Ok(schema) => Ok(column_of(&schema.text).map(Arc::new)),
                    Err(error) => match Fault::from(error) {
                        fault if fault.class() == FaultClass::Record => Err(fault),
                        fault => return Err(fault),
                    },
                };
                self.known.insert(name, column);
            }
        }
        Ok(())
    }

    /// Returns the types that the schemas of a record declare.
    ///
    /// # Errors
    /// The registry does not have a schema that the record names.
    pub(crate) fn of(&self, record: &Record) -> Result<DeclaredTypes, Fault> {
        let find = |name: Option<SchemaName>| match name.and_then(|name| self.known.get(&name)) {
            Some(found) => found.clone(),
            None => Ok(None),
        };
        Ok(DeclaredTypes { key: find(key_schema(record))?, payload: find(payload_schema(record))? })
    }
}

fn key_schema(record: &Record) -> Option<SchemaName> {
    named(record, &key::KEY_SCHEMA_SUBJECT, &key::KEY_SCHEMA_VERSION)
}

fn payload_schema(record: &Record) -> Option<SchemaName> {
    named(record, &key::PAYLOAD_SCHEMA_SUBJECT, &key::PAYLOAD_SCHEMA_VERSION)
}

fn named(record: &Record, subject: &str, version: &str) -> Option<SchemaName> {
    let subject = record.metadata.get(subject)?;
    Some((subject.clone(), record.metadata.get(version)?.parse().ok()?))
}

/// Returns the type for the text of a schema. `None` if it does not declare one type for each field, so that it is inferred.
fn column_of(text: &str) -> Option<ColumnType> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    if nesting(&json) > DEEPEST_SCHEMA {
        return None;
    }
    let schema = Schema::parse(&json).ok()?;
    let column = NamedTypes::default().column(&schema);
    matches!(column, ColumnType::Fields(_) | ColumnType::Map(_)).then_some(column)
}

fn nesting(json: &serde_json::Value) -> usize {
    match json {
        serde_json::Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        serde_json::Value::Object(fields) => 1 + fields.values().map(nesting).max().unwrap_or(0),
        _ => 0,
    }
}

/// The named types of a schema that are complete.
#[derive(Default)]
struct NamedTypes {
    types: HashMap<String, ColumnType>,
    /// Number of columns that were copied for names. Names that refer to each other could make exponentially many.
    copied: usize,
}

impl NamedTypes {
    /// Returns the type of a column. A type that Parquet does not have is unknown, and is inferred from the values: a union
    /// of several types, or a type that contains itself.
    fn column(&mut self, schema: &Schema) -> ColumnType {
        match schema {
            Schema::Null => ColumnType::Unknown,
            Schema::Boolean => ColumnType::Boolean,
            Schema::Int | Schema::TimeMillis => ColumnType::Integer32,
            Schema::Long | Schema::TimeMicros => ColumnType::integer(),
            Schema::Float => ColumnType::Float32,
            Schema::Double => ColumnType::Float,
            Schema::Bytes | Schema::Fixed(_) => self.noted(schema, ColumnType::Bytes),
            Schema::String | Schema::Enum(_) | Schema::BigDecimal => self.noted(schema, ColumnType::Text),
            Schema::Uuid(UuidSchema::String | UuidSchema::Bytes | UuidSchema::Fixed(_)) => {
                self.noted(schema, ColumnType::Text)
            }
            Schema::Array(array) => ColumnType::List(Box::new(self.column(&array.items))),
            Schema::Map(map) => ColumnType::Map(Box::new(self.column(&map.types))),
            Schema::Union(union) => {
                let mut types = union.variants().iter().filter(|variant| !matches!(variant, Schema::Null));
                match (types.next(), types.next()) {
                    (Some(one), None) => self.column(one),
                    // The members may define types that are used later.
                    _ => {
                        union.variants().iter().for_each(|variant| drop(self.column(variant)));
                        ColumnType::Unknown
                    }
                }
            }
            Schema::Record(record) => {
                let fields: Vec<(Str, ColumnType)> = record
                    .fields
                    .iter()
                    .map(|field| (Str::from(field.name.as_str()), self.column(&field.schema)))
                    .collect();
                self.noted(schema, ColumnType::Fields(ColumnFields::declared(fields)))
            }
            Schema::Decimal(decimal) => {
                let fits = decimal.precision <= MOST_DIGITS && decimal.scale <= decimal.precision;
                let column = match (fits, u8::try_from(decimal.precision), u8::try_from(decimal.scale)) {
                    (true, Ok(precision), Ok(scale)) => ColumnType::Decimal(precision, scale),
                    _ => ColumnType::Text,
                };
                self.noted(schema, column)
            }
            Schema::Date => ColumnType::Date,
            Schema::TimestampMillis | Schema::LocalTimestampMillis => ColumnType::Time(TimeResolution::Millis),
            Schema::TimestampMicros | Schema::LocalTimestampMicros => {
                ColumnType::Time(TimeResolution::Micros { wide: false })
            }
            Schema::TimestampNanos | Schema::LocalTimestampNanos => ColumnType::Time(TimeResolution::Nanos),
            Schema::Duration(_) => self.noted(schema, ColumnType::Unknown),
            Schema::Ref { name } => {
                let column = self.types.get(&name.to_string()).cloned().unwrap_or(ColumnType::Unknown);
                self.copied = self.copied.saturating_add(column.size());
                if self.copied > MOST_FIELDS { ColumnType::Unknown } else { column }
            }
        }
    }

    fn noted(&mut self, schema: &Schema, column: ColumnType) -> ColumnType {
        if let Some(name) = schema.name() {
            self.types.insert(name.to_string(), column.clone());
        }
        column
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_declares_the_types_of_columns_in_its_order() {
        let text = r#"{"type":"record","name":"Order","fields":[
            {"name":"id","type":"long"},
            {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
            {"name":"day","type":["null",{"type":"int","logicalType":"date"}]},
            {"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}},
            {"name":"either","type":["string","long"]},
            {"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"sku","type":"string"}]}}},
            {"name":"first","type":["null","Line"]},
            {"name":"next","type":["null","Order"]},
            {"name":"attributes","type":{"type":"map","values":"int"}}]}"#;
        let ColumnType::Fields(fields) = column_of(text).unwrap() else { panic!() };
        let line = || ColumnType::Fields(ColumnFields::declared([("sku".into(), ColumnType::Text)]));
        let found: Vec<_> =
            fields.in_order().into_iter().map(|field| (field.name.as_str(), field.column.clone())).collect();
        assert_eq!(
            found,
            [
                ("id", ColumnType::integer()),
                ("at", ColumnType::Time(TimeResolution::Millis)),
                ("day", ColumnType::Date),
                ("amount", ColumnType::Decimal(10, 2)),
                ("either", ColumnType::Unknown),
                ("lines", ColumnType::List(Box::new(line()))),
                ("first", line()),
                ("next", ColumnType::Unknown),
                ("attributes", ColumnType::Map(Box::new(ColumnType::Integer32))),
            ]
        );
        assert_eq!(column_of("\"string\""), None);
        assert_eq!(column_of("no schema"), None);
        let deep = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(100), "}".repeat(100));
        assert_eq!(column_of(&deep), None);
    }
}
