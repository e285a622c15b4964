//! Conversion of JavaScript values to record values.
//!
//! Each value is compared with the previous one. Unchanged values are kept without a copy, with all digits of a time
//! and the type of a number.

mod value;

use anabranch_record::metadata::{Metadata, own_key};
use anabranch_record::text::Str;
use anabranch_record::{Change, Data, Operation, Record};
use boa_engine::property::{PropertyDescriptor, PropertyKey};
use boa_engine::value::JsVariant;
use boa_engine::{Context, JsObject, JsString, JsValue};
use bytes::Bytes;

use super::path::{Path, Result, described};
use crate::isolate::envelope::{self, Field, OpenedObject, ShownValue};
use crate::isolate::view::{self, View, property, target};
use crate::properties::{PAYLOAD, RECORD};
use crate::text::{key, name, utf8};
use value::plain;

/// Converts the values that a script returns.
pub(crate) struct Leave<'c> {
    context: &'c mut Context,
    /// Objects being converted. An object that occurs again contains itself.
    open: Vec<JsObject>,
}

impl<'c> Leave<'c> {
    pub(crate) fn new(context: &'c mut Context) -> Self {
        Leave { context, open: Vec::new() }
    }

    /// Converts an object to the record that replaces `input`.
    pub(crate) fn record(&mut self, object: &JsObject, input: &Record, path: Path<'_>) -> Result<Record> {
        let Some(OpenedObject { whole, fields, stranger }) = envelope::open(object, self.context)? else {
            return self.plain_record(object, input, path);
        };
        let ShownValue::Record(before) = &*whole else { return self.plain_record(object, input, path) };
        if let Some(stranger) = stranger {
            return path.unfit(format!("has a field {stranger}, a record has only {}", RECORD.join(", ")));
        }
        let [position, operation, metadata, key, payload] = fields;
        let mut record = input.clone();
        self.position(position, before, input, path)?;
        record.operation = match operation {
            Field::Untouched => before.operation,
            Field::Set(value) => self.operation(&value, path)?,
            Field::Gone => return path.field("Operation").unfit("is missing: a record has an operation"),
        };
        record.metadata = match metadata {
            Field::Untouched => before.metadata.clone(),
            Field::Set(value) => self.metadata(&value, &before.metadata, path.field("Metadata"))?,
            Field::Gone => Metadata::new(),
        };
        record.key = match key {
            Field::Untouched => before.key.clone(),
            Field::Set(value) => self.data(&value, &before.key, path.field("Key"))?,
            Field::Gone => Data::Absent,
        };
        record.payload = match payload {
            Field::Untouched => before.payload.clone(),
            Field::Set(value) => self.payload(&value, &before.payload, path.field("Payload"))?,
            Field::Gone => Change::default(),
        };
        Ok(record)
    }

    /// Converts an object with the fields of a record, such as `{...rec}`.
    fn plain_record(&mut self, object: &JsObject, input: &Record, path: Path<'_>) -> Result<Record> {
        if target(object, self.context).is_none() {
            plain(object, path)?;
        }
        let keys = object.own_property_keys(self.context)?;
        let is_field = |key: &PropertyKey| name(key).is_some_and(|name| RECORD.contains(&name.as_ref()));
        if let Some(stranger) = keys.iter().find(|key| !is_field(key)) {
            return path
                .unfit(format!("is not a record: it has a field {stranger}, a record has {}", RECORD.join(", ")));
        }
        if keys.is_empty() {
            return path.unfit("is an empty object: return rec, or Record()");
        }
        let mut record = input.clone();
        let position = object.get(key("Position"), self.context)?;
        self.same_position(&position, input, path)?;
        let operation = object.get(key("Operation"), self.context)?;
        if !operation.is_undefined() {
            record.operation = self.operation(&operation, path)?;
        }
        let metadata = object.get(key("Metadata"), self.context)?;
        record.metadata = self.metadata(&metadata, &input.metadata, path.field("Metadata"))?;
        let of_key = object.get(key("Key"), self.context)?;
        record.key = self.data(&of_key, &input.key, path.field("Key"))?;
        let payload = object.get(key("Payload"), self.context)?;
        record.payload = self.payload(&payload, &input.payload, path.field("Payload"))?;
        Ok(record)
    }

    fn position(&mut self, field: Field, before: &Record, input: &Record, path: Path<'_>) -> Result<()> {
        match field {
            Field::Set(value) => self.same_position(&value, input, path),
            // The position of a new `Record()` is not set yet.
            _ if before.position().0.is_empty() || before.position() == input.position() => Ok(()),
            _ => path.unfit("has the position of another record: a script may return its own record, or a new one"),
        }
    }

    fn same_position(&mut self, value: &JsValue, input: &Record, path: Path<'_>) -> Result<()> {
        let path = path.field("Position");
        if value.is_null_or_undefined() {
            return Ok(());
        }
        let same = match value.as_object() {
            Some(object) => match self.bytes(&object)? {
                Some(bytes) => bytes.is_empty() || bytes == *input.position().0,
                None => {
                    return path.unfit(
                        "is an object without bytes, as in a copy made with JSON: change rec itself, or delete \
                         Position from the copy",
                    );
                }
            },
            None => false,
        };
        if same { Ok(()) } else { path.unfit("must stay unchanged: only the source can interpret it") }
    }

    fn operation(&mut self, value: &JsValue, path: Path<'_>) -> Result<Operation> {
        let path = path.field("Operation");
        let Some(text) = value.as_string() else {
            return path.unfit(format!("is {}, not text", described(value)));
        };
        let text = text_of(&text, path)?;
        text.parse().or_else(|error: anabranch_record::UnknownOperation| path.unfit(format!("is {error}")))
    }

    fn metadata(&mut self, value: &JsValue, before: &Metadata, path: Path<'_>) -> Result<Metadata> {
        if value.is_null_or_undefined() {
            return Ok(Metadata::new());
        }
        let Some(object) = value.as_object() else {
            return path.unfit(format!("is {}, not an object of texts", described(value)));
        };
        match target(&object, self.context) {
            Some(target) => {
                if let view::Whole::Metadata(shown) = whole(&target) {
                    return self.shown_metadata(&target, shown, path);
                }
            }
            None => plain(&object, path)?,
        }
        // The fields of other views are not properties yet, so read them as a script does.
        let mut origin = before.iter();
        let mut entries = Vec::new();
        let mut same = true;
        for key in object.own_property_keys(self.context)? {
            let Some(field) = self.field_name(&key, path)? else { continue };
            let value = match property(&object, &key).as_ref().and_then(PropertyDescriptor::value) {
                Some(value) => value.clone(),
                None => object.get(key.clone(), self.context)?,
            };
            let was = origin.next().filter(|(name, _)| **name == *field);
            if let JsVariant::String(text) = value.variant()
                && let Some((name, was)) = was
                && utf8(text.as_str()).is_some_and(|text| **was == *text)
            {
                entries.push((name.clone(), was.clone()));
                continue;
            }
            same = false;
            let text = self.metadata_text(&value, path.field(&field))?;
            let name = || own_key(&field).unwrap_or_else(|| Str::from(&*field));
            entries.push((was.map_or_else(name, |(name, _)| name.clone()), Str::from(text)));
        }
        match same && entries.len() == before.len() {
            true => Ok(before.clone()),
            false => Ok(Metadata::from_entries(entries)),
        }
    }

    /// Converts metadata that was shown to the script. Reads only entries that the script accessed.
    fn shown_metadata(&mut self, target: &JsObject, mut metadata: Metadata, path: Path<'_>) -> Result<Metadata> {
        let lost = target.downcast_ref::<View>().map(|view| view.lost());
        for gone in lost.unwrap_or_default() {
            metadata.remove(&gone);
        }
        for key in view::touched(target, self.context)? {
            let Some(value) = self.touched(target, &key)? else { continue };
            let Some(field) = self.field_name(&key, path)? else { continue };
            let text = self.metadata_text(&value, path.field(&field))?;
            if metadata.get(&field).is_none_or(|before| before.as_str() != text) {
                metadata.insert(&*field, text);
            }
        }
        Ok(metadata)
    }

    /// Converts a metadata value to text; numbers and booleans as JavaScript prints them.
    fn metadata_text(&mut self, value: &JsValue, path: Path<'_>) -> Result<String> {
        match value.variant() {
            JsVariant::String(text) => text_of(&text, path),
            JsVariant::Boolean(_) | JsVariant::Integer32(_) | JsVariant::Float64(_) | JsVariant::BigInt(_) => {
                Ok(value.to_string(self.context)?.to_std_string_lossy())
            }
            JsVariant::Undefined | JsVariant::Null => {
                path.unfit(format!("is {}: metadata is text; delete the entry instead", described(value)))
            }
            JsVariant::Object(_) | JsVariant::Symbol(_) => {
                path.unfit(format!("is {}: metadata is text; use JSON.stringify", described(value)))
            }
        }
    }

    fn payload(&mut self, value: &JsValue, before: &Change, path: Path<'_>) -> Result<Change> {
        if value.is_null_or_undefined() {
            return Ok(Change::default());
        }
        let Some(object) = value.as_object() else {
            return path.unfit(format!("is {}, not an object with Before and After", described(value)));
        };
        if let Some(OpenedObject { whole, fields: [of_before, of_after, ..], stranger }) =
            envelope::open(&object, self.context)?
            && let ShownValue::Payload(shown) = &*whole
        {
            if let Some(stranger) = stranger {
                return path.unfit(format!("has a field {stranger}, a payload has only {}", PAYLOAD.join(", ")));
            }
            let mut side = |field: Field, was: &Data, name| match field {
                Field::Untouched => Ok(was.clone()),
                Field::Set(value) => self.data(&value, was, path.field(name)),
                Field::Gone => Ok(Data::Absent),
            };
            let before = side(of_before, &shown.before, PAYLOAD[0])?;
            let after = side(of_after, &shown.after, PAYLOAD[1])?;
            return Ok(Change { before, after });
        }
        if target(&object, self.context).is_none() {
            plain(&object, path)?;
        }
        for key in object.own_property_keys(self.context)? {
            if !name(&key).is_some_and(|name| PAYLOAD.contains(&name.as_ref())) {
                return path.unfit(format!("has a field {key}, a payload has only {}", PAYLOAD.join(", ")));
            }
        }
        let before_value = object.get(key("Before"), self.context)?;
        let after_value = object.get(key("After"), self.context)?;
        Ok(Change {
            before: self.data(&before_value, &before.before, path.field("Before"))?,
            after: self.data(&after_value, &before.after, path.field("After"))?,
        })
    }

    fn data(&mut self, value: &JsValue, before: &Data, path: Path<'_>) -> Result<Data> {
        let object = match value.variant() {
            JsVariant::Undefined | JsVariant::Null => return Ok(Data::Absent),
            JsVariant::String(text) => return Ok(Data::text(text_of(&text, path)?)),
            JsVariant::Object(object) => object,
            _ => {
                return path.unfit(format!("is {}: assign an object, a string or RawData(…)", described(value)));
            }
        };
        if let Some(bytes) = self.bytes(&object)? {
            return Ok(match before {
                Data::Raw(before) if *before == bytes => Data::Raw(before.clone()),
                _ => Data::Raw(Bytes::from(bytes)),
            });
        }
        if object.is_array() {
            return path.unfit("is an array: assign an object that contains it, or RawData(JSON.stringify(…))");
        }
        let origin = before.fields();
        Ok(match self.map(&object, origin, path)? {
            None => before.clone(),
            Some(map) => Data::Structured(map),
        })
    }
}

/// Returns the Rust value of a view.
fn whole(target: &JsObject) -> view::Whole {
    target.downcast_ref::<View>().map_or_else(|| view::Whole::Metadata(Metadata::new()), |view| view.whole().clone())
}

fn text_of(text: &JsString, path: Path<'_>) -> Result<String> {
    match utf8(text.as_str()) {
        Some(text) => Ok(text.into_owned()),
        None => path.unfit("contains half a character (an unpaired surrogate)"),
    }
}
