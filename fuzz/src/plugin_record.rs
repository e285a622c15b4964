//! What a plugin gives as a record is refused, or written and read back the same.

use anabranch_ops_opencdc::{decode_record, encode_record, keep_types};
use bytes::Bytes;

pub(crate) fn check(input: &[u8]) {
    let Ok(record) = decode_record(&Bytes::copy_from_slice(input)) else { return };
    let mut written = Vec::new();
    encode_record(&record, &mut written);
    let mut again = decode_record(&Bytes::copy_from_slice(&written)).expect("what was written can be read");
    keep_types(&record, &mut again);
    // Not the records: a number that is none is not equal to itself.
    let mut twice = Vec::new();
    encode_record(&again, &mut twice);
    assert_eq!(written, twice);
}
