//! What records that came are like.

use super::record::{Keys, Operations, RecordShape};
use super::shape::{Field, Fields, Kinds, MOST_NAMED, Shape, Type};
use crate::metadata::Metadata;
use crate::record::{Data, Record};
use crate::reference::Side;

impl RecordShape {
    /// What one record is like: the names of its fields and the kinds of their values, not what is in them. O(fields).
    pub(crate) fn of(record: &Record) -> RecordShape {
        RecordShape {
            operations: Operations::only(record.operation),
            metadata: keys(&record.metadata),
            key: Shape::of(&record.key),
            before: Shape::of(&record.payload.before),
            after: Shape::of(&record.payload.after),
            pieces: None,
        }
    }

    /// What holds of these records and of one more. More names than a shape remembers are any names.
    pub(crate) fn and(&self, record: &Record) -> RecordShape {
        let mut both = self.join(&RecordShape::of(record));
        if both.metadata.named().count() > MOST_NAMED {
            both.metadata = Keys::any();
        }
        for side in [Side::Key, Side::Before, Side::After] {
            if let Some(fields) = &mut both.side_mut(side).structured
                && fields.len() > MOST_NAMED
            {
                *fields = Fields::any();
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
                let field = |(name, value): (&_, &_)| (Clone::clone(name), Field::present(Type::of(Kinds::of(value))));
                Shape::structured(Fields::closed(object.iter().map(field)))
            }
        }
    }
}

fn keys(metadata: &Metadata) -> Keys {
    Keys::of(metadata.iter().map(|(key, _)| key.clone()))
}
