//! The objects of a record that a script cannot keep are made once and show one record after the other.

use std::cell::Cell;

use boa_engine::{Context, JsObject, JsResult, js_string};

use crate::envelope::{self, RECORD};
use crate::uses::{Place, Uses};
use crate::view::named;
use crate::wire::{Want, Wants};

/// One per context whose script is known to keep no records.
struct Lasting {
    /// What was looked at: no other function may see the objects.
    process: JsObject,
    objects: [Option<JsObject>; Place::COUNT],
    /// What it can look at.
    wants: Wants,
    /// Whether the script got hold of an object after all.
    given_up: Cell<bool>,
}

/// Gives the source text of functions, whatever a script does to the prototypes.
struct SourceText(JsObject);

/// Prepares a context whose globals no script has seen yet.
pub(crate) fn prepare(context: &mut Context) -> JsResult<()> {
    let functions = context.intrinsics().constructors().function().prototype();
    if let Some(text) = functions.get(js_string!("toString"), context)?.as_object() {
        context.insert_data(SourceText(text));
    }
    Ok(())
}

/// Looks at the function that is called with records, and makes the objects that it cannot keep; false if it may keep
/// all of them.
pub(crate) fn make(process: &JsObject, context: &mut Context) -> JsResult<bool> {
    let Some(text) = context.get_data::<SourceText>().map(|text| text.0.clone()) else { return Ok(false) };
    let text = text.call(&process.clone().into(), &[], context)?;
    let text = text.as_string().and_then(|text| text.to_std_string().ok());
    let Some(uses) = text.and_then(|text| Uses::of(&text)) else { return Ok(false) };
    let mut objects: [Option<JsObject>; Place::COUNT] = Default::default();
    for place in Place::ALL {
        let Some(fields) = uses.fields(place) else { continue };
        objects[place as usize] = match place {
            Place::Record | Place::Payload => Some(envelope::lasting(place, context)?),
            _ => named::show(fields, context),
        };
    }
    let wants = wants(&uses, &objects);
    context.insert_data(Lasting { process: process.clone(), objects, wants, given_up: Cell::new(false) });
    Ok(true)
}

/// What the function can look at: what it names of objects that last, and others as a whole. Of data in whose place it
/// puts others all is known, too: what is the same in both stays as it was.
fn wants(uses: &Uses, objects: &[Option<JsObject>; Place::COUNT]) -> Wants {
    let is_whole = |place: Place| objects[place as usize].is_none() || uses.replaces(place);
    // What it returns instead may have parts of the record, or what is the same as there.
    if is_whole(Place::Record) || uses.returns_others() {
        return Wants::ALL;
    }
    let want = |place: Place| match uses.fields(place) {
        _ if !uses.mentions(place) => Want::Nothing,
        Some(fields) if !is_whole(place) => Want::fields(fields.iter().map(String::as_str)),
        _ => Want::Whole,
    };
    let side = |place: Place| match want(Place::Payload) {
        Want::Fields(_) => want(place),
        all => all,
    };
    Wants {
        position: uses.fields(Place::Record).is_none_or(|fields| fields.iter().any(|field| *field == RECORD[0])),
        metadata: want(Place::Metadata),
        key: want(Place::Key),
        before: side(Place::Before),
        after: side(Place::After),
    }
}

/// What is to be known of records for the script not to miss anything.
pub(crate) fn wanted(context: &Context) -> Wants {
    lasting(context).map_or(Wants::ALL, |lasting| lasting.wants.clone())
}

/// Whether the objects still are what [`make`] made them for.
pub(crate) fn lasts(context: &Context) -> bool {
    lasting(context).is_some()
}

fn lasting(context: &Context) -> Option<&Lasting> {
    context.get_data::<Lasting>().filter(|lasting| !lasting.given_up.get())
}

/// The object that shows the record to this function; `None` where it needs one of its own.
pub(crate) fn record(process: Option<&JsObject>, context: &Context) -> Option<JsObject> {
    let lasting = lasting(context)?;
    process.filter(|process| JsObject::equals(process, &lasting.process))?;
    lasting.objects[Place::Record as usize].clone()
}

/// The object for this part of the record at hand, see [`record`].
pub(crate) fn part(place: Place, context: &Context) -> Option<JsObject> {
    lasting(context)?.objects[place as usize].clone()
}

/// The objects stay what they show: the script got hold of one.
#[cold]
pub(crate) fn give_up(context: &Context) {
    if let Some(lasting) = lasting(context) {
        lasting.given_up.set(true);
    }
}

#[cfg(test)]
mod tests;
