//! Encodes and decodes data in the binary format of Avro.
//!
//! The library parses and checks schemas. The data itself is read and written here, directly between record values and
//! bytes. Maps are written in key order (the library's order is random, so that equal records would give different
//! bytes), and damaged bytes cannot cause large allocations.
//!
//! | Avro | value | also written from |
//! |---|---|---|
//! | int, long | integer | float without fraction |
//! | float, double | float | integer that the type holds exactly |
//! | string, enum | text | time (string: RFC 3339) |
//! | bytes, fixed | bytes | |
//! | array, map, record | list, map, map | |
//! | decimal, big-decimal | text, `"12.50"`: exact, with all digits of the scale | integer, float |
//! | uuid | text | |
//! | date, timestamp-*, local-timestamp-* | time, UTC | RFC 3339 text, `2024-01-31` for date, integer in the unit |
//! | time-millis, time-micros | integer in that unit | |
//! | duration | map of `months`, `days`, `millis` | |
//!
//! A time with a finer resolution than its type is truncated to the unit.

mod compile;
mod decimal;
mod decode;
mod encode;

use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};

/// Error in data or a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The text is not an Avro schema.
    #[error("{0}")]
    Schema(String),
    /// A value does not fit the schema.
    #[error("{path}{what}", path = PathText(path))]
    Misfit {
        /// The keys of its path, the innermost first.
        path: Vec<Str>,
        /// The reason.
        what: String,
    },
    /// The bytes were not written with this schema.
    #[error("byte {at}: {what}")]
    Damaged {
        /// Offset in the data.
        at: usize,
        /// The problem at this offset.
        what: &'static str,
    },
    /// The schema must be a record or a map for structured data.
    #[error("the schema is {0}, not a record or a map")]
    NotStructured(&'static str),
}

struct PathText<'a>(&'a [Str]);

impl std::fmt::Display for PathText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut path = self.0.iter().rev();
        if let Some(first) = path.next() {
            write!(f, "{first}")?;
            path.try_for_each(|key| write!(f, ".{key}"))?;
            f.write_str(": ")?;
        }
        Ok(())
    }
}

/// Maximum nesting depth of values: a schema may contain itself, and the stack is limited.
const DEPTH: usize = 128;

/// A compiled schema, which encodes and decodes. Compiling costs O(size of the schema).
#[derive(Debug)]
pub struct Codec {
    root: Node,
    /// Records, enums and fixed types by number, because a schema may contain itself.
    named: Vec<Node>,
}

#[derive(Clone, Debug)]
enum Node {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Array(Box<Node>),
    Map(Box<Node>),
    Union(Vec<Node>),
    Record(Vec<Field>),
    Enum(Vec<Str>),
    Fixed(usize),
    /// Precision, scale, and the number of bytes if it is fixed.
    Decimal(usize, usize, Option<usize>),
    BigDecimal,
    UuidText,
    /// Sixteen bytes, with a length prefix if the type is `bytes`.
    Uuid(Sized),
    Date,
    TimeMillis,
    TimeMicros,
    Timestamp(Unit),
    Duration,
    Named(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sized {
    Fixed,
    Bytes,
}

#[derive(Clone, Debug)]
struct Field {
    name: Str,
    node: Node,
    /// Value that is written if the field is missing.
    default: Option<Value>,
    /// Rank of the name in sorted order, so that a decoded map is sorted without comparisons.
    rank: usize,
}

/// Unit of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Millis,
    Micros,
    Nanos,
}

impl Codec {
    /// Returns `true` if the schema is a record or a map, so that its data can be structured.
    pub fn is_structured(&self) -> bool {
        matches!(self.resolve(&self.root), Node::Record(_) | Node::Map(_))
    }

    /// Appends encoded fields. On an error, appends nothing.
    ///
    /// # Errors
    /// Fails if the fields do not fit the schema: one is missing without a default, unknown, or of another type.
    pub fn encode_fields(&self, fields: &Object, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let start = out.len();
        let written = match self.resolve(&self.root) {
            Node::Record(schema) => encode::record(self, schema, fields, out, DEPTH),
            Node::Map(values) => encode::map(self, values, fields, out, DEPTH),
            other => Err(CodecError::NotStructured(other.name())),
        };
        written.inspect_err(|_| out.truncate(start))
    }

    /// Returns `true` if the field names alone do not fit, whatever the values: one is missing or unknown.
    pub(crate) fn misfits_names_of(&self, fields: &Object) -> bool {
        let Node::Record(schema) = self.resolve(&self.root) else { return false };
        let is_missing = |field: &Field| {
            field.default.is_none() && !encode::takes_null(self, &field.node) && fields.get(&field.name).is_none()
        };
        let is_known = |name: &Str| schema.iter().any(|field| field.name == *name);
        schema.iter().any(is_missing) || !fields.iter().all(|(name, _)| is_known(name))
    }

    /// Appends an encoded value. On an error, appends nothing.
    ///
    /// # Errors
    /// Fails if the value does not fit the schema.
    pub fn encode(&self, value: &Value, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let start = out.len();
        encode::value(self, &self.root, value, out, DEPTH).inspect_err(|_| out.truncate(start))
    }

    /// Decodes all of `bytes` as fields.
    ///
    /// # Errors
    /// Fails if the bytes were not written with this schema, or the schema is not a record or a map.
    pub fn decode_fields(&self, bytes: &[u8]) -> Result<Object, CodecError> {
        if !self.is_structured() {
            return Err(CodecError::NotStructured(self.resolve(&self.root).name()));
        }
        match self.decode(bytes)? {
            Value::Map(map) => Ok(std::sync::Arc::unwrap_or_clone(map)),
            _ => Err(CodecError::NotStructured(self.root.name())),
        }
    }

    /// Decodes all of `bytes` as a value.
    ///
    /// # Errors
    /// Fails if the bytes were not written with this schema.
    pub fn decode(&self, bytes: &[u8]) -> Result<Value, CodecError> {
        decode::whole(self, bytes)
    }

    fn resolve<'a>(&'a self, node: &'a Node) -> &'a Node {
        match node {
            Node::Named(number) => &self.named[*number],
            other => other,
        }
    }
}

impl Node {
    /// Returns the name of the type, for messages.
    fn name(&self) -> &'static str {
        match self {
            Node::Null => "null",
            Node::Boolean => "boolean",
            Node::Int => "int",
            Node::Long => "long",
            Node::Float => "float",
            Node::Double => "double",
            Node::Bytes => "bytes",
            Node::Text => "string",
            Node::Array(_) => "array",
            Node::Map(_) => "map",
            Node::Union(_) => "union",
            Node::Record(_) | Node::Named(_) => "record",
            Node::Enum(_) => "enum",
            Node::Fixed(_) => "fixed",
            Node::Decimal(..) => "decimal",
            Node::BigDecimal => "big-decimal",
            Node::UuidText | Node::Uuid(_) => "uuid",
            Node::Date => "date",
            Node::TimeMillis => "time-millis",
            Node::TimeMicros => "time-micros",
            Node::Timestamp(Unit::Millis) => "timestamp-millis",
            Node::Timestamp(Unit::Micros) => "timestamp-micros",
            Node::Timestamp(Unit::Nanos) => "timestamp-nanos",
            Node::Duration => "duration",
        }
    }
}

#[cfg(test)]
mod tests;
