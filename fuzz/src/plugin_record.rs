//! A record from a plugin is refused, or can be written and read back without a change.

use anabranch_record::protobuf::{decode_record, encode_record, keep_types};
use bytes::Bytes;

pub(crate) fn check(input: &[u8]) {
    let Ok(record) = decode_record(&Bytes::copy_from_slice(input)) else { return };
    let mut written = Vec::new();
    encode_record(&record, &mut written);
    let mut again = decode_record(&Bytes::copy_from_slice(&written)).expect("what was written can be read");
    keep_types(&record, &mut again);
    // The bytes are compared, because NaN is not equal to itself.
    let mut twice = Vec::new();
    encode_record(&again, &mut twice);
    assert_eq!(written, twice);
}
