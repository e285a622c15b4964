use std::time::Duration;

use anabranch_graph::fault::Fault;
use anabranch_graph::record::{Data, Record};
use anabranch_graph::value::{Object, Value};

use super::orders::*;
use super::*;
use crate::isolate::Outcome;
use crate::testing::record;

const SAMPLE: &str = r#"{"position":"cA==","operation":"update","metadata":{"a":"1","b":""},"key":"a2V5","payload":{"before":null,"after":{"big":18446744073709551615,"float":-0.5,"list":[1,-2,[],{"x":null}],"no":false,"text":"é","yes":true}}}"#;

fn read(message: Vec<u8>) -> Result<Record, Malformed> {
    Reader::new(message.into(), &mut Names::default()).record()
}

#[test]
fn a_record_is_read_as_it_was_written_and_cut_short_it_is_refused() {
    let mut record = record(SAMPLE);
    let time = chrono::DateTime::from_timestamp(-5, 123_456_789).unwrap();
    record.payload.before = Data::from(Object::from_entries(vec![
        ("t".into(), Value::Time(time)),
        ("b".into(), Value::Bytes([1u8, 0].into())),
    ]));
    let mut message = Vec::new();
    write_record(&mut message, &record).unwrap();
    assert_eq!(read(message.clone()).unwrap(), record);
    for length in 0..message.len() {
        assert!(read(message[..length].to_vec()).is_err(), "{length}");
    }
    for at in 0..message.len() {
        // Understood or refused.
        let mut broken = message.clone();
        broken[at] ^= 0xff;
        let _ = read(broken);
    }
}

#[test]
fn what_a_script_left_alone_does_not_travel_back() {
    let of = record(SAMPLE);
    let answer = |made: &Record| {
        let mut out = Vec::new();
        write_outcome(&mut out, &Ok(Outcome::Keep(made.clone())), &of);
        let mut names = Names::default();
        let mut reader = Reader::new(out.clone().into(), &mut names);
        let Ok(Ok(Outcome::Keep(back))) = read_outcome(&mut reader, &of) else { panic!("{out:?}") };
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
    assert_eq!(answer(&made), 2 + 2 + 4 * 2 + 2 + 3 + 1 + 5 + 1);
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
    assert_eq!(write_order(&mut Vec::new(), false, &[&of, &made]), Err((1, TooDeep)));
    let mut out = Vec::new();
    write_outcome(&mut out, &Ok(Outcome::Split(vec![of.clone(), made])), &of);
    let Ok(Err(fault)) = read_outcome(&mut Reader::new(out.into(), &mut Names::default()), &of) else { panic!() };
    assert_eq!(fault.code(), "script_result");
}

#[test]
fn faults_keep_their_codes() {
    for code in ["script_threw", "script_timeout", "script_limit", "operator_panicked", "script_failed"] {
        let mut out = Vec::new();
        write_fault(&mut out, &Fault::record(code, "why"));
        let fault = read_fault(&mut Reader::new(out.into(), &mut Names::default())).unwrap();
        assert_eq!((fault.code(), fault.message().as_str()), (code, "why"));
    }
}

#[test]
fn an_opening_and_a_frame_come_as_they_were_sent() {
    let opening = Opening {
        program: crate::program::Program { text: "x".into(), name: "script".into() },
        limits: crate::isolate::Limits { time: Duration::from_millis(1500) },
        memory: 7,
        level: 2,
        held: Some(std::time::UNIX_EPOCH + Duration::new(1, 2)),
    };
    let (mut frame, mut sent) = (Vec::new(), Vec::new());
    opening.write(&mut frame);
    send(&mut frame, &mut sent).unwrap();
    let mut from = &sent[..];
    let (kind, content) = receive(&mut from).unwrap().unwrap();
    assert_eq!((kind, format!("{:?}", Opening::read(content).unwrap())), (Kind::Open, format!("{opening:?}")));
    assert!(receive(&mut from).unwrap().is_none());
    assert!(receive(&mut &sent[..7]).is_err() && receive(&mut &[1, 0, 0, 0, 99][..]).is_err());
}
