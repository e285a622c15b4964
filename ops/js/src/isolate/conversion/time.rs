//! Conversion of times to `Date`s, which carry milliseconds, and back with all digits.
//!
//! A date that comes from a record keeps the exact time in a non-enumerable property. So the time stays with the date
//! wherever the script stores it.

use anabranch_record::value::Timestamp;
use boa_engine::object::builtins::JsDate;
use boa_engine::property::{PropertyDescriptor, PropertyKey};
use boa_engine::{Context, Finalize, JsData, JsNativeError, JsObject, JsResult, JsSymbol, JsValue, Trace};

use crate::isolate::view::property;

/// The exact time of a date.
#[derive(Trace, Finalize, JsData)]
struct Exact(#[unsafe_ignore_trace] Timestamp);

/// Symbol of the property that holds the exact time, one per context.
struct TimeSymbol(JsSymbol);

/// Prepares a context before a script has access to its globals.
pub(crate) fn prepare(context: &mut Context) -> JsResult<()> {
    let name = JsSymbol::new(None).ok_or_else(|| JsNativeError::range().with_message("no more symbols"))?;
    context.insert_data(TimeSymbol(name));
    Ok(())
}

fn name(context: &Context) -> Option<PropertyKey> {
    context.get_data::<TimeSymbol>().map(|name| name.0.clone().into())
}

/// Converts a time to a date.
pub(super) fn enter(time: &Timestamp, context: &mut Context) -> JsResult<JsValue> {
    let date = JsDate::new(context);
    date.set_time(JsValue::from(time.timestamp_millis()), context)?;
    if let Some(name) = name(context) {
        let exact = JsObject::new(context.root_shape(), None, Exact(*time)).upcast();
        let property = PropertyDescriptor::builder().value(exact).writable(false).enumerable(false).configurable(false);
        date.insert_property(name, property);
    }
    Ok(date.into())
}

/// Returns the exact time of a date, if the date still shows the same millisecond.
pub(super) fn exact(date: &JsObject, millis: f64, context: &Context) -> Option<Timestamp> {
    let origin = property(date, &name(context)?)?.value()?.as_object()?;
    let time = origin.downcast_ref::<Exact>()?.0;
    (time.timestamp_millis() as f64 == millis).then_some(time)
}
