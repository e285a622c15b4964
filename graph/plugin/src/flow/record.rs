//! The shape of records.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_record::Operation;
use anabranch_record::access::Access;
use anabranch_record::metadata::key;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;

use super::shape::{Form, MOST_NAMED, Shape, ShapeOrigin};
use super::texts::Texts;
use super::uses::Uses;
use crate::diagnostic::Span;

/// The known properties of the records on an edge of a plan, which apply to every one of them. Cloning is O(1)
/// except for the names of metadata that change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordShape {
    /// The possible operations.
    pub operations: Operations,
    /// The metadata.
    pub metadata: Keys,
    /// The key.
    pub key: Shape,
    /// The payload before the change.
    pub before: Shape,
    /// The payload after the change.
    pub after: Shape,
    /// Set if several records were split from one.
    pub pieces: Option<SplitRecords>,
    /// Kinds of fields that earlier nodes require.
    pub uses: Uses,
}

/// Records that were split or copied from one. Each has a copy of the parts that are not its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitRecords {
    /// Id of the node that creates them.
    pub step: Str,
    /// The parts in which the pieces of one record may differ.
    pub own: Access,
    /// The metadata entry that contains the number of the piece.
    pub index: Option<Str>,
    /// The place of that node in the file.
    pub since: ShapeOrigin,
}

impl SplitRecords {
    /// Returns `true` if the pieces of one record may differ in these parts.
    pub fn differ_in(&self, parts: &Access) -> bool {
        self.own.overlaps(parts)
    }

    /// Returns the properties that apply to both.
    fn join(self, other: Option<&SplitRecords>) -> SplitRecords {
        let own = match (&self.own, other.map(|other| &other.own)) {
            (Access::These(ours), Some(Access::These(theirs))) => {
                let new = theirs.iter().filter(|path| !ours.contains(path));
                Access::These(ours.iter().chain(new).cloned().collect())
            }
            (_, None) => self.own,
            _ => Access::Everything,
        };
        SplitRecords { own, ..self }
    }
}

impl RecordShape {
    /// Creates the shape of unknown records.
    pub fn unknown() -> RecordShape {
        RecordShape {
            operations: Operations::ALL,
            metadata: Keys::any(),
            key: Shape::unknown(),
            before: Shape::unknown(),
            after: Shape::unknown(),
            pieces: None,
            uses: Uses::default(),
        }
    }

    /// Creates the shape of a created record without metadata.
    pub fn create(key: Shape, after: Shape) -> RecordShape {
        RecordShape {
            operations: Operations::only(Operation::Create),
            metadata: Keys::none(),
            key,
            before: Shape::ABSENT,
            after,
            pieces: None,
            uses: Uses::default(),
        }
    }

    /// Returns the shape of one side.
    pub fn side(&self, side: Side) -> &Shape {
        match side {
            Side::Key => &self.key,
            Side::Before => &self.before,
            Side::After => &self.after,
        }
    }

    /// Returns the shape of one side, for changes.
    pub fn side_mut(&mut self, side: Side) -> &mut Shape {
        match side {
            Side::Key => &mut self.key,
            Side::Before => &mut self.before,
            Side::After => &mut self.after,
        }
    }

    /// Returns the properties that apply to records of both shapes.
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
            uses: self.uses.join(&other.uses),
        }
    }

    /// Removes the known content of bytes and texts; their kinds stay known.
    pub fn forget_contents(&mut self) {
        [&mut self.key, &mut self.before, &mut self.after].into_iter().for_each(Shape::forget_contents);
    }

    /// Sets the place of all parts that do not have one yet.
    pub fn stamp(&mut self, span: Span) {
        [&mut self.key, &mut self.before, &mut self.after].into_iter().for_each(|shape| shape.stamp(span));
        self.uses.stamp(span);
    }

    /// Declares that raw data with a schema in the metadata may be decoded before the node receives it.
    pub fn decode_by_schema(&mut self) {
        let mut decode = |side, subject: Str| {
            if self.metadata.may_have(&subject) && self.side(side).raw {
                let Shape { since, content, plain, .. } = *self.side(side);
                let fixed = self.side(side).fixed.clone();
                // If the metadata is unknown, it rarely contains a schema.
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

    /// Adds the metadata that the engine writes into every record it reads.
    pub fn stamp_metadata(&mut self) {
        for key in [key::READ_AT, key::SOURCE_CONNECTOR_ID] {
            self.metadata.insert(key);
        }
    }

    /// Returns `true` if no property of the data is known.
    pub fn is_unknown(&self) -> bool {
        self.key.is_unknown() && self.before.is_unknown() && self.after.is_unknown()
    }

    /// Returns the place that the shape of a side originates from.
    pub fn since(&self, side: Side) -> ShapeOrigin {
        self.side(side).since
    }
}

/// A set of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations(u8);

impl Operations {
    /// All operations.
    pub const ALL: Operations = Operations(0b1111);

    /// Returns the set of one operation.
    pub const fn only(operation: Operation) -> Operations {
        Operations(1 << (operation as u8 - 1))
    }

    /// Returns the union.
    #[must_use]
    pub const fn union(self, other: Operations) -> Operations {
        Operations(self.0 | other.0)
    }

    /// Returns `true` if a record may have the operation.
    pub const fn contains(self, operation: Operation) -> bool {
        self.0 & Operations::only(operation).0 != 0
    }
}

/// The keys of metadata. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    named: Arc<BTreeMap<Str, EntryProperties>>,
    open: bool,
}

/// Known properties of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EntryProperties {
    /// True if every record has the entry.
    sure: bool,
    /// The possible texts.
    texts: Texts,
}

impl Keys {
    /// Creates metadata without keys.
    pub fn none() -> Keys {
        Keys { named: Arc::default(), open: false }
    }

    /// Creates metadata with unknown keys.
    pub fn any() -> Keys {
        Keys { named: Arc::default(), open: true }
    }

    /// Creates metadata with exactly the given keys.
    pub fn of(keys: impl IntoIterator<Item = Str>) -> Keys {
        let entry = |key| (key, EntryProperties { sure: true, texts: Texts::Any });
        Keys { named: Arc::new(keys.into_iter().map(entry).collect()), open: false }
    }

    /// Returns `true` if a record may have the key.
    pub fn may_have(&self, key: &str) -> bool {
        self.open || self.named.contains_key(key)
    }

    /// Returns `true` if every record has the key.
    pub fn has(&self, key: &str) -> bool {
        self.named.get(key).is_some_and(|entry| entry.sure)
    }

    /// Returns the known keys, which may be present.
    pub fn named(&self) -> impl Iterator<Item = &Str> {
        self.named.keys()
    }

    /// Returns the possible texts of an entry.
    pub fn texts(&self, key: &str) -> Texts {
        self.named.get(key).map_or(Texts::Any, |entry| entry.texts.clone())
    }

    /// Returns the keys whose possible texts are known.
    pub(super) fn with_texts(&self) -> impl Iterator<Item = &Str> {
        self.named.iter().filter(|(_, entry)| entry.texts != Texts::Any).map(|(key, _)| key)
    }

    pub(super) fn forget_texts(&mut self, key: &str) {
        if let Some(entry) = Arc::make_mut(&mut self.named).get_mut(key) {
            entry.texts = Texts::Any;
        }
    }

    /// Declares that every record has the key.
    pub fn insert(&mut self, key: Str) {
        self.insert_one_of(key, Texts::Any);
    }

    /// Declares that every record has the key, with one of the given texts.
    pub fn insert_one_of(&mut self, key: Str, texts: Texts) {
        self.widen();
        Arc::make_mut(&mut self.named).insert(key, EntryProperties { sure: true, texts });
    }

    /// Declares that a record may have the key.
    pub fn allow(&mut self, key: Str) {
        self.widen();
        let entry =
            Arc::make_mut(&mut self.named).entry(key).or_insert(EntryProperties { sure: false, texts: Texts::Any });
        entry.texts = Texts::Any;
    }

    /// Ensures that another name fits; if there are too many, all keys become unknown.
    fn widen(&mut self) {
        if self.named.len() >= MOST_NAMED {
            *self = Keys::any();
        }
    }

    /// Declares that no record has the key, unless the keys are unknown.
    pub fn remove(&mut self, key: &str) {
        if self.named.contains_key(key) {
            Arc::make_mut(&mut self.named).remove(key);
        }
    }

    /// Returns the properties that apply to both.
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
            (key.clone(), EntryProperties { sure: self.has(key) && other.has(key), texts })
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
