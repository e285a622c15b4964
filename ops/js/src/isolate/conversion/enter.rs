//! Conversion of record values to JavaScript values.

use anabranch_record::Data;
use anabranch_record::value::Value;
use boa_engine::object::builtins::{AlignedVec, JsArray, JsArrayBuffer, JsUint8Array};
use boa_engine::{Context, JsBigInt, JsResult, JsString, JsValue};

use super::time;
use crate::isolate::view::{Whole, show};

/// Largest integer up to which JavaScript numbers represent every integer exactly.
pub(crate) const SAFE: u64 = (1 << 53) - 1;

/// Converts a key or one side of a payload.
pub(crate) fn data(data: &Data, context: &mut Context) -> JsResult<JsValue> {
    match data {
        Data::Absent => Ok(JsValue::null()),
        Data::Raw(raw) => bytes(raw, context),
        Data::Structured(map) => show(Whole::Map(map.clone()), context),
    }
}

/// Copies bytes, because scripts may write to them.
pub(crate) fn bytes(bytes: &[u8], context: &mut Context) -> JsResult<JsValue> {
    let buffer = JsArrayBuffer::from_byte_block(AlignedVec::from_slice(0, bytes), context)?;
    JsUint8Array::from_array_buffer(buffer, context).map(JsValue::from)
}

/// Converts a value. Maps in it are converted field by field on access, lists immediately.
pub(crate) fn value(value: &Value, context: &mut Context) -> JsResult<JsValue> {
    Ok(match value {
        Value::Null => JsValue::null(),
        Value::Bool(v) => (*v).into(),
        Value::Int(v) if v.unsigned_abs() <= SAFE => (*v).into(),
        Value::Int(v) => JsBigInt::from(*v).into(),
        Value::UInt(v) => JsBigInt::from(*v).into(),
        Value::Float(v) => JsValue::rational(*v),
        Value::Text(v) => JsString::from(v.as_str()).into(),
        Value::Bytes(v) => bytes(v, context)?,
        Value::Time(v) => time::enter(v, context)?,
        Value::List(items) => {
            let items: Vec<JsValue> = items.iter().map(|item| self::value(item, context)).collect::<JsResult<_>>()?;
            JsArray::from_iter(items, context).into()
        }
        Value::Map(map) => show(Whole::Map(map.clone()), context)?,
    })
}
