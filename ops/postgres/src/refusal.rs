//! Records that cannot be rows, whatever tables there are.

use anabranch_graph::fault::Fault;
use anabranch_graph::record::{Operation, Record};
use anabranch_graph::text::Str;
use anabranch_graph::value::{Object, Value};

use crate::create::Fields;
use crate::destination::Settings;
use crate::name::TableName;
use crate::table::{key_differs, key_has_nulls};
use crate::writer::parts;

/// Why a record is refused without a look at the database. O(fields).
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

/// A column to which key and payload give different whole numbers. Whether other values are the same in the type of the
/// column, only the database tells.
fn differing<'k>(key: &'k Object, payload: &Object) -> Option<&'k Str> {
    let differs = |(field, of_key): &(&Str, &Value)| match (of_key, payload.get(field)) {
        (Value::Int(one), Some(Value::Int(other))) => one != other,
        _ => false,
    };
    key.iter().find(differs).map(|(field, _)| field)
}
