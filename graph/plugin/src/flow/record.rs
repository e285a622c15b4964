//! What is known of a record.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_record::Operation;
use anabranch_record::access::Access;
use anabranch_record::metadata::key;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;

use super::shape::{Form, MOST_NAMED, Shape, Since};
use super::texts::Texts;
use crate::diagnostic::Span;

/// What is known of the records on an edge of the plan: every one of them is as this says. Cloning is O(1)
/// but for the names of metadata that change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordShape {
    /// The operations it may have.
    pub operations: Operations,
    /// The metadata.
    pub metadata: Keys,
    /// The key.
    pub key: Shape,
    /// The payload before the change.
    pub before: Shape,
    /// The payload after the change.
    pub after: Shape,
    /// Whether several of them were made of one.
    pub pieces: Option<Pieces>,
}

/// Records that were made of one, of which each has a copy of what is not its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Id of the step that makes them.
    pub step: Str,
    /// The parts in which the pieces of one record may differ.
    pub own: Access,
    /// The metadata entry with the number of the piece.
    pub index: Option<Str>,
    /// Where the step stands in the file.
    pub since: Since,
}

impl Pieces {
    /// Whether those of one record may differ in these parts.
    pub fn differ_in(&self, parts: &Access) -> bool {
        self.own.overlaps(parts)
    }

    /// What holds of both.
    fn join(self, other: Option<&Pieces>) -> Pieces {
        let own = match (&self.own, other.map(|other| &other.own)) {
            (Access::These(ours), Some(Access::These(theirs))) => {
                let new = theirs.iter().filter(|path| !ours.contains(path));
                Access::These(ours.iter().chain(new).cloned().collect())
            }
            (_, None) => self.own,
            _ => Access::Everything,
        };
        Pieces { own, ..self }
    }
}

impl RecordShape {
    /// Nothing is known.
    pub fn unknown() -> RecordShape {
        RecordShape {
            operations: Operations::ALL,
            metadata: Keys::any(),
            key: Shape::unknown(),
            before: Shape::unknown(),
            after: Shape::unknown(),
            pieces: None,
        }
    }

    /// A created record with no metadata.
    pub fn create(key: Shape, after: Shape) -> RecordShape {
        RecordShape {
            operations: Operations::only(Operation::Create),
            metadata: Keys::none(),
            key,
            before: Shape::ABSENT,
            after,
            pieces: None,
        }
    }

    /// One of the places that hold data.
    pub fn side(&self, side: Side) -> &Shape {
        match side {
            Side::Key => &self.key,
            Side::Before => &self.before,
            Side::After => &self.after,
        }
    }

    /// One of the places that hold data, to be changed.
    pub fn side_mut(&mut self, side: Side) -> &mut Shape {
        match side {
            Side::Key => &mut self.key,
            Side::Before => &mut self.before,
            Side::After => &mut self.after,
        }
    }

    /// What holds of both.
    #[must_use]
    pub fn join(&self, other: &RecordShape) -> RecordShape {
        RecordShape {
            operations: self.operations.union(other.operations),
            metadata: self.metadata.join(&other.metadata),
            key: self.key.join(&other.key),
            before: self.before.join(&other.before),
            after: self.after.join(&other.after),
            pieces: match &self.pieces {
                Some(pieces) => Some(pieces.clone().join(other.pieces.as_ref())),
                None => other.pieces.clone(),
            },
        }
    }

    /// What bytes and texts hold is not known: what remains is what they are.
    pub fn forget_contents(&mut self) {
        [&mut self.key, &mut self.before, &mut self.after].into_iter().for_each(Shape::forget_contents);
    }

    /// What is new came to be at this place.
    pub fn stamp(&mut self, span: Span) {
        [&mut self.key, &mut self.before, &mut self.after].into_iter().for_each(|shape| shape.stamp(span));
    }

    /// Raw data with a schema in the metadata may be decoded before any step sees them.
    pub fn decode_by_schema(&mut self) {
        let mut decode = |side, subject: Str| {
            if self.metadata.may_have(&subject) && self.side(side).raw {
                let Shape { since, content, plain, .. } = *self.side(side);
                let fixed = self.side(side).fixed.clone();
                // Where any metadata may be, hardly one is a schema.
                let by_chance =
                    self.side(side).form() == Some(Form::Raw) && !self.metadata.named.contains_key(&subject);
                let usually = by_chance.then_some(Form::Raw);
                let (content, plain) = (content.filter(|_| by_chance), plain && by_chance);
                let fixed = fixed.filter(|_| by_chance);
                *self.side_mut(side) = Shape { since, usually, content, plain, fixed, ..Shape::unknown() };
            }
        };
        decode(Side::Key, key::KEY_SCHEMA_SUBJECT);
        decode(Side::Before, key::PAYLOAD_SCHEMA_SUBJECT);
        decode(Side::After, key::PAYLOAD_SCHEMA_SUBJECT);
    }

    /// What the engine writes into the metadata of every record it reads.
    pub fn stamp_metadata(&mut self) {
        for key in [key::READ_AT, key::SOURCE_CONNECTOR_ID] {
            self.metadata.insert(key);
        }
    }

    /// Whether nothing is known that an edge could show.
    pub fn is_unknown(&self) -> bool {
        self.key.is_unknown() && self.before.is_unknown() && self.after.is_unknown()
    }

    /// Where the data in a place came to be.
    pub fn since(&self, side: Side) -> Since {
        self.side(side).since
    }
}

/// A set of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations(u8);

impl Operations {
    /// Any operation.
    pub const ALL: Operations = Operations(0b1111);

    /// One operation.
    pub const fn only(operation: Operation) -> Operations {
        Operations(1 << (operation as u8 - 1))
    }

    /// Those of both.
    #[must_use]
    pub const fn union(self, other: Operations) -> Operations {
        Operations(self.0 | other.0)
    }

    /// Whether a record may have this one.
    pub const fn contains(self, operation: Operation) -> bool {
        self.0 & Operations::only(operation).0 != 0
    }
}

/// Which keys metadata have. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    named: Arc<BTreeMap<Str, Entry>>,
    open: bool,
}

/// What is known of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Whether it is surely there.
    sure: bool,
    /// What it is.
    texts: Texts,
}

impl Keys {
    /// None at all.
    pub fn none() -> Keys {
        Keys { named: Arc::default(), open: false }
    }

    /// Any.
    pub fn any() -> Keys {
        Keys { named: Arc::default(), open: true }
    }

    /// Exactly these.
    pub fn of(keys: impl IntoIterator<Item = Str>) -> Keys {
        let entry = |key| (key, Entry { sure: true, texts: Texts::Any });
        Keys { named: Arc::new(keys.into_iter().map(entry).collect()), open: false }
    }

    /// Whether a record may have the key.
    pub fn may_have(&self, key: &str) -> bool {
        self.open || self.named.contains_key(key)
    }

    /// Whether every record has the key.
    pub fn has(&self, key: &str) -> bool {
        self.named.get(key).is_some_and(|entry| entry.sure)
    }

    /// The keys that may be there and have a name.
    pub fn named(&self) -> impl Iterator<Item = &Str> {
        self.named.keys()
    }

    /// What the entry is, where it is there.
    pub fn texts(&self, key: &str) -> Texts {
        self.named.get(key).map_or(Texts::Any, |entry| entry.texts.clone())
    }

    /// The keys of which more is known than that they may be there.
    pub(super) fn with_texts(&self) -> impl Iterator<Item = &Str> {
        self.named.iter().filter(|(_, entry)| entry.texts != Texts::Any).map(|(key, _)| key)
    }

    pub(super) fn forget_texts(&mut self, key: &str) {
        if let Some(entry) = Arc::make_mut(&mut self.named).get_mut(key) {
            entry.texts = Texts::Any;
        }
    }

    /// From now on every record has the key.
    pub fn insert(&mut self, key: Str) {
        self.insert_one_of(key, Texts::Any);
    }

    /// From now on every record has the key, with one of these texts.
    pub fn insert_one_of(&mut self, key: Str, texts: Texts) {
        self.widen();
        Arc::make_mut(&mut self.named).insert(key, Entry { sure: true, texts });
    }

    /// From now on a record may have the key.
    pub fn allow(&mut self, key: Str) {
        self.widen();
        let entry = Arc::make_mut(&mut self.named).entry(key).or_insert(Entry { sure: false, texts: Texts::Any });
        entry.texts = Texts::Any;
    }

    /// Makes room for another name.
    fn widen(&mut self) {
        if self.named.len() >= MOST_NAMED {
            *self = Keys::any();
        }
    }

    /// From now on no record has the key, unless any may be there.
    pub fn remove(&mut self, key: &str) {
        if self.named.contains_key(key) {
            Arc::make_mut(&mut self.named).remove(key);
        }
    }

    /// What holds of both.
    #[must_use]
    pub fn join(&self, other: &Keys) -> Keys {
        if self == other {
            return self.clone();
        }
        let of_either = |key: &Str| {
            let texts = match (self.named.get(key), other.named.get(key)) {
                (Some(a), Some(b)) => a.texts.join(&b.texts),
                (Some(only), None) if !other.open => only.texts.clone(),
                (None, Some(only)) if !self.open => only.texts.clone(),
                _ => Texts::Any,
            };
            (key.clone(), Entry { sure: self.has(key) && other.has(key), texts })
        };
        let named = self.named.keys().chain(other.named.keys()).map(of_either).collect();
        Keys { named: Arc::new(named), open: self.open || other.open }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_of_names_are_widened_to_any() {
        let mut keys = Keys::none();
        for i in 0..10_000 {
            keys.insert(format!("key-{i}").into());
            assert!(keys.named().count() <= MOST_NAMED);
        }
        assert!(keys.has("key-9999"), "the latest is known");
        assert!(keys.may_have("key-0"), "an early one may be there");
        assert!(!keys.has("key-0"), "but it is no longer certain");
    }
}
