//! Any request has records or is refused: never a panic, and never more records than its body has bytes.

use anabranch_ops_http::listen::decode_request;
use anabranch_record::json::{parse_value, write_data};

pub(crate) fn check(input: &[u8]) {
    let decoded = decode_request(input);
    assert!(!decoded.is_signed, "a signature that nobody made is accepted");
    for records in decoded.records {
        assert!(records.len() <= input.len() + 1, "a record takes a byte at least");
        for record in records {
            let mut text = Vec::new();
            write_data(&record, &mut text).expect("records from JSON have a text in JSON");
            parse_value(&text).expect("this text is read again");
        }
    }
}
