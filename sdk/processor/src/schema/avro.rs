//! Avro: schemas, and binary data without a header (Avro specification 1.12, "Binary Encoding").
//!
//! Logical types keep their underlying type: a timestamp is an integer, a decimal is bytes. A time can be written as a
//! timestamp. Numbers of another type are written if they keep their value.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anabranch_record::text::{Str, same};
use anabranch_record::value::{Object, Value};

/// Maximum nesting depth of data.
const MOST_LEVELS: usize = 200;
/// Maximum number of values that take no bytes, such as nulls in a list.
const MOST_EMPTY: usize = 100_000;

/// A parsed schema: types that refer to each other by index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Avro {
    types: Vec<Type>,
    root: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Type {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    Enum(Vec<Str>),
    Array(usize),
    Map(usize),
    Union(Vec<usize>),
    Record(Vec<(Str, usize)>),
    Timestamp(Unit),
}

/// Unit of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Millis,
    Micros,
    Nanos,
}

/// Which values fit a type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fit {
    /// Those that are decoded as the same value.
    Same,
    /// Also numbers of another type, if they keep their value.
    Equal,
}

/// Error in a schema or in data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AvroError(String);

impl fmt::Display for AvroError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AvroError {}

fn wrong<T>(message: impl Into<String>) -> Result<T, AvroError> {
    Err(AvroError(message.into()))
}

impl Avro {
    pub(crate) fn parse(text: &str) -> Result<Self, AvroError> {
        let json = serde_json::from_str(text).map_err(|error| AvroError(format!("the schema is not JSON: {error}")))?;
        let mut parser = Parser { types: Vec::new(), names: BTreeMap::new() };
        let root = parser.parse(&json, "", MOST_LEVELS)?;
        Ok(Avro { types: parser.types, root })
    }

    /// Decodes the fields of a record or map; reuses the memory of `spare`.
    pub(crate) fn decode(&self, bytes: &[u8], spare: Arc<Object>) -> Result<Arc<Object>, AvroError> {
        let mut decoder = Decoder { avro: self, left: bytes, empty: MOST_EMPTY };
        let mut value = Value::Map(spare);
        decoder.value(self.root, &mut value, MOST_LEVELS)?;
        if !decoder.left.is_empty() {
            return wrong("bytes remain after the data");
        }
        match value {
            Value::Map(map) => Ok(map),
            other => wrong(format!("the schema is of {}, but structured data is a map", other.type_name())),
        }
    }

    /// Appends the encoded fields. Returns `false` if they do not fit the schema; `out` then contains a part of them.
    pub(crate) fn encode(&self, map: &Object, out: &mut Vec<u8>) -> bool {
        self.encode_map(self.root, map, Fit::Equal, out).is_some()
    }

    fn encode_value(&self, place: usize, value: &Value, fit: Fit, out: &mut Vec<u8>) -> Option<()> {
        match (&self.types[place], value) {
            (Type::Null, Value::Null) => {}
            (Type::Boolean, Value::Bool(value)) => out.push(u8::from(*value)),
            (Type::Int, Value::Int(number)) => long(i64::from(i32::try_from(*number).ok()?), out),
            (Type::Long | Type::Timestamp(_), Value::Int(number)) => long(*number, out),
            (Type::Timestamp(unit), Value::Time(time)) => long(
                match unit {
                    Unit::Millis => time.timestamp_millis(),
                    Unit::Micros => time.timestamp_micros(),
                    Unit::Nanos => time.timestamp_nanos_opt()?,
                },
                out,
            ),
            (Type::Int | Type::Long, Value::Float(_)) if fit == Fit::Equal => {
                return self.encode_value(place, &Value::Int(value.as_i64()?), fit, out);
            }
            (Type::Float | Type::Double, Value::Int(number)) if fit == Fit::Equal => {
                let float = *number as f64;
                (float as i64 == *number && number.unsigned_abs() <= 1 << 53).then_some(())?;
                return self.encode_value(place, &Value::Float(float), fit, out);
            }
            (Type::Float, Value::Float(number)) => {
                let float = *number as f32;
                if f64::from(float) != *number && !number.is_nan() {
                    return None;
                }
                out.extend_from_slice(&float.to_le_bytes());
            }
            (Type::Double, Value::Float(number)) => out.extend_from_slice(&number.to_le_bytes()),
            (Type::Bytes, Value::Bytes(bytes)) => counted(bytes, out),
            (Type::String, Value::Text(text)) => counted(text.as_bytes(), out),
            (Type::Fixed(size), Value::Bytes(bytes)) if bytes.len() == *size => out.extend_from_slice(bytes),
            (Type::Enum(symbols), Value::Text(text)) => {
                long(symbols.iter().position(|symbol| *symbol == *text)? as i64, out);
            }
            (Type::Array(items), Value::List(list)) => {
                if !list.is_empty() {
                    long(list.len() as i64, out);
                    for item in list.iter() {
                        self.encode_value(*items, item, fit, out)?;
                    }
                }
                out.push(0);
            }
            (Type::Map(_) | Type::Record(_), Value::Map(map)) => self.encode_map(place, map, fit, out)?,
            (Type::Union(branches), value) => {
                return union(branches, fit, out, |branch, fit, out| self.encode_value(branch, value, fit, out));
            }
            _ => return None,
        }
        Some(())
    }

    fn encode_map(&self, place: usize, map: &Object, fit: Fit, out: &mut Vec<u8>) -> Option<()> {
        match &self.types[place] {
            Type::Map(values) => {
                if !map.is_empty() {
                    long(map.len() as i64, out);
                    for (key, value) in map.iter() {
                        counted(key.as_bytes(), out);
                        self.encode_value(*values, value, fit, out)?;
                    }
                }
                out.push(0);
            }
            Type::Record(fields) => {
                // Most schemas have their fields in name order, as maps do.
                let mut entries = map.iter().peekable();
                let mut found = 0;
                for (name, field) in fields {
                    let value = match entries.next_if(|(key, _)| same(key.as_bytes(), name.as_bytes())) {
                        Some((_, value)) => value,
                        None => map.get(name)?,
                    };
                    found += 1;
                    self.encode_value(*field, value, fit, out)?;
                }
                // Fields that the schema lacks would be lost.
                if found < map.len() {
                    return None;
                }
            }
            Type::Union(branches) => {
                return union(branches, fit, out, |branch, fit, out| self.encode_map(branch, map, fit, out));
            }
            _ => return None,
        }
        Some(())
    }
}

/// Writes the first type of a union that holds the same value, or else the first that holds an equal one.
fn union(
    branches: &[usize],
    fit: Fit,
    out: &mut Vec<u8>,
    mut encode: impl FnMut(usize, Fit, &mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    let start = out.len();
    let fits: &[Fit] = if fit == Fit::Same { &[Fit::Same] } else { &[Fit::Same, Fit::Equal] };
    fits.iter().find_map(|fit| {
        branches.iter().enumerate().find_map(|(i, &branch)| {
            out.truncate(start);
            long(i as i64, out);
            encode(branch, *fit, out)
        })
    })
}

/// Writes a zigzag integer in base 128.
fn long(number: i64, out: &mut Vec<u8>) {
    let mut rest = (number << 1 ^ number >> 63) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn counted(bytes: &[u8], out: &mut Vec<u8>) {
    long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

struct Parser {
    types: Vec<Type>,
    /// Indices of named types, by full name.
    names: BTreeMap<String, usize>,
}

impl Parser {
    fn add(&mut self, found: Type) -> usize {
        self.types.push(found);
        self.types.len() - 1
    }

    fn parse(&mut self, json: &serde_json::Value, space: &str, levels: usize) -> Result<usize, AvroError> {
        let Some(below) = levels.checked_sub(1) else { return wrong("the schema is nested too deeply") };
        match json {
            serde_json::Value::String(name) => self.named(name, space),
            serde_json::Value::Array(branches) => {
                let branches = branches.iter().map(|branch| self.parse(branch, space, below));
                let branches = branches.collect::<Result<_, _>>()?;
                Ok(self.add(Type::Union(branches)))
            }
            serde_json::Value::Object(object) => {
                let part =
                    |key: &str| object.get(key).ok_or_else(|| AvroError(format!("a type in the schema lacks {key:?}")));
                let kind = part("type")?;
                match kind.as_str() {
                    Some("array") => {
                        let items = self.parse(part("items")?, space, below)?;
                        Ok(self.add(Type::Array(items)))
                    }
                    Some("map") => {
                        let values = self.parse(part("values")?, space, below)?;
                        Ok(self.add(Type::Map(values)))
                    }
                    Some(named @ ("record" | "error" | "enum" | "fixed")) => {
                        let name = part("name")?.as_str().unwrap_or_default();
                        let given = object.get("namespace").and_then(serde_json::Value::as_str);
                        let full = full_name(name, given.unwrap_or(space));
                        let space = full.rsplit_once('.').map_or("", |(space, _)| space).to_owned();
                        // Register the name before its parts, which may refer to it.
                        let place = self.add(Type::Null);
                        if self.names.insert(full.clone(), place).is_some() {
                            return wrong(format!("the schema defines {full:?} twice"));
                        }
                        self.types[place] = match named {
                            "enum" => {
                                let symbols = part("symbols")?.as_array().into_iter().flatten();
                                let symbols = symbols.map(|symbol| Str::from(symbol.as_str().unwrap_or_default()));
                                Type::Enum(symbols.collect())
                            }
                            "fixed" => {
                                let size = part("size")?.as_u64().and_then(|size| usize::try_from(size).ok());
                                let Some(size) = size else { return wrong("a size in the schema is not a number") };
                                Type::Fixed(size)
                            }
                            _ => {
                                let mut fields = Vec::new();
                                for field in part("fields")?.as_array().into_iter().flatten() {
                                    let (Some(name), Some(kind)) =
                                        (field.get("name").and_then(serde_json::Value::as_str), field.get("type"))
                                    else {
                                        return wrong(format!("a field of {full:?} in the schema lacks name or type"));
                                    };
                                    fields.push((name.into(), self.parse(kind, &space, below)?));
                                }
                                Type::Record(fields)
                            }
                        };
                        Ok(place)
                    }
                    // A type with attributes, such as a logical type.
                    _ => {
                        let place = self.parse(kind, space, below)?;
                        let logical = object.get("logicalType").and_then(serde_json::Value::as_str).unwrap_or_default();
                        let unit = match logical.strip_prefix("local-").unwrap_or(logical) {
                            "timestamp-millis" => Unit::Millis,
                            "timestamp-micros" => Unit::Micros,
                            "timestamp-nanos" => Unit::Nanos,
                            _ => return Ok(place),
                        };
                        Ok(if self.types[place] == Type::Long { self.add(Type::Timestamp(unit)) } else { place })
                    }
                }
            }
            _ => wrong("a type in the schema is neither text, list nor object"),
        }
    }

    fn named(&mut self, name: &str, space: &str) -> Result<usize, AvroError> {
        let primitive = match name {
            "null" => Type::Null,
            "boolean" => Type::Boolean,
            "int" => Type::Int,
            "long" => Type::Long,
            "float" => Type::Float,
            "double" => Type::Double,
            "bytes" => Type::Bytes,
            "string" => Type::String,
            name => {
                let place = self.names.get(&full_name(name, space)).or_else(|| self.names.get(name));
                return place.copied().ok_or_else(|| AvroError(format!("the schema does not define {name:?}")));
            }
        };
        Ok(self.add(primitive))
    }
}

fn full_name(name: &str, space: &str) -> String {
    if name.contains('.') || space.is_empty() { name.to_owned() } else { [space, ".", name].concat() }
}

struct Decoder<'a, 'b> {
    avro: &'a Avro,
    left: &'b [u8],
    /// Remaining number of values without bytes.
    empty: usize,
}

impl Decoder<'_, '_> {
    /// Decodes a value into `to`.
    fn value(&mut self, place: usize, to: &mut Value, levels: usize) -> Result<(), AvroError> {
        let Some(below) = levels.checked_sub(1) else { return wrong("the data is nested too deeply") };
        let avro = self.avro;
        *to = match &avro.types[place] {
            Type::Null => Value::Null,
            Type::Boolean => Value::Bool(self.take(1)? != [0]),
            Type::Int | Type::Long | Type::Timestamp(_) => Value::Int(self.long()?),
            Type::Float => Value::Float(f64::from(f32::from_le_bytes(self.array()?))),
            Type::Double => Value::Float(f64::from_le_bytes(self.array()?)),
            Type::Bytes => Value::Bytes(self.counted()?.into()),
            Type::String => {
                to.set_text(self.text()?);
                return Ok(());
            }
            Type::Fixed(size) => Value::Bytes(self.take(*size)?.into()),
            Type::Enum(symbols) => {
                let symbol = usize::try_from(self.long()?).ok().and_then(|i| symbols.get(i));
                match symbol {
                    Some(symbol) => Value::Text(symbol.clone()),
                    None => return wrong("an enum in the data has no such symbol"),
                }
            }
            Type::Array(items) => {
                let mut list = Vec::new();
                self.blocks(|decoder| {
                    let mut item = Value::Null;
                    decoder.value(*items, &mut item, below)?;
                    list.push(item);
                    Ok(())
                })?;
                Value::from(list)
            }
            Type::Map(values) => {
                let mut entries = Vec::new();
                self.blocks(|decoder| {
                    let key = Str::from(decoder.text()?);
                    let mut value = Value::Null;
                    decoder.value(*values, &mut value, below)?;
                    entries.push((key, value));
                    Ok(())
                })?;
                Value::from(Object::from_entries(entries))
            }
            Type::Union(branches) => {
                let branch = usize::try_from(self.long()?).ok().and_then(|i| branches.get(i));
                match branch {
                    Some(&branch) => return self.value(branch, to, below),
                    None => return wrong("a union in the data has no such branch"),
                }
            }
            Type::Record(fields) => {
                if let Value::Map(map) = to
                    && let Some(map) = Arc::get_mut(map)
                {
                    return self.fields(fields, map, below);
                }
                let mut map = Object::new();
                self.fields(fields, &mut map, below)?;
                Value::from(map)
            }
        };
        Ok(())
    }

    /// Decodes fields into `map`. If the map has the same keys in the order of the schema, reuses its memory.
    fn fields(&mut self, fields: &[(Str, usize)], map: &mut Object, levels: usize) -> Result<(), AvroError> {
        if map.len() == fields.len()
            && map.iter().zip(fields).all(|((key, _), (name, _))| same(key.as_bytes(), name.as_bytes()))
        {
            for ((_, to), (_, field)) in map.iter_mut().zip(fields) {
                self.value(*field, to, levels)?;
            }
            return Ok(());
        }
        let fields = fields.iter().map(|(name, field)| {
            let mut value = Value::Null;
            self.value(*field, &mut value, levels)?;
            Ok((name.clone(), value))
        });
        *map = Object::from_entries(fields.collect::<Result<_, AvroError>>()?);
        Ok(())
    }

    /// Reads items in blocks: a count, then the items, until a count of 0. A negative count is followed by the size in
    /// bytes.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), AvroError>) -> Result<(), AvroError> {
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                self.long()?;
            }
            for _ in 0..count.unsigned_abs() {
                let before = self.left.len();
                item(self)?;
                if self.left.len() == before {
                    match self.empty.checked_sub(1) {
                        Some(empty) => self.empty = empty,
                        None => return wrong("the data has too many values without bytes"),
                    }
                }
            }
        }
    }

    fn long(&mut self) -> Result<i64, AvroError> {
        let mut number = 0u64;
        for i in 0..10 {
            let [byte] = self.array()?;
            number |= u64::from(byte & 0x7F) << (7 * i);
            if byte < 0x80 {
                return Ok((number >> 1) as i64 ^ -((number & 1) as i64));
            }
        }
        wrong("a number in the data has more than 64 bits")
    }

    fn counted(&mut self) -> Result<&[u8], AvroError> {
        match usize::try_from(self.long()?) {
            Ok(length) => self.take(length),
            Err(_) => wrong("a length in the data is negative"),
        }
    }

    fn text(&mut self) -> Result<&str, AvroError> {
        let bytes = self.counted()?;
        std::str::from_utf8(bytes).map_err(|_| AvroError("text in the data is not valid UTF-8".to_owned()))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], AvroError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn take(&mut self, length: usize) -> Result<&[u8], AvroError> {
        match self.left.split_at_checked(length) {
            Some((head, tail)) => {
                self.left = tail;
                Ok(head)
            }
            None => wrong("the data ends too early"),
        }
    }
}

#[cfg(test)]
mod tests;
