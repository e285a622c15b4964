//! Converts values, and compares them with the previous ones.

use std::borrow::Cow;
use std::sync::Arc;

use anabranch_record::json::MAX_DEPTH;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use boa_engine::builtins::array_buffer::ArrayBuffer;
use boa_engine::builtins::date::Date;
use boa_engine::builtins::typed_array::TypedArray;
use boa_engine::object::builtins::{JsArrayBuffer, JsDate, JsUint8Array};
use boa_engine::property::PropertyKey;
use boa_engine::value::JsVariant;
use boa_engine::{JsError, JsNativeError, JsObject, JsString, JsValue};
use chrono::DateTime;

use super::{Leave, text_of, whole};
use crate::isolate::conversion::enter::SAFE;
use crate::isolate::conversion::path::{Path, Result, unfit_kind};
use crate::isolate::conversion::time;
use crate::isolate::envelope::Envelope;
use crate::isolate::view::{self, Remembered, View, property, target};
use crate::text::{key, name, utf8};

/// Maximum number of elements of a list: scripts can set `length` to any number.
const MOST_ITEMS: u64 = 1 << 24;

/// Result of the comparison with the previous value.
enum Left {
    Same,
    New(Value),
}

impl Leave<'_> {
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
        let before = match before {
            Some(Value::Time(before)) if before.timestamp_millis() as f64 == millis => Some(before),
            _ => None,
        };
        match (time::exact(object, millis, self.context), before) {
            (Some(exact), Some(before)) if exact == *before => Ok(Left::Same),
            (Some(exact), _) => Ok(Left::New(Value::Time(exact))),
            // A date newly created for the same millisecond, for example from its text, keeps all digits.
            (None, Some(_)) => Ok(Left::Same),
            (None, None) => match DateTime::from_timestamp_millis(millis as i64) {
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

    /// Converts the fields of an object; returns `None` if they equal those of `before`.
    pub(super) fn map(
        &mut self,
        object: &JsObject,
        before: Option<&Object>,
        path: Path<'_>,
    ) -> Result<Option<Arc<Object>>> {
        self.enter(object, path)?;
        let map = match target(object, self.context) {
            Some(target) => match whole(&target) {
                view::Whole::Map(origin) => self.shown_map(&target, &origin, path)?,
                view::Whole::Metadata(_) => {
                    view::touch_all(&target, self.context)?;
                    self.plain_map(&target, path)?
                }
            },
            None => {
                plain(object, path)?;
                self.plain_map(object, path)?
            }
        };
        self.open.pop();
        let same = before.is_some_and(|before| std::ptr::eq(before, &*map) || *before == *map);
        Ok((!same).then_some(map))
    }

    /// Converts a map that was shown to the script. Reads only fields that the script accessed.
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

    /// Marks an object as being converted. Fails if it already is, or is nested too deeply.
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

    /// Returns the value of an accessed field of a view, or else that of [`Leave::enumerable`].
    pub(super) fn touched(&mut self, target: &JsObject, key: &PropertyKey) -> Result<Option<JsValue>> {
        match view::remembered(target, key) {
            Remembered::Yes(value) => Ok(Some(value)),
            _ => self.enumerable(target, key),
        }
    }

    /// Returns the value of an enumerable property; runs getters.
    pub(super) fn enumerable(&mut self, object: &JsObject, key: &PropertyKey) -> Result<Option<JsValue>> {
        let Some(property) = property(object, key) else { return Ok(None) };
        if property.enumerable() == Some(false) {
            return Ok(None);
        }
        match property.value() {
            Some(value) => Ok(Some(value.clone())),
            None => Ok(Some(object.get(key.clone(), self.context)?)),
        }
    }

    /// Returns the name of a field; `None` for a symbol, which only the script uses.
    pub(super) fn field_name<'k>(&self, key: &'k PropertyKey, path: Path<'_>) -> Result<Option<Cow<'k, str>>> {
        match name(key) {
            Some(name) => Ok(Some(name)),
            None if matches!(key, PropertyKey::Symbol(_)) => Ok(None),
            None => path.unfit(format!("has a field {key} whose name is not valid text")),
        }
    }

    /// Returns the bytes of a `Uint8Array` or `ArrayBuffer`.
    pub(super) fn bytes(&mut self, object: &JsObject) -> Result<Option<Vec<u8>>> {
        if object.is::<ArrayBuffer>() {
            let buffer = JsArrayBuffer::from_object(object.clone())?;
            // The bytes were moved to another buffer. An empty value would be wrong.
            let detached = || JsError::from(JsNativeError::typ().with_message("the ArrayBuffer is detached"));
            return Ok(Some(buffer.to_vec().ok_or_else(detached)?));
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

/// Rejects objects whose content is not in their fields and would be lost.
pub(super) fn plain(object: &JsObject, path: Path<'_>) -> Result<()> {
    match object.is_ordinary() || object.is::<Envelope>() {
        true => Ok(()),
        false => path.unfit(unfit_kind(object)),
    }
}

fn number(v: f64, path: Path<'_>) -> Result<Value> {
    if !v.is_finite() {
        return path.unfit(format!("is {}: records hold numbers", if v.is_nan() { "NaN" } else { "infinite" }));
    }
    let whole = v.fract() == 0.0 && v.abs() <= SAFE as f64 && !(v == 0.0 && v.is_sign_negative());
    Ok(if whole { Value::Int(v as i64) } else { Value::Float(v) })
}

/// Returns the value in a `new String(…)`, `new Number(…)` or `new Boolean(…)`.
fn unboxed(object: &JsObject) -> Option<JsValue> {
    let text = object.downcast_ref::<JsString>().map(|text| JsValue::from(text.clone()));
    let number = || object.downcast_ref::<f64>().map(|number| JsValue::from(*number));
    let truth = || object.downcast_ref::<bool>().map(|truth| JsValue::from(*truth));
    text.or_else(number).or_else(truth)
}
