//! Any record that can be read can be written and read back without a change.

use anabranch_record::Record;
use anabranch_record::json::write_record;

pub(crate) fn check(text: &[u8]) {
    let Ok(record) = Record::from_json(text) else { return };
    let mut written = Vec::new();
    write_record(&record, &mut written).expect("what JSON holds can be written as JSON");
    assert_eq!(Record::from_json(&written).expect("what was written can be read"), record);
}
