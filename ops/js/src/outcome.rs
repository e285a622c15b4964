//! What a script makes of a record.

use anabranch_record::Record;

/// Outcome of a record.
#[derive(Debug)]
pub(crate) enum ScriptOutcome {
    Keep(Record),
    Split(Vec<Record>),
    Filter,
}
