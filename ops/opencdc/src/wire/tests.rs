use anabranch_record::protobuf::{decode_record, encode_record};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;

use super::*;

/// Decodes the messages of real hosts and guests, encodes them, and decodes the result.
#[test]
fn transcripts_of_real_guests_survive() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance/wasm-transcripts");
    let Ok(files) = std::fs::read_dir(&folder) else {
        println!("skipped: {} is not there", folder.display());
        return;
    };
    let again = |bytes: &Bytes| {
        let record = decode_record(bytes).unwrap();
        let mut ours = Vec::new();
        encode_record(&record, &mut ours);
        assert_eq!(ours.len(), bytes.len(), "only the order of maps may differ");
        assert_eq!(decode_record(&ours.into()).unwrap(), record);
    };
    let mut records = 0;
    for file in files {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let steps: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        for step in steps {
            let bytes = |name: &str| Bytes::from(STANDARD.decode(step[name].as_str().unwrap()).unwrap());
            let request = CommandRequest::decode(bytes("req")).unwrap();
            assert_eq!(request.encode_to_vec().len(), bytes("req").len());
            if let Some(Request::Process(process)) = &request.request {
                records += process.records.len();
                process.records.iter().for_each(again);
            }
            let response = CommandResponse::decode(bytes("resp")).unwrap();
            assert_eq!(CommandResponse::decode(&*response.encode_to_vec()).unwrap(), response);
            if let Some(Response::Process(processed)) = &response.response {
                for processed in &processed.records {
                    match processed.outcome.as_ref().unwrap() {
                        RecordOutcome::Single(bytes) => again(bytes),
                        RecordOutcome::Multi(process) => process.records.iter().for_each(again),
                        RecordOutcome::Filter(_) | RecordOutcome::Error(_) => {}
                    }
                }
            }
        }
    }
    assert!(records > 8, "{records}");
}
