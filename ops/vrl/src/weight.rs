//! The memory that values of a program take.

use vrl::value::Value;

/// Returns the approximate number of bytes that a value holds in memory. O(parts of the value).
pub(crate) fn weight(value: &Value) -> usize {
    match value {
        Value::Bytes(bytes) => bytes.len(),
        Value::String(text) => text.len(),
        Value::Object(object) => object.iter().map(|(key, value)| key.len() + size_of::<Value>() + weight(value)).sum(),
        Value::Array(list) => list.iter().map(|value| size_of::<Value>() + weight(value)).sum(),
        Value::Regex(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Timestamp(_)
        | Value::Null => 0,
    }
}
