//! Responses of a guest, and the records decoded from them.

use anabranch_ops_opencdc::specification::parameters;
use anabranch_ops_opencdc::wire::{CommandResponse, Outcome, Response};
use anabranch_record::protobuf::decode_record;
use bytes::Bytes;
use prost::Message as _;

pub(crate) fn check(input: &[u8]) {
    let Ok(response) = CommandResponse::decode(Bytes::copy_from_slice(input)) else { return };
    let again = CommandResponse::decode(response.encode_to_vec().as_slice()).expect("what was written can be read");
    assert_eq!(again, response);
    match response.response {
        Some(Response::Specify(given)) => {
            let parameters = parameters(&given.parameters);
            assert!(parameters.is_sorted_by(|a, b| a.name <= b.name));
        }
        Some(Response::Process(processed)) => {
            for result in processed.records {
                match result.outcome {
                    Some(Outcome::Single(record)) => drop(decode_record(&record)),
                    Some(Outcome::Multi(records)) => {
                        records.records.iter().for_each(|record| drop(decode_record(record)))
                    }
                    Some(Outcome::Filter(_) | Outcome::Error(_)) | None => {}
                }
            }
        }
        _ => {}
    }
}
