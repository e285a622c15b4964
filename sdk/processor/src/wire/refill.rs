//! Assigns values and reuses the memory of the old ones.
//!
//! In a module, a call of the allocator costs as much as copying a hundred bytes, and most records of a stream have the
//! fields of the previous one.

use crate::value::Value;

/// Maximum capacity in bytes that is reused. Values that are rarely large would keep larger memory for the rest of the
/// processor's life.
const LARGEST: usize = 4096;

pub(crate) fn bytes(place: &mut Vec<u8>, bytes: &[u8]) {
    if place.capacity() > LARGEST {
        *place = Vec::new();
    }
    place.clear();
    place.extend_from_slice(bytes);
}

pub(crate) fn text(place: &mut String, text: &str) {
    if place.capacity() > LARGEST {
        *place = String::new();
    }
    place.clear();
    place.push_str(text);
}

/// Assigns this text to a value.
pub(crate) fn text_value(place: &mut Value, with: &str) {
    match place {
        Value::Text(place) => text(place, with),
        _ => *place = Value::Text(with.to_owned()),
    }
}
