//! Shows maps of a record to a script: objects whose fields are converted on access.
//!
//! Metadata, and every map in a record, is shown as a `Proxy` whose target is an ordinary object that also holds the
//! Rust value. A field that is read is converted once and cached beside the Rust value, as are written fields. Once a
//! script does more than read and write (deletes, enumerates or defines fields), or accesses many fields, the cached
//! fields become properties of the target; from then on the properties are the fields. Fields that are never accessed
//! are never converted, in either direction, so they lose nothing.

pub(crate) mod named;

use std::cell::RefCell;
use std::sync::Arc;

use anabranch_record::metadata::{self, Metadata};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use boa_engine::builtins::proxy::Proxy;
use boa_engine::object::ObjectInitializer;
use boa_engine::object::builtins::JsArray;
use boa_engine::property::{PropertyDescriptor, PropertyKey};
use boa_engine::{
    Context, Finalize, JsArgs, JsData, JsError, JsNativeError, JsObject, JsResult, JsString, JsSymbol, JsValue,
    NativeFunction, Trace, js_string,
};

use crate::isolate::conversion::enter;
use crate::text::{key, name};

/// The Rust value behind an object.
#[derive(Clone)]
pub(crate) enum Whole {
    Metadata(Metadata),
    Map(Arc<Object>),
}

/// Native data of the target.
#[derive(Trace, Finalize, JsData)]
pub(crate) struct View {
    #[unsafe_ignore_trace]
    whole: Whole,
    /// Deleted fields.
    #[unsafe_ignore_trace]
    gone: RefCell<Vec<Str>>,
    /// Fields that were read or written and are not properties yet.
    touched: Touched,
    /// True if there is no proxy: the properties are accessors and stay so.
    named: bool,
}

#[derive(Trace, Finalize)]
enum Touched {
    /// Accessed fields in the order of first access, each key once.
    Fields(Vec<Field>),
    /// Accessed fields are properties of the target.
    Properties,
}

#[derive(Trace, Finalize)]
struct Field {
    #[unsafe_ignore_trace]
    key: PropertyKey,
    value: JsValue,
}

/// Maximum number of cached fields before they become properties.
const FIELDS: usize = 12;

impl View {
    fn new(whole: Whole, named: bool) -> Self {
        View { whole, gone: RefCell::default(), touched: Touched::Fields(Vec::new()), named }
    }

    /// Returns the value as it was shown.
    pub(crate) fn whole(&self) -> &Whole {
        &self.whole
    }

    /// Returns `true` if a field was deleted. It may have been set again since.
    pub(crate) fn is_gone(&self, field: &str) -> bool {
        self.gone.borrow().iter().any(|gone| *gone == *field)
    }

    /// Returns the deleted fields.
    pub(crate) fn lost(&self) -> Vec<Str> {
        self.gone.borrow().clone()
    }

    /// Returns a field as it was shown, unless it was deleted.
    fn part(&self, field: &str) -> Option<Part> {
        let part = match &self.whole {
            Whole::Metadata(metadata) => Part::Text(metadata.get(field)?.clone()),
            Whole::Map(map) => Part::Value(map.get(field)?.clone()),
        };
        (!self.is_gone(field)).then_some(part)
    }

    fn fields(&self) -> Vec<Str> {
        match &self.whole {
            Whole::Metadata(metadata) => metadata.iter().map(|(name, _)| name.clone()).collect(),
            Whole::Map(map) => map.iter().map(|(name, _)| name.clone()).collect(),
        }
    }
}

enum Part {
    Text(Str),
    Value(Value),
}

impl Part {
    fn enter(&self, context: &mut Context) -> JsResult<JsValue> {
        match self {
            Part::Text(text) => Ok(JsString::from(text.as_str()).into()),
            Part::Value(value) => enter::value(value, context),
        }
    }
}

/// Shared objects for views, one instance per context.
struct ViewObjects {
    proxy: JsObject,
    traps: JsObject,
    /// A proxy returns its target for this symbol, which scripts cannot obtain.
    target: JsSymbol,
    /// Cache of the current record's first views and their targets: asking a proxy costs a call.
    near: RefCell<Vec<(JsObject, JsObject)>>,
}

/// Maximum number of cached views of one record.
const NEAR: usize = 16;

/// Forgets the views of the last record.
pub(crate) fn begin(context: &Context) {
    if let Ok(optics) = optics(context) {
        optics.near.borrow_mut().clear();
    }
}

/// Prepares a context before a script has access to its globals.
pub(crate) fn prepare(context: &mut Context) -> JsResult<()> {
    let proxy = context.global_object().get(js_string!("Proxy"), context)?;
    let proxy = proxy.as_object().ok_or_else(|| JsNativeError::typ().with_message("no Proxy"))?;
    let target = JsSymbol::new(None).ok_or_else(|| JsNativeError::range().with_message("no more symbols"))?;
    let mut traps = ObjectInitializer::new(context);
    let mut trap = |f, name, arity| {
        traps.function(NativeFunction::from_fn_ptr(f), JsString::from(name), arity);
    };
    trap(get, "get", 3);
    trap(set, "set", 4);
    trap(has, "has", 2);
    trap(delete, "deleteProperty", 2);
    trap(keys, "ownKeys", 1);
    trap(descriptor, "getOwnPropertyDescriptor", 2);
    trap(define, "defineProperty", 3);
    trap(seal, "preventExtensions", 1);
    let traps = traps.build();
    context.insert_data(ViewObjects { proxy, traps, target, near: RefCell::default() });
    Ok(())
}

fn optics(context: &Context) -> JsResult<&ViewObjects> {
    context
        .get_data::<ViewObjects>()
        .ok_or_else(|| JsNativeError::error().with_message("the context is not prepared").into())
}

/// Creates an object that shows a value.
pub(crate) fn show(whole: Whole, context: &mut Context) -> JsResult<JsValue> {
    let prototype = context.intrinsics().constructors().object().prototype();
    let target = JsObject::new(context.root_shape(), prototype, View::new(whole, false)).upcast();
    let ViewObjects { proxy, traps, .. } = optics(context)?;
    let (proxy, traps) = (proxy.clone(), traps.clone());
    let shown = proxy.construct(&[target.clone().into(), traps.into()], None, context)?;
    let mut near = optics(context)?.near.borrow_mut();
    if near.len() < NEAR {
        near.push((shown.clone(), target));
    }
    Ok(shown.into())
}

/// Returns the target of an object created by [`show`] or [`named::show`]; `None` for all others.
pub(crate) fn target(object: &JsObject, context: &mut Context) -> Option<JsObject> {
    if !object.is::<Proxy>() {
        return object.is::<View>().then(|| object.clone());
    }
    let optics = optics(context).ok()?;
    if let Some((_, target)) = optics.near.borrow().iter().find(|(shown, _)| JsObject::equals(shown, object)) {
        return Some(target.clone());
    }
    let symbol = optics.target.clone();
    // A proxy created by the script may throw here, or return another value.
    let target = object.get(symbol, context).ok()?.as_object()?;
    target.is::<View>().then_some(target)
}

/// Turns cached fields into properties.
fn settle(target: &JsObject) {
    let fields = match target.downcast_mut::<View>().as_deref_mut() {
        Some(View { touched: touched @ Touched::Fields(_), .. }) => std::mem::replace(touched, Touched::Properties),
        _ => return,
    };
    if let Touched::Fields(fields) = &fields {
        for field in fields {
            insert(target, field.key.clone(), field.value.clone());
        }
    }
}

/// Returns the cached state of a field.
pub(crate) fn remembered(target: &JsObject, key: &PropertyKey) -> Remembered {
    match target.downcast_ref::<View>().as_deref() {
        Some(View { touched: Touched::Fields(fields), .. }) => {
            let field = fields.iter().find(|field| field.key == *key);
            field.map_or(Remembered::No, |field| Remembered::Yes(field.value.clone()))
        }
        _ => Remembered::Elsewhere,
    }
}

pub(crate) enum Remembered {
    Yes(JsValue),
    No,
    /// The field is a property, if it was accessed.
    Elsewhere,
}

/// Caches a field that was read, or written without another object being involved.
fn remember(target: &JsObject, key: PropertyKey, value: JsValue) {
    if !matches!(key, PropertyKey::Index(_))
        && let Some(view) = target.downcast_mut::<View>().as_deref_mut()
        && let Touched::Fields(fields) = &mut view.touched
    {
        if let Some(field) = fields.iter_mut().find(|field| field.key == key) {
            field.value = value;
            return;
        }
        if fields.len() < FIELDS || view.named {
            fields.push(Field { key, value });
            return;
        }
    }
    settle(target);
    insert(target, key, value);
}

/// Returns the keys of accessed fields.
pub(crate) fn touched(target: &JsObject, context: &mut Context) -> JsResult<Vec<PropertyKey>> {
    if let Some(View { touched: Touched::Fields(fields), .. }) = target.downcast_ref::<View>().as_deref() {
        return Ok(fields.iter().map(|field| field.key.clone()).collect());
    }
    target.own_property_keys(context)
}

/// Returns the descriptor of an own property of the target.
pub(crate) fn property(target: &JsObject, key: &PropertyKey) -> Option<PropertyDescriptor> {
    target.borrow().properties().get(key)
}

fn arguments(args: &[JsValue], context: &mut Context) -> JsResult<(JsObject, PropertyKey)> {
    let target = args.get_or_undefined(0).as_object().ok_or_else(misused)?;
    let key = args.get_or_undefined(1).to_property_key(context)?;
    let key = own_key(&target, &key).unwrap_or(key);
    Ok((target, key))
}

/// Returns this service's name for a metadata key of another product, such as `opencdc.collection`. Returns `None` for
/// any other key, and if the record has an entry of that name.
fn own_key(target: &JsObject, field: &PropertyKey) -> Option<PropertyKey> {
    let view = target.downcast_ref::<View>()?;
    let Whole::Metadata(metadata) = &view.whole else { return None };
    let name = name(field)?;
    let own = metadata::own_key(&name)?;
    metadata.get(&name).is_none().then(|| key(&own))
}

#[cold]
fn misused() -> JsError {
    JsNativeError::typ().with_message("the script called a trap").into()
}

/// Turns a field of the Rust value into a property of the target, unless it is one already.
fn touch(target: &JsObject, key: &PropertyKey, context: &mut Context) -> JsResult<()> {
    if property(target, key).is_none() {
        convert(target, key, context)?;
    }
    Ok(())
}

fn convert(target: &JsObject, key: &PropertyKey, context: &mut Context) -> JsResult<Option<JsValue>> {
    let part = {
        let view = target.downcast_ref::<View>().ok_or_else(misused)?;
        name(key).and_then(|field| view.part(&field))
    };
    let Some(part) = part else { return Ok(None) };
    let value = part.enter(context)?;
    remember(target, key.clone(), value.clone());
    Ok(Some(value))
}

pub(crate) fn insert(target: &JsObject, key: PropertyKey, value: JsValue) {
    let property = PropertyDescriptor::builder().value(value).writable(true).enumerable(true).configurable(true);
    target.insert_property(key, property);
}

/// Turns all fields into properties.
pub(crate) fn touch_all(target: &JsObject, context: &mut Context) -> JsResult<()> {
    settle(target);
    let fields = target.downcast_ref::<View>().ok_or_else(misused)?.fields();
    fields.iter().try_for_each(|field| touch(target, &key(field), context))
}

fn get(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let (target, key) = arguments(args, context)?;
    if let PropertyKey::Symbol(symbol) = &key
        && *symbol == optics(context)?.target
    {
        return Ok(target.into());
    }
    match remembered(&target, &key) {
        Remembered::Yes(value) => return Ok(value),
        Remembered::No => {}
        Remembered::Elsewhere => {
            if let Some(value) = property(&target, &key).as_ref().and_then(PropertyDescriptor::value) {
                return Ok(value.clone());
            }
        }
    }
    match convert(&target, &key, context)? {
        Some(value) => Ok(value),
        None => target.get(key, context),
    }
}

fn set(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let (target, key) = arguments(args, context)?;
    let value = args.get_or_undefined(2).clone();
    let receiver = args.get_or_undefined(3).as_object();
    if let Some(heir) = receiver.filter(|receiver| !receiver.is::<Proxy>()) {
        // An object that inherits from this one.
        return heir.create_data_property(key, value, context).map(JsValue::from);
    }
    let known = remembered(&target, &key);
    if let Remembered::Yes(_) = known {
        remember(&target, key, value);
        return Ok(true.into());
    }
    let own = match known {
        Remembered::Elsewhere => property(&target, &key),
        _ => None,
    };
    let field = own.is_none() && {
        let view = target.downcast_ref::<View>().ok_or_else(misused)?;
        name(&key).is_some_and(|field| view.part(&field).is_some())
    };
    let plain = match &own {
        Some(own) => {
            own.is_data_descriptor()
                && own.writable().zip(own.enumerable()).zip(own.configurable()) == Some(((true, true), true))
        }
        // The field is written before it is read, so its old value does not matter.
        None if field => true,
        None => target.is_extensible(context)? && !inherits(&target, &key),
    };
    if plain {
        remember(&target, key, value);
        return Ok(true.into());
    }
    settle(&target);
    target.set(key, value, false, context).map(JsValue::from)
}

/// Returns `true` if a prototype affects writes to this key.
fn inherits(target: &JsObject, key: &PropertyKey) -> bool {
    let prototypes = std::iter::successors(target.prototype(), JsObject::prototype);
    prototypes.take(8).any(|prototype| !prototype.is_ordinary() || property(&prototype, key).is_some())
}

fn has(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let (target, key) = arguments(args, context)?;
    if let Remembered::Yes(_) = remembered(&target, &key) {
        return Ok(true.into());
    }
    let field = {
        let view = target.downcast_ref::<View>().ok_or_else(misused)?;
        name(&key).is_some_and(|field| view.part(&field).is_some())
    };
    Ok((field || target.has_property(key, context)?).into())
}

fn delete(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let (target, key) = arguments(args, context)?;
    settle(&target);
    let deleted = match property(&target, &key) {
        Some(property) if property.configurable() == Some(false) => false,
        Some(_) => target.delete_property_or_throw(key.clone(), context)?,
        None => true,
    };
    if deleted && let Some(field) = name(&key) {
        let view = target.downcast_ref::<View>().ok_or_else(misused)?;
        if view.part(&field).is_some() {
            view.gone.borrow_mut().push(Str::from(field.as_ref()));
        }
    }
    Ok(deleted.into())
}

/// Returns the fields in the order of the Rust value, then those that the script added.
fn keys(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let target = args.get_or_undefined(0).as_object().ok_or_else(misused)?;
    settle(&target);
    let own = target.own_property_keys(context)?;
    let mut all: Vec<PropertyKey> = {
        let view = target.downcast_ref::<View>().ok_or_else(misused)?;
        let fields = view.fields();
        let there = fields.iter().map(|field| (field, key(field)));
        there.filter(|(field, key)| !view.is_gone(field) || own.contains(key)).map(|(_, key)| key).collect()
    };
    all.extend(own.into_iter().filter(|key| {
        let view = target.downcast_ref::<View>();
        !view.is_some_and(|view| name(key).is_some_and(|field| holds(&view.whole, &field)))
    }));
    Ok(JsArray::from_iter(all.into_iter().map(JsValue::from), context).into())
}

fn holds(whole: &Whole, field: &str) -> bool {
    match whole {
        Whole::Metadata(metadata) => metadata.get(field).is_some(),
        Whole::Map(map) => map.get(field).is_some(),
    }
}

fn descriptor(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let (target, key) = arguments(args, context)?;
    settle(&target);
    touch(&target, &key, context)?;
    let Some(property) = property(&target, &key) else { return Ok(JsValue::undefined()) };
    let answer = JsObject::with_object_proto(context.intrinsics());
    let fields: [(&str, Option<JsValue>); 6] = [
        ("value", property.value().cloned()),
        ("get", property.get().cloned()),
        ("set", property.set().cloned()),
        ("writable", property.writable().map(JsValue::from)),
        ("enumerable", property.enumerable().map(JsValue::from)),
        ("configurable", property.configurable().map(JsValue::from)),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            insert(&answer, JsString::from(name).into(), value);
        }
    }
    Ok(answer.into())
}

fn define(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let (target, key) = arguments(args, context)?;
    settle(&target);
    touch(&target, &key, context)?;
    let property = args.get_or_undefined(2).to_property_descriptor(context)?;
    target.define_property_or_throw(key, property, context).map(JsValue::from)
}

fn seal(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let target = args.get_or_undefined(0).as_object().ok_or_else(misused)?;
    touch_all(&target, context)?;
    let all = |of: &str, context: &mut Context| {
        let object = context.intrinsics().constructors().object().constructor();
        object.get(JsString::from(of), context)
    };
    let prevent = all("preventExtensions", context)?;
    let prevent = prevent.as_callable().ok_or_else(misused)?;
    prevent.call(&JsValue::undefined(), &[target.into()], context)?;
    Ok(true.into())
}
