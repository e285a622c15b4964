//! Field values, the content of structured keys and payloads.

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::text::Str;

/// A point in time, UTC, with nanoseconds.
pub type Timestamp = DateTime<Utc>;

/// Formats a timestamp as RFC 3339 with as many fraction digits as needed, in UTC (`Z`).
pub fn timestamp_text(time: &Timestamp) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// The value of a field. Cloning is O(1): lists, maps and text are shared and copied on write.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A signed integer. Every integer that fits is an `Int`; see [`Value::from`] for `u64`.
    Int(i64),
    /// An integer above `i64::MAX`.
    UInt(u64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(Str),
    /// Bytes; base64 text in JSON.
    Bytes(Arc<[u8]>),
    /// A point in time; RFC 3339 text in JSON.
    Time(Timestamp),
    /// A list.
    List(Arc<Vec<Value>>),
    /// A map with text keys.
    Map(Arc<Object>),
}

impl Value {
    /// Returns the name of the type, as messages print it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::UInt(_) => "integer",
            Value::Float(_) => "float",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytes",
            Value::Time(_) => "time",
            Value::List(_) => "list",
            Value::Map(_) => "map",
        }
    }

    /// Returns the map, if the value is one.
    pub fn as_map(&self) -> Option<&Object> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the map for changes, if the value is one. Copies it only if another value shares it.
    pub fn as_map_mut(&mut self) -> Option<&mut Object> {
        match self {
            Value::Map(map) => Some(Arc::make_mut(map)),
            _ => None,
        }
    }

    /// Returns the elements, if the value is a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the boolean, if the value is one.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the integer, if the value is one that fits; also a float without fraction in the range of exact integers
    /// (±2⁵³).
    pub fn as_i64(&self) -> Option<i64> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match *self {
            Value::Int(number) => Some(number),
            Value::Float(number) if number.fract() == 0.0 && number.abs() <= EXACT => Some(number as i64),
            _ => None,
        }
    }

    /// Returns the nearest 64-bit float, if the value is a number.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::Int(number) => Some(number as f64),
            Value::UInt(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the text as a string slice, if the value is text.
    pub fn as_str(&self) -> Option<&str> {
        self.as_text().map(Str::as_str)
    }

    /// Replaces the value by a text. A text that is the same keeps its memory.
    pub fn set_text(&mut self, text: &str) {
        if self.as_text().is_none_or(|old| *old != *text) {
            *self = Value::from(text);
        }
    }

    /// Returns the text, if the value is text.
    pub fn as_text(&self) -> Option<&Str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<bool> for Value {
    fn from(v: bool) -> Self {
        Value::Bool(v)
    }
}

impl From<i32> for Value {
    fn from(v: i32) -> Self {
        Value::Int(v.into())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(v: Option<T>) -> Self {
        v.map_or(Value::Null, Into::into)
    }
}

impl From<i64> for Value {
    fn from(v: i64) -> Self {
        Value::Int(v)
    }
}

impl From<u64> for Value {
    /// Converts to [`Value::Int`] if the number fits in `i64`, otherwise to [`Value::UInt`].
    fn from(v: u64) -> Self {
        i64::try_from(v).map_or(Value::UInt(v), Value::Int)
    }
}

impl From<f64> for Value {
    fn from(v: f64) -> Self {
        Value::Float(v)
    }
}

impl From<Str> for Value {
    fn from(v: Str) -> Self {
        Value::Text(v)
    }
}

impl From<&str> for Value {
    fn from(v: &str) -> Self {
        Value::Text(v.into())
    }
}

impl From<String> for Value {
    fn from(v: String) -> Self {
        Value::Text(v.into())
    }
}

impl From<Vec<Value>> for Value {
    fn from(v: Vec<Value>) -> Self {
        Value::List(Arc::new(v))
    }
}

impl From<Object> for Value {
    fn from(v: Object) -> Self {
        Value::Map(Arc::new(v))
    }
}

/// A map with text keys: a vector sorted by key, each key once.
///
/// Look-up is O(log n), insertion O(n). Iteration is in key order, so that equal records print equal texts.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Object(Vec<(Str, Value)>);

impl Object {
    /// Creates an empty map; does not allocate.
    pub const fn new() -> Self {
        Object(Vec::new())
    }

    /// Creates an empty map with room for `n` entries.
    pub fn with_capacity(n: usize) -> Self {
        Object(Vec::with_capacity(n))
    }

    /// Creates a map from entries in any order; the last of equal keys wins. O(n log n), O(n) if they are sorted.
    pub fn from_entries(mut entries: Vec<(Str, Value)>) -> Self {
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.reverse();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.dedup_by(|later, kept| later.0 == kept.0);
        }
        Object(entries)
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(k, _)| k.as_str().cmp(key))
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.find(key).ok().map(|i| &self.0[i].1)
    }

    /// Returns the value of `key`, and where it is. It is looked for at `place` first: maps of one collection mostly have the
    /// same keys.
    pub fn get_near(&self, key: &str, place: &mut usize) -> Option<&Value> {
        if let Some((known, value)) = self.0.get(*place)
            && *known == *key
        {
            return Some(value);
        }
        *place = self.find(key).ok()?;
        Some(&self.0[*place].1)
    }

    /// Returns the value of `key`, for changes.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.find(key).ok().map(|i| &mut self.0[i].1)
    }

    /// Sets `key` and returns the previous value.
    pub fn insert(&mut self, key: impl Into<Str>, value: Value) -> Option<Value> {
        let key = key.into();
        match self.find(&key) {
            Ok(i) => Some(std::mem::replace(&mut self.0[i].1, value)),
            Err(i) => {
                self.0.insert(i, (key, value));
                None
            }
        }
    }

    /// Sets `key` and returns the previous value, as [`insert`](Object::insert) does. Clones the key only if it is new.
    pub fn set(&mut self, key: &Str, value: Value) -> Option<Value> {
        match self.find(key) {
            Ok(i) => Some(std::mem::replace(&mut self.0[i].1, value)),
            Err(i) => {
                self.0.insert(i, (key.clone(), value));
                None
            }
        }
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.find(key).ok().map(|i| self.0.remove(i).1)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the entries in key order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &Value)> {
        self.0.iter().map(|(k, v)| (k, v))
    }

    /// Returns the entries in key order, with their values for changes.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&Str, &mut Value)> {
        self.0.iter_mut().map(|(k, v)| (&*k, v))
    }

    /// Returns `true` if there is an entry with this key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_ok()
    }

    /// Returns the entries in key order, as a slice.
    pub(crate) fn entries(&self) -> &[(Str, Value)] {
        &self.0
    }
}

impl IntoIterator for Object {
    type Item = (Str, Value);
    type IntoIter = std::vec::IntoIter<(Str, Value)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K: Into<Str>, V: Into<Value>> FromIterator<(K, V)> for Object {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Object::from_entries(entries.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_wins() {
        let object: Object = [("b", 1i64), ("a", 2), ("b", 3)].into_iter().collect();
        assert_eq!(
            object.iter().map(|(k, v)| (k.as_str(), v.clone())).collect::<Vec<_>>(),
            [("a", Value::Int(2)), ("b", Value::Int(3))]
        );
    }

    #[test]
    fn a_value_is_found_wherever_it_was_in_the_last_map() {
        let object = |keys: &[&'static str]| -> Object { keys.iter().map(|key| (*key, *key)).collect() };
        let mut place = 7;
        for keys in [&["a", "b", "c"][..], &["a", "b", "c"], &["b"], &[], &["a", "c"], &["0", "a", "b"]] {
            let object = object(keys);
            let expected = keys.contains(&"b").then(|| Value::from("b"));
            assert_eq!(object.get_near("b", &mut place), expected.as_ref(), "{keys:?}");
        }
    }

    #[test]
    fn whole_floats_are_whole_numbers_within_the_exact_range() {
        assert_eq!(Value::Float(-3.0).as_i64(), Some(-3));
        assert_eq!(Value::Float(1e18).as_i64(), None);
        assert_eq!(Value::Float(0.5).as_i64(), None);
        assert_eq!(Value::Float(f64::NAN).as_i64(), None);
        assert_eq!(Value::UInt(u64::MAX).as_i64(), None);
    }

    #[test]
    fn a_value_is_three_words() {
        assert!(size_of::<Value>() <= 24, "{}", size_of::<Value>());
    }
}
