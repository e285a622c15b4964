use std::collections::BTreeMap;

use super::command::host_side;
use super::read::{Malformed, Reader};
use super::*;
use crate::error::Error;
use crate::metadata;
use crate::processor::Output;
use crate::record::{Change, Data, Operation, Record};
use crate::tests::arbitrary::Random;
use crate::value::{Map, Value};

fn record() -> Record {
    let nested: Map = [("list".to_owned(), Value::List(vec![Value::Null, 1.5.into(), "x".into()]))].into();
    let after: Map = [
        ("bool".to_owned(), true.into()),
        ("map".to_owned(), nested.into()),
        ("text".to_owned(), "a".repeat(300).into()),
        ("none".to_owned(), Value::Null),
        ("zero".to_owned(), 0.0.into()),
    ]
    .into();
    Record {
        position: b"p1".to_vec(),
        operation: Operation::Snapshot,
        metadata: [
            (metadata::COLLECTION.to_owned(), "users".to_owned()),
            ("own".to_owned(), String::new()),
            (metadata::SOURCE_CONNECTOR_ID.to_owned(), "p:c".to_owned()),
        ]
        .into(),
        key: Data::Raw(Vec::new()),
        payload: Change { before: Data::Absent, after: Data::Structured(after) },
    }
}

fn sent(record: &Record) -> Record {
    match Command::read(&Command::Process(vec![record.clone()]).write(), Vec::new()).unwrap() {
        Command::Process(mut records) => records.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_record_survives_the_way_there_and_back() {
    let mut expected = record();
    assert_eq!(sent(&expected), expected);
    expected.payload.after = vec![7; 70_000].into();
    assert_eq!(sent(&expected), expected);
}

#[test]
fn nothing_shows_of_the_records_in_whose_memory_others_are_read() {
    let mut random = Random(1);
    for _ in 0..500 {
        let (spare, records) = (random.records(), random.records());
        let bytes = Command::Process(records.clone()).write();
        assert_eq!(Command::read(&bytes, spare), Ok(Command::Process(records)));
    }
}

#[test]
fn bytes_that_are_no_command_are_refused_with_records_to_spare_too() {
    let mut random = Random(2);
    for _ in 0..200 {
        let (spare, mut bytes) = (random.records(), Command::Process(random.records()).write());
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        assert_eq!(Command::read(&bytes, spare), Command::read(&bytes, Vec::new()), "byte {at}");
    }
}

#[test]
fn numbers_and_bytes_travel_as_json_has_them() {
    let sent = sent(&Record::create([("n", Value::Int(3)), ("b", Value::Bytes(b"foo".to_vec()))]));
    assert_eq!(sent, Record::create([("n", Value::Float(3.0)), ("b", "Zm9v".into())]));
}

#[test]
fn metadata_have_other_prefixes_on_the_wire() {
    let bytes = Command::Process(vec![record()]).write();
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("opencdc.collection") && holds("conduit.source.connector.id") && !holds("recfmt.") && !holds("svc."));
}

#[test]
fn of_two_keys_with_one_meaning_ours_wins() {
    let metadata = [("opencdc.x", "theirs"), ("recfmt.x", "ours"), ("conduit.y", "theirs")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let both = Record { metadata: metadata.into(), ..Record::default() };
    let expected = [("recfmt.x", "ours"), ("svc.y", "theirs")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(sent(&both).metadata, BTreeMap::from(expected));
}

#[test]
fn ours_wins_in_whichever_order_both_come() {
    // An entry: key and value, each shorter than 128 bytes.
    let entry = |key: &str, value: &str| {
        let mut content = vec![0x0A, key.len() as u8];
        content.extend_from_slice(key.as_bytes());
        content.extend([0x12, value.len() as u8]);
        content.extend_from_slice(value.as_bytes());
        [vec![0x1A, content.len() as u8], content].concat()
    };
    let (theirs, ours) = (entry("opencdc.x", "theirs"), entry("recfmt.x", "ours"));
    for bytes in [[theirs.clone(), ours.clone()].concat(), [ours, theirs].concat()] {
        let mut read = Record::default();
        read.read(super::read::Reader(&bytes)).unwrap();
        assert_eq!(read.metadata, BTreeMap::from([("recfmt.x".to_owned(), "ours".to_owned())]));
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
    Response::Process(outputs.clone()).write(&mut bytes);
    assert_eq!(host_side::outputs(host_side::response(&bytes).unwrap().1), Ok(outputs));
}

#[test]
fn bytes_that_are_no_command_are_refused_wherever_they_are_cut() {
    let whole = Command::Process(vec![record()]).write();
    for end in 1..whole.len() {
        assert!(Command::read(&whole[..end], Vec::new()).is_err(), "cut at {end}");
    }
    // Any byte may be wrong: what is read is not what was written, or an error, but no panic.
    for i in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[i] ^= 1 << bit;
            let _ = Command::read(&bytes, Vec::new());
        }
    }
}

#[test]
fn malformed_fields_are_named() {
    let first = |bytes: &[u8]| Reader(bytes).next().map(|_| ());
    assert_eq!(first(&[0x0A, 0x05, 1]), Err(Malformed::Truncated));
    assert_eq!(first(&[0x0B]), Err(Malformed::Type));
    assert_eq!(first(&[0x02, 0x00]), Err(Malformed::Tag));
    assert_eq!(first(&[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2]), Err(Malformed::Varint));
}

#[test]
fn data_that_are_nested_too_deep_are_refused_not_a_fallen_stack() {
    // Lists in lists, from the inside out; then the entry, the fields, the data, the payload, the record, the batch.
    let tags = std::iter::repeat_n([0x0A, 0x32], 5_000).flatten().chain([0x12, 0x0A, 0x12, 0x12, 0x2A, 0x0A, 0x22]);
    let mut bytes = vec![0x08, 0x00];
    for tag in tags {
        let mut length = bytes.len();
        let mut outer = vec![tag];
        while length >= 0x80 {
            outer.push(length as u8 | 0x80);
            length >>= 7;
        }
        outer.push(length as u8);
        outer.append(&mut bytes);
        bytes = outer;
    }
    assert_eq!(Command::read(&bytes, Vec::new()), Err(Malformed::Depth));
}

#[test]
fn an_unknown_command_is_told_from_a_malformed_one() {
    assert_eq!(Command::read(&[0x9A, 0x06, 0], Vec::new()), Ok(Command::Unknown));
    assert_eq!(Command::read(&[], Vec::new()), Ok(Command::Unknown));
}

/// What real hosts and guests said to each other: the records of the requests are those of the responses.
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
        let bytes = |key: &str| unbase64(step[key].as_str().unwrap());
        let command = Command::read(&bytes("req"), Vec::new()).unwrap();
        assert_ne!(command, Command::Unknown);
        let Command::Process(sent) = command else { continue };
        let outputs = host_side::outputs(host_side::response(&bytes("resp")).unwrap().1).unwrap();
        assert_eq!(sent.len(), outputs.len());
        // The guest gives each record back, with a change or twice.
        for (sent, output) in sent.iter().zip(outputs) {
            for got in output.unwrap().into_records() {
                assert_eq!((&got.position, &got.key), (&sent.position, &sent.key));
                assert_eq!(got.metadata, sent.metadata);
                records += usize::from(got.metadata.contains_key(metadata::READ_AT));
            }
        }
        assert_eq!(Command::read(&Command::Process(sent.clone()).write(), Vec::new()), Ok(Command::Process(sent)));
    }
    assert!(records > 0);
}

fn unbase64(text: &str) -> Vec<u8> {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().fold(0u32, |bits, &c| bits << 6 | ALPHABET.find(c as char).unwrap() as u32);
        let bits = bits << (6 * (4 - group.len()));
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}
