//! Shapes of observed records.

use anabranch_record::metadata::Metadata;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use super::Uses;
use super::record::{Keys, Operations, RecordShape};
use super::shape::{Field, Fields, Kinds, MOST_NAMED, Shape, Type};

impl RecordShape {
    /// Returns the shape of one record: the names of its fields and the kinds of their values, without their content.
    /// O(fields).
    pub fn of(record: &Record) -> RecordShape {
        RecordShape {
            operations: Operations::only(record.operation),
            metadata: keys(&record.metadata),
            key: Shape::of(&record.key),
            before: Shape::of(&record.payload.before),
            after: Shape::of(&record.payload.after),
            pieces: None,
            uses: Uses::default(),
        }
    }

    /// Returns the joint shape of these records and one more. If it has too many names, it allows any name.
    pub fn and(&self, record: &Record) -> RecordShape {
        let mut both = self.join(&RecordShape::of(record));
        if both.metadata.named().count() > MOST_NAMED {
            both.metadata = Keys::any();
        }
        for side in [Side::Key, Side::Before, Side::After] {
            let Some(fields) = &mut both.side_mut(side).structured else { continue };
            if fields.len() > MOST_NAMED {
                *fields = Fields::any();
            }
            let wide = |(name, field): (&Str, &Field)| (field.ty.fields.len() > MOST_NAMED).then(|| name.clone());
            let wide: Vec<Str> = fields.iter().filter_map(wide).collect();
            for name in wide {
                if let Some(field) = fields.get(&name) {
                    let ty = Type { fields: Fields::any(), ..field.ty };
                    fields.insert(name, Field { ty, ..field });
                }
            }
        }
        both
    }
}

impl Shape {
    fn of(data: &Data) -> Shape {
        match data {
            Data::Absent => Shape::ABSENT,
            Data::Raw(_) => Shape::RAW,
            Data::Structured(object) if object.len() > MOST_NAMED => Shape::structured(Fields::any()),
            Data::Structured(object) => {
                let field = |(name, value): (&Str, &_)| (name.clone(), Field::present(of(value)));
                Shape::structured(Fields::closed(object.iter().map(field)))
            }
        }
    }
}

fn keys(metadata: &Metadata) -> Keys {
    Keys::of(metadata.iter().map(|(key, _)| key.clone()))
}

/// Returns the kind of a value; for a map, the names and kinds of its fields.
fn of(value: &Value) -> Type {
    match value {
        Value::Map(object) if object.len() <= MOST_NAMED => {
            let field = |(name, value): (&Str, &_)| (name.clone(), Field::present(Type::of(Kinds::of(value))));
            Type::map(Fields::closed(object.iter().map(field)))
        }
        other => Type::of(Kinds::of(other)),
    }
}
