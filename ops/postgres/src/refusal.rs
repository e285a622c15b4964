//! Records that cannot become rows, whatever the tables are.

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Operation, Record};

use crate::column::ColumnEncoding;
use crate::create::NewColumns;
use crate::encode::encode;
use crate::name::TableName;
use crate::row::{Row, row_of};
use crate::settings::Settings;
use crate::table::{key_differs, key_has_nulls};

/// Returns why a record is rejected, without a query. O(fields).
pub(crate) fn refusal(settings: &Settings, record: &Record) -> Option<Fault> {
    refuse(settings, record).err()
}

fn refuse(settings: &Settings, record: &Record) -> Result<(), Fault> {
    let mut rendered = String::new();
    let name = settings.table.of(record, &mut rendered)?;
    let table = TableName::parse(name).map_err(|why| why.fault(name))?;
    let Row { key, payload, .. } = row_of(record)?;
    if settings.create_tables {
        NewColumns::check(&key, payload, &table)?;
    }
    if record.operation != Operation::Delete
        && let Some(field) = differing(&key, payload)
    {
        return Err(key_differs(field, &table));
    }
    key_has_nulls(&key, &table).map_or(Ok(()), Err)
}

/// The types of columns, as the writer encodes values for them; arrays of them are more.
const KINDS: [ColumnEncoding; 19] = [
    ColumnEncoding::Bool,
    ColumnEncoding::Int2,
    ColumnEncoding::Int4,
    ColumnEncoding::Int8,
    ColumnEncoding::Float4,
    ColumnEncoding::Float8,
    ColumnEncoding::Numeric,
    ColumnEncoding::Text,
    ColumnEncoding::Bytea,
    ColumnEncoding::Uuid,
    ColumnEncoding::Json,
    ColumnEncoding::Jsonb,
    ColumnEncoding::Date,
    ColumnEncoding::Timestamp,
    ColumnEncoding::TimestampTz,
    ColumnEncoding::Vector,
    ColumnEncoding::Hstore,
    ColumnEncoding::Parsed { array: None },
    ColumnEncoding::Parsed { array: Some(',') },
];

/// A column to which key and payload give values that no type of a column makes the same.
fn differing<'k>(key: &'k Object, payload: &Object) -> Option<&'k Str> {
    let differs = |(field, of_key): &(&Str, &Value)| match payload.get(field) {
        None | Some(Value::Null) => false,
        Some(of_payload) => of_payload != *of_key && !may_be_same(of_key, of_payload),
    };
    key.iter().find(differs).map(|(field, _)| field)
}

/// Returns `true` if there is a type of a column in which two values are the same, as the writer compares them.
fn may_be_same(one: &Value, other: &Value) -> bool {
    let is_same = |kind: &ColumnEncoding| {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        encode(kind, one, &mut first).is_ok() && encode(kind, other, &mut second).is_ok() && first == second
    };
    // The number of the type of the elements is the same on both sides.
    KINDS.iter().any(|kind| is_same(kind) || is_same(&ColumnEncoding::Array(Box::new(kind.clone()), 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Object {
        match anabranch_record::json::parse_value(json.as_bytes()) {
            Ok(Value::Map(object)) => (*object).clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_differ_that_no_type_makes_the_same() {
        for (key, payload, differs) in [
            (r#"{"id":"order-1"}"#, r#"{"id":1}"#, true),
            (r#"{"id":"101"}"#, r#"{"id":1}"#, true),
            (r#"{"id":1}"#, r#"{"id":"order-1"}"#, true),
            (r#"{"id":""}"#, r#"{"id":0}"#, true),
            (r#"{"id":2}"#, r#"{"id":1}"#, true),
            (r#"{"id":"1"}"#, r#"{"id":1}"#, false),
            (r#"{"id":" 01.0 "}"#, r#"{"id":1}"#, false),
            (r#"{"id":"1e0"}"#, r#"{"id":1}"#, false),
            (r#"{"id":1}"#, r#"{"id":true}"#, true),
            (r#"{"id":"a"}"#, r#"{"id":"b"}"#, true),
            (r#"{"id":"web"}"#, r#"{"id":"Web"}"#, true),
            (r#"{"id":"2026"}"#, r#"{"id":"2026-11"}"#, true),
            (
                r#"{"id":"0c9d2b2e-3a55-4cd1-9a4d-0d6a9a3d6a01"}"#,
                r#"{"id":"1c9d2b2e-3a55-4cd1-9a4d-0d6a9a3d6a01"}"#,
                true,
            ),
            (
                r#"{"id":"0c9d2b2e-3a55-4cd1-9a4d-0d6a9a3d6a01"}"#,
                r#"{"id":"0C9D2B2E-3A55-4CD1-9A4D-0D6A9A3D6A01"}"#,
                false,
            ),
            (r#"{"id":"yes"}"#, r#"{"id":true}"#, false),
            (r#"{"id":"2026-01-02T03:04:05Z"}"#, r#"{"id":"2026-01-02T04:04:05+01:00"}"#, false),
            (r#"{"id":[1]}"#, r#"{"id":["1"]}"#, false),
            (r#"{"id":[1]}"#, r#"{"id":[2]}"#, true),
            (r#"{"id":"a"}"#, r#"{"id":null}"#, false),
            (r#"{"id":"a"}"#, r#"{"other":1}"#, false),
        ] {
            assert_eq!(differing(&object(key), &object(payload)).is_some(), differs, "{key} {payload}");
        }
    }
}
