//! Compiles the text of a schema to a codec.

use std::collections::BTreeMap;

use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use apache_avro::Schema;
use apache_avro::schema::{DecimalSchema, InnerDecimalSchema, Name, UuidSchema};

use super::decimal::LONGEST;
use super::{Codec, CodecError, Field, Node, Sized, Unit};

impl Codec {
    /// Compiles the JSON text of a schema.
    ///
    /// # Errors
    /// Fails if the text is not an Avro schema.
    pub fn parse(text: &str) -> Result<Codec, CodecError> {
        // The parser of the library is recursive.
        if nesting(text) > 64 {
            return Err(CodecError::Schema("nested too deeply".to_owned()));
        }
        let schema = Schema::parse_str(text).map_err(|error| CodecError::Schema(error.to_string()))?;
        let mut compiler = Compiler { numbers: BTreeMap::new(), named: Vec::new() };
        let root = compiler.node(&schema, None)?;
        Ok(Codec { root, named: compiler.named })
    }
}

fn too_long(found: &str) -> CodecError {
    CodecError::Schema(format!(
        "a decimal number has at most {LONGEST} digits after the decimal point, and at most {LONGEST} bytes if its \
         size is fixed; this one has {found}"
    ))
}

fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

struct Compiler {
    numbers: BTreeMap<String, usize>,
    named: Vec<Node>,
}

impl Compiler {
    fn node(&mut self, schema: &Schema, namespace: Option<&str>) -> Result<Node, CodecError> {
        Ok(match schema {
            Schema::Null => Node::Null,
            Schema::Boolean => Node::Boolean,
            Schema::Int => Node::Int,
            Schema::Long => Node::Long,
            Schema::Float => Node::Float,
            Schema::Double => Node::Double,
            Schema::Bytes => Node::Bytes,
            Schema::String => Node::Text,
            Schema::Array(array) => Node::Array(Box::new(self.node(&array.items, namespace)?)),
            Schema::Map(map) => Node::Map(Box::new(self.node(&map.types, namespace)?)),
            Schema::Union(union) => {
                let nodes = union.variants().iter().map(|variant| self.node(variant, namespace));
                Node::Union(nodes.collect::<Result<_, _>>()?)
            }
            Schema::Record(record) => {
                let number = self.declare(&record.name, namespace);
                let inner = record.name.namespace().or(namespace);
                let mut fields = Vec::with_capacity(record.fields.len());
                for field in &record.fields {
                    let node = self.node(&field.schema, inner)?;
                    let default = field.default.as_ref().map(|json| self.default(&node, json)).transpose()?;
                    fields.push(Field { name: field.name.as_str().into(), node, default, rank: 0 });
                }
                let mut order: Vec<usize> = (0..fields.len()).collect();
                order.sort_by(|a, b| fields[*a].name.cmp(&fields[*b].name));
                order.into_iter().enumerate().for_each(|(rank, field)| fields[field].rank = rank);
                self.define(number, Node::Record(fields))
            }
            Schema::Enum(schema) => {
                let number = self.declare(&schema.name, namespace);
                self.define(number, Node::Enum(schema.symbols.iter().map(|symbol| symbol.as_str().into()).collect()))
            }
            Schema::Fixed(fixed) => {
                let number = self.declare(&fixed.name, namespace);
                self.define(number, Node::Fixed(fixed.size))
            }
            Schema::Decimal(DecimalSchema { scale, .. }) if *scale > LONGEST => {
                return Err(too_long(&format!("{scale} digits after the decimal point")));
            }
            Schema::Decimal(decimal) => match &decimal.inner {
                InnerDecimalSchema::Fixed(fixed) if fixed.size > LONGEST => {
                    return Err(too_long(&format!("{} bytes", fixed.size)));
                }
                InnerDecimalSchema::Bytes => Node::Decimal(decimal.precision, decimal.scale, None),
                InnerDecimalSchema::Fixed(fixed) => {
                    let number = self.declare(&fixed.name, namespace);
                    self.define(number, Node::Decimal(decimal.precision, decimal.scale, Some(fixed.size)))
                }
            },
            Schema::BigDecimal => Node::BigDecimal,
            Schema::Uuid(UuidSchema::String) => Node::UuidText,
            Schema::Uuid(UuidSchema::Bytes) => Node::Uuid(Sized::Bytes),
            Schema::Uuid(UuidSchema::Fixed(fixed)) => {
                let number = self.declare(&fixed.name, namespace);
                self.define(number, Node::Uuid(Sized::Fixed))
            }
            Schema::Date => Node::Date,
            Schema::TimeMillis => Node::TimeMillis,
            Schema::TimeMicros => Node::TimeMicros,
            Schema::TimestampMillis | Schema::LocalTimestampMillis => Node::Timestamp(Unit::Millis),
            Schema::TimestampMicros | Schema::LocalTimestampMicros => Node::Timestamp(Unit::Micros),
            Schema::TimestampNanos | Schema::LocalTimestampNanos => Node::Timestamp(Unit::Nanos),
            Schema::Duration(fixed) => {
                let number = self.declare(&fixed.name, namespace);
                self.define(number, Node::Duration)
            }
            Schema::Ref { name } => {
                let full = name.fullname(namespace);
                let unknown = || CodecError::Schema(format!("unknown type {full:?}"));
                Node::Named(*self.numbers.get(&full).ok_or_else(unknown)?)
            }
        })
    }

    fn declare(&mut self, name: &Name, namespace: Option<&str>) -> usize {
        let number = self.named.len();
        self.named.push(Node::Null);
        self.numbers.insert(name.fullname(namespace), number);
        number
    }

    fn define(&mut self, number: usize, node: Node) -> Node {
        self.named[number] = node;
        Node::Named(number)
    }

    /// Converts a default: a value of the type, or of the first type of a union. Bytes are text with one character per
    /// byte.
    fn default(&self, node: &Node, json: &serde_json::Value) -> Result<Value, CodecError> {
        use serde_json::Value as Json;
        let node = match node {
            Node::Named(number) => &self.named[*number],
            other => other,
        };
        Ok(match (node, json) {
            (Node::Union(nodes), json) => {
                let found = nodes.iter().find_map(|node| self.default(node, json).ok());
                return found
                    .ok_or_else(|| CodecError::Schema(format!("the default {json} fits no type of its union")));
            }
            (Node::Bytes | Node::Fixed(_), Json::String(text)) => {
                let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
                Value::Bytes(bytes.ok_or_else(|| CodecError::Schema("a default is not bytes".to_owned()))?.into())
            }
            (Node::Null, Json::Null) => Value::Null,
            (Node::Boolean, Json::Bool(v)) => Value::Bool(*v),
            (
                Node::Int | Node::Long | Node::Date | Node::TimeMillis | Node::TimeMicros | Node::Timestamp(_),
                Json::Number(v),
            ) => v
                .as_i64()
                .map(Value::Int)
                .ok_or_else(|| CodecError::Schema(format!("the default {v} is not an integer")))?,
            (Node::Float | Node::Double, Json::Number(v)) => Value::Float(v.as_f64().unwrap_or(f64::NAN)),
            (Node::Text | Node::Enum(_) | Node::UuidText, Json::String(text)) => Value::from(text.as_str()),
            (Node::Array(items), Json::Array(list)) => {
                Value::from(list.iter().map(|json| self.default(items, json)).collect::<Result<Vec<_>, _>>()?)
            }
            (Node::Map(values), Json::Object(map)) => {
                let entry = |(key, json): (&String, &Json)| Ok((Str::from(key.as_str()), self.default(values, json)?));
                Value::from(Object::from_entries(map.iter().map(entry).collect::<Result<_, CodecError>>()?))
            }
            (Node::Record(fields), Json::Object(map)) => {
                let mut entries = Vec::with_capacity(fields.len());
                for field in fields {
                    match map.get(field.name.as_str()) {
                        Some(json) => entries.push((field.name.clone(), self.default(&field.node, json)?)),
                        None if field.default.is_some() => {}
                        None => return Err(CodecError::Schema(format!("a default has no field {:?}", field.name))),
                    }
                }
                Value::from(Object::from_entries(entries))
            }
            _ => return Err(CodecError::Schema(format!("the default {json} is not of type {}", node.name()))),
        })
    }
}
