//! Resolution of the path from a key or side of the payload to a field.

use std::borrow::Cow;

use anabranch_record::near::{did_you_mean, slip};
use anabranch_record::reference::{Side, push_part};
use anabranch_record::text::Str;

use super::shape::{Field, Fields, Kinds, Shape, ShapeOrigin, Type};

/// The way in which a name is resolved, which determines what fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// By a reference: a missing, null or absent parent makes the field missing.
    Reference,
    /// By a name in a template, `.a.b`: null and absent data have no fields.
    Chain,
    /// Like `Chain`, but a missing key is an error.
    Strict,
    /// By an argument of `index`: a missing value has no fields either.
    Index,
}

/// The result of resolving a path.
#[derive(Clone, Debug)]
pub(super) struct Resolution {
    /// The type of the value if it exists; without kinds if it never exists.
    pub(super) ty: Type,
    /// True if it may be missing.
    pub(super) missing: bool,
    /// Reason why the resolution may fail.
    pub(super) blocked: Option<Blocked>,
    /// Reason why the field may be missing: a map that does not have it.
    pub(super) lacking: Option<MapWithoutField>,
}

/// A part of the path that has no fields.
#[derive(Clone, Debug)]
pub(super) struct Blocked {
    place: String,
    pub(super) what: String,
    pub(super) since: ShapeOrigin,
    pub(super) hint: Option<Cow<'static, str>>,
    /// True if it is missing but required.
    pub(super) missing: bool,
    /// True if it is a field of a kind other than null.
    is_value: bool,
}

impl Blocked {
    pub(super) fn message(&self) -> String {
        match self.missing {
            true => format!("every record fails here: {} {}", self.place, self.what),
            false => format!("every record fails here: {} is {}, which has no fields", self.place, self.what),
        }
    }

    pub(super) fn message_if_there(&self) -> String {
        format!("every record that has {} fails here: it is {}, which has no fields", self.place, self.what)
    }
}

/// A map without the field.
#[derive(Clone, Debug)]
pub(super) struct MapWithoutField {
    place: String,
    /// True if the field was removed and the other fields are unknown.
    pub(super) removed: bool,
    name: Str,
    names: Vec<Str>,
    pub(super) since: ShapeOrigin,
}

impl MapWithoutField {
    pub(super) fn message(&self) -> String {
        format!("no record has the field {}: {} has no {:?}", self.place, self.parent(), self.name.as_str())
    }

    fn parent(&self) -> &str {
        let mut part = String::new();
        push_part(&self.name, &mut part);
        self.place.strip_suffix(part.as_str()).unwrap_or(&self.place)
    }

    /// Returns the missing name and the intended one, if that is unambiguous.
    pub(super) fn slip(&self) -> Option<(String, String)> {
        let meant = slip(&self.name, self.names.iter().map(Str::as_str))?;
        Some((self.name.to_string(), meant.to_owned()))
    }

    pub(super) fn hint(&self) -> String {
        const MOST: usize = 8;
        if self.removed {
            return "read it before it is removed".to_owned();
        }
        if let Some(near) = did_you_mean(&self.name, self.names.iter().map(Str::as_str)) {
            let mut text = format!("did you mean {}", self.parent());
            push_part(near, &mut text);
            return text + "?";
        }
        let mut names = self.names.iter().take(MOST).map(Str::as_str).collect::<Vec<_>>().join(", ");
        if self.names.len() > MOST {
            names.push_str(", …");
        }
        if names.is_empty() { "it has no fields".to_owned() } else { format!("its fields: {names}") }
    }
}

impl Resolution {
    /// Returns `true` if every record fails.
    pub(super) fn always_fails(&self) -> bool {
        self.blocked.is_some() && self.ty.kinds == Kinds::NONE && !self.missing
    }

    /// Returns `true` if every record fails that has an optional field of the path.
    pub(super) fn fails_if_there(&self) -> bool {
        self.blocked.as_ref().is_some_and(|blocked| blocked.is_value) && self.ty.kinds == Kinds::NONE && self.missing
    }
}

/// Resolves `names`, at least one, in the data of `side`. The n-th access applies to the n-th name;
/// the last access applies to all later names.
pub(super) fn walk(shape: &Shape, side: Side, names: &[&Str], accesses: &[Access]) -> Resolution {
    let access = |depth: usize| accesses.get(depth).or(accesses.last()).copied().unwrap_or(Access::Reference);
    let mut place = side.as_str().to_owned();
    let mut outcome = Resolution { ty: Type::of(Kinds::NONE), missing: false, blocked: None, lacking: None };
    let block = |outcome: &mut Resolution, place: &str, what: &str, since, hint: Option<&'static str>, missing| {
        outcome.blocked.get_or_insert_with(|| Blocked {
            place: place.to_owned(),
            what: what.to_owned(),
            since,
            hint: Option::map(hint, Cow::Borrowed),
            missing,
            is_value: false,
        });
    };
    const DECODE: Option<&str> = Some("decode it first, for example with json.decode");
    if shape.raw {
        block(&mut outcome, &place, "raw data", shape.since, DECODE, false);
    }
    if shape.absent {
        match access(0) {
            Access::Reference => outcome.missing = true,
            _ => block(&mut outcome, &place, "absent", shape.since, None, false),
        }
    }
    let Some(mut fields) = shape.structured.clone() else { return outcome };
    let mut since = shape.since;
    for (depth, name) in names.iter().enumerate() {
        let last = depth + 1 == names.len();
        let access_here = access(depth);
        if matches!(access_here, Access::Chain | Access::Strict) && anabranch_template::is_method_of_data(name) {
            outcome.ty = Type::any();
            return outcome;
        }
        let field = fields.get(name);
        let mut place_here = place.clone();
        push_part(name, &mut place_here);
        if field.is_none() && outcome.lacking.is_none() {
            let removed = fields.removed(name);
            outcome.lacking = Some(MapWithoutField {
                removed: removed.is_some(),
                place: place_here.clone(),
                name: (*name).clone(),
                names: fields.iter().map(|(name, _)| name.clone()).collect(),
                since: removed.unwrap_or(since),
            });
        }
        let field = field.unwrap_or_else(|| Field::optional(Type::of(Kinds::NONE)));
        if field.optional {
            match access_here {
                Access::Strict => {
                    block(&mut outcome, &place_here, "is required, and no record has it", since, None, true);
                }
                Access::Index if !last => {
                    block(&mut outcome, &place_here, "missing", since, None, false);
                }
                // An index into a value that a chain does not find fails too.
                Access::Chain if !last && access(depth + 1) == Access::Index => {
                    block(&mut outcome, &place_here, "missing", since, None, false);
                }
                Access::Reference | Access::Chain | Access::Index => outcome.missing = true,
            }
        }
        if last {
            outcome.ty = field.ty;
            return outcome;
        }
        let mut others = field.ty.kinds.without(Kinds::MAP);
        let next = access(depth + 1);
        if next == Access::Reference && others.overlaps(Kinds::NULL) {
            outcome.missing = true;
            others = others.without(Kinds::NULL);
        }
        if matches!(next, Access::Chain | Access::Strict) && others.overlaps(Kinds::TIME) {
            // A time has methods.
            outcome.ty = Type::any();
            return outcome;
        }
        if others != Kinds::NONE {
            let what = others.names().collect::<Vec<_>>().join(" or ");
            let hint = if others.overlaps(Kinds::TEXT) { DECODE } else { None };
            block(&mut outcome, &place_here, &what, field.ty.since, hint, false);
            if let Some(blocked) = outcome.blocked.as_mut().filter(|blocked| blocked.place == place_here) {
                blocked.is_value = others.without(Kinds::NULL) != Kinds::NONE;
            }
        }
        if !field.ty.kinds.overlaps(Kinds::MAP) {
            return outcome;
        }
        since = field.ty.since;
        fields = field.ty.fields;
        place = place_here;
    }
    outcome
}

/// Declares that the field at `names` has the type `ty`, and that all its parents are maps.
pub(super) fn insert(fields: &mut Fields, names: &[&Str], ty: Type) {
    let [name, rest @ ..] = names else { return };
    let ty = match rest {
        [] => ty,
        rest => {
            let field = fields.get(name).unwrap_or_else(|| Field::present(Type::map(Fields::closed([]))));
            let made = field.optional || field.ty.kinds.overlaps(Kinds::NULL);
            let mut parent = field.ty;
            if !parent.kinds.overlaps(Kinds::MAP) {
                parent.fields = Fields::closed([]);
                parent.since = ShapeOrigin::default();
            } else if made {
                // If the parent does not exist, a map without fields is created.
                parent.fields = parent.fields.join(&Fields::closed([]));
            }
            parent.kinds = Kinds::MAP;
            insert(&mut parent.fields, rest, ty);
            parent
        }
    };
    fields.insert((*name).clone(), Field::present(ty));
}

/// Declares that the field at `names` may exist, if all its parents are maps.
pub(super) fn allow(fields: &mut Fields, names: &[&Str], ty: &Type) {
    change(fields, names, &mut |fields, name| {
        let ty = fields.get(name).map_or_else(|| ty.clone(), |field| field.ty.join(ty));
        fields.insert(name.clone(), Field::optional(ty));
    });
}

/// Declares that the field at `names` does not exist.
pub(super) fn remove(fields: &mut Fields, names: &[&Str]) {
    change(fields, names, &mut |fields, name| fields.remove(name));
}

/// Declares that the field at `names` has the type `ty`, if it exists and is not null.
pub(super) fn replace(fields: &mut Fields, names: &[&Str], ty: &Type) {
    change(fields, names, &mut |fields, name| {
        if let Some(field) = fields.get(name) {
            let mut ty = ty.clone();
            if field.ty.kinds.overlaps(Kinds::NULL) {
                ty.kinds = ty.kinds | Kinds::NULL;
            }
            fields.insert(name.clone(), Field { ty, optional: field.optional });
        }
    });
}

fn change(fields: &mut Fields, names: &[&Str], change_last: &mut dyn FnMut(&mut Fields, &Str)) {
    match names {
        [] => {}
        [name] => change_last(fields, name),
        [name, rest @ ..] => {
            if let Some(mut field) = fields.get(name)
                && field.ty.kinds.overlaps(Kinds::MAP)
            {
                change(&mut field.ty.fields, rest, change_last);
                fields.insert((*name).clone(), field);
            }
        }
    }
}
