//! Restores types that are lost on the way through a plugin.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::record::{Data, Record};
use crate::value::{Object, Value, timestamp_text};

/// Restores the types of fields that a plugin returned unchanged: integers beyond 2⁵³ with all digits, whole floats,
/// bytes, times. `before` is the record that was sent. O(fields).
pub fn keep_types(before: &Record, after: &mut Record) {
    data(&before.key, &mut after.key);
    data(&before.payload.before, &mut after.payload.before);
    data(&before.payload.after, &mut after.payload.after);
}

fn data(before: &Data, after: &mut Data) {
    if let (Data::Structured(old), Data::Structured(new)) = (before, &mut *after)
        && !Arc::ptr_eq(old, new)
        && object(old, Arc::make_mut(new))
    {
        *after = before.clone();
    }
}

/// Restores the types in an object; returns `true` if all of it is unchanged.
fn object(before: &Object, after: &mut Object) -> bool {
    let mut same = before.len() == after.len();
    for (key, old) in before.iter() {
        same &= after.get_mut(key).is_some_and(|new| value(old, new));
    }
    same
}

fn value(before: &Value, after: &mut Value) -> bool {
    let same = match (before, &mut *after) {
        (Value::Map(old), Value::Map(new)) => object(old, Arc::make_mut(new)),
        (Value::List(old), Value::List(new)) => {
            let length = old.len() == new.len();
            let items = Arc::make_mut(new);
            old.iter().zip(items).fold(length, |same, (old, new)| value(old, new) && same)
        }
        (Value::Bytes(old), Value::Text(new)) => STANDARD.encode(old) == **new,
        (Value::Time(old), Value::Text(new)) => timestamp_text(old) == **new,
        (Value::Int(_) | Value::UInt(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
            double(before).is_some_and(|old| double(after).is_some_and(|new| old.to_bits() == new.to_bits()))
        }
        (old, new) => old == new,
    };
    if same {
        *after = before.clone();
    }
    same
}

fn double(value: &Value) -> Option<f64> {
    match value {
        Value::Int(v) => Some(*v as f64),
        Value::UInt(v) => Some(*v as f64),
        Value::Float(v) => Some(*v),
        _ => None,
    }
}
