//! What decides which schema is inferred of fields.

use std::mem::{Discriminant, discriminant};

use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};

/// The names and types of fields none of which holds others.
#[derive(Debug)]
pub(crate) struct Shape(Vec<(Str, Discriminant<Value>)>);

impl Shape {
    /// `None` where a field is a list or a map.
    pub(crate) fn of(fields: &Object) -> Option<Shape> {
        let flat = |(name, value): (&Str, &Value)| match value {
            Value::List(_) | Value::Map(_) => None,
            _ => Some((name.clone(), discriminant(value))),
        };
        fields.iter().map(flat).collect::<Option<_>>().map(Shape)
    }

    /// Whether these fields have it.
    pub(crate) fn is_of(&self, fields: &Object) -> bool {
        self.0.len() == fields.len()
            && self
                .0
                .iter()
                .zip(fields.iter())
                .all(|((name, kind), (other, value))| *kind == discriminant(value) && name == other)
    }
}
