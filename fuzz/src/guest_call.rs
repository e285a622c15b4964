//! Calls of a guest to its host: schemas and HTTP requests.

use anabranch_ops_opencdc::{http, wire};
use prost::Message;

pub(crate) fn check(input: &[u8]) {
    same::<wire::CreateSchema>(input);
    same::<wire::GetSchema>(input);
    same::<http::Request>(input);
}

fn same<M: Message + Default + PartialEq>(input: &[u8]) {
    let Ok(message) = M::decode(input) else { return };
    assert!(M::decode(message.encode_to_vec().as_slice()).is_ok_and(|again| again == message));
}
