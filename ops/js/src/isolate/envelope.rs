//! Shows a record and its payload to a script: ordinary objects whose few fields are accessors.
//!
//! All records have one hidden class, so that the engine's inline caches work. Each accessor has a slot that is filled
//! on first access. A prototype catches writes to other names; otherwise a misspelt field of a record would be lost
//! silently.

use std::cell::Cell;
use std::rc::Rc;

use anabranch_record::{Change, Data, Record};
use boa_engine::builtins::proxy::Proxy;
use boa_engine::object::FunctionObjectBuilder;
use boa_engine::property::{PropertyDescriptor, PropertyKey};
use boa_engine::{
    Context, Finalize, JsArgs, JsData, JsNativeError, JsObject, JsResult, JsString, JsValue, NativeFunction, Trace,
    js_string,
};

use crate::isolate::conversion::enter;
use crate::isolate::lasting;
use crate::isolate::view::{self, insert, named, property};
use crate::properties::{PAYLOAD, RECORD};
use crate::text::name;
use crate::uses::RecordObject;

/// The value that is shown.
pub(crate) enum ShownValue {
    Record(Record),
    Payload(Change),
}

impl ShownValue {
    /// Returns what it is, for messages, and its fields in slot order.
    fn fields(&self) -> (&'static str, &'static [&'static str]) {
        match self {
            ShownValue::Record(_) => ("a record", &RECORD),
            ShownValue::Payload(_) => ("a payload", &PAYLOAD),
        }
    }

    /// Converts a field for the script.
    fn enter(&self, at: usize, context: &mut Context) -> JsResult<JsValue> {
        match (self, at) {
            (ShownValue::Record(record), 0) => enter::bytes(&record.position().0, context),
            (ShownValue::Record(record), 1) => Ok(JsString::from(record.operation.as_str()).into()),
            (ShownValue::Record(record), 2) => view::show(view::Whole::Metadata(record.metadata.clone()), context),
            (ShownValue::Record(record), 3) => enter::data(&record.key, context),
            (ShownValue::Record(record), 4) => show(ShownValue::Payload(record.payload.clone()), context),
            (ShownValue::Payload(change), 0) => enter::data(&change.before, context),
            (ShownValue::Payload(change), 1) => enter::data(&change.after, context),
            _ => Ok(JsValue::undefined()),
        }
    }

    /// Like `enter`, for a field that the script cannot keep. Returns `None` if the script may keep it, or it is not an
    /// object.
    fn lend(&self, at: usize, context: &Context) -> Option<JsValue> {
        let data = |data: &Data, place| match data {
            Data::Structured(map) => Some((place, view::Whole::Map(map.clone()))),
            Data::Absent | Data::Raw(_) => None,
        };
        let (place, whole) = match (self, at) {
            (ShownValue::Record(record), 2) => (RecordObject::Metadata, view::Whole::Metadata(record.metadata.clone())),
            (ShownValue::Record(record), 3) => data(&record.key, RecordObject::Key)?,
            (ShownValue::Record(record), 4) => {
                let payload = lasting::part(RecordObject::Payload, context)?;
                turn(&payload, ShownValue::Payload(record.payload.clone()));
                return Some(payload.into());
            }
            (ShownValue::Payload(change), 0) => data(&change.before, RecordObject::Before)?,
            (ShownValue::Payload(change), 1) => data(&change.after, RecordObject::After)?,
            _ => return None,
        };
        let object = lasting::part(place, context)?;
        named::turn(&object, whole);
        Some(object.into())
    }
}

/// Native data of the object.
#[derive(Trace, Finalize, JsData)]
pub(crate) struct Envelope {
    #[unsafe_ignore_trace]
    whole: Rc<ShownValue>,
    /// Values that were read or written, by field; a payload uses the first two.
    slots: [Option<JsValue>; RECORD.len()],
    /// True if the object is reused for each record.
    lasts: bool,
}

/// State of a field after the script ran.
#[derive(Debug)]
pub(crate) enum Field {
    /// Not accessed.
    Untouched,
    /// Read or written.
    Set(JsValue),
    /// Deleted.
    Gone,
}

/// Common parts of all objects of a kind.
struct Form {
    fields: Vec<(PropertyKey, PropertyDescriptor)>,
    /// An object that scripts never see. Objects with its hidden class have all fields as created, unless an accessor
    /// was replaced, see [`watch`].
    model: JsObject,
}

/// Forms of the two kinds, one instance per context.
struct Forms {
    guard: JsObject,
    record: Form,
    payload: Form,
    /// True if the script may have replaced accessors, see [`watch`].
    defines: Cell<bool>,
}

impl Forms {
    fn of(&self, whole: &ShownValue) -> &Form {
        match whole {
            ShownValue::Record(_) => &self.record,
            ShownValue::Payload(_) => &self.payload,
        }
    }
}

/// Functions that can replace an accessor, and whether the object is their first argument.
const DEFINING: [(&str, &str, bool); 5] = [
    ("Object", "defineProperty", true),
    ("Object", "defineProperties", true),
    ("Reflect", "defineProperty", true),
    ("Object.prototype", "__defineGetter__", false),
    ("Object.prototype", "__defineSetter__", false),
];

/// Prepares a context before a script has access to its globals.
pub(crate) fn prepare(context: &mut Context) -> JsResult<()> {
    let proxy = context.global_object().get(js_string!("Proxy"), context)?;
    let proxy = proxy.as_object().ok_or_else(|| JsNativeError::typ().with_message("no Proxy"))?;
    let base = JsObject::with_object_proto(context.intrinsics());
    let trap = NativeFunction::from_fn_ptr(stray).to_js_function(context.realm());
    let traps = JsObject::with_null_proto();
    insert(&traps, js_string!("set").into(), trap.into());
    let guard = proxy.construct(&[base.into(), traps.into()], None, context)?;
    let accessors = [
        accessor::<0>(context),
        accessor::<1>(context),
        accessor::<2>(context),
        accessor::<3>(context),
        accessor::<4>(context),
    ];
    let form = |names: &[&str], whole: ShownValue| {
        let fields = names.iter().map(|name| PropertyKey::from(JsString::from(*name))).zip(accessors.clone()).collect();
        let model = make(whole, false, &fields, &guard, context);
        Form { fields, model }
    };
    let record = form(&RECORD, ShownValue::Record(Record::default()));
    let payload = form(&PAYLOAD, ShownValue::Payload(Change::default()));
    context.insert_data(Forms { guard, record, payload, defines: Cell::new(false) });
    DEFINING.into_iter().try_for_each(|(holder, name, first)| watch(holder, name, first, context))
}

/// Wraps a built-in function so that its use on a record or payload, or on an object that may be one, is noticed. The
/// hidden class does not show replaced accessors.
fn watch(holder: &str, name: &str, first: bool, context: &mut Context) -> JsResult<()> {
    let mut object = context.global_object();
    for part in holder.split('.') {
        let Some(inner) = object.get(JsString::from(part), context)?.as_object() else { return Ok(()) };
        object = inner;
    }
    let key = JsString::from(name);
    let Some(original) = object.get(key.clone(), context)?.as_callable() else { return Ok(()) };
    let length = original.get(js_string!("length"), context)?.to_length(context)? as usize;
    let watching = NativeFunction::from_copy_closure_with_captures(
        move |this, args, original: &JsObject, context| {
            let target = if first { args.get_or_undefined(0) } else { this };
            if target.as_object().is_some_and(|target| target.is::<Envelope>() || target.is::<Proxy>())
                && let Ok(forms) = forms(context)
            {
                forms.defines.set(true);
            }
            original.call(this, args, context)
        },
        original,
    );
    let watching = FunctionObjectBuilder::new(context.realm(), watching).name(key.clone()).length(length).build();
    let property = PropertyDescriptor::builder().value(watching).writable(true).enumerable(false).configurable(true);
    object.insert_property(key, property);
    Ok(())
}

/// Creates an object that shows a record or a payload.
pub(crate) fn show(whole: ShownValue, context: &mut Context) -> JsResult<JsValue> {
    let forms = forms(context)?;
    let fields = &forms.of(&whole).fields;
    Ok(make(whole, false, fields, &forms.guard, context).into())
}

/// Creates an object that is reused for each record or payload, see [`turn`].
pub(crate) fn lasting(place: RecordObject, context: &mut Context) -> JsResult<JsObject> {
    let forms = forms(context)?;
    let whole = match place {
        RecordObject::Payload => ShownValue::Payload(Change::default()),
        _ => ShownValue::Record(Record::default()),
    };
    let fields = &forms.of(&whole).fields;
    Ok(make(whole, true, fields, &forms.guard, context))
}

/// Makes an object created by [`lasting`] show another value.
pub(crate) fn turn(object: &JsObject, whole: ShownValue) {
    if let Some(mut held) = object.downcast_mut::<Envelope>() {
        held.whole = Rc::new(whole);
        held.slots = Default::default();
    }
}

/// An object created by [`show`], after the script ran.
pub(crate) struct OpenedObject {
    /// The value as it was shown.
    pub(crate) whole: Rc<ShownValue>,
    /// Fields by slot; a payload uses the first two.
    pub(crate) fields: [Field; RECORD.len()],
    /// A property that is not a field. The script defined it, which bypasses [`stray`].
    pub(crate) stranger: Option<PropertyKey>,
}

/// Reads an object created by [`show`]; returns `None` for all others.
pub(crate) fn open(object: &JsObject, context: &mut Context) -> JsResult<Option<OpenedObject>> {
    let held = object.downcast_ref::<Envelope>().map(|held| (held.whole.clone(), held.slots.clone()));
    let Some((whole, slots)) = held else { return Ok(None) };
    let mut fields = slots.map(|slot| slot.map_or(Field::Untouched, Field::Set));
    let forms = forms(context)?;
    let form = forms.of(&whole);
    if unchanged(object, form) && !(forms.defines.get() && redefined(object, form)) {
        return Ok(Some(OpenedObject { whole, fields, stranger: None }));
    }
    let known = form.fields.clone();
    let mut others = object.own_property_keys(context)?.into_iter();
    let stranger = others.find(|key| known.iter().all(|(field, _)| field != key));
    for ((key, made), field) in known.into_iter().zip(&mut fields) {
        match property(object, &key) {
            None => *field = Field::Gone,
            Some(own) if own.get().is_some() && own.get() == made.get() => {}
            Some(own) => {
                *field = Field::Set(match own.value() {
                    Some(value) => value.clone(),
                    None => object.get(key, context)?,
                });
            }
        }
    }
    Ok(Some(OpenedObject { whole, fields, stranger }))
}

fn forms(context: &Context) -> JsResult<&Forms> {
    context.get_data::<Forms>().ok_or_else(|| JsNativeError::error().with_message("the context is not prepared").into())
}

fn make(
    whole: ShownValue,
    lasts: bool,
    fields: &Vec<(PropertyKey, PropertyDescriptor)>,
    guard: &JsObject,
    context: &Context,
) -> JsObject {
    let envelope = Envelope { whole: Rc::new(whole), slots: Default::default(), lasts };
    let object = JsObject::new(context.root_shape(), guard.clone(), envelope).upcast();
    for (key, accessor) in fields {
        object.insert_property(key.clone(), accessor.clone());
    }
    object
}

/// Returns `true` if no property was added, deleted or redefined as another kind.
fn unchanged(object: &JsObject, form: &Form) -> bool {
    let object = object.borrow();
    object.shape().to_addr_usize() == form.model.borrow().shape().to_addr_usize()
        && object.properties().index_property_keys().next().is_none()
}

/// Returns `true` if an accessor was replaced.
#[cold]
fn redefined(object: &JsObject, form: &Form) -> bool {
    let object = object.borrow();
    let same = |own: PropertyDescriptor, made: &PropertyDescriptor| own.get() == made.get();
    !form.fields.iter().all(|(key, made)| object.properties().get(key).is_some_and(|own| same(own, made)))
}

fn accessor<const AT: usize>(context: &Context) -> PropertyDescriptor {
    let function = |f| NativeFunction::from_fn_ptr(f).to_js_function(context.realm());
    PropertyDescriptor::builder()
        .get(function(get::<AT>))
        .set(function(set::<AT>))
        .enumerable(true)
        .configurable(true)
        .build()
}

/// Returns the record or payload, also if it is used as the prototype of another object.
fn holder(this: &JsValue) -> JsResult<JsObject> {
    let objects = std::iter::successors(this.as_object(), JsObject::prototype);
    let holder = objects.take(MOST_HEIRS).find(|object| object.is::<Envelope>());
    holder.ok_or_else(|| JsNativeError::typ().with_message("this is a field of records, not of other objects").into())
}

/// Maximum length of prototype chains that are followed.
const MOST_HEIRS: usize = 64;

fn get<const AT: usize>(this: &JsValue, _: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let object = holder(this)?;
    let (whole, lasts) = match object.downcast_ref::<Envelope>() {
        Some(held) => match &held.slots[AT] {
            Some(value) => return Ok(value.clone()),
            None => (held.whole.clone(), held.lasts),
        },
        None => return Ok(JsValue::undefined()),
    };
    let value = match lasts.then(|| whole.lend(AT, context)).flatten() {
        Some(lent) => lent,
        None => whole.enter(AT, context)?,
    };
    if let Some(mut held) = object.downcast_mut::<Envelope>() {
        held.slots[AT] = Some(value.clone());
    }
    Ok(value)
}

fn set<const AT: usize>(this: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let value = args.get_or_undefined(0).clone();
    let object = holder(this)?;
    let whole = object.downcast_ref::<Envelope>().map(|held| held.whole.clone());
    let field = whole.and_then(|whole| forms(context).ok()?.of(&whole).fields.get(AT));
    let Some(key) = field.map(|(key, _)| key.clone()) else { return Ok(JsValue::undefined()) };
    if let Some(heir) = this.as_object().filter(|heir| !JsObject::equals(heir, &object)) {
        return heir.create_data_property_or_throw(key, value, context).map(JsValue::from);
    }
    let frozen = property(&object, &key).is_some_and(|own| own.configurable() == Some(false));
    if frozen {
        return Err(JsNativeError::typ().with_message(format!("cannot set non-writable property: {key}")).into());
    }
    if let Some(mut held) = object.downcast_mut::<Envelope>() {
        held.slots[AT] = Some(value);
    }
    Ok(JsValue::undefined())
}

/// Trap for writes to names that are not fields. It is on the prototype, so only such writes reach it.
fn stray(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let key = args.get_or_undefined(1).to_property_key(context)?;
    let value = args.get_or_undefined(2).clone();
    let receiver = args.get_or_undefined(3).as_object();
    let Some(receiver) = receiver else { return Ok(false.into()) };
    let fields = receiver.downcast_ref::<Envelope>().map(|held| held.whole.fields());
    if let Some((what, fields)) = fields
        && !name(&key).is_some_and(|name| fields.contains(&&*name))
    {
        let message = format!("{what} has no field {key}, only {}", fields.join(", "));
        return Err(JsNativeError::typ().with_message(message).into());
    }
    // A field that was deleted before, or an object that inherits from this one.
    receiver.create_data_property(key, value, context).map(JsValue::from)
}
