//! Values in the memory of others that are done with.
//!
//! In a module a call of the allocator costs as much as copying a hundred bytes, and most records of a stream have the
//! fields of the one before.

use crate::value::Value;

/// Larger memory is not kept: values that are seldom large would hold it for the rest of the processor's life.
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

/// Makes a value this text.
pub(crate) fn text_value(place: &mut Value, with: &str) {
    match place {
        Value::Text(place) => text(place, with),
        _ => *place = Value::Text(with.to_owned()),
    }
}
