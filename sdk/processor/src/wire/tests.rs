use anabranch_record::metadata::key;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Position};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::*;
use crate::tests::arbitrary::Random;

fn record() -> Record {
    let fields = [("bool", Value::from(true)), ("text", "a".repeat(300).into()), ("none", Value::Null)];
    let mut record = Record::create(Position::copy_from(b"p1"), Data::from(""), Object::from_iter(fields).into());
    record.operation = Operation::Snapshot;
    record.set_collection("users");
    record.metadata.insert("own", "");
    record
}

fn read(bytes: &Bytes, spare: Vec<Record>) -> Result<Command, DecodeError> {
    Command::read(Reader::new(bytes), spare)
}

#[test]
fn nothing_shows_of_the_records_in_whose_memory_others_are_read() {
    let mut random = Random(1);
    for _ in 0..500 {
        let (spare, records) = (random.records(), random.records());
        let bytes = Command::Process(records.clone()).write();
        assert_eq!(read(&bytes, spare), Ok(Command::Process(records)));
    }
}

#[test]
fn bytes_that_are_no_command_are_refused_with_records_to_spare_too() {
    let mut random = Random(2);
    for _ in 0..200 {
        let (spare, mut bytes) = (random.records(), Command::Process(random.records()).write().to_vec());
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        let bytes = Bytes::from(bytes);
        // A number may have become NaN.
        assert_eq!(format!("{:?}", read(&bytes, spare)), format!("{:?}", read(&bytes, Vec::new())), "byte {at}");
    }
}

#[test]
fn every_kind_of_result_is_written_and_read() {
    let outputs = vec![
        Ok(Output::Single(record())),
        Ok(Output::Filtered),
        Err(Error::new("no")),
        Ok(Output::Many(vec![record(), Record::default()])),
        Ok(Output::Many(Vec::new())),
    ];
    let mut bytes = Vec::new();
    Response::Process(outputs.clone()).write(&mut bytes, 0);
    assert_eq!(host_side::outputs(host_side::response(&bytes.into()).unwrap().1), Ok(outputs));
}

#[test]
fn bytes_that_are_no_command_are_refused_wherever_they_are_cut() {
    let whole = Command::Process(vec![record()]).write();
    for end in 1..whole.len() {
        assert!(read(&whole.slice(..end), Vec::new()).is_err(), "cut at {end}");
    }
    // Any byte may be wrong: what is read is not what was written, or an error, but no panic.
    for i in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.to_vec();
            bytes[i] ^= 1 << bit;
            let _ = read(&bytes.into(), Vec::new());
        }
    }
}

#[test]
fn an_unknown_command_is_told_from_a_malformed_one() {
    assert_eq!(read(&Bytes::from_static(&[0x9A, 0x06, 0]), Vec::new()), Ok(Command::Unknown));
    assert_eq!(read(&Bytes::new(), Vec::new()), Ok(Command::Unknown));
}

/// Messages of real hosts and guests: the records of the requests are those of the responses.
#[test]
fn transcripts_of_other_guests_are_understood() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/conformance/wasm-transcripts");
    let Ok(text) = std::fs::read_to_string(format!("{directory}/test-rust.basic.json")) else {
        eprintln!("skipped: no transcripts");
        return;
    };
    let steps: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut records = 0;
    for step in steps.as_array().unwrap() {
        let bytes = |key: &str| Bytes::from(STANDARD.decode(step[key].as_str().unwrap()).unwrap());
        let command = read(&bytes("req"), Vec::new()).unwrap();
        assert_ne!(command, Command::Unknown);
        let Command::Process(sent) = command else { continue };
        let outputs = host_side::outputs(host_side::response(&bytes("resp")).unwrap().1).unwrap();
        assert_eq!(sent.len(), outputs.len());
        // The guest gives each record back, with a change or twice.
        for (sent, output) in sent.iter().zip(outputs) {
            for got in output.unwrap().into_records() {
                assert_eq!((got.position(), &got.key), (sent.position(), &sent.key));
                assert_eq!(got.metadata, sent.metadata);
                records += usize::from(got.metadata.contains_key(&key::READ_AT));
            }
        }
        assert_eq!(read(&Command::Process(sent.clone()).write(), Vec::new()), Ok(Command::Process(sent)));
    }
    assert!(records > 0);
}
