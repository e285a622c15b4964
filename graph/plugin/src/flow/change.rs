//! Changes of records: references that are set, deleted, renamed and replaced.

use anabranch_record::access::Access as Writes;
use anabranch_record::reference::{Reference, Side, Target};
use anabranch_record::text::Str;

use super::walk::{self, Access, walk};
use super::{Fields, Flow, Keys, Kinds, Operations, Place, Shape, ShapeOrigin, Type};

impl Flow {
    /// Applies [`Reference::set`].
    pub fn set(&mut self, place: impl Into<Place>, reference: &Reference, ty: Type) {
        let place = place.into();
        if let Target::Field(side, path) = reference.target() {
            self.use_parents(&place, *side, path.parents());
        }
        self.record.uses.forget(&reference.access());
        match reference.target() {
            Target::Record | Target::Position | Target::Payload => self.may_fail = true,
            Target::Operation => self.record.operations = Operations::ALL,
            Target::Metadata => {
                self.record.metadata = Keys::any();
                self.may_fail = true;
            }
            Target::Entry(key) => {
                self.may_fail |= !ty.kinds.within(Kinds::TEXT | Kinds::NULL);
                match (ty.kinds.overlaps(Kinds::TEXT), ty.kinds.overlaps(Kinds::NULL)) {
                    (true, false) => self.record.metadata.insert_one_of(key.clone(), ty.texts),
                    (true, true) => {
                        self.record.metadata.remove(key);
                        self.record.metadata.allow(key.clone());
                    }
                    (false, _) => self.record.metadata.remove(key),
                }
            }
            Target::Data(side) => {
                let taken = Kinds::TEXT | Kinds::BYTES | Kinds::MAP | Kinds::NULL;
                self.may_fail |= !ty.kinds.within(taken);
                *self.record.side_mut(*side) = Shape::set_to(ty);
            }
            Target::Field(side, path) => {
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let mut outcome = walk(self.record.side(*side), *side, &names, &[Access::Reference]);
                // Setting a new field is the purpose of such a processor.
                outcome.lacking = None;
                let is_plain_key = *side == Side::Key && self.record.key.plain && !self.is_remarked(&place);
                if let (true, [name], Some(blocked)) = (is_plain_key, &names[..], &mut outcome.blocked) {
                    // The key cannot be decoded.
                    let becomes = format!("set the whole key, with field: .Key and value: '{{\"{name}\": …}}'");
                    blocked.hint = Some(becomes.into());
                }
                self.judge(&place, &outcome, true);
                self.judge_usual(&place, &outcome, *side, &names, &[Access::Reference]);
                let shape = self.record.side_mut(*side);
                if shape.has_no_fields() {
                    shape.since = ShapeOrigin::default();
                }
                // Raw data fails, absent data becomes a map without fields.
                let fields = shape.structured.get_or_insert_with(|| Fields::closed([]));
                if shape.absent {
                    *fields = fields.join(&Fields::closed([]));
                }
                shape.raw = false;
                shape.absent = false;
                walk::insert(fields, &names, ty);
            }
        }
    }

    /// Applies [`Reference::set_data`] to the key or a side of the payload.
    pub fn set_side(&mut self, side: Side, shape: Shape) {
        self.record.uses.forget(&Writes::These(vec![side.parts().to_vec()]));
        *self.record.side_mut(side) = shape;
    }

    /// Applies [`Reference::delete`].
    pub fn delete(&mut self, place: impl Into<Place>, reference: &Reference) {
        let place = place.into();
        self.look_for(&place, reference);
        self.record.uses.forget(&reference.access());
        match reference.target() {
            Target::Record | Target::Position | Target::Operation => self.may_fail = true,
            Target::Metadata => self.record.metadata = Keys::none(),
            Target::Entry(key) => {
                self.entry(&place, key);
                self.record.metadata.remove(key);
            }
            Target::Payload => {
                self.record.before = Shape::ABSENT;
                self.record.after = Shape::ABSENT;
            }
            Target::Data(side) => *self.record.side_mut(*side) = Shape::ABSENT,
            Target::Field(side, path) => {
                self.get(place, reference);
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let shape = self.record.side_mut(*side);
                shape.raw = false;
                if let Some(fields) = &mut shape.structured {
                    walk::remove(fields, &names);
                }
            }
        }
    }

    /// Applies [`Reference::rename`].
    pub fn rename(&mut self, place: impl Into<Place>, reference: &Reference, name: &Str) {
        let place = place.into();
        self.look_for(&place, reference);
        match reference.target() {
            Target::Entry(key) if key != name => {
                self.entry(&place, key);
                let metadata = &mut self.record.metadata;
                self.may_fail |= metadata.may_have(name) && metadata.may_have(key);
                let (sure, maybe) = (metadata.has(key), metadata.may_have(key));
                metadata.remove(key);
                match (sure, maybe) {
                    (true, _) => metadata.insert(name.clone()),
                    (false, true) => metadata.allow(name.clone()),
                    (false, false) => {}
                }
            }
            Target::Field(side, path) if path.last() != name => {
                let found = self.get(place, reference);
                self.record.uses.forget(&reference.access());
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let renamed: Vec<&Str> = path.parents().iter().chain([name]).collect();
                let new = walk(self.record.side(*side), *side, &renamed, &[Access::Reference]);
                self.may_fail |= new.ty.kinds != Kinds::NONE;
                let shape = self.record.side_mut(*side);
                shape.raw = false;
                if let Some(fields) = &mut shape.structured {
                    walk::remove(fields, &names);
                    if found.ty.kinds == Kinds::NONE {
                    } else if found.missing {
                        walk::allow(fields, &renamed, &found.ty);
                    } else {
                        walk::insert(fields, &renamed, found.ty);
                    }
                }
            }
            Target::Entry(_) | Target::Field(..) => {
                self.get(place, reference);
            }
            _ => self.may_fail = true,
        }
    }

    /// Sets a field or side to `ty` if it exists and is not null; otherwise it is unchanged. For processors that
    /// replace a field with a value derived from it.
    pub fn replace(&mut self, place: impl Into<Place>, reference: &Reference, ty: Type) {
        let place = place.into();
        self.look_for(&place, reference);
        self.record.uses.forget(&reference.access());
        match reference.target() {
            Target::Data(side) => {
                let shape = self.record.side_mut(*side);
                if shape.is_absent() {
                    return;
                }
                let was_absent = shape.absent;
                *shape = Shape::set_to(ty);
                shape.absent |= was_absent;
            }
            Target::Field(side, path) => {
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let shape = self.record.side_mut(*side);
                shape.raw = false;
                if let Some(fields) = &mut shape.structured {
                    walk::replace(fields, &names, &ty);
                }
            }
            _ => self.set(place, reference, ty),
        }
    }
}
