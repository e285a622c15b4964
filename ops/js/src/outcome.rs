//! The result of a script for one record.

use anabranch_record::Record;

/// Outcome of a record.
#[derive(Debug)]
pub(crate) enum ScriptOutcome {
    Keep(Record),
    Split(Vec<Record>),
    Filter,
}
