//! Records that cannot be rows, whatever tables there are.

use anabranch_graph::fault::Fault;
use anabranch_graph::record::Record;

use crate::create::Fields;
use crate::destination::Settings;
use crate::name::TableName;
use crate::table::key_has_nulls;
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
    key_has_nulls(&key, &table).map_or(Ok(()), Err)
}
