//! Arrow arrays of values, column by column.

use std::sync::Arc;

use anabranch_record::text::Str;
use anabranch_record::value::{Object, Timestamp, Value};
use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array,
    ListArray, MapArray, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, TimeUnit};

use crate::column::{ColumnFields, ColumnType, IntegerSpan, TimeResolution, decimal};

/// Precision of decimals that hold all signed and unsigned 64-bit integers.
const INTEGER_DIGITS: u8 = 20;

const SECONDS_PER_DAY: i64 = 86_400;

/// Returns the schema of a file with these fields.
pub(crate) fn schema(fields: &ColumnFields) -> Schema {
    Schema::new(arrow_fields(fields))
}

fn arrow_fields(fields: &ColumnFields) -> Fields {
    let field = |name: &Str, column: &ColumnType| Field::new(name.as_str(), data_type(column), true);
    fields.in_order().into_iter().map(|it| field(&it.name, &it.column)).collect()
}

/// Returns the type of a column. A column in which no value was seen is one of text, because many readers have no type for
/// it; so is one with maps that have no keys.
fn data_type(column: &ColumnType) -> DataType {
    match column {
        ColumnType::Unknown | ColumnType::Text => DataType::Utf8,
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Integer32 => DataType::Int32,
        ColumnType::Integer(IntegerSpan { negative: true, large: true, .. }) => DataType::Decimal128(INTEGER_DIGITS, 0),
        ColumnType::Integer(IntegerSpan { large: true, .. }) => DataType::UInt64,
        ColumnType::Integer(_) => DataType::Int64,
        ColumnType::Float32 => DataType::Float32,
        ColumnType::Float => DataType::Float64,
        ColumnType::Bytes => DataType::Binary,
        ColumnType::Date => DataType::Date32,
        ColumnType::Time(TimeResolution::Millis) => DataType::Timestamp(TimeUnit::Millisecond, Some(utc())),
        ColumnType::Time(TimeResolution::Micros { .. }) => DataType::Timestamp(TimeUnit::Microsecond, Some(utc())),
        ColumnType::Time(TimeResolution::Nanos) => DataType::Timestamp(TimeUnit::Nanosecond, Some(utc())),
        ColumnType::Decimal(precision, scale) => DataType::Decimal128(*precision, arrow_scale(*scale)),
        ColumnType::List(items) => DataType::List(item_field(items)),
        ColumnType::Map(values) => DataType::Map(entry_field(values), false),
        ColumnType::Fields(fields) if fields.is_empty() => DataType::Utf8,
        ColumnType::Fields(fields) => DataType::Struct(arrow_fields(fields)),
    }
}

fn utc() -> Arc<str> {
    Arc::from("UTC")
}

/// A scale is at most the precision, 38.
fn arrow_scale(scale: u8) -> i8 {
    i8::try_from(scale).unwrap_or(i8::MAX)
}

fn item_field(items: &ColumnType) -> Arc<Field> {
    // The name that the format demands.
    Arc::new(Field::new("element", data_type(items), true))
}

fn entry_fields(values: &ColumnType) -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", data_type(values), true)])
}

fn entry_field(values: &ColumnType) -> Arc<Field> {
    Arc::new(Field::new("key_value", DataType::Struct(entry_fields(values)), false))
}

/// Returns the columns of rows that the fields hold.
///
/// # Errors
/// The values of a column exceed 2 GiB.
pub(crate) fn batch(
    schema: &Arc<Schema>,
    fields: &ColumnFields,
    rows: &[Arc<Object>],
) -> Result<RecordBatch, ArrowError> {
    let column = |name: &Str, column: &ColumnType| {
        let values: Vec<Option<&Value>> = rows.iter().map(|row| row.get(name)).collect();
        array(column, &values)
    };
    let arrays = fields.in_order().into_iter().map(|field| column(&field.name, &field.column));
    RecordBatch::try_new(schema.clone(), arrays.collect::<Result<_, _>>()?)
}

/// Returns the column of these values. Missing values are null.
fn array(column: &ColumnType, values: &[Option<&Value>]) -> Result<ArrayRef, ArrowError> {
    Ok(match column {
        ColumnType::Unknown => Arc::new(StringArray::new_null(values.len())),
        ColumnType::Boolean => Arc::new(each(values, Value::as_bool).collect::<BooleanArray>()),
        ColumnType::Integer32 => {
            Arc::new(each(values, |value| i32::try_from(signed(value)?).ok()).collect::<Int32Array>())
        }
        ColumnType::Integer(IntegerSpan { negative: true, large: true, .. }) => {
            let wide = each(values, |value| match value {
                Value::UInt(number) => Some(i128::from(*number)),
                value => signed(value).map(i128::from),
            });
            Arc::new(wide.collect::<Decimal128Array>().with_precision_and_scale(INTEGER_DIGITS, 0)?)
        }
        ColumnType::Integer(IntegerSpan { large: true, .. }) => {
            Arc::new(each(values, unsigned).collect::<UInt64Array>())
        }
        ColumnType::Integer(_) => Arc::new(each(values, signed).collect::<Int64Array>()),
        ColumnType::Float32 => {
            Arc::new(each(values, |value| value.as_f64().map(|number| number as f32)).collect::<Float32Array>())
        }
        ColumnType::Float => Arc::new(each(values, Value::as_f64).collect::<Float64Array>()),
        ColumnType::Text => texts(values)?,
        ColumnType::Bytes => bytes(values)?,
        ColumnType::Date => {
            let days = each(values, |value| i32::try_from(time(value)?.timestamp().div_euclid(SECONDS_PER_DAY)).ok());
            Arc::new(days.collect::<Date32Array>())
        }
        ColumnType::Time(TimeResolution::Millis) => {
            let times = each(values, |value| Some(time(value)?.timestamp_millis()));
            Arc::new(times.collect::<TimestampMillisecondArray>().with_timezone(utc()))
        }
        ColumnType::Time(TimeResolution::Micros { .. }) => {
            let times = each(values, |value| Some(time(value)?.timestamp_micros()));
            Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone(utc()))
        }
        ColumnType::Time(TimeResolution::Nanos) => {
            let times = each(values, |value| time(value)?.timestamp_nanos_opt());
            Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone(utc()))
        }
        ColumnType::Decimal(precision, scale) => {
            let numbers = each(values, |value| decimal(value.as_str()?, *precision, *scale));
            let numbers = numbers.collect::<Decimal128Array>();
            Arc::new(numbers.with_precision_and_scale(*precision, arrow_scale(*scale))?)
        }
        ColumnType::List(items) => {
            let lists: Vec<Option<&[Value]>> = each(values, Value::as_list).collect();
            let of_items: Vec<Option<&Value>> = lists.iter().flatten().copied().flatten().map(Some).collect();
            let lengths = lists.iter().map(|list| list.map_or(0, <[Value]>::len));
            let offsets = offsets(lengths, of_items.len())?;
            Arc::new(ListArray::try_new(item_field(items), offsets, array(items, &of_items)?, nulls(&lists))?)
        }
        ColumnType::Map(of) => {
            let maps: Vec<Option<&Object>> = each(values, Value::as_map).collect();
            let entries = maps.iter().flatten().flat_map(|map| map.iter());
            let (keys, of_entries): (Vec<&str>, Vec<Option<&Value>>) =
                entries.map(|(key, value)| (key.as_str(), Some(value))).unzip();
            let offsets = offsets(maps.iter().map(|map| map.map_or(0, Object::len)), keys.len())?;
            let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from_iter_values(keys)), array(of, &of_entries)?];
            let entries = StructArray::try_new(entry_fields(of), columns, None)?;
            Arc::new(MapArray::try_new(entry_field(of), offsets, entries, nulls(&maps), false)?)
        }
        ColumnType::Fields(fields) if fields.is_empty() => Arc::new(StringArray::new_null(values.len())),
        ColumnType::Fields(fields) => {
            let maps: Vec<Option<&Object>> = each(values, Value::as_map).collect();
            let column = |name: &Str, column: &ColumnType| {
                let values: Vec<Option<&Value>> = maps.iter().map(|map| map.and_then(|map| map.get(name))).collect();
                array(column, &values)
            };
            let columns = fields.in_order().into_iter().map(|field| column(&field.name, &field.column));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            Arc::new(StructArray::try_new(arrow_fields(fields), columns, nulls(&maps))?)
        }
    })
}

fn each<'a, T>(
    values: &'a [Option<&'a Value>],
    of: impl Fn(&'a Value) -> Option<T> + 'a,
) -> impl Iterator<Item = Option<T>> + 'a {
    values.iter().map(move |value| value.and_then(&of))
}

fn signed(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

fn unsigned(value: &Value) -> Option<u64> {
    match value {
        Value::UInt(number) => Some(*number),
        value => u64::try_from(signed(value)?).ok(),
    }
}

fn time(value: &Value) -> Option<&Timestamp> {
    match value {
        Value::Time(time) => Some(time),
        _ => None,
    }
}

/// Fails if the offsets of a column of texts or bytes would be above the largest.
fn check_size(lengths: impl Iterator<Item = usize>) -> Result<usize, ArrowError> {
    let size = lengths.sum();
    match i32::try_from(size) {
        Ok(_) => Ok(size),
        Err(_) => Err(ArrowError::OffsetOverflowError(size)),
    }
}

fn texts(values: &[Option<&Value>]) -> Result<ArrayRef, ArrowError> {
    let size = check_size(each(values, Value::as_str).flatten().map(str::len))?;
    let mut builder = StringBuilder::with_capacity(values.len(), size);
    each(values, Value::as_str).for_each(|text| builder.append_option(text));
    Ok(Arc::new(builder.finish()))
}

fn as_bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn bytes(values: &[Option<&Value>]) -> Result<ArrayRef, ArrowError> {
    let size = check_size(each(values, as_bytes).flatten().map(<[u8]>::len))?;
    let mut builder = BinaryBuilder::with_capacity(values.len(), size);
    each(values, as_bytes).for_each(|bytes| builder.append_option(bytes));
    Ok(Arc::new(builder.finish()))
}

fn offsets(lengths: impl Iterator<Item = usize>, total: usize) -> Result<OffsetBuffer<i32>, ArrowError> {
    check_size(std::iter::once(total))?;
    Ok(OffsetBuffer::from_lengths(lengths))
}

fn nulls<T>(values: &[Option<T>]) -> Option<NullBuffer> {
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    (nulls.null_count() > 0).then_some(nulls)
}
