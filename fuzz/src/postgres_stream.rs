//! Any bytes of a server are messages of a stream of changes, or an error: never a panic.

pub(crate) fn check(input: &[u8]) {
    let records = anabranch_ops_postgres::decode_stream(input);
    assert!(records <= input.len(), "a record takes a byte at least");
}
