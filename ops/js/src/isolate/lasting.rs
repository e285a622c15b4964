//! Objects that are created once and reused for each record, if the script cannot keep them.

use std::cell::Cell;

use boa_engine::{Context, JsObject, JsResult, js_string};

use crate::isolate::envelope;
use crate::isolate::view::named;
use crate::properties::RECORD;
use crate::uses::{RecordObject, RecordUses};
use crate::wire::{Want, Wants};

/// State of a context whose script is known to keep no records.
struct Lasting {
    /// The analyzed function: no other function may see the objects.
    process: JsObject,
    objects: [Option<JsObject>; RecordObject::COUNT],
    /// Parts of records that it can read.
    wants: Wants,
    /// True if the script got hold of an object after all.
    given_up: Cell<bool>,
}

/// The original `Function.prototype.toString`, unaffected by changes of the script.
struct SourceText(JsObject);

/// Prepares a context before a script has access to its globals.
pub(crate) fn prepare(context: &mut Context) -> JsResult<()> {
    let functions = context.intrinsics().constructors().function().prototype();
    if let Some(text) = functions.get(js_string!("toString"), context)?.as_object() {
        context.insert_data(SourceText(text));
    }
    Ok(())
}

/// Analyzes the function `process` and creates the objects that it cannot keep. Returns `false` if it may keep all of
/// them.
pub(crate) fn make(process: &JsObject, context: &mut Context) -> JsResult<bool> {
    let Some(text) = context.get_data::<SourceText>().map(|text| text.0.clone()) else { return Ok(false) };
    let text = text.call(&process.clone().into(), &[], context)?;
    let text = text.as_string().and_then(|text| text.to_std_string().ok());
    let Some(uses) = text.and_then(|text| RecordUses::of(&text)) else { return Ok(false) };
    let mut objects: [Option<JsObject>; RecordObject::COUNT] = Default::default();
    for place in RecordObject::ALL {
        let Some(fields) = uses.fields(place) else { continue };
        objects[place as usize] = match place {
            RecordObject::Record | RecordObject::Payload => Some(envelope::lasting(place, context)?),
            _ => named::show(fields, context),
        };
    }
    let wants = wants(&uses, &objects);
    context.insert_data(Lasting { process: process.clone(), objects, wants, given_up: Cell::new(false) });
    Ok(true)
}

/// Returns the parts that the function can read: the named fields of reused objects, and the others as a whole. Data
/// that the function replaces is needed as a whole too, so that unchanged parts are recognized.
fn wants(uses: &RecordUses, objects: &[Option<JsObject>; RecordObject::COUNT]) -> Wants {
    let is_whole = |place: RecordObject| objects[place as usize].is_none() || uses.replaces(place);
    // A returned object that is not the record may contain parts of it, or equal ones.
    if is_whole(RecordObject::Record) || uses.returns_others() {
        return Wants::ALL;
    }
    let want = |place: RecordObject| match uses.fields(place) {
        _ if !uses.mentions(place) => Want::Nothing,
        Some(fields) if !is_whole(place) => Want::fields(fields.iter().map(String::as_str)),
        _ => Want::Whole,
    };
    let side = |place: RecordObject| match want(RecordObject::Payload) {
        Want::Fields(_) => want(place),
        all => all,
    };
    Wants {
        position: uses.fields(RecordObject::Record).is_none_or(|fields| fields.iter().any(|field| *field == RECORD[0])),
        metadata: want(RecordObject::Metadata),
        key: want(RecordObject::Key),
        before: side(RecordObject::Before),
        after: side(RecordObject::After),
    }
}

/// Returns the parts of records that the script needs.
pub(crate) fn wanted(context: &Context) -> Wants {
    lasting(context).map_or(Wants::ALL, |lasting| lasting.wants.clone())
}

/// Returns `true` if the objects are still valid for the function analyzed by [`make`].
pub(crate) fn lasts(context: &Context) -> bool {
    lasting(context).is_some()
}

fn lasting(context: &Context) -> Option<&Lasting> {
    context.get_data::<Lasting>().filter(|lasting| !lasting.given_up.get())
}

/// Returns the object that shows the record to this function, or `None` if the function needs a new one.
pub(crate) fn record(process: Option<&JsObject>, context: &Context) -> Option<JsObject> {
    let lasting = lasting(context)?;
    process.filter(|process| JsObject::equals(process, &lasting.process))?;
    lasting.objects[RecordObject::Record as usize].clone()
}

/// Returns the object for this part of the current record, see [`record`].
pub(crate) fn part(place: RecordObject, context: &Context) -> Option<JsObject> {
    lasting(context)?.objects[place as usize].clone()
}

/// Ends the reuse of the objects, because the script got hold of one. They keep what they show.
#[cold]
pub(crate) fn give_up(context: &Context) {
    if let Some(lasting) = lasting(context) {
        lasting.given_up.set(true);
    }
}

#[cfg(test)]
mod tests;
