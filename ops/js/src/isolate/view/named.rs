//! A view whose fields are accessors. It is for scripts that access only named fields and keep no object: it needs no
//! proxy and is created once.

use anabranch_record::metadata::Metadata;
use boa_engine::property::{PropertyDescriptor, PropertyKey};
use boa_engine::{Context, Finalize, JsArgs, JsObject, JsResult, JsValue, NativeFunction, Trace};

use super::{Remembered, Touched, View, Whole, convert, inherits, misused, property, remember, remembered};
use crate::isolate::lasting;
use crate::text::{key, name};

/// Creates an object with an accessor for each of the names; no other fields may be accessed. It is reused for each
/// value, see [`turn`]. Returns `None` if the object prototype has a field with one of the names.
pub(crate) fn show(names: &[String], context: &mut Context) -> Option<JsObject> {
    let prototype = context.intrinsics().constructors().object().prototype();
    let view = View::new(Whole::Metadata(Metadata::new()), true);
    let object = JsObject::new(context.root_shape(), prototype, view).upcast();
    for name in names {
        let key = key(name);
        if inherits(&object, &key) {
            return None;
        }
        let function = |f: Accessor, key: PropertyKey| {
            let f = NativeFunction::from_copy_closure_with_captures(
                move |this, args, key: &Name, context| f(this, &key.0, args, context),
                Name(key),
            );
            f.to_js_function(context.realm())
        };
        let accessor = PropertyDescriptor::builder()
            .get(function(read, key.clone()))
            .set(function(write, key.clone()))
            .enumerable(true)
            .configurable(true);
        object.insert_property(key, accessor);
    }
    Some(object)
}

type Accessor = fn(&JsValue, &PropertyKey, &[JsValue], &mut Context) -> JsResult<JsValue>;

/// The field of an accessor.
#[derive(Trace, Finalize)]
struct Name(#[unsafe_ignore_trace] PropertyKey);

/// Makes an object created by [`show`] show another value.
pub(crate) fn turn(object: &JsObject, whole: Whole) {
    if let Some(mut view) = object.downcast_mut::<View>() {
        let View { whole: shown, touched, .. } = &mut *view;
        *shown = whole;
        match touched {
            Touched::Fields(fields) => fields.clear(),
            Touched::Properties => {}
        }
    }
}

fn read(this: &JsValue, key: &PropertyKey, _: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let object = this.as_object().ok_or_else(misused)?;
    if let Remembered::Yes(value) = remembered(&object, key) {
        return Ok(value);
    }
    if let Some(value) = convert(&object, key, context)? {
        return Ok(value);
    }
    match inherited(&object, key) {
        None => Ok(JsValue::undefined()),
        Some(inherited) => match (inherited.value(), inherited.get().and_then(JsValue::as_callable)) {
            (Some(value), _) => Ok(value.clone()),
            (None, Some(get)) => {
                lasting::give_up(context);
                get.call(this, &[], context)
            }
            (None, None) => Ok(JsValue::undefined()),
        },
    }
}

fn write(this: &JsValue, key: &PropertyKey, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let object = this.as_object().ok_or_else(misused)?;
    let value = args.get_or_undefined(0).clone();
    let own = matches!(remembered(&object, key), Remembered::Yes(_)) || {
        let view = object.downcast_ref::<View>().ok_or_else(misused)?;
        name(key).is_some_and(|field| view.part(&field).is_some())
    };
    let inherited = if own { None } else { inherited(&object, key) };
    match inherited {
        Some(inherited) if inherited.writable() != Some(true) => {
            lasting::give_up(context);
            if let Some(set) = inherited.set().and_then(JsValue::as_callable) {
                set.call(this, &[value], context)?;
            }
        }
        _ => remember(&object, key.clone(), value),
    }
    Ok(JsValue::undefined())
}

/// Returns the property that the prototype has under this key.
fn inherited(object: &JsObject, key: &PropertyKey) -> Option<PropertyDescriptor> {
    object.prototype().and_then(|prototype| property(&prototype, key))
}
