//! From a script into a record.
//!
//! Everything is read beside what it was before: what is still the same is kept as it was, with all digits of a time
//! and the type of a number, and without a copy.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use anabranch_graph::json::MAX_DEPTH;
use anabranch_graph::metadata::Metadata;
use anabranch_graph::record::{Change, Data, Operation, Record};
use anabranch_graph::text::Str;
use anabranch_graph::value::{Object, Value};
use boa_engine::builtins::array_buffer::ArrayBuffer;
use boa_engine::builtins::date::Date;
use boa_engine::builtins::error::Error;
use boa_engine::builtins::map::ordered_map::OrderedMap;
use boa_engine::builtins::promise::Promise;
use boa_engine::builtins::proxy::Proxy;
use boa_engine::builtins::regexp::RegExp;
use boa_engine::builtins::set::ordered_set::OrderedSet;
use boa_engine::builtins::typed_array::TypedArray;
use boa_engine::object::builtins::{JsArrayBuffer, JsDate, JsUint8Array};
use boa_engine::property::{PropertyDescriptor, PropertyKey};
use boa_engine::value::JsVariant;
use boa_engine::{Context, JsError, JsObject, JsString, JsValue};
use bytes::Bytes;
use chrono::DateTime;

use super::enter::SAFE;
use crate::envelope::{self, Envelope, Field, Opened, PAYLOAD, RECORD, Whole};
use crate::text::{key, name, utf8};
use crate::view::{self, Remembered, View, property, target};

/// The most elements a list may have: `length` can be set to anything.
const MOST_ITEMS: u64 = 1 << 24;
/// Longer paths are shown without their middle.
const LONGEST: usize = 160;

/// Why something cannot become part of a record.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// It is nothing that a record can hold.
    Value {
        /// Where, from the record on.
        path: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Reading it ran the script, which threw.
    Threw(JsError),
}

impl From<JsError> for Unfit {
    fn from(error: JsError) -> Self {
        Unfit::Threw(error)
    }
}

type Result<T> = std::result::Result<T, Unfit>;

/// Where a value is, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    above: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item(u64),
}

impl<'a> Path<'a> {
    /// A path that begins with this word.
    pub(crate) fn new(root: &'a str) -> Self {
        Path { above: None, step: Step::Field(root) }
    }

    fn field<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path { above: Some(self), step: Step::Field(name) }
    }

    pub(crate) fn item(&self, index: u64) -> Path<'_> {
        Path { above: Some(self), step: Step::Item(index) }
    }

    fn depth(&self) -> usize {
        std::iter::successors(Some(self), |path| path.above).count()
    }

    #[cold]
    fn unfit<T>(&self, what: impl Into<String>) -> Result<T> {
        let mut path = self.to_string();
        if path.len() > LONGEST {
            let keep = |at: usize| (0..=at).rev().find(|at| path.is_char_boundary(*at)).unwrap_or_default();
            let (head, tail) = (keep(LONGEST / 2), keep(path.len() - LONGEST / 4));
            path.replace_range(head..tail, " … ");
        }
        Err(Unfit::Value { path, what: what.into() })
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        let plain = |name: &str| {
            let mut bytes = name.bytes();
            bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
                && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        match (self.step, self.above) {
            (Step::Field(name), None) => f.write_str(name),
            (Step::Field(name), Some(_)) if plain(name) => write!(f, ".{name}"),
            (Step::Field(name), Some(_)) => write!(f, "[{name:?}]"),
            (Step::Item(index), _) => write!(f, "[{index}]"),
        }
    }
}

/// A value beside what it was.
enum Left {
    Same,
    New(Value),
}

/// Reads what a script left.
pub(crate) struct Leave<'c> {
    context: &'c mut Context,
    /// Objects that are being read: one that is met again contains itself.
    open: Vec<JsObject>,
}

impl<'c> Leave<'c> {
    pub(crate) fn new(context: &'c mut Context) -> Self {
        Leave { context, open: Vec::new() }
    }

    /// The record that an object is, in place of `input`.
    pub(crate) fn record(&mut self, object: &JsObject, input: &Record, path: Path<'_>) -> Result<Record> {
        let Some(Opened { whole, fields, stranger }) = envelope::open(object, self.context)? else {
            return self.plain_record(object, input, path);
        };
        let Whole::Record(before) = &*whole else { return self.plain_record(object, input, path) };
        if let Some(stranger) = stranger {
            return path.unfit(format!("has a field {stranger}, a record has only {}", RECORD.join(", ")));
        }
        let [position, operation, metadata, key, payload] = fields;
        let mut record = input.clone();
        self.position(position, before, input, path)?;
        record.operation = match operation {
            Field::Untouched => before.operation,
            Field::Set(value) => self.operation(&value, path)?,
            Field::Gone => return path.field("Operation").unfit("is missing: a record has an operation"),
        };
        record.metadata = match metadata {
            Field::Untouched => before.metadata.clone(),
            Field::Set(value) => self.metadata(&value, &before.metadata, path.field("Metadata"))?,
            Field::Gone => Metadata::new(),
        };
        record.key = match key {
            Field::Untouched => before.key.clone(),
            Field::Set(value) => self.data(&value, &before.key, path.field("Key"))?,
            Field::Gone => Data::Absent,
        };
        record.payload = match payload {
            Field::Untouched => before.payload.clone(),
            Field::Set(value) => self.payload(&value, &before.payload, path.field("Payload"))?,
            Field::Gone => Change::default(),
        };
        Ok(record)
    }

    /// An object with the fields of a record, as `{...rec}` makes one.
    fn plain_record(&mut self, object: &JsObject, input: &Record, path: Path<'_>) -> Result<Record> {
        let keys = object.own_property_keys(self.context)?;
        let is_field = |key: &PropertyKey| name(key).is_some_and(|name| RECORD.contains(&name.as_ref()));
        if let Some(stranger) = keys.iter().find(|key| !is_field(key)) {
            return path.unfit(format!("is no record: it has a field {stranger}, a record has {}", RECORD.join(", ")));
        }
        if keys.is_empty() {
            return path.unfit("is no record but an empty object: return rec, or Record()");
        }
        let mut record = input.clone();
        let position = object.get(key("Position"), self.context)?;
        self.same_position(&position, input, path)?;
        let operation = object.get(key("Operation"), self.context)?;
        if !operation.is_undefined() {
            record.operation = self.operation(&operation, path)?;
        }
        let metadata = object.get(key("Metadata"), self.context)?;
        record.metadata = self.metadata(&metadata, &input.metadata, path.field("Metadata"))?;
        let of_key = object.get(key("Key"), self.context)?;
        record.key = self.data(&of_key, &input.key, path.field("Key"))?;
        let payload = object.get(key("Payload"), self.context)?;
        record.payload = self.payload(&payload, &input.payload, path.field("Payload"))?;
        Ok(record)
    }

    fn position(&mut self, field: Field, before: &Record, input: &Record, path: Path<'_>) -> Result<()> {
        match field {
            Field::Set(value) => self.same_position(&value, input, path),
            // That of `Record()` is not known yet.
            _ if before.position().0.is_empty() || before.position() == input.position() => Ok(()),
            _ => path.unfit("has the position of another record: a script may return its own record, or a new one"),
        }
    }

    fn same_position(&mut self, value: &JsValue, input: &Record, path: Path<'_>) -> Result<()> {
        let path = path.field("Position");
        if value.is_null_or_undefined() {
            return Ok(());
        }
        let same = match value.as_object() {
            Some(object) => self.bytes(&object)?.is_some_and(|bytes| bytes.is_empty() || bytes == *input.position().0),
            None => false,
        };
        if same { Ok(()) } else { path.unfit("must stay as it is: only the source knows what it means") }
    }

    fn operation(&mut self, value: &JsValue, path: Path<'_>) -> Result<Operation> {
        let path = path.field("Operation");
        let Some(text) = value.as_string() else {
            return path.unfit(format!("is {}, not text", described(value)));
        };
        let text = text_of(&text, path)?;
        text.parse().or_else(|error: anabranch_graph::record::UnknownOperation| path.unfit(format!("is {error}")))
    }

    fn metadata(&mut self, value: &JsValue, before: &Metadata, path: Path<'_>) -> Result<Metadata> {
        if value.is_null_or_undefined() {
            return Ok(Metadata::new());
        }
        let Some(object) = value.as_object() else {
            return path.unfit(format!("is {}, not an object of texts", described(value)));
        };
        if let Some(target) = target(&object, self.context)
            && let view::Whole::Metadata(shown) = whole(&target)
        {
            let mut metadata = shown;
            let lost = target.downcast_ref::<View>().map(|view| view.lost());
            for gone in lost.unwrap_or_default() {
                metadata.remove(&gone);
            }
            for key in view::touched(&target, self.context)? {
                let Some(value) = self.touched(&target, &key)? else { continue };
                let Some(field) = self.field_name(&key, path)? else { continue };
                let text = self.metadata_text(&value, path.field(&field))?;
                if metadata.get(&field).is_none_or(|before| before.as_str() != text) {
                    metadata.insert(&*field, text);
                }
            }
            return Ok(metadata);
        }
        // The fields of any other view are no properties yet: they are read as a script reads them.
        let mut origin = before.iter();
        let mut entries = Vec::new();
        let mut same = true;
        for key in object.own_property_keys(self.context)? {
            let Some(field) = self.field_name(&key, path)? else { continue };
            let value = match property(&object, &key).as_ref().and_then(PropertyDescriptor::value) {
                Some(value) => value.clone(),
                None => object.get(key.clone(), self.context)?,
            };
            let was = origin.next().filter(|(name, _)| **name == *field);
            if let JsVariant::String(text) = value.variant()
                && let Some((name, was)) = was
                && utf8(text.as_str()).is_some_and(|text| **was == *text)
            {
                entries.push((name.clone(), was.clone()));
                continue;
            }
            same = false;
            let text = self.metadata_text(&value, path.field(&field))?;
            entries.push((was.map_or_else(|| Str::from(&*field), |(name, _)| name.clone()), Str::from(text)));
        }
        match same && entries.len() == before.len() {
            true => Ok(before.clone()),
            false => Ok(Metadata::from_entries(entries)),
        }
    }

    /// Metadata is text; numbers and booleans are written as JavaScript writes them.
    fn metadata_text(&mut self, value: &JsValue, path: Path<'_>) -> Result<String> {
        match value.variant() {
            JsVariant::String(text) => text_of(&text, path),
            JsVariant::Boolean(_) | JsVariant::Integer32(_) | JsVariant::Float64(_) | JsVariant::BigInt(_) => {
                Ok(value.to_string(self.context)?.to_std_string_lossy())
            }
            JsVariant::Undefined | JsVariant::Null => {
                path.unfit(format!("is {}: metadata is text; delete what is not there", described(value)))
            }
            JsVariant::Object(_) | JsVariant::Symbol(_) => {
                path.unfit(format!("is {}: metadata is text; use JSON.stringify", described(value)))
            }
        }
    }

    fn payload(&mut self, value: &JsValue, before: &Change, path: Path<'_>) -> Result<Change> {
        if value.is_null_or_undefined() {
            return Ok(Change::default());
        }
        let Some(object) = value.as_object() else {
            return path.unfit(format!("is {}, not an object with Before and After", described(value)));
        };
        if let Some(Opened { whole, fields: [of_before, of_after, ..], stranger }) =
            envelope::open(&object, self.context)?
            && let Whole::Payload(shown) = &*whole
        {
            if let Some(stranger) = stranger {
                return path.unfit(format!("has a field {stranger}, a payload has only {}", PAYLOAD.join(", ")));
            }
            let mut side = |field: Field, was: &Data, name| match field {
                Field::Untouched => Ok(was.clone()),
                Field::Set(value) => self.data(&value, was, path.field(name)),
                Field::Gone => Ok(Data::Absent),
            };
            let before = side(of_before, &shown.before, PAYLOAD[0])?;
            let after = side(of_after, &shown.after, PAYLOAD[1])?;
            return Ok(Change { before, after });
        }
        for key in object.own_property_keys(self.context)? {
            if !name(&key).is_some_and(|name| PAYLOAD.contains(&name.as_ref())) {
                return path.unfit(format!("has a field {key}, a payload has only {}", PAYLOAD.join(", ")));
            }
        }
        let before_value = object.get(key("Before"), self.context)?;
        let after_value = object.get(key("After"), self.context)?;
        Ok(Change {
            before: self.data(&before_value, &before.before, path.field("Before"))?,
            after: self.data(&after_value, &before.after, path.field("After"))?,
        })
    }

    fn data(&mut self, value: &JsValue, before: &Data, path: Path<'_>) -> Result<Data> {
        let object = match value.variant() {
            JsVariant::Undefined | JsVariant::Null => return Ok(Data::Absent),
            JsVariant::String(text) => return Ok(Data::text(text_of(&text, path)?)),
            JsVariant::Object(object) => object,
            _ => {
                return path.unfit(format!("is {}: assign an object, a string or RawData(…)", described(value)));
            }
        };
        if let Some(bytes) = self.bytes(&object)? {
            return Ok(match before {
                Data::Raw(before) if *before == bytes => Data::Raw(before.clone()),
                _ => Data::Raw(Bytes::from(bytes)),
            });
        }
        if object.is_array() {
            return path.unfit("is an array: assign an object that holds it, or RawData(JSON.stringify(…))");
        }
        let origin = before.fields();
        Ok(match self.map(&object, origin, path)? {
            None => before.clone(),
            Some(map) => Data::Structured(map),
        })
    }

    fn any(&mut self, value: &JsValue, before: Option<&Value>, path: Path<'_>) -> Result<Left> {
        let new = match value.variant() {
            JsVariant::Undefined | JsVariant::Null => Value::Null,
            JsVariant::Boolean(v) => Value::Bool(v),
            JsVariant::Integer32(v) => match before {
                Some(Value::Float(f)) if *f == f64::from(v) => return Ok(Left::Same),
                _ => Value::Int(v.into()),
            },
            JsVariant::Float64(v) => match before {
                Some(Value::Float(f)) if f.to_bits() == v.to_bits() || (f.is_nan() && v.is_nan()) => {
                    return Ok(Left::Same);
                }
                _ => number(v, path)?,
            },
            JsVariant::BigInt(v) => {
                let number = v.to_i128();
                match (i64::try_from(number), u64::try_from(number)) {
                    (Ok(v), _) => Value::Int(v),
                    (_, Ok(v)) => Value::UInt(v),
                    _ => return path.unfit(format!("is {v}: integers of records have 64 bits")),
                }
            }
            JsVariant::String(text) => {
                let Some(text) = utf8(text.as_str()) else { return text_of(&text, path).map(|_| Left::Same) };
                match before {
                    Some(Value::Text(before)) if *before == *text => return Ok(Left::Same),
                    _ => Value::Text(Str::from(text.as_ref())),
                }
            }
            JsVariant::Symbol(_) => return path.unfit("is a symbol: records hold data"),
            JsVariant::Object(object) => return self.object(&object, before, path),
        };
        Ok(match before {
            Some(before) if *before == new => Left::Same,
            _ => Left::New(new),
        })
    }

    fn object(&mut self, object: &JsObject, before: Option<&Value>, path: Path<'_>) -> Result<Left> {
        if object.is_callable() {
            return path.unfit("is a function: records hold data");
        }
        if object.is::<Date>() {
            return self.time(object, before, path);
        }
        if let Some(bytes) = self.bytes(object)? {
            return Ok(match before {
                Some(Value::Bytes(before)) if **before == *bytes => Left::Same,
                _ => Left::New(Value::Bytes(bytes.into())),
            });
        }
        if object.is_array() || object.is::<TypedArray>() {
            return self.list(object, before, path);
        }
        if let Some(value) = unboxed(object) {
            return self.any(&value, before, path);
        }
        let origin = before.and_then(Value::as_map);
        Ok(match self.map(object, origin, path)? {
            None => Left::Same,
            Some(map) => match before {
                Some(Value::Map(before)) if Arc::ptr_eq(before, &map) => Left::Same,
                _ => Left::New(Value::Map(map)),
            },
        })
    }

    fn time(&mut self, object: &JsObject, before: Option<&Value>, path: Path<'_>) -> Result<Left> {
        let millis = JsDate::from_object(object.clone())?.get_time(self.context)?.as_number().unwrap_or(f64::NAN);
        if millis.is_nan() {
            return path.unfit("is an invalid Date");
        }
        match before {
            Some(Value::Time(before)) if before.timestamp_millis() as f64 == millis => Ok(Left::Same),
            _ => match DateTime::from_timestamp_millis(millis as i64) {
                Some(time) => Ok(Left::New(Value::Time(time))),
                None => path.unfit("is a Date too far from now"),
            },
        }
    }

    fn list(&mut self, object: &JsObject, before: Option<&Value>, path: Path<'_>) -> Result<Left> {
        self.enter(object, path)?;
        let length = object.get(key("length"), self.context)?.to_length(self.context)?;
        if length > MOST_ITEMS {
            return path.unfit(format!("is an array of {length} items, more than {MOST_ITEMS}"));
        }
        let origin: Option<&[Value]> = match before {
            Some(Value::List(items)) => Some(items),
            _ => None,
        };
        let mut same = origin.is_some_and(|items| items.len() as u64 == length);
        let mut items: Vec<Value> = Vec::new();
        for index in 0..length {
            let item = object.get(index, self.context)?;
            let was = origin.and_then(|items| items.get(index as usize));
            match self.any(&item, was, path.item(index))? {
                Left::Same if same => {}
                Left::Same => items.push(was.cloned().unwrap_or_default()),
                Left::New(value) => {
                    if same {
                        same = false;
                        items.extend(origin.unwrap_or_default().iter().take(index as usize).cloned());
                    }
                    items.push(value);
                }
            }
        }
        self.open.pop();
        Ok(if same { Left::Same } else { Left::New(Value::from(items)) })
    }

    /// The fields of an object; `None` where they are those of `before`.
    fn map(&mut self, object: &JsObject, before: Option<&Object>, path: Path<'_>) -> Result<Option<Arc<Object>>> {
        self.enter(object, path)?;
        let map = match target(object, self.context) {
            Some(target) => match whole(&target) {
                view::Whole::Map(origin) => self.shown_map(&target, &origin, path)?,
                view::Whole::Metadata(_) => {
                    view::touch_all(&target, self.context)?;
                    self.plain_map(&target, path)?
                }
            },
            None if object.is_ordinary() || object.is::<Envelope>() => self.plain_map(object, path)?,
            None => return path.unfit(unfit_kind(object)),
        };
        self.open.pop();
        let same = before.is_some_and(|before| std::ptr::eq(before, &*map) || *before == *map);
        Ok((!same).then_some(map))
    }

    /// The fields of a map that was shown: only those that were touched are read.
    fn shown_map(&mut self, target: &JsObject, origin: &Arc<Object>, path: Path<'_>) -> Result<Arc<Object>> {
        let mut map = origin.clone();
        let lost = target.downcast_ref::<View>().map(|view| view.lost());
        for gone in lost.unwrap_or_default() {
            Arc::make_mut(&mut map).remove(&gone);
        }
        for key in view::touched(target, self.context)? {
            let Some(field) = self.field_name(&key, path)? else { continue };
            let there = map.get(&field).is_some();
            let was = origin.get(&field);
            let value = self.touched(target, &key)?;
            let new = match value {
                Some(value) if !value.is_undefined() => match self.any(&value, was, path.field(&field))? {
                    Left::New(value) => value,
                    Left::Same if there => continue,
                    Left::Same => was.cloned().unwrap_or_default(),
                },
                _ if there => {
                    Arc::make_mut(&mut map).remove(&field);
                    continue;
                }
                _ => continue,
            };
            Arc::make_mut(&mut map).insert(Str::from(&*field), new);
        }
        Ok(map)
    }

    fn plain_map(&mut self, object: &JsObject, path: Path<'_>) -> Result<Arc<Object>> {
        let keys = object.own_property_keys(self.context)?;
        let mut entries = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(field) = self.field_name(&key, path)? else { continue };
            let Some(value) = self.enumerable(object, &key)? else { continue };
            if value.is_undefined() {
                continue;
            }
            let value = match self.any(&value, None, path.field(&field))? {
                Left::New(value) => value,
                Left::Same => Value::Null,
            };
            entries.push((Str::from(&*field), value));
        }
        Ok(Arc::new(Object::from_entries(entries)))
    }

    /// Remembers that an object is being read.
    fn enter(&mut self, object: &JsObject, path: Path<'_>) -> Result<()> {
        if self.open.iter().any(|open| JsObject::equals(open, object)) {
            return path.unfit("contains itself");
        }
        if path.depth() > MAX_DEPTH {
            return path.unfit(format!("is nested deeper than {MAX_DEPTH} levels"));
        }
        self.open.push(object.clone());
        Ok(())
    }

    /// The value of a field of a view that was touched, as [`Leave::enumerable`] has it.
    fn touched(&mut self, target: &JsObject, key: &PropertyKey) -> Result<Option<JsValue>> {
        match view::remembered(target, key) {
            Remembered::Yes(value) => Ok(Some(value)),
            _ => self.enumerable(target, key),
        }
    }

    /// The value of a property that shows in enumerations; getters run.
    fn enumerable(&mut self, object: &JsObject, key: &PropertyKey) -> Result<Option<JsValue>> {
        let Some(property) = property(object, key) else { return Ok(None) };
        if property.enumerable() == Some(false) {
            return Ok(None);
        }
        match property.value() {
            Some(value) => Ok(Some(value.clone())),
            None => Ok(Some(object.get(key.clone(), self.context)?)),
        }
    }

    /// The name of a field; `None` for a symbol, which is a script's own.
    fn field_name<'k>(&self, key: &'k PropertyKey, path: Path<'_>) -> Result<Option<Cow<'k, str>>> {
        match name(key) {
            Some(name) => Ok(Some(name)),
            None if matches!(key, PropertyKey::Symbol(_)) => Ok(None),
            None => path.unfit(format!("has a field {key} whose name is no valid text")),
        }
    }

    /// The bytes of a `Uint8Array` or `ArrayBuffer`.
    fn bytes(&mut self, object: &JsObject) -> Result<Option<Vec<u8>>> {
        if object.is::<ArrayBuffer>() {
            let buffer = JsArrayBuffer::from_object(object.clone())?;
            return Ok(Some(buffer.to_vec().unwrap_or_default()));
        }
        if !object.is::<TypedArray>() {
            return Ok(None);
        }
        match JsUint8Array::from_object(object.clone()) {
            Ok(array) => Ok(Some(array.to_vec(self.context)?)),
            Err(_) => Ok(None),
        }
    }
}

/// The Rust value of a view.
fn whole(target: &JsObject) -> view::Whole {
    target.downcast_ref::<View>().map_or_else(|| view::Whole::Metadata(Metadata::new()), |view| view.whole().clone())
}

fn number(v: f64, path: Path<'_>) -> Result<Value> {
    if !v.is_finite() {
        return path.unfit(format!("is {}: records hold numbers", if v.is_nan() { "NaN" } else { "infinite" }));
    }
    let whole = v.fract() == 0.0 && v.abs() <= SAFE as f64 && !(v == 0.0 && v.is_sign_negative());
    Ok(if whole { Value::Int(v as i64) } else { Value::Float(v) })
}

/// The value in a `new String(…)` and its like.
fn unboxed(object: &JsObject) -> Option<JsValue> {
    let text = object.downcast_ref::<JsString>().map(|text| JsValue::from(text.clone()));
    let number = || object.downcast_ref::<f64>().map(|number| JsValue::from(*number));
    let truth = || object.downcast_ref::<bool>().map(|truth| JsValue::from(*truth));
    text.or_else(number).or_else(truth)
}

fn unfit_kind(object: &JsObject) -> &'static str {
    match () {
        () if object.is::<OrderedMap<JsValue>>() => "is a Map: use Object.fromEntries(map)",
        () if object.is::<OrderedSet>() => "is a Set: use Array.from(set)",
        () if object.is::<Promise>() => "is a promise: await it in an async function",
        () if object.is::<Error>() => "is an Error: use String(error)",
        () if object.is::<RegExp>() => "is a regular expression: use its source",
        () if object.is::<Proxy>() => "is a Proxy of the script: use {...proxy}",
        () => "is an object of a kind that records cannot hold: assign plain objects and arrays",
    }
}

/// What a value is, for messages.
pub(crate) fn described(value: &JsValue) -> &'static str {
    match value.variant() {
        JsVariant::Undefined => "undefined",
        JsVariant::Null => "null",
        JsVariant::Boolean(_) => "a boolean",
        JsVariant::String(_) => "a string",
        JsVariant::Float64(_) | JsVariant::Integer32(_) => "a number",
        JsVariant::BigInt(_) => "a BigInt",
        JsVariant::Symbol(_) => "a symbol",
        JsVariant::Object(object) if object.is_callable() => "a function",
        JsVariant::Object(object) if object.is_array() => "an array",
        JsVariant::Object(_) => "an object",
    }
}

fn text_of(text: &JsString, path: Path<'_>) -> Result<String> {
    match utf8(text.as_str()) {
        Some(text) => Ok(text.into_owned()),
        None => path.unfit("holds half a character (a surrogate without its other half)"),
    }
}
