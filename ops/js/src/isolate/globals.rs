//! Globals for scripts in addition to the language.

mod bytes;
mod log;

use std::rc::Rc;

use boa_engine::object::{FunctionObjectBuilder, JsObject};
use boa_engine::property::Attribute;
use boa_engine::{Context, JsArgs, JsNativeError, JsResult, JsString, JsValue, NativeFunction, Source};

use anabranch_record::Record;

use crate::isolate::envelope::{ShownValue, show};
use crate::log::LineReceiver;

/// Globals that are easier to write in JavaScript.
const PRELUDE: &str = include_str!("globals/prelude.js");

/// Defines the globals. Log lines of the script go to `lines`.
pub(crate) fn define(context: &mut Context, lines: &Rc<dyn LineReceiver>) -> JsResult<()> {
    function(context, "Record", 0, NativeFunction::from_fn_ptr(record))?;
    function(context, "StructuredData", 0, NativeFunction::from_fn_ptr(structured))?;
    function(context, "RawData", 1, NativeFunction::from_fn_ptr(bytes::raw))?;
    function(context, "btoa", 1, NativeFunction::from_fn_ptr(bytes::btoa))?;
    function(context, "atob", 1, NativeFunction::from_fn_ptr(bytes::atob))?;
    function(context, "require", 1, NativeFunction::from_fn_ptr(require))?;
    context.insert_data(log::Node(lines.clone()));
    let prelude = context.eval(Source::from_bytes(PRELUDE))?;
    let prelude = prelude.as_callable().ok_or_else(|| JsNativeError::typ().with_message("no prelude"))?;
    let native = |context: &Context, f| {
        JsValue::from(FunctionObjectBuilder::new(context.realm(), NativeFunction::from_fn_ptr(f)).build())
    };
    let natives = [
        native(context, log::log),
        native(context, log::enabled),
        native(context, bytes::encode),
        native(context, bytes::decode),
        native(context, bytes::uuid),
        native(context, bytes::random),
    ];
    prelude.call(&JsValue::undefined(), &natives, context)?;
    Ok(())
}

/// Defines a function that can be called with and without `new`.
fn function(context: &mut Context, name: &'static str, arity: usize, f: NativeFunction) -> JsResult<()> {
    let function = FunctionObjectBuilder::new(context.realm(), f)
        .name(JsString::from(name))
        .length(arity)
        .constructor(true)
        .build();
    context.register_global_property(JsString::from(name), function, Attribute::WRITABLE | Attribute::CONFIGURABLE)
}

fn record(_: &JsValue, _: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    show(ShownValue::Record(Record::default()), context)
}

fn structured(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let data = JsObject::with_object_proto(context.intrinsics());
    if let Some(fields) = args.get_or_undefined(0).as_object() {
        data.copy_data_properties(&fields.into(), Vec::<JsString>::new(), context)?;
    }
    Ok(data.into())
}

fn require(_: &JsValue, _: &[JsValue], _: &mut Context) -> JsResult<JsValue> {
    let message = "require is not available to scripts: a script is one file and cannot access other files";
    Err(JsNativeError::error().with_message(message).into())
}
