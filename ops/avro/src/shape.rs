//! Shapes of fields, which determine the inferred schema.

use std::mem::{Discriminant, discriminant};

use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};

/// Names and types of fields without nested values.
#[derive(Debug)]
pub(crate) struct FlatShape(Vec<(Str, Discriminant<Value>)>);

impl FlatShape {
    /// Returns the shape; `None` if a field is a list or a map.
    pub(crate) fn of(fields: &Object) -> Option<FlatShape> {
        let flat = |(name, value): (&Str, &Value)| match value {
            Value::List(_) | Value::Map(_) => None,
            _ => Some((name.clone(), discriminant(value))),
        };
        fields.iter().map(flat).collect::<Option<_>>().map(FlatShape)
    }

    /// Returns `true` if these fields have this shape.
    pub(crate) fn is_of(&self, fields: &Object) -> bool {
        self.0.len() == fields.len()
            && self
                .0
                .iter()
                .zip(fields.iter())
                .all(|((name, kind), (other, value))| *kind == discriminant(value) && name == other)
    }
}
