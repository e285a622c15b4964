//! The format `debezium/json`: a change in the envelope of Debezium and Kafka Connect.
//!
//! ```text
//! {"schema":{"type":"struct",…},"payload":{"before":D,"after":D,"source":{…},"op":"c","ts_ms":0,"transaction":null}}
//! ```
//!
//! `D` is structured data, or null for absent data. Raw data that is a JSON object is parsed; other raw data
//! becomes an object with one field of bytes. The schema is that of this record alone, and every field of the data is
//! optional in it: `before` and `after` share one schema if the types of their fields are compatible.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_record::fault::Fault;
use anabranch_record::json::{parse_value, write_data, write_metadata, write_text};
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::reference::{Side, push_part};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Record};

use crate::codes;

/// The envelope and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Name of the outermost schema; if it is empty, the schema has no name.
    pub schema_name: Str,
    /// Name of the field that holds raw data.
    pub raw_data_key: Str,
}

impl Default for Envelope {
    fn default() -> Self {
        Envelope { schema_name: Str::default(), raw_data_key: Str::from_static("recfmt.rawData") }
    }
}

impl Envelope {
    /// Appends the record, like [`super::RecordFormat::encode`]. O(size of the record).
    pub(super) fn encode(&self, record: &Record, out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = out.len();
        self.write(record, out).inspect_err(|_| out.truncate(start))
    }

    fn write(&self, record: &Record, out: &mut Vec<u8>) -> Result<(), Fault> {
        let millis = read_at_millis(&record.metadata)?;
        let before = self.structured(&record.payload.before);
        let after = self.structured(&record.payload.after);
        let (before_schema, after_schema) = schemas(&before, &after)?;

        out.extend_from_slice(b"{\"schema\":{\"type\":\"struct\",\"fields\":[");
        write_schema(&before_schema, Some("before"), out);
        out.push(b',');
        write_schema(&after_schema, Some("after"), out);
        out.extend_from_slice(b",{\"type\":\"struct\",\"fields\":[");
        let mut names: Vec<&Str> = record.metadata.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        for (i, name) in names.into_iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"type\":\"string\",\"optional\":true,\"field\":");
            write_text(name, out);
            out.push(b'}');
        }
        out.extend_from_slice(
            b"],\"optional\":false,\"field\":\"source\"},\
              {\"type\":\"string\",\"optional\":false,\"field\":\"op\"},\
              {\"type\":\"int64\",\"optional\":true,\"field\":\"ts_ms\"},\
              {\"type\":\"struct\",\"fields\":[\
              {\"type\":\"string\",\"optional\":false,\"field\":\"id\"},\
              {\"type\":\"int64\",\"optional\":false,\"field\":\"total_order\"},\
              {\"type\":\"int64\",\"optional\":false,\"field\":\"data_collection_order\"}\
              ],\"optional\":true,\"field\":\"transaction\"}],\"optional\":false",
        );
        if !self.schema_name.is_empty() {
            out.extend_from_slice(b",\"name\":");
            write_text(&self.schema_name, out);
        }
        out.extend_from_slice(b"},\"payload\":{\"before\":");
        write_data(&before, out)?;
        out.extend_from_slice(b",\"after\":");
        write_data(&after, out)?;
        out.extend_from_slice(b",\"source\":");
        write_metadata(&record.metadata, out);
        out.extend_from_slice(b",\"op\":\"");
        out.extend_from_slice(op(record.operation).as_bytes());
        out.extend_from_slice(b"\",\"ts_ms\":");
        out.extend_from_slice(itoa::Buffer::new().format(millis).as_bytes());
        out.extend_from_slice(b",\"transaction\":null}}");
        Ok(())
    }

    /// Converts raw data to structured data.
    fn structured<'r>(&self, data: &'r Data) -> Cow<'r, Data> {
        let Data::Raw(bytes) = data else { return Cow::Borrowed(data) };
        // Only an object needs parsing.
        if bytes.trim_ascii_start().first() == Some(&b'{')
            && let Ok(Value::Map(object)) = parse_value(bytes)
        {
            return Cow::Owned(Data::Structured(object));
        }
        let object: Object =
            [(self.raw_data_key.clone(), Value::Bytes(Arc::from(bytes.as_ref())))].into_iter().collect();
        Cow::Owned(Data::from(object))
    }
}

const fn op(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "c",
        Operation::Update => "u",
        Operation::Delete => "d",
        Operation::Snapshot => "r",
    }
}

fn read_at_millis(metadata: &Metadata) -> Result<i64, Fault> {
    match metadata.get(&key::READ_AT) {
        None => Ok(0),
        Some(nanos) => nanos.parse::<i64>().map(|nanos| nanos.div_euclid(1_000_000)).map_err(|_| {
            let what = format!("debezium/json: the metadata {:?} is not a number of nanoseconds", key::READ_AT);
            Fault::record(codes::FORMAT_FAILED, what)
        }),
    }
}

/// The Kafka Connect type of a value.
#[derive(Clone, Debug, PartialEq)]
enum Schema {
    /// All values are null.
    Null,
    Boolean,
    Int64,
    Double,
    Text,
    Bytes,
    Time,
    List(Box<Schema>),
    Struct(BTreeMap<Str, Schema>),
}

/// A value without a Kafka Connect type, and its place.
struct Untyped {
    what: String,
    place: String,
}

impl Untyped {
    #[cold]
    fn here(what: impl Into<String>) -> Self {
        Untyped { what: what.into(), place: String::new() }
    }

    #[cold]
    fn below(mut self, key: &str) -> Self {
        let mut place = String::new();
        push_part(key, &mut place);
        self.place.insert_str(0, &place);
        self
    }

    #[cold]
    fn on(self, side: Side) -> Fault {
        Fault::record(codes::FORMAT_FAILED, format!("debezium/json: {}{} {}", side.as_str(), self.place, self.what))
    }
}

/// Returns the schemas of both sides: the same one, unless the sides contradict each other.
fn schemas(before: &Data, after: &Data) -> Result<(Schema, Schema), Fault> {
    let side =
        |data: &Data, side: Side| data.fields().map(|fields| of_object(fields).map_err(|e| e.on(side))).transpose();
    let empty = || Schema::Struct(BTreeMap::new());
    Ok(match (side(before, Side::Before)?, side(after, Side::After)?) {
        (None, None) => (empty(), empty()),
        (Some(only), None) | (None, Some(only)) => (only.clone(), only),
        (Some(before), Some(after)) => match before.clone().unify(after.clone()) {
            Ok(both) => (both.clone(), both),
            Err(_) => (before, after),
        },
    })
}

fn of_object(object: &Object) -> Result<Schema, Untyped> {
    let field = |(key, value): (&Str, &Value)| match of_value(value) {
        Ok(schema) => Ok((key.clone(), schema)),
        Err(untyped) => Err(untyped.below(key)),
    };
    object.iter().map(field).collect::<Result<_, _>>().map(Schema::Struct)
}

fn of_value(value: &Value) -> Result<Schema, Untyped> {
    Ok(match value {
        Value::Null => Schema::Null,
        Value::Bool(_) => Schema::Boolean,
        Value::Int(_) => Schema::Int64,
        Value::UInt(_) => return Err(Untyped::here("is an integer that does not fit into int64")),
        Value::Float(_) => Schema::Double,
        Value::Text(_) => Schema::Text,
        Value::Bytes(_) => Schema::Bytes,
        Value::Time(_) => Schema::Time,
        Value::List(items) => {
            let mut common = Schema::Null;
            for item in items.iter() {
                common = common.unify(of_value(item)?)?;
            }
            Schema::List(Box::new(common))
        }
        Value::Map(object) => of_object(object)?,
    })
}

impl Schema {
    /// Returns a schema for the values of both.
    fn unify(self, other: Schema) -> Result<Schema, Untyped> {
        Ok(match (self, other) {
            (Schema::Null, known) | (known, Schema::Null) => known,
            (Schema::Int64, Schema::Double) | (Schema::Double, Schema::Int64) => Schema::Double,
            (Schema::List(a), Schema::List(b)) => Schema::List(Box::new(a.unify(*b)?)),
            (Schema::Struct(mut fields), Schema::Struct(others)) => {
                for (key, schema) in others {
                    let known = fields.remove(&key).unwrap_or(Schema::Null);
                    let both = known.unify(schema).map_err(|untyped| untyped.below(&key))?;
                    fields.insert(key, both);
                }
                Schema::Struct(fields)
            }
            (a, b) if a == b => a,
            (a, b) => {
                return Err(Untyped::here(format!("is a list that mixes {} and {}", a.type_name(), b.type_name())));
            }
        })
    }

    fn type_name(&self) -> &'static str {
        match self {
            Schema::Boolean => "boolean",
            Schema::Int64 => "int64",
            Schema::Double => "double",
            // A field that is always null may have any type; most readers accept a text.
            Schema::Null | Schema::Text | Schema::Time => "string",
            Schema::Bytes => "bytes",
            Schema::List(_) => "array",
            Schema::Struct(_) => "struct",
        }
    }
}

fn write_schema(schema: &Schema, field: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(schema.type_name().as_bytes());
    out.push(b'"');
    match schema {
        Schema::List(items) => {
            out.extend_from_slice(b",\"items\":");
            write_schema(items, None, out);
        }
        Schema::Struct(fields) => {
            out.extend_from_slice(b",\"fields\":[");
            for (i, (key, schema)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_schema(schema, Some(key), out);
            }
            out.push(b']');
        }
        Schema::Time => out.extend_from_slice(b",\"name\":\"io.debezium.time.ZonedTimestamp\",\"version\":1"),
        _ => {}
    }
    out.extend_from_slice(b",\"optional\":true");
    if let Some(field) = field {
        out.extend_from_slice(b",\"field\":");
        write_text(field, out);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
