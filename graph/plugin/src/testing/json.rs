//! Records as JSON text, for tests.

use anabranch_record::Record;
use anabranch_record::json::write_record;

/// Parses a record from JSON text.
///
/// # Panics
/// The text is not a record.
pub fn record(json: &str) -> Record {
    Record::from_json(json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// Returns the JSON text of a record.
///
/// # Panics
/// JSON cannot represent the record.
pub fn text(record: &Record) -> String {
    let mut out = Vec::new();
    write_record(record, &mut out).unwrap_or_else(|fault| panic!("{}", fault.message()));
    String::from_utf8_lossy(&out).into_owned()
}
