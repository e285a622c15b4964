use std::time::Duration;

use anabranch_plugin::operator::Decision;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};

use super::orders::*;
use super::*;
use crate::codes;
use crate::outcome::ScriptOutcome;
use crate::testing::record;

const SAMPLE: &str = r#"{"position":"cA==","operation":"update","metadata":{"a":"1","b":""},"key":"a2V5","payload":{"before":null,"after":{"big":18446744073709551615,"float":-0.5,"list":[1,-2,[],{"x":null}],"no":false,"text":"é","yes":true}}}"#;

fn read(message: Vec<u8>, wants: &Wants) -> Result<Record, Malformed> {
    Reader::new(message.into(), &mut NameCache::default()).record(wants, None)
}

fn fields(names: &[&str]) -> Want {
    Want::fields(names.iter().copied())
}

#[test]
fn a_record_is_read_as_it_was_written_and_cut_short_it_is_refused() {
    let mut record = record(SAMPLE);
    let time = chrono::DateTime::from_timestamp(-5, 123_456_789).unwrap();
    record.payload.before = Data::from(Object::from_entries(vec![
        ("t".into(), Value::Time(time)),
        ("b".into(), Value::Bytes([1u8, 0].into())),
    ]));
    let mut part = record.clone().with_position(Default::default());
    part.metadata.remove("a");
    (part.key, part.payload.before) = Default::default();
    let known = |object: &Object| object.iter().filter(|(name, _)| ["float", "list"].contains(&name.as_str())).count();
    part.payload.after = record
        .payload
        .after
        .fields()
        .map(|fields| fields.clone().into_iter())
        .into_iter()
        .flatten()
        .filter(|(name, _)| ["float", "list"].contains(&name.as_str()))
        .collect::<Object>()
        .into();
    assert_eq!(part.payload.after.fields().map(known), Some(2));
    let named =
        Wants { metadata: fields(&["b", "c"]), after: fields(&["0", "float", "list", "z"]), ..Wants::default() };
    for (wants, expected) in [(Wants::ALL, &record), (named, &part)] {
        let mut message = Vec::new();
        write_record(&mut message, &record, None, &wants).unwrap();
        assert_eq!(read(message.clone(), &wants).unwrap(), *expected);
        for length in 0..message.len() {
            assert!(read(message[..length].to_vec(), &wants).is_err(), "{length}");
        }
        for at in 0..message.len() {
            // Understood or refused.
            let mut broken = message.clone();
            broken[at] ^= 0xff;
            let _ = read(broken, &wants);
        }
    }
}

#[test]
fn metadata_that_records_share_travels_once() {
    let mut records = vec![record(SAMPLE); 3];
    records[2].metadata.insert("b", "other");
    let mut rows: Vec<&mut Record> = records.iter_mut().collect();
    let mut frame = Vec::new();
    write_order(&mut frame, false, &rows, &Wants { metadata: Want::Whole, ..Wants::default() }).unwrap();
    let of_all = "\x01a\x011\x01b".len() + 2;
    assert_eq!(frame.len(), 5 + 2 + (1 + of_all) + 1 + (1 + of_all + 5));
    // The result is shared, too.
    let mut made = Vec::new();
    write_number(&mut made, 3);
    for row in &rows {
        let mut changed = (**row).clone();
        changed.metadata.insert("js", "1");
        write_outcome(&mut made, &Ok(ScriptOutcome::Keep(changed)), row, &Wants::ALL);
    }
    let mut names = NameCache::default();
    let mut reader = Reader::new(made.into(), &mut names);
    let (count, mut remembered) = (reader.count().unwrap(), LastMetadata::default());
    for row in &mut rows[..count] {
        read_outcome(&mut reader, row, &Wants::ALL, &mut remembered).unwrap().unwrap();
        assert_eq!(row.metadata.get("js").map(Str::as_str), Some("1"));
    }
    assert!(reader.is_empty() && records[0].metadata.shares(&records[1].metadata));
    assert_eq!(records[2].metadata.get("b").unwrap(), "other");
}

#[test]
fn what_is_wanted_is_understood_or_refused() {
    let wants = Wants { position: true, key: Want::Whole, after: fields(&["b", "a", "b"]), ..Wants::default() };
    assert_eq!(wants.after, Want::Fields(vec!["a".into(), "b".into()]));
    for wants in [wants, Wants::ALL, Wants::default()] {
        let mut message = Vec::new();
        wants.write(&mut message);
        let read = |message: &[u8]| {
            Wants::read(&mut Reader::new(bytes::Bytes::copy_from_slice(message), &mut NameCache::default()))
        };
        assert_eq!(read(&message).unwrap(), wants);
        assert!((0..message.len()).all(|length| read(&message[..length]).is_err()));
    }
}

#[test]
fn what_a_script_left_alone_does_not_travel_back() {
    let of = record(SAMPLE);
    let answer = |made: &Record| {
        let mut out = Vec::new();
        write_outcome(&mut out, &Ok(ScriptOutcome::Keep(made.clone())), &of, &Wants::ALL);
        let mut back = of.clone();
        let mut names = NameCache::default();
        for length in 0..out.len() {
            let mut reader = Reader::new(out[..length].to_vec().into(), &mut names);
            assert!(read_outcome(&mut reader, &mut back, &Wants::ALL, &mut LastMetadata::default()).is_err());
            assert_eq!(back, of, "what is broken changes nothing");
        }
        let mut reader = Reader::new(out.clone().into(), &mut names);
        let decision = read_outcome(&mut reader, &mut back, &Wants::ALL, &mut LastMetadata::default()).unwrap();
        assert!(matches!(decision, Ok(Decision::Keep)), "{out:?}");
        assert!(reader.is_empty());
        assert_eq!(format!("{back:?}"), format!("{made:?}"));
        out.len()
    };
    assert_eq!(answer(&of), 2);
    let mut made = of.clone();
    made.metadata.insert("c", "3");
    assert_eq!(answer(&made), 2 + 1 + 2 + 2 + 1 + 2 + 2);
    made = of.clone();
    made.payload.after.fields_mut().unwrap().insert("more", Value::Bool(true));
    made.payload.after.fields_mut().unwrap().remove("big");
    made.payload.after.fields_mut().unwrap().insert("text", "x".into());
    // Removed fields by number, new fields by name, changed fields by number, and the end.
    assert_eq!(answer(&made), 2 + 1 + 2 + (1 + 5 + 1) + (2 + 3) + 1);
    let fields = (0..40).map(|n| (format!("f{n}"), Value::Int(n))).chain([("no".into(), Value::Bool(true))]);
    made.payload.after = Data::from(fields.collect::<Object>());
    answer(&made);
    made.payload = Default::default();
    made.key = Data::text("other");
    made.metadata = [("b", "2"), ("a", "1")].into_iter().collect();
    answer(&made);
}

#[test]
fn what_is_nested_too_deep_fails_its_row() {
    let of = record(SAMPLE);
    let mut made = of.clone();
    let deep = (0..=MOST_DEPTH).fold(Value::Null, |value, _| Value::from(vec![value]));
    made.key = Data::from(Object::from_entries(vec![("a".into(), deep)]));
    let order = |wants| write_order(&mut Vec::new(), false, &[&mut of.clone(), &mut made.clone()], wants);
    assert_eq!(order(&Wants::ALL), Err((1, TooDeep)));
    assert_eq!(order(&Wants { key: fields(&["b"]), ..Wants::default() }), Ok(()), "the script does not look there");
    let mut out = Vec::new();
    write_outcome(&mut out, &Ok(ScriptOutcome::Split(vec![of.clone(), made.clone()])), &of, &Wants::ALL);
    let (mut names, mut remembered) = (NameCache::default(), LastMetadata::default());
    let mut reader = Reader::new(out.into(), &mut names);
    let Ok(Err(fault)) = read_outcome(&mut reader, &mut of.clone(), &Wants::ALL, &mut remembered) else { panic!() };
    assert_eq!(fault.code().name(), "script_result");
}

#[test]
fn faults_keep_their_codes() {
    for code in [
        codes::SCRIPT_THREW,
        codes::SCRIPT_TIMEOUT,
        codes::SCRIPT_LIMIT,
        codes::OPERATOR_PANICKED,
        codes::SCRIPT_FAILED,
    ] {
        let mut out = Vec::new();
        write_fault(&mut out, &Fault::record(code, "why"));
        let fault = read_fault(&mut Reader::new(out.into(), &mut NameCache::default())).unwrap();
        assert_eq!((fault.code(), fault.message().as_str()), (code, "why"));
    }
}

#[test]
fn an_opening_and_a_frame_come_as_they_were_sent() {
    let opening = Opening {
        program: crate::program::Program { text: "x".into(), name: "script".into() },
        limits: crate::limits::Limits { time: Duration::from_millis(1500) },
        memory: 7,
        level: 2,
        held: Some(std::time::UNIX_EPOCH + Duration::new(1, 2)),
    };
    let (mut frame, mut sent) = (Vec::new(), Vec::new());
    opening.write(&mut frame);
    send(&mut frame, &mut sent).unwrap();
    let mut from = &sent[..];
    let (kind, content) = receive(&mut from).unwrap().unwrap();
    assert_eq!((kind, format!("{:?}", Opening::read(content).unwrap())), (FrameKind::Open, format!("{opening:?}")));
    assert!(receive(&mut from).unwrap().is_none());
    assert!(receive(&mut &sent[..7]).is_err() && receive(&mut &[1, 0, 0, 0, 99][..]).is_err());
}
