//! Values of Arrow arrays, column by column.

use std::sync::Arc;

use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::{DataType, Fields, TimeUnit};
use chrono::DateTime;

use crate::column::decimal_text;
use crate::table_reader::TableError;

const MILLIS_PER_DAY: i64 = 86_400_000;

/// Returns the rows of a batch.
///
/// # Errors
/// A column has a type that no value represents, or a time that is out of range.
pub(crate) fn rows(batch: &RecordBatch) -> Result<Vec<Object>, TableError> {
    objects(batch.schema_ref().fields(), batch.columns(), batch.num_rows())
}

/// Returns one map for each row of the columns.
fn objects(fields: &Fields, columns: &[Arc<dyn Array>], rows: usize) -> Result<Vec<Object>, TableError> {
    let mut named: Vec<(Str, Vec<Value>)> = Vec::with_capacity(columns.len());
    for (field, column) in fields.iter().zip(columns) {
        let values = values(column.as_ref()).map_err(|error| error.within(field.name()))?;
        named.push((Str::from(field.name().as_str()), values));
    }
    // Sorted once, and not for each row.
    named.sort_by(|one, other| one.0.cmp(&other.0));
    let mut columns: Vec<(Str, std::vec::IntoIter<Value>)> =
        named.into_iter().map(|(name, values)| (name, values.into_iter())).collect();
    let mut objects = Vec::with_capacity(rows);
    for _ in 0..rows {
        let entries = columns.iter_mut().map(|(name, values)| (name.clone(), values.next().unwrap_or_default()));
        objects.push(Object::from_entries(entries.collect()));
    }
    Ok(objects)
}

fn values(array: &dyn Array) -> Result<Vec<Value>, TableError> {
    Ok(match array.data_type() {
        DataType::Null => vec![Value::Null; array.len()],
        DataType::Boolean => {
            let array = array.as_boolean();
            valid(array, |row| Value::Bool(array.value(row)))
        }
        DataType::Int8 => numbers::<Int8Type>(array, |number| Value::Int(number.into())),
        DataType::Int16 => numbers::<Int16Type>(array, |number| Value::Int(number.into())),
        DataType::Int32 => numbers::<Int32Type>(array, |number| Value::Int(number.into())),
        DataType::Int64 => numbers::<Int64Type>(array, Value::Int),
        DataType::UInt8 => numbers::<UInt8Type>(array, |number| Value::Int(number.into())),
        DataType::UInt16 => numbers::<UInt16Type>(array, |number| Value::Int(number.into())),
        DataType::UInt32 => numbers::<UInt32Type>(array, |number| Value::Int(number.into())),
        DataType::UInt64 => numbers::<UInt64Type>(array, Value::from),
        DataType::Float16 => numbers::<Float16Type>(array, |number| Value::Float(number.into())),
        DataType::Float32 => numbers::<Float32Type>(array, |number| Value::Float(number.into())),
        DataType::Float64 => numbers::<Float64Type>(array, Value::Float),
        DataType::Decimal32(_, scale) => {
            numbers::<Decimal32Type>(array, |number| Value::from(decimal_text(&number.to_string(), *scale)))
        }
        DataType::Decimal64(_, scale) => {
            numbers::<Decimal64Type>(array, |number| Value::from(decimal_text(&number.to_string(), *scale)))
        }
        DataType::Decimal128(_, scale) => {
            numbers::<Decimal128Type>(array, |number| Value::from(decimal_text(&number.to_string(), *scale)))
        }
        DataType::Decimal256(_, scale) => {
            numbers::<Decimal256Type>(array, |number| Value::from(decimal_text(&number.to_string(), *scale)))
        }
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            valid(array, |row| Value::from(array.value(row)))
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>();
            valid(array, |row| Value::from(array.value(row)))
        }
        DataType::Utf8View => {
            let array = array.as_string_view();
            valid(array, |row| Value::from(array.value(row)))
        }
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            valid(array, |row| Value::Bytes(array.value(row).into()))
        }
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>();
            valid(array, |row| Value::Bytes(array.value(row).into()))
        }
        DataType::BinaryView => {
            let array = array.as_binary_view();
            valid(array, |row| Value::Bytes(array.value(row).into()))
        }
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary();
            valid(array, |row| Value::Bytes(array.value(row).into()))
        }
        DataType::Date32 => times::<Date32Type>(array, |days| millis(i64::from(days).checked_mul(MILLIS_PER_DAY)?))?,
        DataType::Date64 => times::<Date64Type>(array, millis)?,
        DataType::Timestamp(TimeUnit::Second, _) => {
            times::<TimestampSecondType>(array, |seconds| millis(seconds.checked_mul(1000)?))?
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => times::<TimestampMillisecondType>(array, millis)?,
        DataType::Timestamp(TimeUnit::Microsecond, _) => times::<TimestampMicrosecondType>(array, |micros| {
            Some(Value::Time(DateTime::from_timestamp_micros(micros)?))
        })?,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            times::<TimestampNanosecondType>(array, |nanos| Some(Value::Time(DateTime::from_timestamp_nanos(nanos))))?
        }
        // As in Avro, a time of day and a duration are integers in their unit.
        DataType::Time32(TimeUnit::Second) => numbers::<Time32SecondType>(array, |number| Value::Int(number.into())),
        DataType::Time32(_) => numbers::<Time32MillisecondType>(array, |number| Value::Int(number.into())),
        DataType::Time64(TimeUnit::Nanosecond) => numbers::<Time64NanosecondType>(array, Value::Int),
        DataType::Time64(_) => numbers::<Time64MicrosecondType>(array, Value::Int),
        DataType::Duration(TimeUnit::Second) => numbers::<DurationSecondType>(array, Value::Int),
        DataType::Duration(TimeUnit::Millisecond) => numbers::<DurationMillisecondType>(array, Value::Int),
        DataType::Duration(TimeUnit::Microsecond) => numbers::<DurationMicrosecondType>(array, Value::Int),
        DataType::Duration(TimeUnit::Nanosecond) => numbers::<DurationNanosecondType>(array, Value::Int),
        DataType::List(_) => {
            let array = array.as_list::<i32>();
            let mut items = values(array.values())?;
            valid(array, |row| {
                let range = usize::try_from(array.value_offsets()[row]).unwrap_or(0);
                taken(&mut items, range, usize::try_from(array.value_length(row)).unwrap_or(0))
            })
        }
        DataType::LargeList(_) => {
            let array = array.as_list::<i64>();
            let mut items = values(array.values())?;
            valid(array, |row| {
                let range = usize::try_from(array.value_offsets()[row]).unwrap_or(0);
                taken(&mut items, range, usize::try_from(array.value_length(row)).unwrap_or(0))
            })
        }
        DataType::Struct(fields) => structs(array.as_struct(), fields)?,
        DataType::Map(..) => {
            let array = array.as_map();
            let mut keys = values(array.keys())?;
            let mut of = values(array.values())?;
            valid(array, |row| {
                let start = usize::try_from(array.value_offsets()[row]).unwrap_or(0);
                let end = usize::try_from(array.value_offsets()[row + 1]).unwrap_or(0);
                let entries = (start..end)
                    .map(|entry| (key_text(std::mem::take(&mut keys[entry])), std::mem::take(&mut of[entry])));
                Value::from(Object::from_entries(entries.collect()))
            })
        }
        other => return Err(TableError::unsupported(format!("no value represents the Arrow type {other}"))),
    })
}

/// Returns the values of the rows that have one, and null for the others.
fn valid(array: &dyn Array, mut value: impl FnMut(usize) -> Value) -> Vec<Value> {
    (0..array.len()).map(|row| if array.is_null(row) { Value::Null } else { value(row) }).collect()
}

fn numbers<T: ArrowPrimitiveType>(array: &dyn Array, value: impl Fn(T::Native) -> Value) -> Vec<Value> {
    array.as_primitive::<T>().iter().map(|number| number.map_or(Value::Null, &value)).collect()
}

fn times<T: ArrowPrimitiveType>(
    array: &dyn Array,
    value: impl Fn(T::Native) -> Option<Value>,
) -> Result<Vec<Value>, TableError> {
    let time = |number: Option<T::Native>| match number {
        None => Ok(Value::Null),
        Some(number) => value(number).ok_or_else(|| TableError::unsupported("a time is out of range".to_owned())),
    };
    array.as_primitive::<T>().iter().map(time).collect()
}

fn millis(millis: i64) -> Option<Value> {
    DateTime::from_timestamp_millis(millis).map(Value::Time)
}

fn taken(items: &mut [Value], start: usize, length: usize) -> Value {
    let items = items.get_mut(start..start + length).unwrap_or_default();
    Value::from(items.iter_mut().map(std::mem::take).collect::<Vec<Value>>())
}

fn structs(array: &StructArray, fields: &Fields) -> Result<Vec<Value>, TableError> {
    let objects = objects(fields, array.columns(), array.len())?;
    let value = |(row, object)| if array.is_null(row) { Value::Null } else { Value::from(object) };
    Ok(objects.into_iter().enumerate().map(value).collect())
}

/// Returns the key of a map as a text. Parquet allows any type for keys.
fn key_text(key: Value) -> Str {
    match key {
        Value::Text(text) => text,
        Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).as_ref().into(),
        Value::Time(time) => anabranch_record::value::timestamp_text(&time).into(),
        Value::Bool(value) => value.to_string().into(),
        Value::Int(number) => number.to_string().into(),
        Value::UInt(number) => number.to_string().into(),
        Value::Float(number) => number.to_string().into(),
        Value::Null => Str::from_static("null"),
        other @ (Value::List(_) | Value::Map(_)) => {
            let mut text = Vec::new();
            match anabranch_record::json::write_value(&other, &mut text) {
                Ok(()) => String::from_utf8_lossy(&text).as_ref().into(),
                Err(_) => Str::from_static(""),
            }
        }
    }
}
