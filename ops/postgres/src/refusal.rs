//! Records that cannot become rows, whatever the tables are.

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Operation, Record};

use crate::create::Fields;
use crate::destination::Settings;
use crate::name::TableName;
use crate::table::{key_differs, key_has_nulls};
use crate::writer::parts;

/// Returns why a record is rejected, without a query. O(fields).
pub(crate) fn refusal(settings: &Settings, record: &Record) -> Option<Fault> {
    refuse(settings, record).err()
}

fn refuse(settings: &Settings, record: &Record) -> Result<(), Fault> {
    let mut rendered = String::new();
    let name = settings.table.of(record, &mut rendered)?;
    let table = TableName::parse(name).map_err(|why| why.fault(name))?;
    let (_, key, payload) = parts(record)?;
    if settings.create_tables {
        Fields::check(&key, payload, &table)?;
    }
    if record.operation != Operation::Delete
        && let Some(field) = differing(&key, payload)
    {
        return Err(key_differs(field, &table));
    }
    key_has_nulls(&key, &table).map_or(Ok(()), Err)
}

/// Returns a column whose values in key and payload differ under every column type: two different integers, or an
/// integer and a text with another number. For other values, only the database can compare them in the column's type.
fn differing<'k>(key: &'k Object, payload: &Object) -> Option<&'k Str> {
    let differs = |(field, of_key): &(&Str, &Value)| match (of_key, payload.get(field)) {
        (Value::Int(one), Some(Value::Int(other))) => one != other,
        (Value::Int(number), Some(Value::Text(text))) | (Value::Text(text), Some(Value::Int(number))) => {
            !may_say(text, *number)
        }
        _ => false,
    };
    key.iter().find(differs).map(|(field, _)| field)
}

/// Returns `true` if the text may denote this number under some type.
fn may_say(text: &str, number: i64) -> bool {
    text.trim().parse::<f64>().is_ok_and(|read| read == number as f64)
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
    fn a_text_that_does_not_say_the_number_differs_from_it() {
        for (key, payload, differs) in [
            (r#"{"id":"order-1"}"#, r#"{"id":1}"#, true),
            (r#"{"id":"101"}"#, r#"{"id":1}"#, true),
            (r#"{"id":1}"#, r#"{"id":"order-1"}"#, true),
            (r#"{"id":""}"#, r#"{"id":0}"#, true),
            (r#"{"id":2}"#, r#"{"id":1}"#, true),
            (r#"{"id":"1"}"#, r#"{"id":1}"#, false),
            (r#"{"id":" 01.0 "}"#, r#"{"id":1}"#, false),
            (r#"{"id":"1e0"}"#, r#"{"id":1}"#, false),
            (r#"{"id":1}"#, r#"{"id":true}"#, false),
            (r#"{"id":"a"}"#, r#"{"id":"b"}"#, false),
            (r#"{"id":"a"}"#, r#"{"other":1}"#, false),
        ] {
            assert_eq!(differing(&object(key), &object(payload)).is_some(), differs, "{key} {payload}");
        }
    }
}
