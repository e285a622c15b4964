//! The memory that values of a program take, and how deep they are.

use vrl::value::Value;

/// Maximum number of levels of lists and maps in each other. Functions that walk through a value take stack for each
/// level. More than a record can have, so that a program may put the content of a record into another map.
pub(crate) const MOST_LEVELS: usize = 160;

/// The weight of a value with more levels.
pub(crate) const TOO_DEEP: usize = usize::MAX;

/// Returns the approximate number of bytes that a value holds in memory, or [`TOO_DEEP`]. O(parts of the value).
pub(crate) fn weight(value: &Value) -> usize {
    weight_at(value, 0)
}

fn weight_at(value: &Value, level: usize) -> usize {
    let with = |sum: usize, own: usize, value: &Value| {
        sum.saturating_add(own + size_of::<Value>()).saturating_add(weight_at(value, level + 1))
    };
    match value {
        Value::Bytes(bytes) => bytes.len(),
        Value::String(text) => text.len(),
        Value::Object(_) | Value::Array(_) if level == MOST_LEVELS => TOO_DEEP,
        Value::Object(object) => object.iter().fold(0, |sum, (key, value)| with(sum, key.len(), value)),
        Value::Array(list) => list.iter().fold(0, |sum, value| with(sum, 0, value)),
        Value::Regex(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Timestamp(_)
        | Value::Null => 0,
    }
}
