use bytes::Bytes;
use proptest::prelude::*;

use super::read::DEPTH;
use super::*;
use crate::record::{Data, Position, Record};
use crate::text::Str;
use crate::value::{Object, Timestamp, Value};

fn encoded(record: &Record) -> Bytes {
    let mut out = Vec::new();
    encode_record(record, &mut out);
    out.into()
}

#[test]
fn names_change_both_ways_and_ours_wins() {
    let mut record = Record::at(Position::copy_from(b"p"));
    for (key, value) in
        [("recfmt.readAt", "1"), ("svc.x", "2"), ("opencdc.readAt", "no"), ("opencdc.only", "3"), ("a", "b")]
    {
        record.metadata.insert(key, value);
    }
    let bytes = encoded(&record);
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("recfmt.") && !text.contains("svc.") && !text.contains("no"), "{text:?}");
    let back = decode_record(&bytes).unwrap();
    let expected = [("recfmt.readAt", "1"), ("svc.x", "2"), ("recfmt.only", "3"), ("a", "b")];
    assert_eq!(back.metadata, expected.into_iter().collect());
}

#[test]
fn empty_raw_data_is_not_absent() {
    let record = Record::create(Position::copy_from(b"p"), Data::Raw(Bytes::new()), Data::Absent);
    let bytes = encoded(&record);
    assert!(bytes.windows(4).any(|w| w == [0x22, 2, 0x0a, 0]));
    assert_eq!(decode_record(&bytes).unwrap(), record);
}

#[test]
fn what_a_plugin_leaves_alone_keeps_its_type() {
    let object: Object = [
        ("big", Value::Int(i64::MAX - 1)),
        ("huge", Value::UInt(u64::MAX)),
        ("whole", Value::Float(2.0)),
        ("bytes", Value::Bytes(b"\xff\x00"[..].into())),
        ("time", Value::Time(Timestamp::from_timestamp_nanos(1_234_567_890_123_456_789))),
        ("list", Value::from(vec![Value::Float(1.0), Value::Null])),
    ]
    .into_iter()
    .collect();
    let record = Record::create(Position::copy_from(b"p"), Data::Absent, object.into());
    let mut back = decode_record(&encoded(&record)).unwrap();
    assert_ne!(back, record);
    let mut changed = back.clone();
    keep_types(&record, &mut back);
    assert_eq!(back, record);

    changed.payload.after.fields_mut().unwrap().insert("whole", Value::Int(3));
    keep_types(&record, &mut changed);
    assert_eq!(changed.payload.after.fields().unwrap().get("whole"), Some(&Value::Int(3)));
    assert_eq!(changed.payload.after.fields().unwrap().get("big"), Some(&Value::Int(i64::MAX - 1)));
}

#[test]
fn nesting_has_an_end() {
    let mut value = Value::Null;
    for _ in 0..DEPTH + 5 {
        value = Value::from(vec![value]);
    }
    let record = Record::create(Position::default(), Data::Absent, Object::from_iter([("x", value)]).into());
    assert_eq!(decode_record(&encoded(&record)), Err(DecodeError::TooDeep));
}

/// A record that has a bit of everything, and one that a plugin made of it.
fn given_and_changed() -> impl Strategy<Value = (Record, Record)> {
    let number = prop_oneof![any::<i64>().prop_map(Value::Int), (-1e9..1e9_f64).prop_map(Value::Float)];
    let value = prop_oneof![number, "[a-c]{0,3}".prop_map(|text| Value::from(text.as_str())), Just(Value::Null)];
    let fields = proptest::collection::btree_map("[a-d]", value, 0..4);
    let fields = fields.prop_map(|fields| Data::from(fields.into_iter().collect::<Object>()));
    let raw = proptest::collection::vec(any::<u8>(), 0..4).prop_map(|bytes| Data::Raw(bytes.into()));
    let data = move || prop_oneof![Just(Data::Absent), raw.clone(), fields.clone()];
    let name = prop_oneof!["[a-c]", Just("recfmt.readAt".to_owned()), Just("opencdc.readAt".to_owned())];
    let metadata = proptest::collection::vec((name, "[a-c]{0,2}"), 0..4);
    let record = (data(), data(), data(), metadata).prop_map(|(key, before, after, metadata)| {
        let mut record = Record::create(Position::copy_from(b"p"), key, after);
        record.payload.before = before;
        for (key, value) in metadata {
            record.metadata.insert(Str::from(key), value);
        }
        record
    });
    (record.clone(), record, any::<[bool; 4]>()).prop_map(|(given, other, kept)| {
        let mut changed = other;
        let parts = [
            (kept[0], &mut changed.key, &given.key),
            (kept[1], &mut changed.payload.before, &given.payload.before),
            (kept[2], &mut changed.payload.after, &given.payload.after),
        ];
        parts.into_iter().filter(|(kept, ..)| *kept).for_each(|(_, to, from)| *to = from.clone());
        if kept[3] {
            changed.metadata = given.metadata.clone();
        }
        (given, changed)
    })
}

proptest! {
    /// Parts that came back byte for byte are taken from the record that was sent: nothing else follows from it.
    #[test]
    fn an_answer_is_read_as_if_nothing_were_known_of_what_was_sent((given, changed) in given_and_changed()) {
        let (sent, answer) = (encoded(&given), encoded(&changed));
        let mut plain = decode_record(&answer).unwrap();
        keep_types(&given, &mut plain);
        let read = decode_answer(&answer, &sent, &given).unwrap();
        prop_assert_eq!(read, plain);
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = decode_record(&bytes.into());
    }

    #[test]
    fn a_broken_record_never_panics(at in 0usize..64, byte: u8, cut in 0usize..64) {
        let fields: Object = [("a", Value::from(vec![Value::Int(1), Value::from("x")])), ("b", Value::Null)].into_iter().collect();
        let mut record = Record::create(Position::copy_from(b"p1"), Data::text("k"), fields.into());
        record.metadata.insert("recfmt.readAt", "1");
        let mut bytes = encoded(&record).to_vec();
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(length - cut % length);
        let _ = decode_record(&bytes.into());
    }

    #[test]
    fn raw_records_come_back(position: Vec<u8>, key: Vec<u8>, after in prop::collection::vec(any::<u8>(), 0..40_000), name: String) {
        let mut record = Record::create(Position::copy_from(&position), Data::Raw(key.into()), Data::Raw(after.into()));
        record.metadata.insert(format!("m.{name}"), name);
        prop_assert_eq!(decode_record(&encoded(&record)).unwrap(), record);
    }
}

proptest! {
    #[test]
    fn nothing_shows_of_the_record_in_whose_memory_another_is_read(
        old in crate::arbitrary::record_of(crate::arbitrary::value().boxed()),
        new in crate::arbitrary::record_of(crate::arbitrary::value().boxed()),
        keeps: bool,
        (at, bit) in (0usize..4096, 0u8..8),
    ) {
        let bytes = encoded(&new);
        let mut changed = bytes.to_vec();
        let length = changed.len();
        changed[at % length] ^= 1u8 << bit;
        let as_text = |read: Result<Record, DecodeError>| read.map(|record| format!("{record:?}"));
        for bytes in [bytes, changed.into()] {
            for old in [&old, &new, &decode_record(&encoded(&new)).unwrap()] {
                let mut place = decode_record(&encoded(old)).unwrap_or_default();
                let kept = keeps.then(|| place.clone());
                let before = format!("{kept:?}");
                let read = decode_into(&mut place, Reader::new(&bytes)).map(|()| place);
                prop_assert_eq!(as_text(read), as_text(decode_record(&bytes)));
                prop_assert_eq!(format!("{kept:?}"), before);
            }
        }
    }
}

#[test]
fn metadata_that_are_shared_do_not_stay() {
    let mut given = Record::default();
    given.metadata.insert("a", "b");
    let copy = given.clone();
    decode_into(&mut given, Reader::new(&encoded(&Record::default()))).unwrap();
    assert_eq!((given.metadata.len(), copy.metadata.len()), (0, 1));
}

#[test]
fn malformed_fields_are_named() {
    let first = |bytes: &'static [u8]| Reader::new(&Bytes::from_static(bytes)).next().map(|_| ());
    assert_eq!(first(&[0x0A, 0x05, 1]), Err(DecodeError::Truncated));
    assert_eq!(first(&[0x0B]), Err(DecodeError::Malformed("an unknown wire type")));
    assert_eq!(first(&[0x02, 0x00]), Err(DecodeError::Malformed("a field with the number 0")));
    let long = &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
    assert_eq!(first(long), Err(DecodeError::Malformed("a number of more than 64 bits")));
}
