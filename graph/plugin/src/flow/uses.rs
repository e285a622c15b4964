//! Kinds that fields must have, because a step before fails on every record where they have another one.
//!
//! A field of unknown type that one step needs as a text and a later step needs as a map fails every record in one of
//! the two. This knowledge is separate from the types of a shape: only certain failures follow from it, so it never
//! changes what other findings say about a field that may have any type.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_record::access::Access;
use anabranch_record::code::Code;
use anabranch_record::reference::{Side, push_part};
use anabranch_record::text::Str;

use super::{Flow, Kinds, Place, ShapeOrigin};
use crate::codes;
use crate::diagnostic::Span;

/// Maximum number of fields with known uses, so that the flow of a plan takes time linear in its nodes.
const MOST: usize = 64;

/// The kinds that fields have in every record that has not failed. `NULL` includes missing values. Cloning is O(1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses(Arc<BTreeMap<Vec<Str>, Use>>);

/// A use of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Use {
    kinds: Kinds,
    since: ShapeOrigin,
}

impl Uses {
    /// Removes the fields that a write may change.
    pub fn forget(&mut self, writes: &Access) {
        if !self.0.is_empty() {
            let is_written = |path: &Vec<Str>| writes.overlaps(&Access::These(vec![path.clone()]));
            Arc::make_mut(&mut self.0).retain(|path, _| !is_written(path));
        }
    }

    /// Sets the place of all uses that do not have one yet.
    pub fn stamp(&mut self, span: Span) {
        if self.0.values().any(|used| used.since.0.is_none()) {
            Arc::make_mut(&mut self.0).values_mut().for_each(|used| {
                used.since.0.get_or_insert(span);
            });
        }
    }

    /// Returns the kinds that a field has in every record that passes.
    #[cfg(test)]
    pub(super) fn kinds(&self, path: &[&'static str]) -> Kinds {
        let path: Vec<Str> = path.iter().map(|name| Str::from_static(name)).collect();
        self.0.get(&path).map_or(Kinds::ANY, |used| used.kinds)
    }

    /// Returns the uses that apply to both.
    pub(super) fn join(&self, other: &Uses) -> Uses {
        if Arc::ptr_eq(&self.0, &other.0) {
            return self.clone();
        }
        let both = self.0.iter().filter_map(|(path, ours)| {
            let theirs = other.0.get(path)?;
            Some((path.clone(), Use { kinds: ours.kinds | theirs.kinds, since: ours.since }))
        });
        Uses(Arc::new(both.collect()))
    }

    fn insert(&mut self, path: Vec<Str>, used: Use) {
        if self.0.contains_key(&path) || self.0.len() < MOST {
            Arc::make_mut(&mut self.0).insert(path, used);
        }
    }
}

impl Flow {
    /// Declares that a field is of one of these kinds in every record that passes; `NULL` includes a missing value.
    /// Fails every record if an earlier use excludes all of them. Has no effect in a node with a condition, which may
    /// test the type.
    pub(super) fn use_as(&mut self, code: Code, place: &Place, side: Side, names: &[Str], kinds: Kinds) {
        // A use that accepts all kinds says nothing, and one that accepts none is reported elsewhere.
        let says = !Kinds::ANY.within(kinds) && kinds.without(Kinds::NULL) != Kinds::NONE;
        if self.guarded || self.fails || !says || names.is_empty() || self.is_remarked(place) {
            return;
        }
        let path: Vec<Str> = side.parts().iter().chain(names).cloned().collect();
        let Some(before) = self.record.uses.0.get(&path).cloned() else {
            return self.record.uses.insert(path, Use { kinds, since: ShapeOrigin::default() });
        };
        let both = before.kinds.without(Kinds::ANY.without(kinds));
        let only_missing = both == Kinds::NULL;
        if both != Kinds::NONE && !only_missing {
            let since = if both == before.kinds { before.since } else { ShapeOrigin::default() };
            return self.record.uses.insert(path, Use { kinds: both, since });
        }
        let mut field = side.as_str().to_owned();
        names.iter().for_each(|name| push_part(name, &mut field));
        let which = if only_missing { format!("every record that has {field}") } else { "every record".to_owned() };
        let (here, there) = (words(kinds), words(before.kinds));
        let message = format!("{which} fails here: {field} must be {here} here, and {there} in an earlier use");
        let since = Some((before.since, format!("must be {there} here")));
        let hint = "check both uses; to accept both types, test with `kindIs` first".to_owned();
        match only_missing {
            true => self.warn(code, place.clone(), message, since, Some(hint)),
            false => self.fail(code, place.clone(), message, since, Some(hint)),
        }
    }

    /// Declares that each parent of a field is a map or missing in every record that passes.
    pub(super) fn use_parents(&mut self, place: &Place, side: Side, parents: &[Str]) {
        for depth in 1..=parents.len() {
            self.use_as(codes::FLOW_NOT_A_MAP, place, side, &parents[..depth], Kinds::MAP | Kinds::NULL);
        }
    }
}

/// Returns the kinds as messages print them.
fn words(kinds: Kinds) -> String {
    let kinds = kinds.without(Kinds::NULL);
    // A time has methods, which are read like fields.
    let kinds = if kinds == Kinds::MAP | Kinds::TIME { Kinds::MAP } else { kinds };
    let name = |name: &str| match name {
        "bytes" => name.to_owned(),
        "int" => format!("an {name}"),
        name => format!("a {name}"),
    };
    let names: Vec<String> = kinds.names().map(name).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}
